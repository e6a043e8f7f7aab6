"""Kinds of pods: pods that no selector can tell apart share a number.

A kind is a namespace, labels and whether the pod is being deleted. Equal labels are one
object for most pods (`kube.sharing`); where they are not, there is one kind more.

Selectors come with any pod, and each pod may have labels of its own. So a label that
is asked for the first time costs a step for each kind that has it, not for all; from then on a
selector costs a few passes over numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.pods.podinfo import PodInfo
from engine.pods.selectors import Requirement, Selector

Kind = tuple[str, Mapping[str, str], bool]
"""Namespace, labels, whether the pod is being deleted."""
_NO_LABELS: Mapping[str, str] = {}
_LEAST_STALE: Final = 4096
_MOST_FRESH: Final = 1024


class _AnyLabel(dict[str, str]):
    """Labels of kinds that are gone: each is empty."""

    def __missing__(self, label: str) -> str:
        return ""


_GONE: Final[Kind] = ("", _AnyLabel(), False)


class Kinds:
    """Numbers of kinds, reused some time after no pod has them any more."""

    def __init__(self) -> None:
        self._each: list[Kind] = []
        self._numbers: dict[tuple[str, int, bool], int] = {}
        self._pods: list[int] = []
        self._free: list[int] = []
        # By number: hash of the namespace; whether pods of this kind are being deleted.
        self._spaces = array("q")
        self._deleting = array("b")
        # Labels of new kinds are indexed when a selector comes: most assumed pods get the
        # labels that others have once their binding is seen.
        self._fresh: dict[int, None] = {}
        self._with: dict[str, array[int]] = {}
        self._values: dict[str, array[int]] = {}
        self._labels = 0
        # Kinds without pods that are still in `_with`, until that is swept.
        self._gone: list[int] = []
        self._stale: set[str] = set()
        self._stale_labels = 0

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
        space = hash(meta.namespace)
        if self._free:
            number = self._free.pop()
            self._each[number], self._pods[number] = kind, 1
            self._spaces[number], self._deleting[number] = space, key[2]
        else:
            number = len(self._each)
            self._each.append(kind)
            self._pods.append(1)
            self._spaces.append(space)
            self._deleting.append(key[2])
        self._numbers[key] = number
        self._fresh[number] = None
        if len(self._fresh) > _MOST_FRESH:
            self._index()
        return number

    def give_back(self, number: int) -> None:
        """A pod of this kind goes."""
        self._pods[number] -= 1
        kind = self._each[number]
        if self._pods[number]:
            return
        del self._numbers[kind[0], id(kind[1]), kind[2]]
        self._each[number] = _GONE
        if number in self._fresh:
            del self._fresh[number]
            self._free.append(number)
            return
        self._gone.append(number)
        self._stale.update(kind[1])
        self._stale_labels += 1 + len(kind[1])
        if self._stale_labels > max(_LEAST_STALE, self._labels >> 2):
            self._sweep()

    def matching(
        self, namespaces: Collection[str] | None, selector: Selector, *, terminating: bool
    ) -> NDArray[np.bool_] | None:
        """(K,) by number, which kinds are selected; None: none are. Namespaces None: of any."""
        if selector.requirements is None:
            return None
        self._index()
        found, without = None, []
        for requirement in selector.requirements:
            numbers = self._met(requirement)
            if requirement.operator not in ("In", "Exists"):
                without.append(numbers)
            elif not len(numbers):
                return None
            else:
                found = self._marked(numbers, among=found)
        if found is None:
            found = np.ones(len(self._each), np.bool_)
        for numbers in without:
            found[numbers] = False
        if not terminating:
            found &= np.frombuffer(self._deleting, np.bool_) ^ True
        if namespaces is not None:
            found &= _among(np.frombuffer(self._spaces, np.int64), namespaces)
        return found if found.any() else None

    def forget(self, label: str) -> None:
        """No selector reads the values of this label any more."""
        self._values.pop(label, None)

    def _index(self) -> None:
        for number in self._fresh:
            labels = self._each[number][1]
            for label, text in labels.items():
                found = self._with.get(label)
                if found is None:
                    found = self._with[label] = array("i")
                found.append(number)
                values = self._values.get(label)
                if values is not None:
                    values.append(hash(text))
            self._labels += len(labels)
        self._fresh.clear()

    def _met(self, requirement: Requirement) -> NDArray[np.int32]:
        numbers = self._having(requirement.key)
        if not requirement.values or not len(numbers):
            return numbers
        values = self._values_of(requirement.key, numbers)
        return numbers[_among(values, requirement.values)]

    def _values_of(self, label: str, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Hashes of the label's values, of these kinds, which have it or are gone."""
        # INVARIANT: as long as what `_having` gives, in its order.
        if label not in self._values:
            kinds = map(self._each.__getitem__, numbers.tolist())
            texts = map(itemgetter(label), map(itemgetter(1), kinds))
            self._values[label] = array("q", map(hash, texts))
        return np.frombuffer(self._values[label], np.int64)

    def _having(self, label: str) -> NDArray[np.int32]:
        # INVARIANT: a view, which holds the array at its length; not kept beyond a call.
        return np.frombuffer(self._with.get(label, b""), np.int32)

    def _marked(
        self, numbers: NDArray[np.int32], among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.bool_]:
        marked = np.zeros(len(self._each), np.bool_)
        marked[numbers] = True if among is None else among[numbers]
        return marked

    def _sweep(self) -> None:
        """Takes kinds that are gone out of the index of their labels."""
        gone = self._marked(np.array(self._gone, np.int32))
        for label in self._stale:
            numbers = self._having(label)
            kept = ~gone[numbers]
            if label in self._values:
                values = np.frombuffer(self._values[label], np.int64)
                self._values[label] = array("q", values[kept].tobytes())
            if kept.any():
                self._with[label] = array("i", numbers[kept].tobytes())
            else:
                del self._with[label]
        self._labels -= self._stale_labels - len(self._gone)
        self._free += self._gone
        self._gone, self._stale, self._stale_labels = [], set(), 0


def _among(hashes: NDArray[np.int64], texts: Collection[str]) -> NDArray[np.bool_]:
    """Which are of one of the texts.

    By hash: it has 64 bits and a seed of the process, so that nobody makes two texts of one.
    """
    wanted = [hash(text) for text in texts]
    return hashes == wanted[0] if len(wanted) == 1 else np.isin(hashes, wanted)
