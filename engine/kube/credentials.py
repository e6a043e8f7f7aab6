"""Kubeconfigs as the official client reads them, but for programs that give credentials.

Such a program ends in time and says no more than it must, or there are no credentials: never does
anything here go on as nobody. Also here: which addresses are none, and through which proxy a server
is reached, by the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import (
    ConfigNode,
    FileOrData,
    KubeConfigLoader,
    KubeConfigMerger,
)

from engine.configuration.forms import is_address
from engine.kube.errors import KubeconfigError
from engine.text import wire
from engine.text.display import cause, nearest, one_line, without_user

_SAID: Final = 300
_CERTIFICATES: Final = frozenset(
    {"client-certificate", "client-certificate-data", "client-key", "client-key-data"}
)
_TOLD: Final = frozenset(
    {"server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression"}
)
_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""What a cluster has for such a program, as client-go calls it."""
_PROGRAM_SECONDS: Final = 30.0
_PROGRAM_BYTES: Final = 1 << 20
_CLOSE_SECONDS: Final = 1.0


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: _Status


_credential = msgspec.json.Decoder(_ExecCredential)


class Loader(KubeConfigLoader):  # type: ignore[misc]  # the client has no types
    """The official client's loader; a program is asked anew each time that credentials are read."""

    _user: Any

    def __init__(self, kubeconfig: str | Mapping[str, object], context: str | None = None) -> None:
        try:
            read = (
                KubeConfigMerger(kubeconfig).config
                if isinstance(kubeconfig, str)
                else dict(kubeconfig)
            )
        except (TypeError, AttributeError) as error:
            raise ConfigException(
                "it is not a kubeconfig with clusters, users and contexts"
            ) from error
        super().__init__(config_dict=read, active_context=context, config_base_path=None)
        if self._user is None:
            if named := self._current_context["context"].safe_get("user"):
                raise ConfigException(f"the context names user {named!r}, which does not exist")
            self._user = ConfigNode("user", {})
        folder = self._get_base_path(self._user.path)
        # A file with a token wins. Source: client-go transport/round_trippers.go
        with suppress(OSError, ValueError, TypeError):
            file = Path(folder, self._user.safe_get("tokenFile") or "")
            if file.is_file() and file.read_text().strip():
                kept = {key: one for key, one in self._user.value.items() if key != "token"}
                self._user = ConfigNode("user", kept, self._user.path)

    def set_active_context(self, context_name: str | None = None) -> None:
        """See the client's own, which says of a name that is not there that the file is wrong.

        Raises:
            ConfigException: there is no such context.
        """
        contexts = self._config["contexts"]
        if context_name and contexts.get_with_name(context_name, safe=True) is None:
            near = nearest(context_name, [str(one["name"]) for one in contexts.value])
            raise ConfigException(f"context {context_name!r} does not exist{near}")
        super().set_active_context(context_name or None)

    async def load_and_set(self, client_configuration: object) -> None:
        """See the client's own.

        Raises:
            ConfigException: what is there is no credential.
        """
        await super().load_and_set(client_configuration)
        certificate, key = getattr(self, "cert_file", None), getattr(self, "key_file", None)
        if bool(certificate) != bool(key):
            raise ConfigException("a client certificate and its key belong together")
        fields = sorted(self._user.value or ())
        if another := [one for one in fields if one == "as" or one.startswith("as-")]:
            raise ConfigException(
                f"its user has {', '.join(another)}, but Berth does not impersonate: give it the"
                " credentials of the user that it is to be"
            )
        given = [one for one in fields if one not in {*_CERTIFICATES, "extensions"}]
        if given and not certificate and not getattr(self, "token", None):
            raise ConfigException(
                f"its user has {', '.join(given)}, which gives no credentials: write token,"
                " tokenFile, client-certificate with client-key, or exec"
            )

    async def load_from_exec_plugin(self) -> bool:
        """Runs the program of the kubeconfig; the client's own goes on without credentials.

        Raises:
            ConfigException: it gave none.
        """
        config: dict[str, Any] = {**self._user["exec"].value}
        try:
            if "/" in str(config.get("command")):
                config["command"] = _from(self._get_base_path(self._user.path), config["command"])
            about = self._about_cluster() if config.get("provideClusterInfo") else {}
            status = await _run(config, about)
        except (OSError, ValueError, TypeError, KeyError, msgspec.DecodeError) as error:
            command = one_line(str(config.get("command")), _SAID)
            hint = config.get("installHint") if isinstance(error, FileNotFoundError) else None
            said = f"{cause(error, _SAID)}{f'; {one_line(str(hint))}' if hint else ''}"
            raise ConfigException(f"exec {command}: {said}") from error
        if status.token:
            self.token = f"Bearer {status.token}"
        else:
            data = {"cert": status.client_certificate_data, "key": status.client_key_data}
            self.cert_file, self.key_file = (
                FileOrData(
                    data, None, data_key_name=name, file_base_path="", base64_file_content=False
                ).as_file()
                for name in data
            )
        return True

    def _about_cluster(self) -> dict[str, object]:
        """What a program is told of the cluster, if it asks (`provideClusterInfo`).

        Source: client-go tools/clientcmd/client_config.go, ConvertClusterToExecCluster.
        """
        cluster: Mapping[str, Any] = self._cluster.value
        told = {key: value for key, value in cluster.items() if key in _TOLD}
        authority = FileOrData(
            self._cluster,
            "certificate-authority",
            file_base_path=self._get_base_path(self._cluster.path),
        ).as_data()
        if authority:
            told["certificate-authority-data"] = authority
        for one in cluster.get("extensions") or ():
            if one["name"] == _EXTENSION:
                told["config"] = one["extension"]
        return {"cluster": told}


