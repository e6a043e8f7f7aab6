"""The order of nodes with equal scores: a place for each by a hash of its name.

Equal in every process, whatever the order in which nodes came. Each class of pods turns the order
in its own way, by an exclusive or.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import IntColumn, Snapshot

TIE_BITS: Final = 20
TIE_MASK: Final = (1 << TIE_BITS) - 1
_HASH_BITS: Final = 64
_PLAIN = frozenset((str, int, type(None), bool, float, bytes))
"""Types whose `repr` is the same in every process."""


class Ties:
    """(N,) places of the rows; `version` counts changes of the places of existing rows."""

    def __init__(self) -> None:
        self.places: IntColumn = np.empty(0, dtype=np.int64)
        self.version = 0
        self._stamp = (-1, -1)
        self._order = np.empty(0, dtype=np.intp)

    def of(self, snapshot: Snapshot) -> IntColumn:
        """The places as of the snapshot."""
        stamp = snapshot.layout, snapshot.nodes.size
        if stamp != self._stamp:
            self._order = _order(snapshot, self._order)
            before, self.places = self.places, _places(snapshot, self._order)
            if not np.array_equal(before, self.places[: len(before)]):
                self.version += 1
            self._stamp = stamp
        return self.places


def _order(snapshot: Snapshot, before: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows of nodes by hash; what is nearly in order, as it was before, is sorted quickly."""
    left = snapshot.nodes.present.copy()
    kept = before[left[before]]
    left[kept] = False
    rows = np.concatenate((kept, np.flatnonzero(left)))
    return rows[np.argsort(snapshot.nodes.tie_keys[rows], kind="stable")]


def _places(snapshot: Snapshot, order: NDArray[np.intp]) -> IntColumn:
    """The first bits of the hash, or the next free place: a node that comes moves few others.

    Nodes beyond 2^20 share places. Rows without a node have any.
    """
    number = np.arange(len(order))
    first = snapshot.nodes.tie_keys[order] >> np.uint64(_HASH_BITS - TIE_BITS)
    placed = np.maximum.accumulate(first.astype(np.int64) - number) + number
    placed = np.minimum(placed, TIE_MASK - number[::-1])
    places = np.zeros(snapshot.nodes.size, dtype=np.int64)
    places[order] = np.maximum(placed, 0)
    return places


def turn_of(seed: int, key: Hashable) -> int:
    """The number by which a class turns the order."""
    parts = key if isinstance(key, tuple) else (key,)
    text = "\0".join([str(seed), *[repr(p) if type(p) in _PLAIN else _stable(p) for p in parts]])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) & TIE_MASK


@lru_cache(maxsize=1024)  # classes share most parts of their keys
def _stable(key: Hashable) -> str:
    """The key as text, equal in every process: sets are sorted."""
    if isinstance(key, tuple):
        return f"({','.join([repr(p) if type(p) in _PLAIN else _stable(p) for p in key])})"
    if isinstance(key, frozenset):
        return f"{{{','.join(sorted(map(_stable, key)))}}}"
    return repr(key)
