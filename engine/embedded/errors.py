"""Refusals of the API as values the wire understands: Kubernetes `Status` objects.

Codes and reasons are kube-apiserver's, and of its words those that Berth and kubectl rely on.
"""

from __future__ import annotations

from typing import Any, Final

Object = dict[str, Any]
_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    504: "Timeout",
}


class ApiError(Exception):
    """A request that the API refuses; `status()` is the body of the answer."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        """The reason is the usual one of the code, unless it is given."""
        super().__init__(message)
        self.code = code
        self.reason = reason or _REASONS.get(code, "")

    def status(self) -> Object:
        """The `Status` object of this refusal."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "code": self.code,
        }
        return status | ({"reason": self.reason} if self.reason else {})


def not_found(title: str, name: str) -> ApiError:
    """There is no such object; `title` is a resource with its group."""
    return ApiError(404, f'{title} "{name}" not found')


def no_such_resource() -> ApiError:
    """There is no such kind of object or sub-resource."""
    return ApiError(404, "the server could not find the requested resource")


def not_allowed() -> ApiError:
    """This verb does not go with this path."""
    return ApiError(405, "the server does not allow this method on the requested resource")


def conflict(title: str, name: str, why: str) -> ApiError:
    """A precondition of a write does not hold."""
    return ApiError(409, f'Operation cannot be fulfilled on {title} "{name}": {why}')


def invalid(kind: str, name: str, why: str) -> ApiError:
    """The object says something that it may not; `why` begins with the field."""
    return ApiError(422, f'{kind} "{name}" is invalid: {why}')
