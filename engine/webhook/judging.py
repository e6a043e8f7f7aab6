"""What would become of a ConfigMap: the reloader is tried, and what it says becomes an answer.

The trial is the scheduler's own reloader on a copy of what it knows, so that what is let in here
is taken there. What cannot be judged is let in: the scheduler keeps the old rules if it is no good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dsl.diagnostics import Diagnostic, Severity, render, sort_key
from engine.clock import Clock
from engine.inforce import InForce
from engine.objects import ConfigMap
from engine.policy.bundle import Refusal, in_a_line
from engine.policy.reloader import Kept, Reloader
from engine.policy.sources import Source, files_of, passed_over
from engine.text.display import plain
from engine.webhook.reviews import Answer, Question, read, written

_LOG = logging.getLogger(__name__)

_SLICE_SECONDS: Final = 0.005
_LONGEST_SECONDS: Final = 3.0
"""Less than the API server waits."""
_MOST_WAITING: Final = 8
_MOST_TEXT: Final = 8_192
"""Characters of what is wrong with policies; a terminal shows no more at once."""
ASK: Final = "`berth status` tells when it is in force"

Remembered = Callable[[], Awaitable[Mapping[str, Kept]]]


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
        was = None if old is None else self.in_force.source_of(old.metadata)
        source = None if new is None else self.in_force.source_of(new.metadata)
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
        if self.in_force.is_named(source):
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
