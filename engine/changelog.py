"""A log of the last changes, by position, for readers that catch up."""

from __future__ import annotations


class ChangeLog:
    """The last changes, by position; what is further back is forgotten."""

    __slots__ = ("_entries", "_most", "end")

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._entries: list[int] = []
        self.end = 0

    def append(self, entry: int) -> None:
        """One more change."""
        entries = self._entries
        entries.append(entry)
        self.end += 1
        if len(entries) > self._most:
            del entries[: self._most >> 1]

    def forget(self) -> None:
        """Readers that are behind have to look at everything again."""
        self._entries.clear()
        self.end += 1

    def since(self, position: int) -> list[int] | None:
        """The changes after a position, None if they are forgotten."""
        behind = self.end - position
        if not behind:
            return []
        return self._entries[-behind:] if behind <= len(self._entries) else None
