"""Who may read what: asked of the API server, as kube-scheduler does.

A token is given to a TokenReview, and the user it is of to a SubjectAccessReview about the path.
Answers are kept for some seconds, as many as a scraper asks again in, and few questions are under
way at a time, whoever sends how many tokens. What cannot be asked is not allowed.

Source: k8s.io/apiserver pkg/authentication/authenticatorfactory and
pkg/authorization/authorizerfactory (delegating).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from cachetools import TTLCache

from engine.clock import Clock
from engine.kube.client import KubeClient
from engine.kube.errors import KubeError, StatusError

_LOG = logging.getLogger(__name__)

_KEPT_SECONDS: Final = 10.0
_KEPT: Final = 2048
_AT_ONCE: Final = 8
_FORBIDDEN: Final = 403
_TIMEOUT_SECONDS: Final = 10.0
_LONGEST_TOKEN: Final = 64 * 1024
_MASTERS: Final = "system:masters"
_REVIEWS: Final = {
    "TokenReview": "authentication.k8s.io",
    "SubjectAccessReview": "authorization.k8s.io",
}


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asks, as a TokenReview says."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = _Status()


_review = msgspec.json.Decoder(_Review)


class Access:
    """Asks the API server and remembers."""

    def __init__(self, clock: Clock, always: tuple[str, ...]) -> None:
        """`always` are paths that everybody may read; one that ends in `*` stands for all below."""
        self._always = always
        self._client: KubeClient | None = None
        self._away: Callable[[], bool] = lambda: False
        self._kept: TTLCache[tuple[str, bytes], _Status] = TTLCache(
            _KEPT, _KEPT_SECONDS, timer=clock.monotonic
        )
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._said = ""

    def ask(self, client: KubeClient, away: Callable[[], bool] = lambda: False) -> None:
        """Whom to ask, from now on; nobody while it is away: a lost server is not hammered."""
        self._client = client
        self._away = away

    async def refusal(self, method: str, path: str, authorization: str) -> tuple[int, str] | None:
        """None if the request may be answered; else the HTTP status and a line."""
        for one in self._always:
            if path.startswith(one[:-1]) if one.endswith("*") else path == one:
                return None
        try:
            user = await self._user(authorization)
            if user is None:
                return 401, "Unauthorized"
            if _MASTERS in user.groups:
                return None
            spec = {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups,
                "extra": user.extra,
                "nonResourceAttributes": {"path": path, "verb": method.lower()},
            }
            if (await self._reviewed("SubjectAccessReview", spec)).allowed:
                return None
        except KubeError as error:
            self._tell(error)
            return 503, "the API server cannot be asked whether you may read this"
        return 403, f'Forbidden: user "{user.username}" cannot {method.lower()} {path}'

    async def _user(self, authorization: str) -> User | None:
        """Who asks; None: a token that is good for nobody."""
        if not authorization:
            return ANONYMOUS
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            return None
        found = await self._reviewed("TokenReview", {"token": token})
        return found.user if found.authenticated else None

    async def _reviewed(self, kind: str, spec: dict[str, Any]) -> _Status:
        """What is kept, or else said by a review; who waited for a turn may find it by then."""
        key = kind, hashlib.sha256(msgspec.json.encode(spec)).digest()
        known = self._kept.get(key)
        if known is None:
            async with self._turn:
                known = self._kept.get(key)
                if known is None:
                    known = self._kept[key] = await self._ask(kind, spec)
        return known

    async def _ask(self, kind: str, spec: dict[str, Any]) -> _Status:
        if self._client is None:
            raise KubeError("not connected to a cluster yet")
        if self._away():
            raise KubeError("the API server does not answer")
        group = _REVIEWS[kind]
        review = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        answer = await self._client.request(
            "POST",
            f"/apis/{group}/v1/{kind.lower()}s",
            body=msgspec.json.encode(review),
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        return answer.decoded(_review.decode, kind).status

    def _tell(self, error: KubeError) -> None:
        """Once: a scraper asks every few seconds."""
        text = str(error)
        if text != self._said:
            forbidden = isinstance(error, StatusError) and error.code == _FORBIDDEN
            hint = "; Berth's role must allow it to create these reviews" if forbidden else ""
            _LOG.warning("reviews of who may read metrics fail: %s%s", text, hint)
        self._said = text
