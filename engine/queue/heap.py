"""A heap of waiting pods with cheap removal: entries that no longer count stay until they surface.

An entry is `(key, ticket, queued)`. Tickets are unique, so pods themselves are never compared, and
equal keys come out in the order they went in. An entry counts while its pod has its ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from numbers import Real
from typing import Any, Final

from engine.queue.queued import QueuedPod, SortKey

_FEW: Final = 64


def comparable(key: object) -> tuple[int, Any]:
    """What compares with every other such key as the key does with its like.

    Raises:
        TypeError: it is made of something else than numbers, texts and tuples of them.
    """
    if isinstance(key, int | float):
        return 0, key
    if isinstance(key, str):
        return 1, key
    if isinstance(key, tuple):
        return 2, tuple([comparable(part) for part in key])
    if isinstance(key, Real):  # NumPy's
        return 0, float(key)
    raise TypeError(f"a sort key is made of numbers and texts, not of {type(key).__name__}")


class PodHeap:
    """Pods by key, smallest first. `next_ticket` may be shared by heaps."""

    __slots__ = ("_entries", "_next_ticket", "_tickets")

    def __init__(self, next_ticket: Callable[[], int]) -> None:
        self._entries: list[tuple[SortKey, int, QueuedPod]] = []
        self._tickets: dict[QueuedPod, int] = {}
        self._next_ticket = next_ticket

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, in no order."""
        return iter(self._tickets)

    def push(self, key: SortKey, queued: QueuedPod) -> None:
        """Puts in a pod that is not in it. O(log n)."""
        ticket = self._tickets[queued] = self._next_ticket()
        heappush(self._entries, (key, ticket, queued))

    def remove(self, queued: QueuedPod) -> None:
        """Takes out a pod of this heap. O(1), and now and then O(n)."""
        del self._tickets[queued]
        if len(self._entries) > _FEW + 2 * len(self._tickets):
            self._entries = [entry for entry in self._entries if self._counts(entry)]
            heapify(self._entries)

    def peek(self) -> QueuedPod | None:
        """The first pod, left where it is."""
        entries = self._entries
        while entries:
            if self._counts(entries[0]):
                return entries[0][2]
            heappop(entries)
        return None

    def pop(self) -> QueuedPod | None:
        """Takes out the first pod."""
        queued = self.peek()
        if queued is not None:
            heappop(self._entries)
            del self._tickets[queued]
        return queued

    def rekey(self, key: Callable[[QueuedPod], SortKey]) -> None:
        """Orders all pods anew. O(n)."""
        self._entries = [(key(queued), ticket, queued) for queued, ticket in self._tickets.items()]
        heapify(self._entries)

    def _counts(self, entry: tuple[SortKey, int, QueuedPod]) -> bool:
        return self._tickets.get(entry[2]) == entry[1]
