"""Samples kept by slot, and slots by what the series of an answer are of: answers in, values out.

Nodes have many names, so their slots are those of `NodeDirectory`. All else is found by the texts
of its labels: one for a domain, a namespace, a workload or a pod, two for a pair. There may be as
many pairs as the square of the nodes, so that nothing here goes through them one by one but the
thread that reads an answer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import CodeColumn, Dictionary, FloatColumn
from engine.signals.directory import NodeDirectory
from engine.signals.spec import CLUSTER, PAIR, Question

Key = tuple[str, ...]
"""Whose a value is: nobody's for the cluster, a domain or namespace, namespace and name, a pair."""
Slots = NDArray[np.int64]
Pause = Callable[[], None]

_PAUSE_EVERY: Final = 256
_NAMED: Final = frozenset({"workload", "pod"})
_BESIDE: Final = 20_000
"""Samples that the newest answer does not have are kept beside it."""
_LEFT_KEPT: Final = 20_000
_NAN: Final = math.nan
_HALF: Final = 32
_MOST_SPARE: Final = 1000


class Series(NamedTuple):
    """One series of an answer: the texts that may name its owner, its value and its time."""

    names: tuple[str, ...]
    value: float
    time: float


class Match(msgspec.Struct, frozen=True):
    """An answer with its series assigned, as long as the `basis` is what it was.

    Of nodes `keys` are slots, and `left` series that name none. Of all else they are numbers of
    texts, a pair's left one in the upper half; those of `new` texts follow the known ones.
    """

    basis: tuple[object, int]
    keys: Slots
    values: FloatColumn
    times: FloatColumn
    series: int
    unmatched: int
    duplicates: int
    new: Sequence[str] = ()
    left: Sequence[Series] = ()


def missing(size: int) -> FloatColumn:
    """A column without any value."""
    return np.full(size, _NAN)


class Samples(ABC):
    """The newest sample of each slot. The last element is always NaN: it stands for slot -1.

    Single owner: the event loop; only `match` may run in another thread.
    """

    def __init__(self) -> None:
        self.values = missing(1)
        self.times = missing(1)
        self.series = self.unmatched = self.duplicates = 0
        self.error = ""

    @property
    @abstractmethod
    def basis(self) -> tuple[object, int]:
        """What a match is made of; one that was made of something else does not hold."""

    @abstractmethod
    def match(self, answer: Sequence[Series], pause: Pause) -> Match:
        """Finds whose each series is; of several for one the largest value counts."""

    @abstractmethod
    def take(self, match: Match, now: float) -> None:
        """Stores an answer: who it does not have keeps the sample until it is stale."""

    def holds(self, match: Match) -> bool:
        """Whether a match was made of what is known now."""
        (of, version), (now_of, now_version) = match.basis, self.basis
        return of is now_of and version == now_version

    def fresh(self, slots: Slots, since: float) -> FloatColumn:
        """The values of slots, NaN where there is none or only one from before `since`."""
        return np.where(self.times[slots] >= since, self.values[slots], _NAN)


class NodeSamples(Samples):
    """The samples of a metric of nodes, and series that had no node yet."""

    def __init__(self, directory: NodeDirectory) -> None:
        super().__init__()
        self._directory = directory
        self._left: Sequence[Series] = ()
        self._matched_at = -1

    @property
    def basis(self) -> tuple[object, int]:
        """A slot may be another node's in the next version of the directory."""
        return self._directory, self._directory.version

    def match(self, answer: Sequence[Series], pause: Pause) -> Match:
        """See `Samples`."""
        basis, find = self.basis, self._directory.find
        best: dict[int, Series] = {}
        left: list[Series] = []
        duplicates = 0
        for number, series in enumerate(answer):
            if not number % _PAUSE_EVERY:
                pause()
            slot = next((found for name in series.names if (found := find(name)) >= 0), -1)
            known = best.get(slot)
            if slot < 0:
                left.append(series)
                continue
            duplicates += known is not None
            if known is None or known.value < series.value:
                best[slot] = series
        count = len(best)
        return Match(
            basis,
            np.fromiter(best, np.int64, count),
            np.fromiter((one.value for one in best.values()), np.float64, count),
            np.fromiter((one.time for one in best.values()), np.float64, count),
            len(answer),
            min(len(left), _LEFT_KEPT),
            duplicates,
            left=left[:_LEFT_KEPT],
        )

    def take(self, match: Match, now: float) -> None:
        """See `Samples`."""
        self.grow()
        self.values[match.keys] = match.values
        # Our clock decides how old a sample is; one from the future is from now.
        self.times[match.keys] = np.minimum(match.times, now)
        self._left, self.unmatched = match.left, match.unmatched
        self._matched_at = self._directory.version

    def look_again(self, now: float) -> None:
        """Nodes came or got addresses since the answer: looks at what had no node."""
        if self._left and self._matched_at != self._directory.version:
            self.take(self.match(self._left, lambda: None), now)
        self.grow()

    def forget(self, slot: int) -> None:
        """The node of a slot is gone."""
        if slot < self.values.size - 1:
            self.values[slot] = self.times[slot] = _NAN

    def grow(self) -> None:
        """Makes room for all slots and the one after."""
        have, capacity = self.values.size, self._directory.capacity
        if have <= capacity:
            more = missing(max(capacity + 1, 2 * have) - have)
            self.values = np.concatenate((self.values, more))
            self.times = np.concatenate((self.times, more))


