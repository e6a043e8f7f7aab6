"""Which of several names a name is close to: the distance and its limit.

What is then suggested says whoever asks.
"""

from collections.abc import Iterable, Mapping
from typing import Final

MAX_DISTANCE: Final = 2


def called(names: Mapping[str, str]) -> dict[str, str]:
    """Returns the name for each of the words that are other names of it."""
    return {word: name for name, words in names.items() for word in words.split()}


def closest(name: str, names: Iterable[str]) -> str | None:
    """Returns the nearest of the names within edit distance 2, None if there is none."""
    best, best_distance = None, MAX_DISTANCE + 1
    low, size = name.lower(), len(name)
    letters = set(low)
    for other in names:
        # An edit adds a letter and takes one at most. A file may hold thousands of names that are
        # unknown, so what is far away must cost next to nothing.
        if abs(len(other) - size) >= best_distance:
            continue
        lower = other.lower()
        if len(letters.symmetric_difference(lower)) > 2 * (best_distance - 1):
            continue
        distance = 0 if lower == low else edit_distance(low, lower)
        if distance < best_distance and distance * 2 < max(size, 1):
            best, best_distance = other, distance
            if not distance:
                break
    return best


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
