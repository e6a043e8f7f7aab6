"""`berth check --journal`: what changed policies would have done with pods of a journal.

Each decision is asked of both policies, on the state that was recorded, so what would have followed
from a pod elsewhere is not seen; nobody is evicted.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dsl.diagnostics import Diagnostic, Severity
from dsl.plan import Plan
from dsl.source import Span
from engine.cli.refusals import reported
from engine.cli.replay import frameworks_of
from engine.cycle import decide
from engine.explain.scores import policies_of
from engine.framework.decision import FitError
from engine.framework.runtime import Framework, Frameworks
from engine.framework.snapshot import Snapshot
from engine.journal.replay import replay
from engine.pods.podinfo import PodInfo
from engine.policy.bundle import Needs, needs_of
from engine.text.display import plain

_RULE: Final = re.compile(r"\((\S+):(\d+)\)$")
"""File and line at the end of what a rule says; see `policy.plugin`."""
_KINDS: Final = ("nowhere now", "nowhere before", "elsewhere")
_NOWHERE, _BEFORE, _ELSEWHERE = _KINDS
_NEWEST: Final = 1_000
"""So many decisions are kept, the newest."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a pod goes by the policies of a journal, and by others; None: nowhere, and why."""

    pod: str
    was: str | None
    now: str | None
    why: FitError | None = None

    @property
    def kind(self) -> str:
        """One of `_KINDS`; empty for a pod that goes where it went."""
        if self.was == self.now:
            return ""
        return _ELSEWHERE if self.was and self.now else _BEFORE if self.now else _NOWHERE


@dataclass(slots=True)
class Changes:
    """The newest decisions of a journal, by both."""

    journal: Path
    each: deque[Outcome] = field(default_factory=lambda: deque(maxlen=_NEWEST))
    metrics: set[str] = field(default_factory=set)
    """The ids of those that the journal knows."""
    kept: Needs = field(default_factory=Needs)
    """What its last policies had kept beside nodes and pods."""

    @property
    def moved(self) -> list[Outcome]:
        """Those of pods that go elsewhere, by kind."""
        return [one for kind in _KINDS for one in self.each if one.kind == kind]

    def as_object(self) -> dict[str, object]:
        """What programs read: how many decisions there are, and each pod that goes elsewhere."""
        pods = [{"pod": one.pod, "was": one.was, "now": one.now} for one in self.moved]
        return {"decisions": len(self.each), "moved": pods}

    def told(self, plans: Sequence[Plan]) -> Iterator[str]:
        """The pods that would go elsewhere, how many there are of each kind, what is not known."""
        moved = self.moved
        for one in moved:
            yield plain(f"{one.pod}: was {one.was or 'nowhere'}, now {one.now or 'nowhere'}")
        counts = Counter(one.kind for one in moved)
        counted = ", ".join(f"{counts[kind]} {kind}" for kind in _KINDS)
        yield plain(f"of the newest {len(self.each)} decisions of {self.journal}: {counted}")
        read = {one for plan in plans for one in plan.metrics if one.source != "annotation"}
        unknown = sorted({one.name for one in read if one.id not in self.metrics})
        if unknown:
            yield f"the journal has no values of {', '.join(unknown)}, which count as missing here"
        needs, kept = needs_of(plans), self.kept
        parts = (f"{part} of pods on nodes" for part in sorted(needs.of_pods - kept.of_pods))
        left_out = [*sorted(needs.attended - kept.attended), *parts]
        left_out += ["workloads"] if needs.workloads and not kept.workloads else []
        if left_out:
            words = "no policy read these when the journal was made, so they are missing here"
            yield f"{words}: {', '.join(left_out)}"


def asked(journal: Path, texts: Mapping[str, bytes]) -> Changes:
    """What comes of the decisions of a journal by these policies.

    Raises:
        click.ClickException: the file is no journal, or the policies cannot be used with it.
    """
    changes, recorded, changed = Changes(journal), frameworks_of(), frameworks_of(texts)
    frameworks: list[Frameworks] = []

    def rules(files: Mapping[str, str], settings: Mapping[str, str]) -> Frameworks:
        frameworks[:] = [changed(files, settings)]
        then = recorded(files, settings)
        changes.kept = needs_of(policy.plan for one in then for policy in policies_of(one))
        return then

    def watch(_line: int, pod: PodInfo, snapshot: Snapshot, framework: Framework) -> None:
        was = decide(pod, snapshot, framework)
        now = decide(pod, snapshot, frameworks[0].of(pod))
        changes.each.append(Outcome(pod.key, was.node, now.node, now.fit_error))

    with reported(ValueError, OSError):
        changes.metrics = replay(journal, rules, watch).metrics
    return changes


def rules_to_blame(changes: Changes, plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    """P404 for each rule that has a part in leaving pods without a node that had one."""
    sources = {plan.source.name: plan.source for plan in plans}
    blamed: dict[tuple[str, int], list[Outcome]] = {}
    for one in (one for one in changes.each if one.kind == _NOWHERE):
        for place in sorted(_places(one.why.reasons if one.why is not None else ())):
            blamed.setdefault(place, []).append(one)
    for (name, line), pods in sorted(blamed.items()):
        source = sources.get(name)
        if source is None:
            continue
        start = source.line_starts[line - 1]
        first = pods[0]
        yield Diagnostic(
            "P404",
            f"{len(pods)} of the newest {len(changes.each)} pods of {changes.journal} that found a"
            " node would find none under this rule",
            source,
            Span(start, start + len(source.line(line))),
            severity=Severity.WARNING,
            notes=(
                f"such as {first.pod}, which went to {first.was}:"
                f" {'' if first.why is None else first.why.message()}",
            ),
            helps=("say which pods it is for, or try it by `mode: shadow` first",),
        )


def _places(reasons: Iterable[str]) -> set[tuple[str, int]]:
    found = (_RULE.search(reason) for reason in reasons)
    return {(rule[1], int(rule[2])) for rule in found if rule is not None}
