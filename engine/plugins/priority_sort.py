"""PrioritySort: higher priority first, then who was queued first.

Source: kubernetes plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.framework.events import ClusterEventWithHint
from engine.framework.podinfo import PodInfo


class PrioritySort:
    """The order of the active queue."""

    @property
    def name(self) -> str:
        """See `Plugin.name`."""
        return "PrioritySort"

    def events(self) -> Sequence[ClusterEventWithHint]:
        """It rejects nobody."""
        return ()

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[int, float]:
        """Smaller comes first."""
        return -pod.priority, queued_at
