"""Which of several names a name is close to: the distance and its limit.

What is suggested says whoever asks.
"""

from collections.abc import Iterable, Mapping
from typing import Final

MAX_DISTANCE: Final = 2


def called(names: Mapping[str, str]) -> dict[str, str]:
    """Returns the name for each of the words that are other names of it."""
    return {word: name for name, words in names.items() for word in words.split()}


def closest(name: str, names: Iterable[str]) -> str | None:
    """Returns the one nearest name within 2 edits; of two that with its first letter."""
    best, nearest = None, (MAX_DISTANCE, True)
    low, size = name.lower(), len(name)
    letters, several = set(low), False
    for other in names:
        # An edit adds a letter and takes one at most. A file may hold thousands of names that are
        # unknown, so what is far must cost next to nothing.
        if abs(len(other) - size) > nearest[0]:
            continue
        lower = other.lower()
        if len(letters.symmetric_difference(lower)) > 2 * nearest[0]:
            continue
        distance = 0 if lower == low else edit_distance(low, lower)
        found = distance, lower[:1] != low[:1]
        if found <= nearest and distance * 2 < max(size, 1):
            several = best is not None and found == nearest and other != best
            best, nearest = other, found
    return None if several else best


def edit_distance(left: str, right: str) -> int:
    """Returns how many insertions, deletions, changes or swaps lead from one to the other."""
    older: list[int] = []
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
