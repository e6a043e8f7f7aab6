"""Kinds of pods: pods that no selector can tell apart share a number.

A kind is a namespace, labels and whether the pod is being deleted. Equal labels are one
object for most pods (`kube.sharing`); where they are not, there is one kind more.

Selectors come with any pod, and each pod may have labels of its own. So kinds are indexed by each
label and value as they come: a selector looks at those that have what it demands, not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.pods.podinfo import PodInfo
from engine.pods.selectors import Requirement, Selector

Kind = tuple[str, Mapping[str, str], bool]
"""Namespace, labels, whether the pod is being deleted."""
_Numbers = set[int] | tuple[int, ...]
"""Kinds; one alone is a tuple, which is a quarter of a set: most own labels are of one pod."""
_FEW: Final = 64
"""So many kinds, or values, are looked at one by one."""
_NO_LABELS: Mapping[str, str] = {}
_GONE: Final[Kind] = "", _NO_LABELS, False
# In the index beside labels, none of which has such a key.
_NAMESPACE: Final = ""
_DELETING: Final = " "
_NOT_DELETING: Final = Requirement(_DELETING, "DoesNotExist")


class Kinds:
    """Numbers of kinds, reused when no pod has them any more."""

    def __init__(self) -> None:
        self._each: list[Kind] = []
        self._numbers: dict[tuple[str, int, bool], int] = {}
        self._pods: list[int] = []
        self._free: list[int] = []
        self._with: dict[str, dict[str, _Numbers]] = {}
        """Label -> value -> the kinds that have it."""

    def take(self, pod: PodInfo) -> int:
        """The number of a pod that comes."""
        meta = pod.pod.metadata
        labels = meta.labels or _NO_LABELS
        # INVARIANT: `_each` holds the labels, so that their identity is nobody else's.
        key = meta.namespace, id(labels), meta.deletion_timestamp is not None
        number = self._numbers.get(key)
        if number is not None:
            self._pods[number] += 1
            return number
        kind = meta.namespace, labels, key[2]
        if self._free:
            number = self._free.pop()
            self._each[number], self._pods[number] = kind, 1
        else:
            number = len(self._each)
            self._each.append(kind)
            self._pods.append(1)
        self._numbers[key] = number
        for label, text in _texts(kind):
            values = self._with.setdefault(label, {})
            there = values.setdefault(text, (number,))
            if isinstance(there, set):
                there.add(number)
            elif there[0] != number:
                values[text] = {*there, number}
        return number

    def give_back(self, number: int) -> None:
        """A pod of this kind goes."""
        self._pods[number] -= 1
        if self._pods[number]:
            return
        kind = self._each[number]
        del self._numbers[kind[0], id(kind[1]), kind[2]]
        self._each[number] = _GONE
        self._free.append(number)
        for label, text in _texts(kind):
            values = self._with[label]
            there = values[text]
            if isinstance(there, set) and len(there) > 1:
                there.discard(number)
                continue
            del values[text]
            if not values:
                del self._with[label]

    def matching(
        self, namespaces: Collection[str] | None, selector: Selector, *, terminating: bool
    ) -> NDArray[np.bool_] | None:
        """(K,) by number, which kinds are selected; None: none are. Namespaces None: of any."""
        if selector.requirements is None:
            return None
        each = [(one.operator in ("In", "Exists"), self._met(one)) for one in selector.requirements]
        few = _narrowest(each)
        if few is None or _size(few) > _FEW:
            if namespaces is not None:
                each.append((True, self._met(Requirement(_NAMESPACE, "In", tuple(namespaces)))))
            if not terminating:
                each.append((False, self._met(_NOT_DELETING)))
            few = _narrowest(each)
            most = max([_FEW, *[_size(met) >> 4 for _, met in each]])
            few = few if few is not None and _size(few) <= most else None
        if few is not None:
            some = []
            for number in chain.from_iterable(few):
                namespace, labels, deleting = self._each[number]
                there = namespaces is None or namespace in namespaces
                if there and (terminating or not deleting) and selector.matches(labels):
                    some.append(number)
            found = np.zeros(len(self._each), np.bool_)
            found[some] = True
            return found if some else None
        found = np.ones(len(self._each), np.bool_)
        for demands, met in each:
            mask = np.zeros(len(found), np.bool_)
            mask[np.fromiter(chain.from_iterable(met), np.intp)] = True
            found &= mask if demands else ~mask
        return found if found.any() else None

    def _met(self, requirement: Requirement) -> Collection[_Numbers]:
        """Those that have the label, with one of the values if the operator is about values."""
        key, operator, wanted = requirement
        values = self._with.get(key, {})
        if operator in ("In", "NotIn"):
            return [values.get(text, ()) for text in wanted]
        return values.values()


def _narrowest(each: Iterable[tuple[bool, Collection[_Numbers]]]) -> Collection[_Numbers] | None:
    """What has the fewest kinds of what is demanded; None: all of it has many."""
    narrow = [met for demands, met in each if demands and len(met) <= _FEW]
    return min(narrow, key=_size, default=None)


def _size(met: Collection[_Numbers]) -> int:
    """How many kinds they are; of many values how many they are at least."""
    return len(met) if len(met) > _FEW else sum(map(len, met))


def _texts(kind: Kind) -> Iterable[tuple[str, str]]:
    """What a kind is indexed by: labels with their values, and what stands beside them."""
    namespace, labels, deleting = kind
    of_both = [(_NAMESPACE, namespace), *labels.items()]
    return [*of_both, (_DELETING, "")] if deleting else of_both
