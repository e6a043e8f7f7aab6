"""Pod sets: pods by labels and namespace in, how many of them are on each node row out.

Sets are counted from when they are first asked for until they are the ones not asked for longest.
Pods with equal labels, as far as any set's selector names them, share a profile, so that a change
of a pod costs as many steps as there are sets that match it. Knows nothing of who asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from engine.cache.kinds import Kind
from engine.framework.selectors import Selector

MOST_SETS: Final = 8192
MOST_COUNTS: Final = 1 << 20
_LOG: Final = 256
_FEW_NAMESPACES: Final = 8
_FEW_VALUES: Final = 8
_IDLE_KEYS: Final = 256
_WEIGHED_EVERY: Final = 64

Labels = Mapping[str, str]
Alike = Callable[[frozenset[str], Callable[[Kind], Any]], Iterable[tuple[Any, dict[int, int]]]]
"""Counts by row of the pods on known nodes that have one of some labels (none: of all), by a key of
their kind."""
_Pair = tuple[str | None, str | None, str | None]
_T = TypeVar("_T")


class Log:
    """The last changes, by position; what is further back is forgotten."""

    __slots__ = ("_entries", "_most", "end")

    def __init__(self, most: int = _LOG) -> None:
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
        """Whoever is behind has to look at everything again."""
        self._entries.clear()
        self.end += 1

    def since(self, position: int) -> list[int] | None:
        """The changes after a position, None if they are forgotten."""
        behind = self.end - position
        if not behind:
            return []
        return self._entries[-behind:] if behind <= len(self._entries) else None


class Counts(Log):
    """Counts by node row, with a log of rows counted up, and of those counted down as ~row."""

    __slots__ = ("counts", "live", "tables")

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[int, int] = {}
        self.live = True
        self.tables: OrderedDict[Any, Any] = OrderedDict()
        """What `domains` made of it, by grouping."""

    def count(self, row: int, sign: int) -> None:
        """One more or one less on a row."""
        counts = self.counts
        count = counts.get(row, 0) + sign
        if count:
            counts[row] = count
        else:
            del counts[row]
        self.append(row if sign > 0 else ~row)


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
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, namespaces: frozenset[str] | None, selector: Selector, thing: _T) -> None:
        """Adds a thing (by identity) of these namespaces (None: any)."""
        self._count += 1
        for pair in _pairs(namespaces, selector):
            self._things.setdefault(pair, {})[id(thing)] = selector, thing

    def remove(self, namespaces: frozenset[str] | None, selector: Selector, thing: _T) -> None:
        """Takes the thing out again."""
        self._count -= 1
        for pair in _pairs(namespaces, selector):
            things = self._things[pair]
            del things[id(thing)]
            if not things:
                del self._things[pair]

    def find(self, namespace: str, labels: Labels) -> Iterator[_T]:
        """Things whose selector matches the labels, of this namespace or of many."""
        known = self._things
        for place in (namespace, None):
            for pair in _looked_up(place, labels):
                for selector, thing in known.get(pair, {}).values():
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


def _looked_up(place: str | None, labels: Labels) -> Iterator[_Pair]:
    yield place, None, None
    for key, value in labels.items():
        yield place, key, None
        yield place, key, value


class _Set(Counts):
    """A pod set."""

    __slots__ = ("key",)

    def __init__(self, key: _SetKey) -> None:
        super().__init__()
        self.key = key


class _SetKey(NamedTuple):
    """Which pods; `namespaces` None: all."""

    namespaces: frozenset[str] | None
    selector: Selector
    terminating: bool

    def covers(self, namespace: str, *, terminating: bool) -> bool:
        """Whether such pods can be in it, labels apart."""
        if terminating and not self.terminating:
            return False
        return self.namespaces is None or namespace in self.namespaces


class _Profile:
    """Pods of one namespace that no set can tell apart."""

    __slots__ = ("key", "rows", "sets")

    def __init__(self, key: _ProfileKey, sets: list[_Set]) -> None:
        self.key = key
        self.sets = sets
        self.rows: dict[int, int] = {}


_ProfileKey = tuple[str, bool, tuple[tuple[str, str], ...]]


class PodSetIndex:
    """All pod sets that are counted, and the profiles of all pods on known nodes."""

    def __init__(self, pods: Alike) -> None:
        """Starts with no sets; `pods` gives what pods on known nodes have one of some labels."""
        self._pods = pods
        self.sets: OrderedDict[_SetKey, _Set] = OrderedDict()
        """Those that are counted; without any, changes of pods need not be told."""
        self._index: SelectorIndex[_Set] = SelectorIndex()
        self._profiles: dict[_ProfileKey, _Profile] = {}
        self._with: dict[tuple[str, str], dict[_ProfileKey, _Profile]] = {}
        self._named: dict[str, int] = {}  # label key -> sets that name it; 0 until forgotten
        self._made = 0

    def get(
        self, namespaces: frozenset[str] | None, selector: Selector, *, terminating: bool
    ) -> Counts:
        """See `Topology.pod_set`."""
        key = _SetKey(namespaces, selector, terminating)
        known = self.sets.get(key)
        if known is not None:
            self.sets.move_to_end(key)
            return known
        first = not self.sets
        known = self.sets[key] = _Set(key)
        self._name(selector, first=first)
        for profile in self._matching(known):
            profile.sets.append(known)
            for row, count in profile.rows.items():
                known.counts[row] = known.counts.get(row, 0) + count
        self._index.put(namespaces, selector, known)
        self._made += 1
        if len(self.sets) > MOST_SETS or self._made % _WEIGHED_EVERY == 0:
            self._bound()
        return known

    def change(self, kind: Kind, row: int, sign: int) -> None:
        """A pod came to a row (sign 1) or went from it (sign -1)."""
        profile = self._profile(self._key_of(kind))
        add(profile.rows, row, sign)
        for one in profile.sets:
            one.count(row, sign)
        if not profile.rows:
            self._drop_profile(profile)

    # ---- inside ----------------------------------------------------------------------------

    def _key_of(self, kind: Kind) -> _ProfileKey:
        namespace, labels, terminating = kind
        named = self._named
        return namespace, terminating, tuple([one for one in labels.items() if one[0] in named])

    def _profile(self, key: _ProfileKey) -> _Profile:
        profile = self._profiles.get(key)
        if profile is None:
            namespace, terminating, seen = key
            found = self._index.find(namespace, dict(seen))
            sets = [s for s in found if s.key.covers(namespace, terminating=terminating)]
            profile = self._profiles[key] = _Profile(key, sets)
            for pair in seen:
                self._with.setdefault(pair, {})[key] = profile
        return profile

    def _drop_profile(self, profile: _Profile) -> None:
        del self._profiles[profile.key]
        for pair in profile.key[2]:
            others = self._with[pair]
            del others[profile.key]
            if not others:
                del self._with[pair]

    def _matching(self, one: _Set) -> list[_Profile]:
        """The profiles whose pods are in the set."""
        selector, key = one.key.selector, one.key
        _, label, value = _pairs(None, selector)[0]
        exact = label is not None and value is not None
        exact = exact and len(_pairs(None, selector)) == 1
        among = self._with.get((label or "", value or ""), {}) if exact else self._profiles
        return [
            profile
            for (namespace, terminating, labels), profile in among.items()
            if key.covers(namespace, terminating=terminating) and selector.matches(dict(labels))
        ]

    def _name(self, selector: Selector, *, first: bool) -> None:
        """Profiles tell apart from now on what the selector looks at."""
        keys = {requirement.key for requirement in selector.requirements or ()}
        fresh = keys - self._named.keys()
        if first or len(self._named) - sum(map(bool, self._named.values())) > _IDLE_KEYS:
            self._named = {key: n for key, n in self._named.items() if n}
            self._profiles.clear()
            self._with.clear()
            self._take_in(frozenset(), keys)
        elif fresh:
            self._take_in(fresh, fresh)
        for key in keys:
            self._named[key] = self._named.get(key, 0) + 1

    def _take_in(self, holding: Iterable[str], fresh: Iterable[str]) -> None:
        """Counts the pods that have one of the labels (without labels: all) by the fresh keys."""
        holding = frozenset(holding)
        for key, rows in self._pods(holding, self._key_of) if holding else ():
            old = self._profile(key)
            for row, count in rows.items():
                add(old.rows, row, -count)
            if not old.rows:
                self._drop_profile(old)
        for label in fresh:
            self._named.setdefault(label, 0)
        for key, rows in self._pods(holding, self._key_of):
            profile = self._profile(key)
            if not profile.rows:
                profile.rows = rows
                continue
            for row, count in rows.items():
                add(profile.rows, row, count)

    def _bound(self) -> None:
        weight = sum(len(one.counts) for one in self.sets.values())
        too_many = max(0, len(self.sets) - MOST_SETS)
        for one in list(islice(self.sets.values(), len(self.sets) - 1)):
            if too_many <= 0 and weight <= MOST_COUNTS:
                break
            too_many -= 1
            weight -= len(one.counts)
            self._drop_set(one)

    def _drop_set(self, one: _Set) -> None:
        one.live = False
        del self.sets[one.key]
        self._index.remove(one.key.namespaces, one.key.selector, one)
        for profile in self._matching(one):
            profile.sets.remove(one)
        for key in {requirement.key for requirement in one.key.selector.requirements or ()}:
            self._named[key] -= 1
