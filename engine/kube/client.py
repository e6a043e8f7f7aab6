"""What is asked of the API server, and what it answers.

The seam at which the gate and the fake servers of tests stand for `Session`; moves no bytes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, Protocol, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from engine.kube.errors import StatusError, Unreadable, status_error
from engine.text import wire
from engine.text.display import one_line

T = TypeVar("T")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

OK: Final = range(200, 300)
_SHOWN: Final = 200
_PLAIN = re.compile(r"[a-z0-9.-]+")


class Response(msgspec.Struct, frozen=True):
    """An answer, whatever its status.

    Names of headers are in lower case; nobody reads any of a good answer (2xx) to a write, which
    has none.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return self.status in OK

    def error(self) -> StatusError:
        """The error that a status other than 2xx means."""
        return status_error(self.status, self.body, self.headers)

    def decoded(self, decoder: Callable[[bytes], T], what: str) -> T:
        """What a decoder makes of a good answer; `what` it is of.

        Raises:
            StatusError: the status is not 2xx.
            Unreadable: the answer cannot be decoded.
        """
        try:
            return wire.decode(decoder, self.checked().body)
        except (msgspec.DecodeError, Unreadable) as error:
            raise Unreadable(f"{what}: {error}") from error

    def checked(self) -> Response:
        """Itself.

        Raises:
            StatusError: the status is not 2xx.
            Unreadable: it is of another that answers in the server's place, as a proxy does with a
                page to log in: all good answers of the server hold an object.
        """
        if not self.ok:
            raise self.error()
        if not self.body.lstrip().startswith(b"{"):
            text = one_line(self.body[:_SHOWN].decode("utf-8", "replace"))
            raise Unreadable(f"{self.status}, but no object in JSON: {text}")
        return self


MayLeave = Callable[[], bool]


class RequestOptions(TypedDict, total=False):
    """What a request may say beside its method and its path."""

    params: Mapping[str, str] | None
    body: bytes | None
    content_type: str
    """Of the body; JSON if nothing is said."""
    timeout_seconds: float
    """Bounds each silence, four times it the whole."""
    may_leave: MayLeave | None
    """Asked when the body is about to leave, after every wait for a connection."""


class Requests(Protocol):
    """Asks the API server, itself or through the gate."""

    async def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Response:
        """One request.

        Raises:
            Unreachable: surely nothing was sent.
            Fenced: nothing was sent, for it might not leave.
            Interrupted: it may have been carried out (Timeout among it).
        """
        ...


class KubeClient(Requests, Protocol):
    """The seam at which tests put a fake API server; `Session` is the real one."""

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, read_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """A GET whose answer does not end: an empty chunk once the server has accepted, then data.

        Close it (`contextlib.aclosing`) to drop the connection.

        Raises:
            StatusError: the server refused.
            Unreachable, Interrupted: as in `request`; Timeout after a silence of that length.
        """
        ...


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")
