"""Storage that can be had, by class, and the nodes that it can be reached from, as masks over rows.

Pools are persistent volumes that are meant for nobody, or capacities, kept beside the snapshot's
objects: asked for the first in order that reaches each of many rows; an index of -1 means none. As
for kube-scheduler, a node's name makes no difference to a volume: labels alone do.

Source: k8s.io/component-helpers storage/volume/helpers.go (CheckNodeAffinity); kubernetes
pkg/apis/core/v1/helper/helpers.go (MatchTopologySelectorTerms); k8s.io/apimachinery
meta/v1/helpers.go (LabelSelectorAsSelector).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import (
    BoolColumn,
    CodeColumn,
    Dictionary,
    Rows,
    Snapshot,
    label_column,
)
from engine.objects import (
    LabelSelector,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
)
from engine.objects.storage import TopologyTerm
from engine.plugins.node_selector import MOST_REQUIREMENTS, NodeTerms, Term, parse_terms
from engine.pods.selectors import what_it_selects


def reach_of_volume(required: NodeSelector | None) -> NodeTerms | None:
    """The nodes that can reach a persistent volume of this affinity."""
    if required is None:
        return None
    terms = []
    for term in required.node_selector_terms or ():
        if term.match_fields:
            fields = NodeSelectorTerm(match_fields=term.match_fields)
            if parse_terms(NodeSelector([fields])).flaw:
                continue
            if not term.match_expressions:
                return None
        terms.append(term.match_expressions)
    return _node_terms(terms)


def reach_of_class(allowed: Sequence[TopologyTerm]) -> NodeTerms | None:
    """The nodes for which a class may make volumes."""
    if not allowed:
        return None
    return _node_terms(
        [
            SelectorRequirement(one.key, "In", one.values)
            for one in term.match_label_expressions or ()
        ]
        for term in allowed
    )


def reach_of_labels(selector: LabelSelector | None) -> NodeTerms | None:
    """The nodes (or volumes) that a label selector selects; without one, none."""
    found = what_it_selects(selector).requirements
    if found is None or len(found) > MOST_REQUIREMENTS:
        return NodeTerms(())
    return NodeTerms((Term(found),)) if found else None


def _node_terms(terms: Iterable[list[SelectorRequirement] | None]) -> NodeTerms:
    return parse_terms(NodeSelector([NodeSelectorTerm(one) for one in terms]))


class Reach:
    """Some rows, and which of them selectors reach."""

    def __init__(self, snapshot: Snapshot, rows: Rows) -> None:
        self.size = len(snapshot.nodes.present[rows])
        self.snapshot = snapshot
        self.rows = rows

    def mask(self, selector: NodeTerms | None) -> BoolColumn:
        """(n,) the rows that it reaches; None reaches all."""
        if selector is None:
            return np.ones(self.size, dtype=np.bool_)
        return selector.mask(self.snapshot.nodes, self.rows)

    def codes(self, labels: Sequence[str]) -> CodeColumn:
        """(n,) the values of labels together, as codes; below zero without one of the labels."""

        def read(node: Node) -> str | None:
            there = node.metadata.labels or {}
            return _joined(there[key] for key in labels) if there.keys() >= {*labels} else None

        name = f"labels:{_joined(labels)}"
        column = label_column(labels[0]) if len(labels) == 1 else (name, read)
        return self.snapshot.nodes.text(*column)[self.rows]


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(texts)


NONE: Final = -1
_MORE_TRAITS: Final = 64
_IN_A_STEP: Final = 100
_FAR: Final = np.iinfo(np.intp).max

Chosen = NDArray[np.intp]
"""(n,) an index of a pool for each row."""


T = TypeVar("T")


class Described(NamedTuple):
    """What pools have to know of an object.

    Attributes:
        order: its place in the pool, small ones first; objects of equal order by key.
        reach: the nodes that it can be reached from.
        traits: what of it suits some and not others.
        amount: bytes.
    """

    order: int
    reach: NodeTerms | None
    traits: Hashable
    amount: int


class Pool(Generic[T]):
    """Objects of one class in order, and which is the first that reaches a row.

    Of storage that is in one place each (a disk in a node), each object names labels and a value of
    each: these are looked up by the values of a row, not compared one by one. One that is gone
    leaves its place empty.
    """

    def __init__(
        self, objects: Mapping[str, T], describe: Callable[[str, T], Described], words: Dictionary
    ) -> None:
        self._describe = describe
        described = {key: describe(key, one) for key, one in objects.items()}
        keys = sorted(objects, key=lambda key: (described[key].order, key))
        self.each = each = [described[key] for key in keys]
        self._numbers = {key: number for number, key in enumerate(keys)}
        self.items = [objects[key] for key in keys]
        self.amounts = np.array([one.amount for one in each], dtype=np.int64)
        self._there = np.ones(len(keys), dtype=np.bool_)
        self._traits: dict[Hashable, int] = {}
        self.traits: Collection[Any] = self._traits.keys()
        """Those of all objects, some of them gone."""
        self._trait_of = np.array([self._trait(one.traits) for one in each], dtype=np.intp)
        named: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        alike: dict[NodeTerms | None, list[int]] = {}
        for number, one in enumerate(each):
            only = {} if one.reach is None else one.reach.only_values
            if only:
                code = words.code(_joined(only.values()))
                named.setdefault(tuple(only), []).append((code, number))
            else:
                alike.setdefault(one.reach, []).append(number)
        self._named = [
            (labels, *np.array(sorted(found)).T.copy()) for labels, found in named.items()
        ]
        """Labels, and in order the values of them that are named, each with whose they are."""
        self._alike = {selector: np.array(found) for selector, found in alike.items()}

    def first(
        self,
        least: int,
        suits: Callable[[Any], bool],
        reach: Reach,
        avoid: Sequence[Chosen] = (),
        where: BoolColumn | slice = slice(None),
    ) -> Chosen:
        """(n,) the number of the first that reaches a row, but for what `avoid` has there.

        Of those not below `least` in order, whose traits suit. What it says of other rows than
        `where` is nothing.
        """
        good = np.array([suits(traits) for traits in self._traits], dtype=np.bool_)
        of = self._there & good[self._trait_of]
        of[: bisect_left(self.each, least, key=lambda one: one.order)] = False
        avoid = [other for other in avoid if not _drop(of, other[where])]
        following = np.full(len(of), _FAR, dtype=np.intp)
        lanes = []
        for labels, values, numbers in self._named:
            codes = reach.codes(labels)
            if len(codes) == 1:
                low, high = np.searchsorted(values, (codes[0], codes[0] + 1))
                numbers, values = numbers[low:high], values[low:high]
            there = of[numbers]
            lanes.append(_by_value(numbers[there], values[there], codes, following))
        for selector, numbers in self._alike.items():
            left = numbers[of[numbers]]
            if len(left):
                following[left[:-1]] = left[1:]
                lanes.append(np.where(reach.mask(selector), left[0], _FAR))
        if not lanes:
            return np.full(reach.size, NONE, dtype=np.intp)
        while True:
            found: Chosen = np.minimum.reduce(lanes)
            clash = np.zeros(reach.size, dtype=np.bool_)
            for other in avoid:
                clash |= found == other
            if not clash[where].any():
                return np.where(found == _FAR, NONE, found)
            for lane in lanes:
                hit = clash & (lane == found)
                lane[hit] = following[lane[hit]]

    def put(self, key: str, one: T | None) -> bool:
        """An object changed, or is not of this class (None).

        False if it has no place here, or was the last one.
        """
        number = self._numbers.get(key)
        if one is None:
            if number is None:
                return True
            self._there[number] = False
            return bool(self._there.any())
        if number is None or len(self._traits) > _MORE_TRAITS + 2 * len(self.items):
            return False
        said = self._describe(key, one)
        if (said.order, said.reach) != self.each[number][:2]:
            return False
        self.items[number] = one
        self.amounts[number] = said.amount
        self._there[number] = True
        self._trait_of[number] = self._trait(said.traits)
        return True

    def _trait(self, traits: Hashable) -> int:
        return self._traits.setdefault(traits, len(self._traits))


def _drop(of: BoolColumn, taken: Chosen) -> bool:
    """Takes what all rows have out of those that are to be had; False: they differ."""
    same = bool(len(taken) and taken[0] >= 0 and (taken == taken[0]).all())
    if same:
        of[taken[0]] = False
    return same


def _by_value(numbers: Chosen, values: CodeColumn, codes: CodeColumn, following: Chosen) -> Chosen:
    """(n,) the first number of each row's code; writes which comes next of the same value.

    The numbers are in order within a value, and the values are.
    """
    if not len(values):
        return np.full(len(codes), _FAR, dtype=np.intp)
    same = values[1:] == values[:-1]
    following[numbers[:-1][same]] = numbers[1:][same]
    heads = np.concatenate(([True], ~same))
    distinct, first = values[heads], numbers[heads]
    at = np.minimum(np.searchsorted(distinct, codes), len(distinct) - 1)
    return np.where(distinct[at] == codes, first[at], _FAR)


class Pools(Generic[T]):
    """The pools of one kind, made when they are asked for and brought up to date from then on.

    Attributes:
        kind: the name of the kind.
        group: the class of an object, None if it cannot be had.
        describe: what is to be known of it.
    """

    def __init__(
        self, kind: str, group: Callable[[T], str | None], describe: Callable[[T], Described]
    ) -> None:
        self.kind = kind
        self.group = group
        self.describe = describe
        self._of: object = None
        self._version = -1
        self._pools: dict[str, Pool[T]] = {}
        self._described: dict[str, tuple[T, Described]] = {}

    def warm(self, snapshot: Snapshot) -> Iterator[object]:
        """Describes all objects that can be had, some in a step."""
        objects = snapshot.objects(self.kind)
        for number, key in enumerate(list(objects)):
            if key in objects and self.group(objects[key]) is not None:
                self._describe(key, objects[key])
            if number % _IN_A_STEP == _IN_A_STEP - 1:
                yield number

    def of(self, snapshot: Snapshot, group: str) -> Pool[T]:
        """The pool of a class."""
        self._renew(snapshot)
        groups = snapshot.objects_by(self.kind, "to be had", lambda one: self.group(one) or "")
        group = group if group in groups else ""  # claims name classes that are not there
        pool = self._pools.get(group)
        if pool is None:
            objects = groups[group] if group else {}
            pool = self._pools[group] = Pool(objects, self._describe, snapshot.dictionary)
        return pool

    def _describe(self, key: str, one: T) -> Described:
        """Each object once while it stays the same."""
        known = self._described.get(key)
        if known is None or known[0] is not one:
            known = self._described[key] = one, self.describe(one)
        return known[1]

    def _renew(self, snapshot: Snapshot) -> None:
        version, objects = snapshot.objects_version(self.kind), snapshot.objects(self.kind)
        if self._of is snapshot.dictionary and version == self._version:
            return
        keys = snapshot.objects_changed(self.kind, self._version)
        if self._of is not snapshot.dictionary or keys is None:
            self._pools, keys = {}, ()
            self._described = {key: one for key, one in self._described.items() if key in objects}
        self._of, self._version = snapshot.dictionary, version
        for key in keys:
            one = objects.get(key)
            group = None if one is None else self.group(one)
            if group is None:
                self._described.pop(key, None)
            for of, pool in list(self._pools.items()):
                if not pool.put(key, one if of == group else None):
                    del self._pools[of]
