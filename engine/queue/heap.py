"""A heap of waiting pods with cheap removal: outdated entries stay in it until they come first.

An entry is `(key, ticket, queued)`. Tickets are unique, so pods themselves are never compared, and
equal keys come out in the order they went in. An entry counts while its pod has its ticket.

Pods that are pushed in order, as nearly all are, go into a deque and cost no search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from numbers import Real
from typing import Any, Final

from engine.queue.queued import QueuedPod, SortKey

_FEW: Final = 64
_Entry = tuple[SortKey, int, QueuedPod]
Entries = deque[_Entry] | list[_Entry]


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
        return 2, tuple([comparable(part) for part in key])
    if isinstance(key, Real):  # NumPy's
        return 0, float(key)
    raise TypeError(f"a sort key is made of numbers and texts, not of {type(key).__name__}")


class Tickets:
    """What the heaps of a queue share: who of equals came first, and the key of an order to come.

    Pods with tickets after `since` were given their places in that order as they came.
    """

    __slots__ = ("coming", "since", "take")

    def __init__(self) -> None:
        self.take = count(1).__next__
        self.foresee(None)

    def foresee(self, coming: Callable[[QueuedPod], SortKey] | None) -> None:
        """Says by which key pods get places in another order from now on; None: by none."""
        self.coming, self.since = coming, self.take()


class PodHeap:
    """Pods by key, smallest first; `prefix` gives what comes before that of the order."""

    __slots__ = ("_entries", "_line", "_next", "_prefix", "_shared", "_tickets")

    def __init__(
        self, tickets: Tickets | None = None, prefix: Callable[[QueuedPod], SortKey] = lambda _: ()
    ) -> None:
        self._entries: list[_Entry] = []
        self._line: deque[_Entry] = deque()
        self._tickets: dict[QueuedPod, int] = {}
        self._shared = tickets or Tickets()
        self._prefix = prefix
        # The line and the entries of the order to come.
        self._next: tuple[deque[_Entry], list[_Entry]] | None = None

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, in no order."""
        return iter(self._tickets)

    def push(self, key: SortKey, queued: QueuedPod) -> None:
        """Puts in a pod that is not in it. O(log n) at most."""
        ticket = self._tickets[queued] = self._shared.take()
        _put((self._prefix(queued) + key, ticket, queued), self._line, self._entries)
        if self._shared.coming is not None:
            self._foresee(self._shared.coming, queued, ticket)

    def _foresee(self, by: Callable[[QueuedPod], SortKey], queued: QueuedPod, ticket: int) -> None:
        self._next = self._next or (deque(), [])
        _put((self._prefix(queued) + by(queued), ticket, queued), *self._next)

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

    def place(self, queued: QueuedPod) -> None:
        """Gives a pod of this heap its place in the order to come, if it has none there."""
        ticket, coming = self._tickets[queued], self._shared.coming
        if coming is not None and ticket < self._shared.since:
            self._foresee(coming, queued, ticket)

    def turn(self) -> Sequence[Entries]:
        """The order to come, in which all pods have their places, is in force from now on.

        Returns:
            What the order before was made of: to free all of it at once may take long.
        """
        before = self._line, self._entries
        self._line, self._entries = self._next or (deque(), [])
        self._next = None
        return before

    def stay(self) -> None:
        """The order stays as it is."""
        self._next = None


def _put(entry: _Entry, line: deque[_Entry], entries: list[_Entry]) -> None:
    if not line or line[-1] < entry:
        line.append(entry)
    else:
        heappush(entries, entry)
