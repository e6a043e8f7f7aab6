"""Samples of pairs: two texts name each, columns of both come in, a column of values goes out.

There may be as many as the square of the nodes, so that nothing here goes through them one by one
but the thread that reads an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import CodeColumn, Dictionary, FloatColumn
from engine.signals.samples import BESIDE, PAUSE_EVERY, Samples, Series

_NAN: Final = math.nan
_HALF: Final = 32
_MOST_SPARE: Final = 1000
Keys = NDArray[np.int64]
"""Both ends of each pair, as numbers: the left one in the upper half."""


@dataclass(frozen=True, slots=True)
class PairMatch:
    """An answer as numbers of the texts in `ends`; those of `new` texts follow."""

    ends: Mapping[str, int]
    first: int
    new: Sequence[str]
    keys: Keys
    values: FloatColumn
    times: FloatColumn
    series: int
    unmatched: int
    duplicates: int


class PairSamples(Samples):
    """The newest sample of each pair, in the order of their keys.

    Single owner: the event loop; only `match` may run in another thread.
    """

    __slots__ = ("_coded", "_coded_in", "_keys", "_numbers", "ends")

    def __init__(self) -> None:
        super().__init__(np.empty(0), np.empty(0))
        self.ends: dict[str, int] = {}
        """The number of each text. Another object after numbers were given anew."""
        self._keys: Keys = np.empty(0, np.int64)
        self._coded = 0
        self._coded_in: Dictionary | None = None
        self._numbers: NDArray[np.int64] = np.full(1, -1, np.int64)

    def match(self, answer: Sequence[Series], pause: Callable[[], None]) -> PairMatch:
        """Numbers both ends of each series; of several of one pair the largest value counts."""
        ends, first = self.ends, len(self.ends)
        new: dict[str, int] = {}
        keys, values, times = [], [], []
        for number, series in enumerate(answer):
            if not number % PAUSE_EVERY:
                pause()
            left, right = series.names
            if not left or not right:
                continue
            key = 0
            for text in (left, right):
                end = ends.get(text)
                if end is None:
                    end = new.setdefault(text, first + len(new))
                key = key << _HALF | end
            keys.append(key)
            values.append(series.value)
            times.append(series.time)
        found = np.array(keys, np.int64)
        worth, when = np.array(values, np.float64), np.array(times, np.float64)
        order = np.lexsort((worth, found))
        found = found[order]
        last = order[np.append(found[1:] != found[:-1], True)[: len(found)]]
        return PairMatch(
            ends,
            first,
            list(new),
            np.array(keys, np.int64)[last],
            worth[last],
            when[last],
            len(answer),
            len(answer) - len(keys),
            len(keys) - len(last),
        )

    def holds(self, match: PairMatch) -> bool:
        """Whether a match was made of the numbers as they are."""
        return match.ends is self.ends and match.first == len(self.ends)

    def take(self, match: PairMatch, now: float) -> None:
        """Stores an answer: pairs that it does not have keep their sample until it is stale."""
        # INVARIANT: `holds(match)`.
        for end, text in enumerate(match.new, match.first):
            self.ends[text] = end
        # Our clock decides how old a sample is; one from the future is from now.
        times = np.minimum(match.times, now)
        self.series, self.unmatched = match.series, match.unmatched
        if np.array_equal(self._keys, match.keys):
            self.values, self.times = match.values, times
            return
        old = np.flatnonzero(~np.isin(self._keys, match.keys, assume_unique=True))
        if len(old) > BESIDE:
            old = old[np.argpartition(-self.times[old], BESIDE // 2)[: BESIDE // 2]]
        keys = np.concatenate((self._keys[old], match.keys))
        order = np.argsort(keys)
        self._keys = keys[order]
        self.values = np.concatenate((self.values[old], match.values))[order]
        self.times = np.concatenate((self.times[old], times))[order]
        self._forget_ends()

    def _forget_ends(self) -> None:
        """Numbers the texts anew if most of them are in no pair any more."""
        halves = np.stack((self._keys >> _HALF, self._keys & ((1 << _HALF) - 1)))
        used, places = np.unique(halves, return_inverse=True)
        if len(self.ends) <= 2 * len(used) + _MOST_SPARE:
            return
        texts = list(self.ends)
        self.ends = {texts[end]: place for place, end in enumerate(used.tolist())}
        # The order stays, as smaller numbers got smaller ones.
        left, right = places.reshape(halves.shape)
        self._keys = left.astype(np.int64) << _HALF | right
        self._coded_in = None

    def newest(self, left: str, right: str, since: float) -> float:
        """The value of a pair, NaN if it has none or only one from before `since`."""
        ends = self.ends.get(left), self.ends.get(right)
        if ends[0] is None or ends[1] is None:
            return _NAN
        return float(self._find(np.array([ends[0] << _HALF | ends[1]]), since)[0])

    def column(
        self, left: CodeColumn, right: CodeColumn, dictionary: Dictionary, since: float
    ) -> FloatColumn:
        """The values of pairs whose ends are given by their codes, -1 for no text."""
        numbers = self._by_code(dictionary)
        ends = [numbers.take(codes, mode="clip") for codes in (left, right)]
        keys = np.where((left < 0) | (right < 0), -1, ends[0] << _HALF | ends[1])
        return self._find(keys, since)

    def pairs(self, since: float) -> dict[tuple[str, ...], float]:
        """All pairs with a sample that is not from before `since`."""
        texts = list(self.ends)
        good = np.flatnonzero(self.times >= since)
        lefts, rights = self._keys[good] >> _HALF, self._keys[good] & ((1 << _HALF) - 1)
        found = zip(lefts.tolist(), rights.tolist(), self.values[good].tolist(), strict=True)
        return {(texts[left], texts[right]): value for left, right, value in found}

    def _find(self, keys: Keys, since: float) -> FloatColumn:
        if not len(self._keys):
            return np.full(keys.shape, _NAN)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        good = (self._keys[at] == keys) & (self.times[at] >= since)
        return np.where(good, self.values[at], _NAN)

    def _by_code(self, dictionary: Dictionary) -> NDArray[np.int64]:
        """The number of each text by its code, -1 for none; the last is for codes beyond."""
        if self._coded_in is not dictionary:
            self._coded_in, self._coded = dictionary, 0
            self._numbers = np.full(1, -1, np.int64)
        if self._coded < len(self.ends):
            texts = list(self.ends)[self._coded :]
            codes = [dictionary.code(text) for text in texts]
            numbers = np.full(len(dictionary.texts) + 1, -1, np.int64)
            numbers[: len(self._numbers) - 1] = self._numbers[:-1]
            numbers[codes] = np.arange(self._coded, len(self.ends))
            self._numbers, self._coded = numbers, len(self.ends)
        return self._numbers
