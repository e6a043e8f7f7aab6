"""The server's certificate: from files that others renew, or made by ourselves.

Both are looked at again and again: what is new serves every connection made from then on. A file
that cannot be read leaves the certificate in force and is told once.

Source: k8s.io/apiserver pkg/server/options/serving.go (MaybeDefaultWithSelfSignedCerts),
dynamiccertificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.channels import load_pair
from engine.clock import Clock
from engine.kube.errors import KubeError

if TYPE_CHECKING:
    from engine.serving.selfmade import SelfMade

_LOG = logging.getLogger(__name__)

RENEW_BEFORE: Final = timedelta(days=120)
_LOOK_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 2.0
_PAIR: Final = "berth"

Sleep = Callable[[float], Awaitable[None]]


class CertificateError(Exception):
    """There is no certificate that can be used; the message says why."""


class CertificateFiles(msgspec.Struct, frozen=True):
    """Where the certificate is, or is to be: two files, or a folder for one of our own.

    With neither it is made anew at each start and kept nowhere. Without files there has to be
    who makes it: he is loaded where he is needed only.
    """

    certificate: str = ""
    key: str = ""
    folder: str = ""
    maker: SelfMade | None = None


class Certificates:
    """Keeps a TLS context in line with what is in files, or made by ourselves."""

    def __init__(
        self,
        files: CertificateFiles,
        clock: Clock,
        *,
        host: str,
        min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Loads or makes the first one.

        Raises:
            CertificateError: there is none, and none can be made.
        """
        self._clock = clock
        self._sleep = sleep
        self._host = host
        self._maker = files.maker
        self._certificate, self._key = _places(files)
        if files.certificate:
            self._maker = None
        elif files.maker is None:
            raise CertificateError("there is no certificate, and nobody to make one")
        self._kept = bool(self._certificate.name)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = min_version
        self._until = datetime.fromtimestamp(0, UTC)
        self._stamp: tuple[float, ...] = ()
        try:
            self._renew()
        except (OSError, ValueError) as error:
            whole = self._kept and not getattr(error, "filename", None)
            of = f"{self._certificate}, {self._key}: " if whole else ""
            raise CertificateError(
                f"the server's certificate cannot be used: {of}{_why(error)}"
            ) from error

    async def run(self) -> None:
        """Looks for a new certificate until cancelled."""

        async def look() -> None:
            self._renew()

        await repeated("the certificate in force stays", look, self._sleep)

    def _renew(self) -> None:
        """Loads what has changed; makes a new one in time if it is ours.

        Raises:
            OSError, ValueError: the files cannot be read, or hold no pair.
        """
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        if self._maker is not None and self._until - now < RENEW_BEFORE:
            self._make(self._maker, now)
        if self._kept and (stamp := self._changed_at()) != self._stamp:
            load_pair(self.context, self._certificate.read_bytes(), self._key.read_bytes())
            self._stamp = stamp

    def _make(self, maker: SelfMade, now: datetime) -> None:
        if self._kept and self._usable(maker, now):
            return
        certificate, key, until = maker.make(self._host, now)
        if not self._kept:
            load_pair(self.context, certificate, key)
        else:
            self._certificate.parent.mkdir(parents=True, exist_ok=True)
            _write(self._key, key)
            _write(self._certificate, certificate)
        self._until = until
        _LOG.info('Made a certificate for="%s" until="%s"', self._host, until.date())

    def _usable(self, maker: SelfMade, now: datetime) -> bool:
        """Whether the folder holds one already, that will be good for long enough."""
        with contextlib.suppress(OSError, ValueError):
            until = maker.good_until(self._certificate.read_bytes())
            if until - now >= RENEW_BEFORE and self._key.exists():
                self._until = until
                return True
        return False

    def _changed_at(self) -> tuple[float, ...]:
        # Through symbolic links: a mounted Secret is swapped by one.
        return tuple(
            stamp
            for path in (self._certificate, self._key)
            for stamp in (path.stat().st_mtime_ns, path.stat().st_ino)
        )


async def repeated(trouble: str, do: Callable[[], Coroutine[Any, Any, None]], sleep: Sleep) -> None:
    """Does it every so often until cancelled, sooner after it failed; tells why once."""
    told = ""
    while True:
        try:
            await do()
        except (KubeError, OSError, ValueError) as failed:
            why = "; ".join((_why(failed), *getattr(failed, "__notes__", ())))
            if why != told:
                _LOG.warning("%s: %s", trouble, why)
            told = why
            await sleep(_AGAIN_SECONDS)
        else:
            told = ""
            await sleep(_LOOK_SECONDS)


def _places(files: CertificateFiles) -> tuple[Path, Path]:
    if bool(files.certificate) != bool(files.key):
        raise CertificateError("--tls-cert-file and --tls-private-key-file belong together")
    if files.certificate:
        return Path(files.certificate), Path(files.key)
    if files.folder:
        return Path(files.folder) / f"{_PAIR}.crt", Path(files.folder) / f"{_PAIR}.key"
    return Path(), Path()


def _write(path: Path, content: bytes) -> None:
    """Replaces a file at once; only we may read it."""
    half = path.with_name(f".{path.name}.new")
    with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:  # noqa: PTH123 - a descriptor
        out.write(content)
    half.replace(path)


def _why(error: Exception) -> str:
    name = getattr(error, "filename", None)
    what = getattr(error, "strerror", None) or str(error)
    return f"{name}: {what}" if name else what
