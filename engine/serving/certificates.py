"""The server's certificate: from files that others renew, made by ourselves, or of a Secret.

All are looked at again and again, and whose certificates clients may show with them: what is new
serves every connection made from then on. A file that cannot be read, or a certificate that ended,
leaves the one in force and is told once.

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
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from engine.clock import Clock
from engine.kube.client import MERGE_PATCH, KubeClient, segment
from engine.kube.errors import Conflict, KubeError
from engine.objects import Identity
from engine.tls import certificates_in, load_pair

if TYPE_CHECKING:
    from engine.serving.selfmade import SelfMade

_LOG = logging.getLogger(__name__)

_RENEW_BEFORE: Final = timedelta(days=120)
_LOOK_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 2.0
_PAIR: Final = "berth"

Sleep = Callable[[float], Awaitable[None]]


class CertificateError(Exception):
    """There is no certificate that can be used; the message says why."""


class CertificateFiles(msgspec.Struct, frozen=True):
    """Where the certificate is, or is to be: two files, or a folder for one of our own.

    With neither it is made anew at each start and kept nowhere. Without files there has to be
    who makes it; of files he reads when they end.
    """

    certificate: str = ""
    key: str = ""
    folder: str = ""
    maker: SelfMade | None = None


class Served:
    """The TLS context of a server for its connections to come.

    It is made anew each time: loaded again, it would keep a certificate whose key is of another
    kind, go on trusting whom it trusted, and take up sessions of those whom it trusts no more.
    """

    def __init__(self, min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._min_version = min_version

    def put(self, certificate: bytes, key: bytes, clients: str = "") -> None:
        """A pair (PEM), and a file with whom to trust where clients are to show a certificate.

        Raises:
            OSError: it cannot be used, and what is served stays.
        """
        new = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        new.minimum_version = self._min_version
        load_pair(new, certificate, key)
        if clients:
            new.load_verify_locations(clients)
            # Who shows a wrong one is not spoken to.
            new.verify_mode = ssl.CERT_OPTIONAL
            # A session that is taken up again is not verified anew.
            new.options |= ssl.OP_NO_TICKET
            new.num_tickets = 0
        self.context = new


class Certificates:
    """Keeps a TLS context in line with what is in files, or made by ourselves."""

    def __init__(
        self,
        files: CertificateFiles,
        clock: Clock,
        *,
        host: str,
        min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        clients: str = "",
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Loads or makes the first one.

        `clients` is a file with whose certificates clients may show, empty if none are asked for.

        Raises:
            CertificateError: there is none, and none can be made.
        """
        self._clock = clock
        self._sleep = sleep
        self._host = host
        self._clients = clients
        self._maker = files.maker
        self._certificate, self._key = _places(files)
        self._is_ours = not files.certificate
        if self._is_ours and files.maker is None:
            raise CertificateError("there is no certificate, and none can be made")
        self._kept = bool(self._certificate.name)
        self.served = Served(min_version)
        self._until = datetime.fromtimestamp(0, UTC)
        self._made = b"", b""
        self._serving: tuple[bytes, ...] = ()
        try:
            self._renew()
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"the server's certificate cannot be used: {_why(error)}"
            ) from error

    async def run(self) -> None:
        """Looks for a new certificate until cancelled."""

        async def look() -> None:
            self._renew()
            if self._until <= self._now():
                raise ValueError(f"{self._ended(self._until)}: replace it")

        await repeated("the certificate was not renewed", look, self._sleep)

    def _renew(self) -> None:
        """Loads what has changed; makes a new one in time if it is ours.

        Raises:
            OSError, ValueError: the files cannot be read, or hold no pair that is good.
        """
        now = self._now()
        if self._is_ours and self._maker is not None and self._until - now < _RENEW_BEFORE:
            self._make(self._maker, now)
        try:
            clients = certificates_in(Path(self._clients)) if self._clients else b""
        except OSError as error:
            raise OSError(f"--client-ca-file: {_why(error)}") from error
        pair, until = self._made, self._until
        if self._kept:
            pair = self._certificate.read_bytes(), self._key.read_bytes()
            until = self._good_until(pair[0])
        if (*pair, clients) == self._serving:
            return
        if until <= now < self._until:
            raise ValueError(self._ended(until))
        try:
            self.served.put(*pair, self._clients)
        except OSError as error:
            where = f"{self._certificate}, {self._key}: " if self._kept else ""
            raise OSError(f"{where}{_why(error)}") from error
        self._serving, self._until = (*pair, clients), until

    def _make(self, maker: SelfMade, now: datetime) -> None:
        with contextlib.suppress(OSError):
            if self._kept and lasts(
                maker, self._certificate.read_bytes(), self._key.read_bytes(), now
            ):
                return  # the folder holds one already
        certificate, key, until = maker.make(self._host, now)
        self._made = certificate, key
        if self._kept:
            self._certificate.parent.mkdir(parents=True, exist_ok=True)
            _write(self._key, key)
            _write(self._certificate, certificate)
        self._until = until
        _LOG.info('Made a certificate for="%s" until="%s"', self._host, until.date())

    def _good_until(self, certificate: bytes) -> datetime:
        """Until when it is good; what only OpenSSL can read is not known to end."""
        with contextlib.suppress(ValueError):
            if self._maker is not None:
                return self._maker.good_until(certificate)
        return datetime.max.replace(tzinfo=UTC)

    def _ended(self, until: datetime) -> str:
        return f"{self._certificate}: it expired on {until.date()}"

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time(), UTC)


