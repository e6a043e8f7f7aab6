"""A heap of waiting pods with cheap removal: entries that no longer count stay until they surface.

An entry is `(key, ticket, queued)`. Tickets are unique, so pods themselves are never compared, and
equal keys come out in the order they went in. An entry counts while its pod still holds its ticket.
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
    """Pods by key, smallest first. `next_ticket` is shared by all heaps a pod may go through."""

    __slots__ = ("_entries", "_live", "_next_ticket")

    def __init__(self, next_ticket: Callable[[], int]) -> None:
        self._entries: list[tuple[SortKey, int, QueuedPod]] = []
        self._live = 0
        self._next_ticket = next_ticket

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, in no order."""
        return (queued for _, ticket, queued in self._entries if queued.ticket == ticket)

    def push(self, key: SortKey, queued: QueuedPod) -> None:
        """Puts in a pod that is in no heap. O(log n)."""
        queued.ticket = self._next_ticket()
        heappush(self._entries, (key, queued.ticket, queued))
        self._live += 1

    def remove(self, queued: QueuedPod) -> None:
        """Takes out a pod of this heap. O(1), and now and then O(n)."""
        queued.ticket = 0
        self._live -= 1
        if len(self._entries) > _FEW + 2 * self._live:
            self._entries = [entry for entry in self._entries if entry[2].ticket == entry[1]]
            heapify(self._entries)

    def peek(self) -> QueuedPod | None:
        """The first pod, left where it is."""
        entries = self._entries
        while entries:
            _, ticket, queued = entries[0]
            if queued.ticket == ticket:
                return queued
            heappop(entries)
        return None

    def pop(self) -> QueuedPod | None:
        """Takes out the first pod."""
        entries = self._entries
        while entries:
            _, ticket, queued = heappop(entries)
            if queued.ticket == ticket:
                queued.ticket = 0
                self._live -= 1
                return queued
        return None

    def rekey(self, key: Callable[[QueuedPod], SortKey]) -> None:
        """Orders all pods anew. O(n)."""
        self._entries = [(key(queued), queued.ticket, queued) for queued in self]
        heapify(self._entries)