def _from(folder: str, command: str) -> str:
    return str(Path(folder, command).absolute())


async def _run(config: Mapping[str, Any], about: Mapping[str, object]) -> _Status:
    """What the program gives.

    Raises:
        OSError, ValueError, TypeError, KeyError, msgspec.DecodeError: nothing of use.
    """
    for field in ("apiVersion", "command"):
        if not config.get(field):
            raise ValueError(f"its {field} is missing")
    version = config["apiVersion"]
    spec = {"interactive": False, **about}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    given = {one["name"]: one["value"] for one in config.get("env") or ()}
    program = await asyncio.create_subprocess_exec(
        config["command"],
        *(config.get("args") or ()),
        env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    try:
        async with asyncio.timeout(_PROGRAM_SECONDS):
            output, said = await asyncio.gather(
                _read(program, program.stdout), _read(program, program.stderr)
            )
            code = await program.wait()
    except TimeoutError:
        raise ValueError(f"it did not exit within {_PROGRAM_SECONDS:g} s") from None
    finally:
        _kill(program)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await program.communicate()
    if max(len(output), len(said)) > _PROGRAM_BYTES:
        raise ValueError(f"its output is longer than {_PROGRAM_BYTES} bytes")
    if code:
        raise ValueError(f"it exited with {code}: {said.decode('utf-8', 'replace')}")
    found = wire.decode(_credential.decode, output)
    if found.api_version != version:
        raise ValueError(f"its output is of {found.api_version}, not {version}")
    status = found.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ValueError("its output has neither a token nor a certificate with its key")
    return status


async def _read(program: asyncio.subprocess.Process, pipe: asyncio.StreamReader) -> bytes:
    """What it says; a little more than the bound if it was ended for saying too much."""
    data = bytearray()
    while chunk := await pipe.read(65_536):
        if len(data) <= _PROGRAM_BYTES:
            data += chunk
        else:
            _kill(program)
    return bytes(data)


def _kill(program: asyncio.subprocess.Process) -> None:
    """Ends it, and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


# ---- addresses


def check_url(url: str, what: str) -> None:
    """Demands an http or https address.

    Raises:
        KubeconfigError: it is none; `what` begins the text.
    """
    if not is_address(url):
        raise KubeconfigError(f"{what} {without_user(url)!r} is not an http or https address")


def proxy_to(server: str, configured: str | None) -> str | None:
    """The proxy for `server`: the configured one, else the environment's. Asked for once.

    The environment's is never asked for loopback, or it would be given the token.
    Source: Go's net/http, ProxyFromEnvironment.

    Raises:
        KubeconfigError: that of the environment is no address.
    """
    if configured:
        return configured
    parts = urlsplit(server)
    host = parts.hostname or ""
    if _is_loopback(host):
        return None
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme)
    if not found or urllib.request.proxy_bypass(host_of(server)) or _is_excepted(host, proxies):
        return None
    found = found if "://" in found else f"http://{found.lstrip('/')}"
    check_url(found, f"{parts.scheme}_proxy:")
    return found


def host_of(url: str) -> str:
    """Host and port as they stand in an address, without the user."""
    return urlsplit(url).netloc.rpartition("@")[-1]


def _is_excepted(host: str, proxies: Mapping[str, str]) -> bool:
    """Whether a network or a `*.domain` of NO_PROXY has it, which Python does not look at."""
    for one in map(str.strip, proxies.get("no", "").split(",")):
        if one.startswith("*.") and host.endswith(one[1:].lower()):
            return True
        with suppress(ValueError):
            if ip_address(host) in ip_network(one, strict=False):
                return True
    return False


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
