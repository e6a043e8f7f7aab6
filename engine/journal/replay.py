"""Makes the decisions of a journal again, with the same cache, plugins and cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from engine.cache import Cache
from engine.clock import ManualClock
from engine.cycle import conclude, decide
from engine.framework.acting import Point
from engine.framework.decision import Decision
from engine.framework.runtime import Framework, Frameworks
from engine.framework.searchprogress import SLICE_RUNS, SearchProgress, UnfinishedError
from engine.framework.snapshot import Snapshot
from engine.journal.recorder import APPLIED, FORMAT, Entry, Structs, decision_line
from engine.kube.resources import STRUCTS, kinds_of
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.simulate.lab import Lab
from engine.simulate.samples import Samples

_MOST_OF_LINE: Final = 256 << 20
"""Bytes: a device is no journal, and has no end."""


@dataclass
class ReplayReport:
    """What a replay found."""

    decisions: int = 0
    equal: int = 0
    differences: list[str] = field(default_factory=list)
    cut: bool = False
    """Whether the journal ends within a line."""
    metrics: set[str] = field(default_factory=set)
    """The ids of those that it has answers about."""
    cache: Cache = field(default_factory=Cache)
    """The cache as it was at the journal's end."""


FrameworksOf = Callable[[Mapping[str, str], Mapping[str, str]], Frameworks]
"""(files, settings) of a bundle -> the frameworks that were in force."""
Watcher = Callable[[int, PodInfo, Snapshot, Framework], None]
"""Told of each decision before it is made again: the line, the pod, and who decides on what."""


def replay(
    path: Path, frameworks_of: FrameworksOf, watch: Watcher = lambda *_: None
) -> ReplayReport:
    """Makes every decision of a journal again from what it was made from.

    A last line without its end was cut off when the writer was killed: it is left out.

    Raises:
        ValueError: the file is no journal; the message names the line.
    """
    again = _Replay(frameworks_of, watch)
    number = 0
    with path.open("rb") as lines:
        for number, line in enumerate(iter(partial(lines.readline, _MOST_OF_LINE), b""), 1):
            if number > 1 and not line.endswith(b"\n"):
                again.report.cut = True
                break
            try:
                again.take(number, line)
            except (ValueError, LookupError) as wrong:
                reason = str(wrong).partition("\n")[0]
                raise ValueError(f"{path}:{number}: not a line of a journal: {reason}") from wrong
    if not number:
        raise ValueError(f"{path}: is empty, a journal has a first line")
    return again.report


class _Replay:
    """A journal read so far: its cluster in a lab, in which nothing happens but what it says."""

    def __init__(self, frameworks_of: FrameworksOf, watch: Watcher) -> None:
        self._watch = watch
        self._frameworks_of = frameworks_of
        self._samples = Samples()
        self._lab: Lab | None = None
        self.report = ReplayReport()
        self._decode = msgspec.json.Decoder(Entry).decode
        self._decided: dict[str, Decision] = {}
        self._progress: dict[str, SearchProgress] = {}
        self._structs: Structs = STRUCTS

    def take(self, number: int, line: bytes) -> None:
        """The next line.

        Raises:
            ValueError, LookupError: it does not follow from those before.
        """
        entry = self._decode(line)
        if (entry.what == "journal") != (number == 1):
            raise ValueError("a journal has its format in the first line and only there")
        match entry.what:
            case "journal":
                if entry.format != FORMAT:
                    raise ValueError(f"this version reads format {FORMAT}, not {entry.format}")
            case "rules":
                self._ruled(entry)
            case "signals":
                self.report.metrics.update(entry.signals or {})
                self._samples.replace(entry.signals or {}, entry.sampled or {}, entry.values or {})
            case "decision":
                self._decide(number, entry)
            case "slice":
                pod, snapshot, framework = self._asked(entry)
                # A search before this one may have come to no decision.
                known = None if entry.slices == 1 else self._progress[pod.uid]
                progress = self._progress[pod.uid] = known or SearchProgress(SLICE_RUNS)
                with suppress(UnfinishedError):
                    conclude(pod, snapshot, framework, entry.opinion, progress)
            case "reserve" | "permit" | "act":
                self._act(number, entry)
            case what if what in APPLIED:
                APPLIED[what](self.report.cache, entry.args or (), self._structs)
            case what:
                raise ValueError(f"nothing is called {what!r}")

    def _ruled(self, entry: Entry) -> None:
        rules = self._frameworks_of(entry.files or {}, entry.settings or {})
        there = self.report.cache
        self._lab = Lab(rules, clock=ManualClock(), signals=self._samples, cache=there)
        kinds = kinds_of([one.profile for one in rules])
        self._structs = {**self._structs, **{one.name: one.struct for one in kinds}}

    def _asked(self, entry: Entry) -> tuple[PodInfo, Snapshot, Framework]:
        """The pod of a line, the cluster as of then, and who decided."""
        if self._lab is None:
            raise ValueError("a decision before any rules")
        if entry.pod is None:
            raise ValueError("the pod is missing")
        pod = make_pod_info(entry.pod)
        self._lab.clock = ManualClock(entry.now)
        return pod, self._lab.snapshot(), self._lab.frameworks.of(pod)

    def _decide(self, number: int, entry: Entry) -> None:
        pod, snapshot, framework = self._asked(entry)
        self._watch(number, pod, snapshot, framework)
        progress = self._progress.pop(pod.uid, None) if entry.slices else None
        decision = decide(pod, snapshot, framework) if entry.as_member else None
        while decision is None:
            with suppress(UnfinishedError):  # only where it is no longer as it was
                decision = conclude(pod, snapshot, framework, entry.opinion, progress)
        was = _told(entry)
        now = _told(decision_line(decision))
        self.report.decisions += 1
        if decision.node is not None:
            self._decided[pod.uid] = decision
        if was == now:
            self.report.equal += 1
        else:
            self.report.differences.append(f"line {number}: {pod.key}: was {was}, now {now}")

    def _act(self, number: int, entry: Entry) -> None:
        """What plugins say of a pod on its node."""
        pod, snapshot, framework = self._asked(entry)
        decision = self._decided.get(pod.uid)
        if decision is None:
            raise ValueError("an action on a pod before any decision")
        if entry.what == Point.RESERVE.value:
            said = framework.reserve(pod, snapshot, entry.name).words
        elif entry.what == Point.PERMIT.value:
            only = entry.plugins or ()
            said = framework.permit(pod, snapshot, entry.name, entry.waited, only).words
        else:
            said = framework.act(pod, snapshot, decision).words
            del self._decided[pod.uid]
        was = tuple(entry.said or ())
        if was != said:
            self.report.differences.append(f"line {number}: {pod.key}: was {was}, now {said}")


def _told(one: Entry) -> tuple[object, ...]:
    return one.chosen, one.total, one.feasible, one.message, one.bundle, one.victims
