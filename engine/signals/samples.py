"""Samples kept by slot, and slots by what the series of an answer are of: answers in, values out.

What nodes have is matched by `NodeDirectory`, as a node has many names; everything else is found
by the texts of its labels, and has its slots here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import Dictionary, FloatColumn
from engine.signals.spec import CLUSTER, Question

Key = tuple[str, ...]
"""What a value is of: nothing for the cluster, a domain, a namespace, or namespace and name."""

PAUSE_EVERY: Final = 256
BESIDE: Final = 20_000
_NAN: Final = math.nan
_NAMED: Final = 2


class Series(NamedTuple):
    """One series of an answer: the texts that may name its owner, its value and its time."""

    names: tuple[str, ...]
    value: float
    time: float


def missing(size: int) -> FloatColumn:
    """A column without any value."""
    return np.full(size, _NAN)


@dataclass(slots=True)
class Samples:
    """The newest sample of each slot. The last element is always NaN: it stands for slot -1."""

    values: FloatColumn = field(default_factory=lambda: missing(1))
    times: FloatColumn = field(default_factory=lambda: missing(1))
    series: int = 0
    unmatched: int = 0
    duplicates: int = 0
    error: str = ""

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` slots and the one after."""
        have = self.values.size
        if have <= capacity:
            room = max(capacity + 1, 2 * have) - have
            self.values = np.concatenate((self.values, missing(room)))
            self.times = np.concatenate((self.times, missing(room)))

    @property
    def known(self) -> int:
        """How many slots have a sample."""
        return int(np.count_nonzero(~np.isnan(self.times)))


@dataclass(frozen=True, slots=True)
class KeyedMatch:
    """An answer with its series assigned to slots of `places`; those of `new` keys follow."""

    places: Mapping[Key, int]
    first: int
    new: Sequence[Key]
    slots: NDArray[np.intp]
    values: FloatColumn
    times: FloatColumn
    series: int
    unmatched: int
    duplicates: int


class KeyedSamples(Samples):
    """Samples by key. Slots are dense; keys that are not heard of any more go in the end.

    Single owner: the event loop; only `match` may run in another thread.
    """

    __slots__ = ("_coded_in", "_codes", "places", "without_namespace")

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[Key, int] = {}
        """The slot of each key. Another object after slots were given anew."""
        self.without_namespace = False
        """Whether there is a key of a name alone."""
        self._codes: list[int] = []
        self._coded_in: Dictionary | None = None

    def match(
        self, question: Question, answer: Sequence[Series], pause: Callable[[], None]
    ) -> KeyedMatch:
        """Finds the slot of each series; of several for one key the largest value counts.

        The cluster has one value: where there are several series, none of them is it.
        """
        places = self.places
        best: dict[Key, Series] = {}
        unmatched = duplicates = 0
        for number, series in enumerate(answer):
            if not number % PAUSE_EVERY:
                pause()
            key = key_of(question, series.names)
            if key is None:
                unmatched += 1
                continue
            there = best.get(key)
            if there is not None:
                duplicates += 1
                if there.value >= series.value:
                    continue
            best[key] = series
        if question.of == CLUSTER and duplicates:
            best = {(): Series((), _NAN, _NAN)}
        first = len(places)
        new = [key for key in best if key not in places]
        fresh = {key: first + place for place, key in enumerate(new)}
        slots = (places[key] if key in places else fresh[key] for key in best)
        count = len(best)
        return KeyedMatch(
            places,
            first,
            new,
            np.fromiter(slots, np.intp, count),
            np.fromiter((one.value for one in best.values()), np.float64, count),
            np.fromiter((one.time for one in best.values()), np.float64, count),
            len(answer),
            unmatched,
            duplicates,
        )

    def holds(self, match: KeyedMatch) -> bool:
        """Whether a match was made of the slots as they are."""
        return match.places is self.places and match.first == len(self.places)

    def take(self, match: KeyedMatch, now: float) -> None:
        """Stores an answer: keys that it does not have keep their sample until it is stale."""
        # INVARIANT: `holds(match)`.
        for slot, key in enumerate(match.new, match.first):
            self.places[key] = slot
            self.without_namespace |= len(key) == _NAMED and not key[0]
        self.grow(len(self.places))
        self.values[match.slots] = match.values
        # Our clock decides how old a sample is; one from the future is from now.
        self.times[match.slots] = np.minimum(match.times, now)
        self.series, self.unmatched = match.series, match.unmatched
        if len(self.places) > match.series + BESIDE:
            self._shrink(match.series + BESIDE // 2)

    def _shrink(self, keep: int) -> None:
        """Keeps the youngest samples only: pods come and go, and with them their keys."""
        count = len(self.places)
        ages = np.where(np.isnan(self.times[:count]), np.inf, -self.times[:count])
        kept = np.sort(np.argpartition(ages, keep)[:keep])
        keys = list(self.places)
        self.places = {keys[slot]: place for place, slot in enumerate(kept.tolist())}
        self._codes.clear()
        self.values = np.append(self.values[kept], _NAN)
        self.times = np.append(self.times[kept], _NAN)

    def by_code(self, dictionary: Dictionary, since: float) -> FloatColumn:
        """Values by the codes of `NAMESPACE/NAME`; the last element is for codes beyond, and NaN.

        Linear in the dictionary, and in keys that are new to it.
        """
        if self._coded_in is not dictionary:
            self._codes.clear()
            self._coded_in = dictionary
        for key in islice(self.places, len(self._codes), None):
            self._codes.append(dictionary.code("/".join(key)))
        count = len(self._codes)
        values = np.where(self.times[:count] >= since, self.values[:count], _NAN)
        table = missing(len(dictionary.texts) + 1)
        table[self._codes] = values
        return table

    def newest(self, key: Key, since: float) -> float:
        """The value of a key, NaN if it has none or only one from before `since`."""
        slot = self.places.get(key, -1)
        value = float(self.values[slot]) if self.times[slot] >= since else _NAN
        if math.isnan(value) and len(key) == _NAMED and key[0]:
            # A series without a namespace is of whatever has its name.
            return self.newest(("", key[1]), since)
        return value


def key_of(question: Question, names: Sequence[str]) -> Key | None:
    """What a series with these labels is of; None where a label is missing."""
    if question.any_label:
        return tuple(names[:1]) or None
    if question.of in ("workload", "pod"):
        # Names are unique within a namespace; a query may have left it out.
        return tuple(names) if names[-1] else None
    return tuple(names) if all(names) else None
