"""What would become of a ConfigMap: the reloader is tried, and what it says becomes an answer.

The trial is the scheduler's own reloader on a copy of what it knows, so that what is let in here
is taken there. What cannot be judged is let in: the scheduler keeps the old rules if it is no good.

Source: k8s.io/api admission/v1/types.go; k8s.io/apiserver pkg/admission/plugin/webhook/request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from dsl.diagnostics import Diagnostic, Severity, render, sort_key
from engine.clock import Clock
from engine.inforce import InForce
from engine.objects import ConfigMap
from engine.policy.bundle import Refusal, in_a_line
from engine.policy.reloader import Kept, Reloader
from engine.policy.sources import Source, files_of, passed_over
from engine.serving.server import BadCallError
from engine.text import wire
from engine.text.display import CUT, one_line, plain

_LOG = logging.getLogger(__name__)

_SLICE_SECONDS: Final = 0.005
_LONGEST_SECONDS: Final = 3.0
"""Less than the API server waits."""
_MOST_WAITING: Final = 8
_MOST_TEXT: Final = 8_192
"""Characters of what is wrong with policies; a terminal shows no more at once."""
ASK: Final = "`berth status` tells when it is in force"

API: Final = "admission.k8s.io/v1"
MOST_BYTES: Final = 16 * 1024 * 1024
"""A ConfigMap of 1 MiB twice, the new and the old, where every character is an escape."""
_REFUSED: Final = 400
_MOST_WARNINGS: Final = 12
_LONGEST_WARNING: Final = 250
"""The API server cuts warnings after 256 characters, and shows 4,096 of them in all."""
_CONFIG_MAP: Final = "ConfigMap"

Remembered = Callable[[], Awaitable[Mapping[str, Kept]]]


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


@dataclass(eq=False)
class Judge:
    """Answers reviews, one after the other.

    `in_force` has the sources, and the reloader that is tried; `remembered` is asked for what the
    scheduler keeps of them, `not_ready` says why nothing can be judged yet, empty if it can be.
    """

    in_force: InForce
    clock: Clock
    remembered: Remembered
    not_ready: Callable[[], str]

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def answered(self, body: bytes) -> bytes:
        """A review, answered; see `serving.server.Call`.

        Raises:
            BadCallError: it is none.
        """
        question = read(body)
        answer = await self.judge(question)
        one = question.new or question.old or ConfigMap()
        _LOG.info(
            'Checked configMap="%s/%s" operation="%s" dryRun="%s" allowed="%s" warnings=%d',
            one.metadata.namespace,
            one.metadata.name,
            question.operation,
            str(bool(question.dry_run)).lower(),
            str(not answer.refusal).lower(),
            len(answer.warnings),
        )
        return written(question.uid, answer)

    async def judge(self, question: Question) -> Answer:
        """What is said to a change of a ConfigMap."""
        old, new = question.old, question.new
        was = None if old is None else self.in_force.configured.source_of(old.metadata)
        source = None if new is None else self.in_force.configured.source_of(new.metadata)
        if new is None or source is None:
            return Answer(warnings=() if was is None else (self._left(was),))
        why = self.not_ready() or ("too many wait" if self._waiting >= _MOST_WAITING else "")
        if why:
            return _not_judged(why)
        if was is not None and old is not None and _policies(old) == _policies(new):
            # Labels may change whatever the texts are.
            refusal = self.in_force.reloader_of(source).refusal_of(source)
            return Answer(warnings=() if refusal is None else (refusal.summary,))
        self._waiting += 1
        try:
            async with self._turn:
                return await self._tried(source, new)
        finally:
            self._waiting -= 1

    def _left(self, source: Source) -> str:
        if self.in_force.configured.is_named(source):
            return f"{source.title} is a source of policies: its rules stay in force without it"
        unless = "" if source.tenant else ", unless it was the last"
        return f"{source.title} is no longer selected: its rules are withdrawn{unless}"

    async def _tried(self, source: Source, config_map: ConfigMap) -> Answer:
        remembered = await self.remembered()
        trial = self.in_force.reloader_of(source).trial(remembered)
        steps = trial.tried(source, files_of(config_map), passed_over(config_map))
        refusal: Refusal | None = None
        now = self.clock.monotonic()
        until, pause = now + _LONGEST_SECONDS, now + _SLICE_SECONDS
        while True:
            try:
                next(steps)
            except StopIteration as end:
                refusal = end.value
                break
            now = self.clock.monotonic()
            if now >= until:
                return _not_judged(f"checking takes longer than {_LONGEST_SECONDS:g} s")
            if now >= pause:  # others run in between
                await asyncio.sleep(0)
                pause = self.clock.monotonic() + _SLICE_SECONDS
        if refusal is not None:
            return Answer(refusal=_text(refusal, source))
        return Answer(warnings=tuple(_warnings(trial, source)))


def _policies(config_map: ConfigMap) -> object:
    files = files_of(config_map)
    return files, passed_over(config_map) if not files else ()


def _not_judged(why: str) -> Answer:
    return Answer(warnings=(f"the policies were not checked: {why}; {ASK}",))


def _text(refusal: Refusal, source: Source) -> str:
    """As `berth check` prints it; never cut within a finding."""
    errors = sorted((one for one in refusal.diagnostics if one.is_error), key=sort_key)
    if not errors:
        return plain(refusal.text, _MOST_TEXT, keep="\n")
    text, shown = f"{source.title} was refused, and nothing changed:\n", 0
    for one in errors:
        found = f"\n{render((one,))}"
        if shown and len(text) + len(found) > _MOST_TEXT:
            break
        text += found
        shown += 1
    if shown < len(errors):
        text += f"\nand {len(errors) - shown} more\n"
    return plain(text, len(text), keep="\n")


def _warnings(trial: Reloader, source: Source) -> Iterable[str]:
    found: tuple[Diagnostic, ...] = () if trial.bundle is None else trial.bundle.warnings
    for one in sorted(found, key=sort_key):
        if one.severity is Severity.WARNING and one.source.name.startswith(source.folder):
            yield in_a_line(one)


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
