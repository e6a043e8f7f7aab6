"""What other policies would do with the pods of a journal: each decision asked by both.

Both decide on the state that was recorded, so what would have followed from a pod elsewhere is not
seen; nobody is evicted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.cycle import decide
from engine.framework.decision import FitError
from engine.framework.frameworks import Frameworks
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot
from engine.simulate.journal import FrameworksOf, replay

NEWEST: Final = 1_000
"""So many decisions are kept, the newest."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a pod goes by the policies of a journal, and by others; None: nowhere, and why."""

    pod: str
    was: str | None
    now: str | None
    why: FitError | None = None


@dataclass(slots=True)
class Changes:
    """The newest decisions of a journal, by both; see `weighed`."""

    each: deque[Outcome] = field(default_factory=lambda: deque(maxlen=NEWEST))
    metrics: set[str] = field(default_factory=set)
    """The ids of those that the journal knows."""

    @property
    def elsewhere(self) -> list[Outcome]:
        """Pods that would go to another node."""
        return [one for one in self.each if one.was and one.now and one.was != one.now]

    @property
    def nowhere(self) -> list[Outcome]:
        """Pods that would find no node, and did."""
        return [one for one in self.each if one.was and not one.now]

    @property
    def somewhere(self) -> list[Outcome]:
        """Pods that would find a node, and did not."""
        return [one for one in self.each if one.now and not one.was]


def weighed(path: Path, recorded: FrameworksOf, changed: FrameworksOf) -> Changes:
    """Asks `changed` what the recorded policies are asked again.

    Raises:
        ValueError: the file is no journal; the message names the line.
    """
    changes = Changes()
    frameworks: list[Frameworks] = []

    def rules(files: Mapping[str, str], settings: Mapping[str, str]) -> Frameworks:
        frameworks[:] = [changed(files, settings)]
        return recorded(files, settings)

    def watch(_line: int, pod: PodInfo, snapshot: Snapshot, framework: Framework) -> None:
        was = decide(pod, snapshot, framework)
        now = decide(pod, snapshot, frameworks[0].of(pod))
        changes.each.append(Outcome(pod.key, was.node, now.node, now.fit_error))

    changes.metrics = replay(path, rules, watch).metrics
    return changes
