"""What can go wrong with the API server, as one tree; every text is a single line for a user.

Nothing here retries. The tree::

    KubeError
    ├── KubeconfigError   kubeconfig or service account cannot be used
    ├── Unreachable       no connection: surely nothing was sent
    ├── Fenced            we do not lead: nothing was sent
    ├── Interrupted       the connection broke after something may have been sent
    │   └── Timeout       ... because the server did not answer in time
    ├── Unreadable        an answer that is not what the API promises
    └── StatusError       the server answered with an error status
        ├── NotFound          404
        ├── Conflict          409
        ├── Expired           410, also as an ERROR event of a watch
        └── TooManyRequests   429

`Unreachable` against `Interrupted` is the difference that matters to writers: after the first a
write surely did not happen, after the second it may have.
"""

# ruff: noqa: N818 - the names say what happened, as httpx's do; the base says that it is an error

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.text import wire
from engine.text.display import one_line

_SNIPPET = 200
_NOT_FOUND, _CONFLICT, _GONE, _TOO_MANY = 404, 409, 410, 429
_UNAUTHORIZED = 401
_SERVER_ERRORS = 500
_RETRY_AFTER_LIMIT_SECONDS = 30.0
"""Who asks for more is asked again all the same: nobody may put us to sleep for good."""


class KubeError(Exception):
    """Anything that went wrong between us and the API server."""


class KubeconfigError(KubeError):
    """The kubeconfig or the service account cannot be used."""


class Unreachable(KubeError):
    """No connection could be made; nothing was sent."""


class Fenced(KubeError):
    """Another replica may lead by now, so nothing was sent."""


class Interrupted(KubeError):
    """The connection broke; the request may or may not have been carried out."""


class Timeout(Interrupted):
    """The server did not answer in time; the request may or may not have been carried out."""


class LeaseLost(Exception):
    """Another replica leads, or may: nothing may be written any more, and the process must end."""


class Unreadable(KubeError):
    """The answer is not what the API promises."""


class StatusError(KubeError):
    """The server answered with an error status.

    `code` is the HTTP code, `reason` Kubernetes' word for it, `retry_after_seconds` what the server
    asked for, None if it did not.
    """

    def __init__(
        self, code: int, reason: str, message: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds

    @property
    def may_pass(self) -> bool:
        """Whether the same request may be answered well later."""
        return self.server_fault or self.code in (_UNAUTHORIZED, _TOO_MANY)

    @property
    def server_fault(self) -> bool:
        """True for 5xx: a write may have been carried out all the same."""
        return self.code >= _SERVER_ERRORS


class NotFound(StatusError):
    """There is no such object, or no such kind of object."""

    @property
    def of_object(self) -> bool:
        """Whether an API server says it of an object: it gives a reason then, and others do not."""
        return bool(self.reason)

    @property
    def may_pass(self) -> bool:
        """Whether something else answers in the place of the API server."""
        return not self.of_object


class Conflict(StatusError):
    """The object is not in the state that the request takes for granted."""


class Expired(StatusError):
    """The server no longer knows that resourceVersion."""


class TooManyRequests(StatusError):
    """The server asks to slow down; it did nothing."""


_KINDS: Mapping[int, type[StatusError]] = {
    _NOT_FOUND: NotFound,
    _CONFLICT: Conflict,
    _GONE: Expired,
    _TOO_MANY: TooManyRequests,
}


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct, rename="camel"):
    """`meta/v1 Status`, as far as it is read."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


_status = msgspec.json.Decoder(_Status)


def status_error(code: int, body: bytes, headers: Mapping[str, str] | None = None) -> StatusError:
    """The error of an answer: `body` is a Status where the server is well, anything otherwise.

    `code` 0 means "as the Status says", for ERROR events. Never raises.
    """
    try:
        status = wire.decode(_status.decode, body)
    except msgspec.DecodeError:
        status = _Status(message=body[:_SNIPPET].decode("utf-8", "replace"))
    code = code or status.code or 0
    retry_after = _retry_after(headers or {}, status.details)
    kind = _KINDS.get(code, StatusError)
    message = one_line(status.message or "") or "no text"
    if (code, message) == (_UNAUTHORIZED, status.reason):
        message = "the credentials are not accepted: expired, or those of another cluster?"
    return kind(code, one_line(status.reason or "", _SNIPPET), message, retry_after)


def _retry_after(headers: Mapping[str, str], details: _Details | None) -> float | None:
    """Seconds from the header (a date there is ignored) or from the Status."""
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        seconds = float(text)
    elif details is not None and details.retry_after_seconds:
        seconds = details.retry_after_seconds
    else:
        return None
    return min(max(seconds, 0.0), _RETRY_AFTER_LIMIT_SECONDS)
