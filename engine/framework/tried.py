"""What a search for victims has tried: with it the search goes in slices, each a question anew.

Every slice looks at the cluster as it is by then, and tries no node twice: what an earlier slice
found of one is an estimate. Whoever is promised a node has it tried in the same slice (`renew`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

SLICE_RUNS: Final = 32
"""Dry runs in a slice, some 3 to 5 ms; a node that was begun is finished."""
_MOST_RENEWED: Final = 64


class UnfinishedError(Exception):
    """The slice is used up; asked again with the same `Tried`, the search goes on."""


class Tried:
    """See the module. Without `runs`, dry runs in a slice, there is one slice only."""

    __slots__ = (
        "_kinds",
        "_known",
        "_later",
        "_left",
        "_renewed",
        "_runs",
        "_slice",
        "seconds",
        "turn",
    )

    def __init__(self, runs: float = math.inf) -> None:
        self._runs = self._left = runs
        self._known: dict[Hashable, tuple[str, int, Any]] = {}
        self._kinds: dict[Hashable, NDArray[np.int8]] = {}
        self._slice = self._renewed = 0
        self._later: tuple[int, int, list[int]] = 0, 0, []
        self.turn = 0
        """Which search of the slice it is; a PostFilter may make several."""
        self.seconds = 0.0
        """What its slices took."""

    def begin(self) -> bool:
        """A slice begins; whether there were others before."""
        self._left, self.turn = self._runs, 0
        self._slice += 1
        return self._slice > 1

    def spend(self, runs: float) -> bool:
        """Takes dry runs off those of the slice; False: none are left."""
        left = self._left > 0
        self._left -= runs
        return left

    def widen(self, runs: int) -> None:
        """The slice has so many more, for it took long to begin."""
        self._left += runs

    def kinds(self, key: Hashable, count: int) -> NDArray[np.int8]:
        """What is known of kinds of things: 0 is nothing yet. To be written to."""
        known = self._kinds.get(key, np.zeros(0, np.int8))
        if len(known) < count:
            known = self._kinds[key] = np.pad(known, (0, count - len(known)))
        return known

    def recall(self, key: Hashable, node: str, ask: Callable[[], tuple[int, Any]]) -> Any:  # noqa: ANN401 - as it was given
        """What is known of a node, or is found now, with the dry runs of that; None: not now."""
        known = self._known.get(key)
        if known is None:
            if self._left <= 0:
                return None
            found = ask()
            self.spend(found[0])
            known = self._known[key] = node, self._slice, found
        return known[2]

    def renew(self, node: str) -> bool:
        """Forgets what earlier slices found of a node; whether there was anything."""
        old = [key for key, one in self._known.items() if one[0] == node and one[1] < self._slice]
        for key in old:
            del self._known[key]
        self._renewed += bool(old)
        return bool(old)

    @property
    def in_vain(self) -> bool:
        """Whether nodes change so fast that no slice finds what an earlier one found."""
        return self._renewed > _MOST_RENEWED

    def postpone(self, layout: int, rows: Sequence[int]) -> NoReturn:
        """Leaves rows of nodes to later slices.

        Raises:
            UnfinishedError: always.
        """
        turn, of, more = self._later
        self._later = (
            self.turn,
            layout,
            [*rows, *(more if (turn, of) == (self.turn, layout) else ())],
        )
        raise UnfinishedError

    def few(self, layout: int) -> NDArray[np.intp] | None:
        """Some of the rows that were left to this search; None: there are none any longer."""
        turn, of, rows = self._later
        if not rows or (turn, of) != (self.turn, layout):
            return None
        self._later = turn, of, rows[SLICE_RUNS:]
        return np.array(rows[:SLICE_RUNS], np.intp)
