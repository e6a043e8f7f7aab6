"""How far a search for victims has come: it goes in slices, between which other pods are decided.

Each slice is the whole search on a new snapshot, with the nodes remembered that earlier slices have
tried. What those found is an estimate: the node that wins is tried again in the last slice
(`renew`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.decision import PostFilterResult
from engine.framework.snapshot import Snapshot
from engine.framework.status import unschedulable

SLICE_RUNS: Final = 32
"""Dry runs in a slice, some 3 to 5 ms; a node that is begun is finished."""
_MOST_RENEWALS: Final = 100
"""One is enough in a quiet cluster; after so many it changes faster than the search."""
_TOO_FAST: Final = "preemption: what was found changed before it could be relied upon, each time"

Found = tuple[int, Sequence[Any], tuple[str, ...] | None]
"""How many dry runs a node took, the victims' UIDs, or why none help."""


class UnfinishedError(Exception):
    """The slice is used up; called again with the same `SearchProgress`, the search goes on."""


class SearchProgress(msgspec.Struct, eq=False):
    """See the module. `runs` are the dry runs of a slice; by default there is one slice only."""

    runs: float = math.inf
    turn: int = 0
    """The number of the search within the slice; a PostFilter may make several."""
    later: list[str] = []
    """Nodes left for the next slices, where a slice looks at few of them."""
    seconds: float = 0.0
    """Spent in all slices."""
    slices: int = 0
    """How many have begun."""
    _known: dict[tuple[Hashable, ...], tuple[str, int, Found]] = {}
    _kinds: dict[Hashable, NDArray[np.int8]] = {}
    _left: float = math.inf
    _renewals: int = 0
    _by: object = None
    _of: object = None

    def begin(self, by: object, of: object) -> bool:
        """A slice begins; with other rules (`by`) all is forgotten. Whether `of` is another one."""
        if by is not self._by:
            self._by, self._of, self._known, self._kinds, self.later = by, of, {}, {}, []
        self._left, self.turn = self.runs, 0
        self.slices += 1
        return self._of is not of

    def spend(self, runs: float) -> None:
        """Takes dry runs off those of the slice.

        Raises:
            UnfinishedError: none were left.
        """
        if self._left <= 0:
            raise UnfinishedError
        self._left -= runs

    def kinds(self, key: Hashable, count: int) -> NDArray[np.int8]:
        """What is known of kinds of things, 0 if nothing; the caller writes to it."""
        known = self._kinds.get(key, np.zeros(0, np.int8))
        if len(known) < count:
            known = self._kinds[key] = np.pad(known, (0, count - len(known)))
        return known

    def recall(self, key: tuple[Hashable, ...], node: str, ask: Callable[[], Found]) -> Found:
        """What is known of a node, else `ask()`; raises as `spend`. Keys begin with the turn."""
        known = self._known.get(key)
        if known is None:
            self.spend(0)
            known = self._known[key] = node, self.slices, ask()
            self._left -= known[2][0]
        return known[2]

    def renew(
        self, found: PostFilterResult, snapshot: Snapshot, *, given: bool = False
    ) -> PostFilterResult:
        """The result `found`, if this slice found it; `given`: extenders have chosen the victims.

        Raises:
            UnfinishedError: an earlier slice found it, which is forgotten, so it is tried again.
        """
        # Questions about many nodes have no node; those of another turn found something else.
        here = found.nominated or None, self.turn
        of = {key: one for key, one in self._known.items() if (one[0], key[0]) == here}
        victims = {one.pod.uid for one in found.evictions}
        row = snapshot.pods.row
        there = {key: {uid for uid in one[2][1] if row(uid) >= 0} for key, one in of.items()}
        chosen = [key for key in of if given or there[key] == victims]
        if of and self.slices > 1 and all(of[key][1] < self.slices for key in chosen):
            self._renewals += 1
            if self._renewals > _MOST_RENEWALS:
                return PostFilterResult(unschedulable(_TOO_FAST), message=_TOO_FAST)
            # Only those: all of them may need more than one slice.
            for key in chosen or of:
                del self._known[key]
            raise UnfinishedError
        return found
