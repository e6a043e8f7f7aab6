"""Samples by whose they are: answers of a source in, values and columns of values out.

Everything is found by texts: one for a node (which has many names, so that `NodeDirectory` says
which), a domain, a namespace, a workload or a pod, two for a pair. There may be as many pairs as
the square of the nodes, so that nothing here goes through them one by one but the thread that reads
an answer.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import CodeColumn, Dictionary, FloatColumn
from engine.objects import Node
from engine.signals.spec import CLUSTER, DOMAIN_LABELS, NODE, PAIR, Question

Key = tuple[str, ...]
"""Whose a value is: nobody's for the cluster, a domain or namespace, namespace and name, a pair."""
Slots = NDArray[np.int64]
"""Places in the arrays of a metric's samples, -1 for none."""
Pause = Callable[[], None]

_PAUSE_EVERY: Final = 256
_NAMED: Final = frozenset({"workload", "pod"})
_BESIDE: Final = 20_000
"""Samples that the newest answer does not have are kept beside it; of nodes all there are."""
_LEFT_KEPT: Final = 20_000
_NAN: Final = math.nan
_HALF: Final = 32
_MOST_SPARE: Final = 1000
_HOSTNAME_LABEL = "kubernetes.io/hostname"
_ADDRESSES = frozenset({"InternalIP", "Hostname", "InternalDNS"})
_Known = tuple[tuple[str, ...], tuple[str | None, ...]]
"""Other names of a node, and in which zone, region and rack it is."""


