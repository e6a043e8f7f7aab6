"""Pods in, how many are on each node row out: of a pod set, or of those with an affinity term.

A set (pods by labels and namespace) is counted once it is asked for; the least recently used go
first. Which sets a pod is in is kept for all pods with equal labels, as far as any set's selector
names them, so that a change of a pod costs as many steps as there are sets that match it. Pods with
equal terms share them, so that a thousand replicas are one term. Does not know what counts are for.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from engine.cache.pods import PodTable
from engine.changelog import ChangeLog
from engine.objects import Namespace, ObjectMeta
from engine.pods.podterms import PodTerm, Spaces
from engine.pods.selectors import EVERYTHING, NOTHING, Selector

MOST_SETS: Final = 8192
"""However many pods there are; a set takes some 5 KiB."""
LEAST_SETS: Final = 512
MOST_COUNTS: Final = 1 << 20
_FEW_NAMESPACES: Final = 8
_FEW_VALUES: Final = 8
_MOST_PROFILES: Final = 1 << 16

Labels = Mapping[str, str]
_Pair = tuple[str | None, str | None, str | None]
_T = TypeVar("_T")


class Tally(ChangeLog):
    """Counts by node row, with a log of the rows whose count changed; the cache alone writes."""

    __slots__ = ("__weakref__", "counts", "live", "tables")

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[int, int] = {}
        """Node row -> how many; rows without any are left out."""
        self.live = True
        """False once it is no longer kept up to date: ask for another."""
        self.tables: OrderedDict[Any, Any] = OrderedDict()
        """What `domains` made of it, by grouping; they are told of each change."""

    def count(self, row: int, sign: int) -> None:
        """One more or one less on a row."""
        counts = self.counts
        count = counts.get(row, 0) + sign
        if count:
            counts[row] = count
        else:
            del counts[row]
        self.append(row)
        for table in self.tables.values():
            table.count(row, sign)


def add(counts: dict[int, int], key: int, amount: int) -> None:
    """Adds to a count; zero is left out."""
    count = counts.get(key, 0) + amount
    if count:
        counts[key] = count
    else:
        del counts[key]


class SelectorIndex(Generic[_T]):
    """Things with a selector, found by the labels and namespace of a pod.

    Each is kept under one label that its selector demands, so that few are looked at that do not
    match. Namespaces are only a hint here: `find` may give things of other namespaces.
    """

    def __init__(self) -> None:
        self._things: dict[_Pair, dict[int, tuple[Selector, _T]]] = {}

    def put(self, namespaces: frozenset[str] | None, selector: Selector, thing: _T) -> None:
        """Adds a thing (by identity) of these namespaces (None: any)."""
        for pair in _pairs(namespaces, selector):
            self._things.setdefault(pair, {})[id(thing)] = selector, thing

    def remove(self, namespaces: frozenset[str] | None, selector: Selector, thing: _T) -> None:
        """Takes the thing out again."""
        for pair in _pairs(namespaces, selector):
            things = self._things[pair]
            del things[id(thing)]
            if not things:
                del self._things[pair]

    def find(self, namespace: str, labels: Labels) -> Iterator[_T]:
        """Things whose selector matches the labels, of this namespace or of many."""
        known = self._things
        texts = [(key, text) for key, value in labels.items() for text in (None, value)]
        for place in (namespace, None):
            for key, text in [(None, None), *texts]:
                for selector, thing in known.get((place, key, text), {}).values():
                    if selector.matches(labels):
                        yield thing


def _pairs(namespaces: frozenset[str] | None, selector: Selector) -> list[_Pair]:
    """Where a thing is kept: for each namespace, if they are few, under a label it demands."""
    few = namespaces is not None and len(namespaces) <= _FEW_NAMESPACES
    places = sorted(namespaces) if few and namespaces is not None else [None]
    found: list[tuple[str | None, str | None]] = [(None, None)]
    for key, operator, values in selector.requirements or ():
        if operator == "In" and len(values) <= _FEW_VALUES:
            found = [(key, value) for value in values]
            if len(values) == 1:
                break
        elif operator == "Exists" and found[0][0] is None:
            found = [(key, None)]
    return [(place, *pair) for place in places for pair in found]


class _Set(Tally):
    """A pod set."""

    __slots__ = ("key",)

    def __init__(self, key: _SetKey) -> None:
        super().__init__()
        self.key = key


class _SetKey(NamedTuple):
    """Which pods; `namespaces` None: all."""

    namespaces: frozenset[str] | Spaces | None
    selector: Selector
    terminating: bool

    def covers(self, namespace: str, known: Mapping[str, Namespace], *, terminating: bool) -> bool:
        """Whether such pods can be in it, labels apart."""
        if terminating and not self.terminating:
            return False
        if isinstance(self.namespaces, Spaces):
            return self.namespaces.have(namespace, known)
        return self.namespaces is None or namespace in self.namespaces

    @property
    def names(self) -> frozenset[str] | None:
        """The namespaces, if they stay the same."""
        return None if isinstance(self.namespaces, Spaces) else self.namespaces


_Profile = tuple[str, bool, tuple[tuple[str, str], ...]]
"""All that sets can tell of a pod: namespace, whether it is being deleted, labels they name."""


class PodSetIndex:
    """All pod sets that are counted."""

    def __init__(self, pods: PodTable, namespaces: Mapping[str, Namespace]) -> None:
        """Starts with no sets; `pods` counts those that are there when a set is first asked for.

        `namespaces` are those known, by name.
        """
        self._pods = pods
        self._known = namespaces
        self.sets: OrderedDict[_SetKey, _Set] = OrderedDict()
        """Those that are counted; without any, changes of pods need not be told."""
        self._index: SelectorIndex[_Set] = SelectorIndex()
        self._sets_of: dict[_Profile, list[_Set]] = {}
        self._named: dict[str, int] = {}  # label key -> sets that name it
        self._weight = 0
        """Counts that there may be: no fewer than there are."""
        self.dropped = 0
        """How many sets are no longer counted."""

    def get(
        self, namespaces: frozenset[str] | Spaces | None, selector: Selector, *, terminating: bool
    ) -> Tally:
        """See `Topology.pod_set`."""
        key = _SetKey(namespaces, selector, terminating)
        known = self.sets.get(key)
        if known is not None:
            self.sets.move_to_end(key)
            return known
        known = self.sets[key] = _Set(key)
        names = key.names
        if isinstance(namespaces, Spaces):
            spaces = {*self._known}.union(*[named for named, _ in namespaces.each])
            names = frozenset([one for one in spaces if namespaces.have(one, self._known)])
        known.counts.update(self._pods.counted(names, selector, terminating=terminating))
        self._index.put(key.names, selector, known)
        for label in _labels(selector):
            self._named[label] = self._named.get(label, 0) + 1
        self._sets_of.clear()
        self._weight += len(known.counts)
        self._bound()
        return known

    def change(self, pod: ObjectMeta, row: int, sign: int) -> None:
        """A pod came to a row (sign 1) or went from it (sign -1)."""
        named, labels = self._named, pod.labels or {}
        namespace, terminating = pod.namespace, pod.deletion_timestamp is not None
        seen = tuple([one for one in labels.items() if one[0] in named])
        profile = namespace, terminating, seen
        sets = self._sets_of.get(profile)
        if sets is None:
            found = self._index.find(namespace, dict(seen))
            spaces = self._known
            sets = [s for s in found if s.key.covers(namespace, spaces, terminating=terminating)]
            if len(self._sets_of) >= _MOST_PROFILES:
                self._sets_of.clear()
            self._sets_of[profile] = sets
        for one in sets:
            one.count(row, sign)
        self._weight += len(sets)

    def namespace_changed(self, name: str, before: Namespace | None) -> None:
        """A namespace came, went or has other labels.

        If it has pods, sets that it is in now, or no longer, have to be asked for anew.
        """
        old, new = {} if before is None else {name: before}, self._known
        for profile in [one for one in self._sets_of if one[0] == name]:
            del self._sets_of[profile]
        by_labels = [one for one in self.sets.values() if isinstance(one.key.namespaces, Spaces)]
        if by_labels and self._pods.counted((name,), EVERYTHING, terminating=True):
            for one in by_labels:
                had, has = [one.key.covers(name, of, terminating=False) for of in (old, new)]
                if had != has:
                    self._drop_set(one)

    # ---- inside ----------------------------------------------------------------------------

    def _bound(self) -> None:
        # More than pods may ask for: pods of ever new names do not fill a small cluster's memory.
        sets, most = min(MOST_SETS, LEAST_SETS + 2 * self._pods.size), MOST_COUNTS
        if self._weight > most:
            self._weight = sum([len(one.counts) for one in self.sets.values()])
            most >>= 1  # so that they are not added up again soon
        while len(self.sets) > 1 and (len(self.sets) > sets or self._weight > most):
            self._drop_set(next(iter(self.sets.values())))

    def _drop_set(self, one: _Set) -> None:
        one.live = False
        self.dropped += 1
        self._weight -= len(one.counts)
        del self.sets[one.key]
        self._index.remove(one.key.names, one.key.selector, one)
        self._sets_of.clear()
        for label in _labels(one.key.selector):
            self._named[label] -= 1
            if not self._named[label]:
                del self._named[label]


def _labels(selector: Selector) -> set[str]:
    return {requirement.key for requirement in selector.requirements or ()}


class CountedTerm(Tally):
    """A term, and how many pods on each row have it."""

    __slots__ = ("identity", "serial", "term")

    def __init__(self, term: PodTerm, serial: int) -> None:
        super().__init__()
        self.term = term
        self.serial = serial
        self.identity = hashlib.blake2b(_text(term).encode(), digest_size=8).digest()
        """Equal for equal terms in every process."""


class TermIndex:
    """All terms of pods on known nodes."""

    def __init__(self) -> None:
        self._terms: dict[PodTerm, CountedTerm] = {}
        self._index: SelectorIndex[CountedTerm] = SelectorIndex()
        self._serial = 0

    def change(self, terms: Iterable[PodTerm], row: int, sign: int) -> int:
        """A pod with these terms came to a row (sign 1) or went from it (sign -1).

        Returns:
            How many terms came that no pod had, or went with the last pod that had them.
        """
        before = self._serial
        for key in terms:
            term = self._terms.get(key)
            if term is None:
                self._serial += 1
                term = self._terms[key] = CountedTerm(key, self._serial)
                self._index.put(_namespaces(key), key.term.selector, term)
            term.count(row, sign)
            if not term.counts:
                self._serial += 1
                term.live = False
                del self._terms[key]
                self._index.remove(_namespaces(key), key.term.selector, term)
        return self._serial - before

    def on(self, namespace: str, namespace_labels: Labels, labels: Labels) -> list[CountedTerm]:
        """See `Topology.terms_on`."""
        if not self._terms:
            return []
        found = []
        for term in self._index.find(namespace, labels):
            about = term.term.term
            if namespace in about.namespaces or about.namespace_selector.matches(namespace_labels):
                found.append(term)
        found.sort(key=attrgetter("serial"))
        return found


def _namespaces(key: PodTerm) -> frozenset[str] | None:
    """The only namespaces it can find pods in, None if that depends on their labels."""
    return key.term.namespaces if key.term.namespace_selector == NOTHING else None


def _text(term: PodTerm) -> str:
    about = term.term
    return repr((term[:2], sorted(about.namespaces), *map(repr, about[1:])))
