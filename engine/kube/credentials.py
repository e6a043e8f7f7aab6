"""Kubeconfigs as the official client reads them, but for programs that give credentials.

Such a program ends in time and says no more than it must, or there are no credentials: never does
anything here go on as nobody.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import (
    ConfigNode,
    FileOrData,
    KubeConfigLoader,
    KubeConfigMerger,
)

from engine import wire
from engine.display import cause, one_line

_SAID: Final = 300
_CLOSE_SECONDS: Final = 1.0


class ProgramLimits(msgspec.Struct, frozen=True):
    """What a program that gives credentials may take."""

    seconds: float = 30.0
    output_bytes: int = 1024 * 1024


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

    def __init__(
        self, kubeconfig: str | Mapping[str, object], limits: ProgramLimits | None = None
    ) -> None:
        read = (
            KubeConfigMerger(kubeconfig).config if isinstance(kubeconfig, str) else dict(kubeconfig)
        )
        super().__init__(config_dict=read, config_base_path=None)
        if self._user is None:
            if named := self._current_context["context"].safe_get("user"):
                raise ConfigException(f"there is no user {named!r}, whom the context names")
            self._user = ConfigNode("user", {})
        self._limits = limits or ProgramLimits()

    async def load_and_set(self, client_configuration: object) -> None:
        """See the client's own.

        Raises:
            ConfigException: what is there is no credential.
        """
        await super().load_and_set(client_configuration)
        if bool(getattr(self, "cert_file", None)) != bool(getattr(self, "key_file", None)):
            raise ConfigException("a client certificate and its key belong together")

    async def load_from_exec_plugin(self) -> bool:
        """Runs the program of the kubeconfig; the client's own goes on without credentials.

        Raises:
            ConfigException: it gave none.
        """
        config: Mapping[str, Any] = self._user["exec"].value
        try:
            status = await _run(config, self._limits)
        except (OSError, ValueError, TypeError, KeyError, msgspec.DecodeError) as error:
            command = one_line(str(config.get("command")), _SAID)
            raise ConfigException(f"exec {command}: {cause(error, _SAID)}") from error
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


async def _run(config: Mapping[str, Any], limits: ProgramLimits) -> _Status:
    """What the program gives.

    Raises:
        OSError, ValueError, TypeError, KeyError, msgspec.DecodeError: nothing of use.
    """
    version = config["apiVersion"]
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
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
    most = limits.output_bytes
    try:
        async with asyncio.timeout(limits.seconds):
            output, said = await asyncio.gather(
                _read(program, program.stdout, most), _read(program, program.stderr, most)
            )
            code = await program.wait()
    except TimeoutError:
        raise ValueError(f"it did not end within {limits.seconds:g} s") from None
    finally:
        _kill(program)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await program.communicate()
    if max(len(output), len(said)) > most:
        raise ValueError(f"it says more than {most} bytes")
    if code:
        raise ValueError(f"it ended with {code}: {said.decode('utf-8', 'replace')}")
    found = wire.decode(_credential.decode, output)
    if found.api_version != version:
        raise ValueError(f"it speaks {found.api_version} and not {version}")
    status = found.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ValueError("it gives neither a token nor a certificate with its key")
    return status


async def _read(
    program: asyncio.subprocess.Process, pipe: asyncio.StreamReader, most: int
) -> bytes:
    """What it says; a little more than `most` if it was ended for saying too much."""
    data = bytearray()
    while chunk := await pipe.read(65_536):
        if len(data) <= most:
            data += chunk
        else:
            _kill(program)
    return bytes(data)


def _kill(program: asyncio.subprocess.Process) -> None:
    """Ends it, and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