class NodeDirectory:
    """Nodes by any of their names; `version` counts changes. `find` may run in another thread."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Known] = {}
        """By name; changed here alone."""
        self._aliases: dict[str, tuple[str, ...]] = {}
        """Whose another name is. The last one counts: a node that was replaced may stay for a while
        beside the one that has its address now."""
        self.version = 0

    def domains(self, of: str) -> Iterable[str | None]:
        """In which zone, region or rack each node is."""
        place = tuple(DOMAIN_LABELS).index(of)
        return (domains[place] for _, domains in self.nodes.values())

    def put(self, node: Node) -> None:
        """A node is there, or its names or domains may have changed."""
        name, labels = node.metadata.name, node.metadata.labels or {}
        known = tuple(dict.fromkeys(_aliases(node))), tuple(map(labels.get, DOMAIN_LABELS.values()))
        if self.nodes.get(name) == known:
            return
        self.remove(name)
        self.nodes[name] = known
        for alias in known[0]:
            self._aliases[alias] = (*self._aliases.get(alias, ()), name)
        self.version += 1

    def remove(self, name: str) -> None:
        """A node is gone; nothing happens if it was not there."""
        if name not in self.nodes:
            return
        for alias in self.nodes.pop(name)[0]:
            others = tuple([one for one in self._aliases.pop(alias) if one != name])
            if others:
                self._aliases[alias] = others
        self.version += 1

    def find(self, text: str) -> str | None:
        """The name of the node that `text` means, a port at its end left aside."""
        for one in (text, without_port(text)):
            names = (one,) if one in self.nodes else self._aliases.get(one)
            if names:
                return names[-1]
        return None


def _aliases(node: Node) -> Iterable[str]:
    hostname = (node.metadata.labels or {}).get(_HOSTNAME_LABEL)
    if hostname:
        yield hostname
    for address in node.status.addresses or ():
        if address.type in _ADDRESSES and address.address:
            yield address.address


def without_port(text: str) -> str:
    """`10.0.0.1:9100`, `[fd00::1]:9100`, `host:9100` without the port; the rest unchanged."""
    if text.startswith("["):
        host, bracket, _ = text[1:].partition("]")
        return host if bracket else text
    host, colon, port = text.rpartition(":")
    return host if colon and port.isdecimal() and ":" not in host else text


class Series(NamedTuple):
    """One series of an answer: the texts that may name its owner, its value and its time."""

    names: tuple[str, ...]
    value: float
    time: float


class Match(msgspec.Struct, frozen=True):
    """An answer with its series assigned, as long as the `basis` is what it was.

    `keys` are numbers of texts, a pair's left one in the upper half; those of `new` texts follow
    the known ones; some may be without a namespace. `left` are series that name no node yet.
    """

    basis: tuple[object, int, int]
    keys: Slots
    values: FloatColumn
    times: FloatColumn
    series: int
    unmatched: int
    duplicates: int
    new: Mapping[str, int] = {}
    without_namespace: bool = False
    left: Sequence[Series] = ()


def missing(size: int) -> FloatColumn:
    """A column without any value."""
    return np.full(size, _NAN)


class Samples:
    """The newest sample of whatever texts name, in the order of their numbers.

    A workload or pod is one text, `NAMESPACE/NAME`; the cluster has the empty one. The last element
    of all arrays is always NaN: it stands for slot -1.

    Single owner: the event loop; only `match` may run in another thread.
    """

    def __init__(self, question: Question, directory: NodeDirectory) -> None:
        self.values = missing(1)
        self.times = missing(1)
        self.series = self.unmatched = self.duplicates = 0
        self.error = ""
        self._question = question
        self._directory = directory
        self._of_nodes = question.of == NODE
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
        self._left: Sequence[Series] = ()
        self._matched_at = -1

    @property
    def basis(self) -> tuple[object, int, int]:
        """What a match is made of; one that was made of something else does not hold."""
        return self.ends, len(self.ends), self._directory.version if self._of_nodes else 0

    def holds(self, match: Match) -> bool:
        """Whether a match was made of what is known now."""
        ends, *rest = self.basis
        return match.basis[0] is ends and [*match.basis[1:]] == rest

    def match(self, answer: Iterable[Series], pause: Pause) -> Match:
        """Finds whose each series is; of several for one the largest value counts.

        The cluster has one value: of several series none is it.
        """
        basis = self.basis
        ends, first = self.ends, len(self.ends)
        new: dict[str, int] = {}
        keys, values, times, left = array("q"), array("d"), array("d"), []
        count = 0
        for count, series in enumerate(answer, 1):
            if not count % _PAUSE_EVERY:
                pause()
            texts = self._texts(series.names)
            if texts is None:
                left.append(series)
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
        found = np.frombuffer(keys, np.int64)
        worth, when = np.frombuffer(values), np.frombuffer(times)
        order = np.lexsort((worth, found))
        sorted_ = found[order]
        last = order[np.append(sorted_[1:] != sorted_[:-1], True)[: len(sorted_)]]
        duplicates = len(found) - len(last)
        if self._question.of == CLUSTER and duplicates:
            worth, when = missing(len(found)), missing(len(found))
        return Match(
            basis,
            found[last],
            worth[last],
            when[last],
            count,
            len(left),
            duplicates,
            new,
            self._question.of in _NAMED and any(text.startswith("/") for text in new),
            left[:_LEFT_KEPT] if self._of_nodes else (),
        )

    def take(self, match: Match, now: float, *, whole: bool = False) -> None:
        """Stores an answer: who it does not have keeps the sample, unless it is the `whole`."""
        # INVARIANT: `holds(match)`.
        self.ends.update(match.new)
        self.without_namespace |= match.without_namespace
        # Our clock decides how old a sample is; one from the future is from now.
        values, times = match.values, np.minimum(match.times, now)
        self.unmatched, self._left = match.unmatched, match.left
        self._matched_at = self._directory.version
        if np.array_equal(self._keys, match.keys):
            self.values, self.times = np.append(values, _NAN), np.append(times, _NAN)
            return
        gone = np.isin(self._keys, match.keys, assume_unique=True) | np.isnan(self.times[:-1])
        old = np.flatnonzero(~(gone | whole))
        if len(old) > _BESIDE and not self._of_nodes:
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

    def look_again(self, now: float) -> None:
        """Nodes came or got addresses since the answer: looks at what had no node."""
        if self._left and self._matched_at != self._directory.version:
            self.take(self.match(self._left, lambda: None), now)

    def forget(self, node: str) -> None:
        """A node is gone; whoever has its name later is another one."""
        if self._of_nodes:
            slot = self._places[self.ends.get(node, -1)]
            self.values[slot] = self.times[slot] = _NAN

    def _forget_ends(self) -> None:
        """Numbers the texts anew if most of them name nothing any more."""
        halves = self._keys >> _HALF, self._keys & ((1 << _HALF) - 1)
        used = np.zeros(len(self.ends), np.bool_)
        for half in halves:
            used[half] = True
        if len(self.ends) <= 2 * np.count_nonzero(used) + _MOST_SPARE:
            return
        texts = list(self.ends)
        self.ends = {texts[end]: place for place, end in enumerate(np.flatnonzero(used).tolist())}
        # The order stays, as smaller numbers got smaller ones.
        left, right = (np.cumsum(used)[half] - 1 for half in halves)
        self._keys = left << _HALF | right
        self._coded_in = None

    def fresh(self, slots: Slots, since: float) -> FloatColumn:
        """The values of slots, NaN where there is none or only one from before `since`."""
        return np.where(self.times[slots] >= since, self.values[slots], _NAN)

    def slots(self, dictionary: Dictionary, *codes: CodeColumn) -> Slots:
        """The slots of texts, or of pairs of them, given by their codes, -1 for no text."""
        numbers = self._by_code(dictionary)
        known = [np.where(each < 0, -1, numbers.take(each, mode="clip")) for each in codes]
        if not self._of_pairs:
            return self._places[known[0]]
        left, right = known
        return self._find(left << _HALF | right)  # below 0 is no key

    def slots_by_code(self, dictionary: Dictionary) -> Slots:
        """The slot of each text of the dictionary by its code; the last is for codes beyond."""
        return self._places[self._by_code(dictionary)]

    def newest(self, key: Key, since: float) -> float:
        """The value of a key, NaN if it has none or only one from before `since`."""
        if self._of_pairs:
            left, right = (self.ends.get(text, -1) for text in key)
            slot = self._find(np.array([left << _HALF | right]))[0]  # below 0 is no key
        else:
            slot = self._places[self.ends.get("/".join(key), -1)]
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

    def _texts(self, names: Key) -> Key | None:
        """The texts that name what a series with these labels is of; None: they name nothing."""
        question = self._question
        if self._of_nodes:
            found = filter(None, map(self._directory.find, names))
            return next(((name,) for name in found), None)
        if question.any_label:
            return names[:1] or None
        # Names are unique within a namespace; a query may have left it out.
        if not (names[-1] if question.of in _NAMED else all(names)):
            return None
        return names if self._of_pairs else ("/".join(names),)