class NamedSamples(Samples):
    """The newest sample of whatever texts name, in the order of their numbers.

    A workload or pod is one text, `NAMESPACE/NAME`; the cluster has the empty one.
    """

    def __init__(self, question: Question) -> None:
        super().__init__()
        self._question = question
        self._of_pairs = question.of == PAIR
        self.ends: dict[str, int] = {}
        """The number of each text. Another object after numbers were given anew."""
        self.without_namespace = False
        """Whether there is a name that may be of any namespace."""
        self._keys: Slots = np.empty(0, np.int64)
        self._places: Slots = np.full(1, -1, np.int64)
        """The slot of each text, where one is enough; -1 for none, and at the end."""
        self._numbers: Slots = np.full(1, -1, np.int64)
        self._coded_in: Dictionary | None = None
        self._coded = 0

    @property
    def basis(self) -> tuple[object, int]:
        """See `Samples`."""
        return self.ends, len(self.ends)

    def match(self, answer: Sequence[Series], pause: Pause) -> Match:
        """See `Samples`; the cluster has one value: of several series none is it."""
        ends, first = self.ends, len(self.ends)
        new: dict[str, int] = {}
        keys, values, times = [], [], []
        for number, series in enumerate(answer):
            if not number % _PAUSE_EVERY:
                pause()
            texts = _texts(self._question, series.names)
            if texts is None:
                continue
            key = 0
            for text in texts:
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
        sorted_ = found[order]
        last = order[np.append(sorted_[1:] != sorted_[:-1], True)[: len(sorted_)]]
        duplicates = len(found) - len(last)
        if self._question.of == CLUSTER and duplicates:
            worth, when = missing(len(found)), missing(len(found))
        return Match(
            (ends, first),
            found[last],
            worth[last],
            when[last],
            len(answer),
            len(answer) - len(found),
            duplicates,
            list(new),
        )

    def take(self, match: Match, now: float) -> None:
        """See `Samples`."""
        # INVARIANT: `holds(match)`.
        for end, text in enumerate(match.new, len(self.ends)):
            self.ends[text] = end
            self.without_namespace |= self._question.of in _NAMED and text.startswith("/")
        # Our clock decides how old a sample is; one from the future is from now.
        values, times = match.values, np.minimum(match.times, now)
        self.unmatched = match.unmatched
        if np.array_equal(self._keys, match.keys):
            self.values, self.times = np.append(values, _NAN), np.append(times, _NAN)
            return
        old = np.flatnonzero(~np.isin(self._keys, match.keys, assume_unique=True))
        if len(old) > _BESIDE:
            old = old[np.argpartition(-self.times[old], _BESIDE // 2)[: _BESIDE // 2]]
        keys = np.concatenate((self._keys[old], match.keys))
        order = np.argsort(keys)
        self._keys = keys[order]
        self.values = np.append(np.concatenate((self.values[old], values))[order], _NAN)
        self.times = np.append(np.concatenate((self.times[old], times))[order], _NAN)
        self._forget_ends()
        if not self._of_pairs:
            self._places = np.full(len(self.ends) + 1, -1, np.int64)
            self._places[self._keys] = np.arange(len(self._keys))

    def _forget_ends(self) -> None:
        """Numbers the texts anew if most of them name nothing any more."""
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

    def slots(self, dictionary: Dictionary, *codes: CodeColumn) -> Slots:
        """The slots of texts, or of pairs of them, given by their codes, -1 for no text."""
        numbers = self._by_code(dictionary)
        known = [np.where(each < 0, -1, numbers.take(each, mode="clip")) for each in codes]
        if not self._of_pairs:
            return self._places[known[0]]
        left, right = known
        return self._find(np.where(left < 0, -1, left << _HALF | right))

    def slots_by_code(self, dictionary: Dictionary) -> Slots:
        """The slot of each text of the dictionary by its code; the last is for codes beyond."""
        return self._places[self._by_code(dictionary)]

    def newest(self, key: Key, since: float) -> float:
        """The value of a key, NaN if it has none or only one from before `since`."""
        texts = key if self._of_pairs else ("/".join(key),)
        number = 0
        for text in texts:
            end = self.ends.get(text)
            if end is None:
                number = -1
                break
            number = number << _HALF | end
        slot = self._find(np.array([number]))[0] if self._of_pairs else self._places[number]
        value = float(self.values[slot]) if self.times[slot] >= since else _NAN
        if self.without_namespace and key[0] and math.isnan(value):
            # A series without a namespace is of whatever has its name.
            return self.newest(("", key[1]), since)
        return value

    def all(self, since: float) -> dict[Key, float]:
        """All keys with a sample that is not from before `since`."""
        texts = list(self.ends)
        good = np.flatnonzero(self.times[:-1] >= since)
        values, keys = self.values[good].tolist(), self._keys[good]
        rights = [texts[end] for end in (keys & ((1 << _HALF) - 1)).tolist()]
        if self._of_pairs:
            lefts = [texts[end] for end in (keys >> _HALF).tolist()]
            return dict(zip(zip(lefts, rights, strict=True), values, strict=True))
        parts = len(self._question.by) if self._question.of != CLUSTER else 0
        split = (tuple(text.split("/", parts - 1)) if parts else () for text in rights)
        return dict(zip(split, values, strict=True))

    def names(self, text: str) -> bool:
        """Whether a text names something that has a sample, however old."""
        return bool(self._places[self.ends.get(text, -1)] >= 0)

    def _find(self, keys: Slots) -> Slots:
        if not len(self._keys):
            return np.full(keys.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, at, -1)

    def _by_code(self, dictionary: Dictionary) -> Slots:
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


def _texts(question: Question, names: Key) -> Key | None:
    """The texts that name what a series with these labels is of; None where a label is missing."""
    if question.any_label:
        return names[:1] or None
    # Names are unique within a namespace; a query may have left it out.
    if not (names[-1] if question.of in _NAMED else all(names)):
        return None
    return names if question.of == PAIR else ("/".join(names),)
