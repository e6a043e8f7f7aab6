"""Refusals of the API as values the wire understands: Kubernetes `Status` objects.

Words, reasons and codes are those of kube-apiserver 1.37; the contract tests compare them.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
Cause = tuple[str, str, str]
"""(field, reason, message) of one invalid field."""


class ApiError(Exception):
    """A request that the API refuses; `status()` is the body of the answer."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> Object:
        """The `Status` object of this refusal."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}


def _details(name: str, group: str, kind: str) -> Object:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def _qualified(group: str, kind: str) -> str:
    return f"{kind}.{group}" if group else kind


def not_found(group: str, plural: str, name: str) -> ApiError:
    """There is no such object."""
    message = f'{_qualified(group, plural)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(name, group, plural))


def no_such_resource() -> ApiError:
    """There is no such kind of object or sub-resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """A create met an object of that name."""
    message = f'{_qualified(group, plural)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(name, group, plural))


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """A precondition of a write does not hold."""
    message = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(name, group, plural))


def invalid(group: str, kind: str, name: str, causes: list[Cause]) -> ApiError:
    """The object says something that it may not."""
    texts = [f"{field}: {message}" for field, _, message in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(name, group, kind)
    details["causes"] = [
        {"reason": reason, "message": message, "field": field} for field, reason, message in causes
    ]
    message = f'{_qualified(group, kind)} "{name}" is invalid: {joined}'
    return ApiError(422, "Invalid", message, details)


def bad_request(message: str) -> ApiError:
    """The request itself makes no sense."""
    return ApiError(400, "BadRequest", message)


def forbidden(pod: str, why: str) -> ApiError:
    """Admission refuses the pod."""
    message = f'pods "{pod}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, _details(pod, "", "pods"))


def not_allowed() -> ApiError:
    """This verb does not go with this path."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(message: str = "415: Unsupported Media Type") -> ApiError:
    """The body is of a kind that is not read here."""
    return ApiError(415, "UnsupportedMediaType", message, {})


def expired(message: str) -> ApiError:
    """History does not reach back that far: list again."""
    return ApiError(410, "Expired", message)


def too_large_resource_version(wanted: int, current: int) -> ApiError:
    """The client asks for a version that does not exist yet."""
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})