def lasts(maker: SelfMade, certificate: bytes, key: bytes, now: datetime) -> bool:
    """Whether it is a pair (PEM) that will be good for long enough."""
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
        return maker.good_until(certificate) - now >= _RENEW_BEFORE
    except (ValueError, OSError):
        return False


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


class Pair(msgspec.Struct, frozen=True, rename={"certificate": "tls.crt", "key": "tls.key"}):
    """A certificate and its key (PEM), and for whom it is, as `data` of a Secret has it."""

    certificate: bytes = b""
    key: bytes = b""
    host: bytes = b""


class _Secret(msgspec.Struct):
    metadata: Identity
    data: msgspec.Raw = msgspec.Raw(b"{}")


_secret = msgspec.json.Decoder(_Secret)
_pair = msgspec.json.Decoder(Pair)


@dataclass(eq=False)
class SharedPair:
    """A certificate that replicas share: a Secret has the pair, and clients are to trust that one.

    ::

        the Secret has no pair, or one that ends soon ──▶ a new one is made and written; who else
                                     does so at the same time loses, and takes that one
        a pair that is new to us ──▶ clients are told to trust it ──▶ it is served

    Another replica serves the one of before until its next look. The Secret is there already: who
    may change it by its name may not make one. Until it was read nobody trusts what is served.

    `secret` is its namespace and name; `trust` has clients trust a certificate (PEM), and `host`
    is the name that they know us by.
    """

    client: KubeClient
    secret: tuple[str, str]
    maker: SelfMade
    trust: Callable[[bytes], Awaitable[None]]
    clock: Clock
    host: str
    sleep: Sleep = asyncio.sleep
    until: float = field(default=0.0, init=False)
    """When what is served ends, in epoch seconds; 0 before the Secret was read."""

    def __post_init__(self) -> None:
        namespace, self._name = self.secret
        self._path = f"/api/v1/namespaces/{segment(namespace)}/secrets/{segment(self._name)}"
        self.served = Served()
        certificate, key, _ = self.maker.make(self.host, self._now())
        self.served.put(certificate, key)
        self._serving = b""

    async def run(self) -> None:
        """Looks after it until cancelled."""
        await repeated("the certificate cannot be renewed or trusted", self.look, self.sleep)

    async def look(self) -> None:
        """Looks at the Secret, has its certificate trusted, and serves it.

        Raises:
            KubeError: the server could not be asked, or refuses.
        """
        pair = await self._pair()
        await self.trust(pair.certificate)
        if pair.certificate == self._serving:
            return
        self.served.put(pair.certificate, pair.key)
        self._serving = pair.certificate
        self.until = self.maker.good_until(pair.certificate).timestamp()
        _LOG.info('Serving the certificate of a Secret secret="%s"', self._name)

    async def _pair(self) -> Pair:
        answer = await self.client.request("GET", self._path)
        secret = answer.decoded(_secret.decode, f"Secret {self._name}")
        try:
            pair = _pair.decode(secret.data)
        except msgspec.DecodeError:
            pair = Pair()
        good = lasts(self.maker, pair.certificate, pair.key, self._now())
        good = good and pair.host == self.host.encode()
        return pair if good else await self._made(secret.metadata)

    async def _made(self, meta: Identity) -> Pair:
        certificate, key, until = self.maker.make(self.host, self._now())
        new = Pair(certificate, key, self.host.encode())
        body = {"metadata": {"resourceVersion": meta.resource_version}, "data": new}
        answer = await self.client.request(
            "PATCH", self._path, body=msgspec.json.encode(body), content_type=MERGE_PATCH
        )
        try:
            answer.checked()
        except Conflict:
            return await self._pair()
        _LOG.info('Made a certificate for="%s" until="%s"', self.host, until.date())
        return new

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.time(), UTC)
