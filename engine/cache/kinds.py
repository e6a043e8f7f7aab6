"""Kinds of pods: those that no selector can tell apart have one number.

That is their namespace, their labels and whether they are being deleted. Equal labels are one
object for most pods (`kube.sharing`); where they are not, there is a kind more, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.framework.podinfo import PodInfo

Kind = tuple[str, Mapping[str, str], bool]
"""Namespace, labels, whether the pod is being deleted."""
_NO_LABELS: Mapping[str, str] = {}


class Kinds:
    """Numbers of kinds, given again when no pod has them any more."""

    def __init__(self) -> None:
        self.each: list[Kind | None] = []
        """By number; None: of no pod now."""
        self._numbers: dict[tuple[str, int, bool], int] = {}
        self._pods: list[int] = []
        self._free: list[int] = []

    def take(self, pod: PodInfo) -> int:
        """The number of a pod that comes."""
        meta = pod.pod.metadata
        labels = meta.labels or _NO_LABELS
        # INVARIANT: `each` holds the labels, so that their identity is nobody else's.
        key = meta.namespace, id(labels), meta.deletion_timestamp is not None
        number = self._numbers.get(key)
        if number is not None:
            self._pods[number] += 1
            return number
        kind = meta.namespace, labels, key[2]
        if self._free:
            number = self._free.pop()
            self.each[number], self._pods[number] = kind, 1
        else:
            number = len(self.each)
            self.each.append(kind)
            self._pods.append(1)
        self._numbers[key] = number
        return number

    def give_back(self, number: int) -> None:
        """A pod of this kind goes."""
        self._pods[number] -= 1
        kind = self.each[number]
        if not self._pods[number] and kind is not None:
            del self._numbers[kind[0], id(kind[1]), kind[2]]
            self.each[number] = None
            self._free.append(number)
