"""A memo by key, bounded by bytes, so that requests of anybody cannot fill the memory.

Decides nothing: a value that is not remembered is worked out again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

MOST_OF_ONE: Final = 16 << 10
"""Bytes of a value with its key, of a request of some 4 KB; larger ones are not kept."""

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Memo(Generic[_K, _V]):
    """Values by key. Two generations: what was not asked for during a whole one is forgotten."""

    __slots__ = ("_bytes", "_most", "_old", "_young")

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes // 2
        self._young: dict[_K, tuple[_V, int]] = {}
        self._old: dict[_K, tuple[_V, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: _K) -> _V | None:
        """The value, None if it is not remembered."""
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: _K, value: _V, size: int) -> _V:
        """Remembers the value, which with its key takes about `size` bytes; gives it back."""
        if size <= MOST_OF_ONE:
            if self._bytes + size > self._most:
                self._old, self._young, self._bytes = self._young, {}, 0
            self._young[key] = value, size
            self._bytes += size
        return value
