"""PrioritySort: higher priority first, then who was queued first.

Source: kubernetes plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from typing import Final

from engine.framework.interface import Points
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo


class PrioritySort:
    """The order of the active queue; it rejects nobody."""

    name: Final = "PrioritySort"

    def points(self) -> Points:
        """Smaller comes first."""
        return Points(sort_key=_sort_key)


def _sort_key(pod: PodInfo, queued_at: float, snapshot: Snapshot) -> tuple[int, float]:
    return -pod.priority, queued_at
