"""AdmissionReview v1: bytes to a question, an answer to bytes. No I/O, knows no policy.

Source: k8s.io/api admission/v1/types.go; k8s.io/apiserver pkg/admission/plugin/webhook/request.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.objects import ConfigMap
from engine.serving.server import BadCallError
from engine.text import wire
from engine.text.display import CUT, one_line

API: Final = "admission.k8s.io/v1"
MOST_BYTES: Final = 16 * 1024 * 1024
"""A ConfigMap of 1 MiB twice, the new and the old, where every character is an escape."""
_REFUSED: Final = 400
_MOST_WARNINGS: Final = 12
_LONGEST_WARNING: Final = 250
"""The API server cuts warnings after 256 characters, and shows 4,096 of them in all."""
_CONFIG_MAP: Final = "ConfigMap"


class _Kind(msgspec.Struct, frozen=True):
    group: str = ""
    kind: str = ""


class Question(msgspec.Struct):
    """What somebody is about to do with a ConfigMap; `new` is None where it is deleted."""

    uid: str
    operation: str
    old: ConfigMap | None = msgspec.field(name="oldObject", default=None)
    new: ConfigMap | None = msgspec.field(name="object", default=None)
    dry_run: bool | None = msgspec.field(name="dryRun", default=None)
    kind: _Kind = _Kind()


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: Question | None = None


_review = msgspec.json.Decoder(_Review)


class Answer(msgspec.Struct, frozen=True):
    """What is said to that: why not, or nothing, and what the user should know."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()


def read(body: bytes) -> Question:
    """What a review asks.

    Raises:
        BadCallError: it is none of this version, or is about something else than ConfigMaps.
    """
    try:
        review = wire.decode(_review.decode, body)
        if (review.api_version, review.kind) != (API, "AdmissionReview"):
            found = one_line(f"{review.kind or 'no kind'} of {review.api_version or 'no version'}")
            raise BadCallError(f"expected an AdmissionReview of {API}, found {found}")
        asked = review.request
        if asked is None:
            raise BadCallError("the review has no request")
        if (asked.kind.group, asked.kind.kind) != ("", _CONFIG_MAP):
            raise BadCallError(
                f"asked about {one_line(asked.kind.kind)}; only ConfigMaps are checked"
            )
    except msgspec.DecodeError as wrong:
        raise BadCallError(f"the body is not an AdmissionReview: {one_line(str(wrong))}") from wrong
    return asked


def written(uid: str, answer: Answer) -> bytes:
    """The review that answers."""
    response: dict[str, object] = {"uid": uid, "allowed": not answer.refusal}
    if answer.refusal:
        # Of a reason that kubectl words by itself it would leave the text out.
        response["status"] = {"code": _REFUSED, "reason": "BadRequest", "message": answer.refusal}
    if answer.warnings:
        shown = [_warning(one) for one in answer.warnings[:_MOST_WARNINGS]]
        more = len(answer.warnings) - len(shown)
        response["warnings"] = [*shown, f"and {more} more warnings"] if more else shown
    return msgspec.json.encode({"apiVersion": API, "kind": "AdmissionReview", "response": response})


def _warning(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST_WARNING else line[: _LONGEST_WARNING - len(CUT)] + CUT
