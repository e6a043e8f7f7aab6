"""Pods for which victims are looked for longer than a slice: beside all other cycles, one by one.

    popped ─▶ cycle ─┬─ all is tried ──────────────────────────────▶ as any pod
                ▲    └─ the slice is used up ─▶ waits, by its place in the queue ┐
                └───────────────── again, on the cluster as it is then ◀─────────┘

The pod stays in flight. Each of its cycles is the same as for any pod, with what those before have
tried (`framework.tried`) as one more input; the last one decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from engine.framework.tried import SLICE_RUNS, Tried, UnfinishedError
from engine.placement import Placement
from engine.queue import QueuedPod
from engine.queue.heap import PodHeap


@dataclass(eq=False)
class Searches:
    """See the module."""

    placement: Placement

    def __post_init__(self) -> None:
        self._waiting = PodHeap(count(1).__next__)
        self._tried: dict[QueuedPod, Tried] = {}

    @property
    def busy(self) -> bool:
        """Whether a pod waits for its next slice."""
        return len(self._waiting) > 0

    def begin(self, queued: QueuedPod) -> None:
        """A cycle for a pod that was popped, and what follows from it."""
        self._cycle(queued, Tried(SLICE_RUNS))

    def step(self) -> None:
        """The next cycle for the first of those that wait."""
        queued = self._waiting.pop()
        if queued is not None:
            tried = self._tried.pop(queued)
            if self.placement.still(queued):
                self._cycle(queued, tried)

    def _cycle(self, queued: QueuedPod, tried: Tried) -> None:
        try:
            self.placement.decide(queued, tried=tried)
        except UnfinishedError:
            self._tried[queued] = tried
            self._waiting.push(queued.sort_key, queued)

    def new_rules(self) -> None:
        """What was tried by others holds no longer."""
        self._tried = {queued: Tried(SLICE_RUNS) for queued in self._tried}
