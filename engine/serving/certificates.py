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
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from engine.clock import Clock

_LOG = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 30.0
_VALID: Final = timedelta(days=365)
_RENEW_BEFORE: Final = _VALID / 3
_BEFORE: Final = timedelta(hours=1)
"""Clocks differ: a certificate is good a little before it is made."""
_PAIR: Final = "berth"


class CertificateError(Exception):
    """There is no certificate that can be used; the message says why."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the certificate is, or is to be: two files, or a folder for one of our own.

    With neither it is made anew at each start and kept nowhere.
    """

    certificate: str = ""
    key: str = ""
    folder: str = ""


class Certificates:
    """Keeps a TLS context in line with its certificate; run `run` as a task."""

    def __init__(
        self,
        files: CertificateFiles,
        clock: Clock,
        *,
        host: str,
        min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Loads or makes the first one.

        Raises:
            CertificateError: there is none, and none can be made.
        """
        self._clock = clock
        self._sleep = sleep
        self._host = host
        self._given = bool(files.certificate)
        self._certificate, self._key = _places(files)
        self._kept = bool(self._certificate.name)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = min_version
        self._until = datetime.fromtimestamp(0, UTC)
        self._stamp: tuple[float, ...] = ()
        self._told = ""
        try:
            self._renew()
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"the server's certificate cannot be used: {_why(error)}"
            ) from error

    async def run(self) -> None:
        """Looks for a new certificate until cancelled."""
        while True:
            await self._sleep(_LOOK_SECONDS)
            try:
                self._renew()
            except (OSError, ValueError) as error:
                why = _why(error)
                if why != self._told:
                    _LOG.warning("the certificate in force stays: %s", why)
                self._told = why
            else:
                self._told = ""

    def _renew(self) -> None:
        """Loads what has changed; makes a new one in time if it is ours.

        Raises:
            OSError, ValueError: the files cannot be read, or hold no pair.
        """
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        if not self._given and self._until - now < _RENEW_BEFORE:
            self._make(now)
        if self._kept and (stamp := self._changed_at()) != self._stamp:
            self._load(self._certificate, self._key)
            self._stamp = stamp

    def _make(self, now: datetime) -> None:
        if self._kept and self._usable(now):
            return
        certificate, key, until = made(self._host, now)
        if not self._kept:
            with tempfile.TemporaryDirectory() as folder:
                at = Path(folder)
                _write(at / "tls.crt", certificate)
                _write(at / "tls.key", key)
                self._load(at / "tls.crt", at / "tls.key")
        else:
            self._certificate.parent.mkdir(parents=True, exist_ok=True)
            _write(self._key, key)
            _write(self._certificate, certificate)
        self._until = until
        _LOG.info('Made a certificate for="%s" until="%s"', self._host, until.date())

    def _usable(self, now: datetime) -> bool:
        """Whether the folder holds one already, that will be good for long enough."""
        with contextlib.suppress(OSError, ValueError):
            found = x509.load_pem_x509_certificate(self._certificate.read_bytes())
            if found.not_valid_after_utc - now >= _RENEW_BEFORE and self._key.exists():
                self._until = found.not_valid_after_utc
                return True
        return False

    def _changed_at(self) -> tuple[float, ...]:
        # Through symbolic links: a mounted Secret is swapped by one.
        return tuple(
            stamp
            for path in (self._certificate, self._key)
            for stamp in (path.stat().st_mtime_ns, path.stat().st_ino)
        )

    def _load(self, certificate: Path, key: Path) -> None:
        # Tried apart: a pair that does not match would leave the context with half of it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        self.context.load_cert_chain(certificate, key)


def made(host: str, now: datetime) -> tuple[bytes, bytes, datetime]:
    """A certificate for a host signed by its own key, the key, and until when it is good."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"{host[:40]}@{int(now.timestamp())}")]
    )
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ip_address("::1"))]
    names.append(x509.IPAddress(ip_address("127.0.0.1")))
    with contextlib.suppress(ValueError):
        names.append(x509.DNSName(host))
    until = now + _VALID
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return (
        certificate.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        until,
    )


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
