"""A heap of waiting pods with cheap removal: outdated entries stay in it until they come first.

An entry is `(key, ticket, queued)`. Tickets are unique, so pods themselves are never compared, and
equal keys come out in the order they went in. An entry counts while its pod has its ticket.

Pods that are pushed in order, as nearly all are, go into a deque and cost no search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from numbers import Real
from typing import Any, Final

from engine.queue.queued import QueuedPod, SortKey

_FEW: Final = 64
_ticket = count(1).__next__
_Entry = tuple[SortKey, int, QueuedPod]


def comparable(key: object) -> tuple[int, Any]:
    """The key in a form that compares with all others, of its own kind as the key does.

    Raises:
        TypeError: it is made of something else than numbers, texts and tuples of them.
    """
    if isinstance(key, int | float):
        return 0, key
    if isinstance(key, str):
        return 1, key
    if isinstance(key, tuple):
        flat: list[Any] = []  # kinds and values in turn: pairs take longer to compare
        for part in key:
            flat += comparable(part)
        return 2, tuple(flat)
    if isinstance(key, Real):  # NumPy's
        return 0, float(key)
    raise TypeError(f"a sort key is made of numbers and texts, not of {type(key).__name__}")


class PodHeap:
    """Pods by key, smallest first; `prefix` gives what comes before that of the order."""

    __slots__ = ("_entries", "_line", "_prefix", "_tickets")

    def __init__(self, prefix: Callable[[QueuedPod], SortKey] = lambda _: ()) -> None:
        self._entries: list[_Entry] = []
        self._line: deque[_Entry] = deque()
        self._tickets: dict[QueuedPod, int] = {}
        self._prefix = prefix

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, in no order."""
        return iter(self._tickets)

    def push(self, key: SortKey, queued: QueuedPod) -> None:
        """Puts in a pod that is not in it. O(log n) at most."""
        ticket = self._tickets[queued] = _ticket()
        entry = (self._prefix(queued) + key, ticket, queued)
        if not self._line or self._line[-1] < entry:
            self._line.append(entry)
        else:
            heappush(self._entries, entry)

    def remove(self, queued: QueuedPod) -> None:
        """Takes out a pod of this heap. O(1), and now and then O(n)."""
        del self._tickets[queued]
        if len(self._entries) + len(self._line) > _FEW + 2 * len(self._tickets):
            tickets = self._tickets
            self._line = deque([one for one in self._line if tickets.get(one[2]) == one[1]])
            self._entries = [one for one in self._entries if tickets.get(one[2]) == one[1]]
            heapify(self._entries)

    def peek(self) -> QueuedPod | None:
        """The first pod, left where it is."""
        entries, line, tickets = self._entries, self._line, self._tickets
        if not tickets:
            return None
        while line and tickets.get(line[0][2]) != line[0][1]:
            line.popleft()
        while entries and tickets.get(entries[0][2]) != entries[0][1]:
            heappop(entries)
        ahead = line and not (entries and entries[0] < line[0])
        return (line if ahead else entries)[0][2]

    def pop(self) -> QueuedPod | None:
        """Takes out the first pod."""
        entries, line, tickets = self._entries, self._line, self._tickets
        while entries or line:
            ahead = line and not (entries and entries[0] < line[0])
            _, ticket, queued = line.popleft() if ahead else heappop(entries)
            if tickets.get(queued) == ticket:
                del tickets[queued]
                return queued
        return None

    def reorder(self, keys: Mapping[QueuedPod, SortKey]) -> None:
        """The pods go by these keys from now on, which are made by another order. O(n)."""
        self._line.clear()
        self._entries = []
        for queued, ticket in self._tickets.items():
            key = queued.sort_key = keys[queued]
            self._entries.append((self._prefix(queued) + key, ticket, queued))
        heapify(self._entries)
