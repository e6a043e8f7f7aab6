"""A certificate that replicas share: a Secret holds the pair, and clients are to trust that one.

::

    the Secret has no pair, or one that ends soon ──▶ a new one is made and written; who else does
                                                      so at the same time loses, and takes that one
    a pair that is new to us ──▶ clients are told to trust it ──▶ it is served

Another replica serves the one of before until its next look. The Secret is there already: who may
change it by its name may not make one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from engine.clock import Clock
from engine.kube.errors import Conflict
from engine.kube.session import MERGE_PATCH, KubeClient, segment
from engine.objects import Identity
from engine.serving.certificates import Served, Sleep, lasts, repeated

if TYPE_CHECKING:
    from engine.serving.selfmade import SelfMade

_LOG = logging.getLogger(__name__)


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
    """Keeps a TLS context in line with it; until it was read nobody trusts what is served.

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
