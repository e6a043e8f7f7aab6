"""Classes of pods by what plugins read of them: a memo bounded by bytes, least recently used first.

Classes that differ only for plugins that look beyond a row share one column of keys: a thousand
workloads of one size, each with its service, are a thousand classes and one column.

A pod refers to the name of its class (`ClassName`), not to the class, so that waiting pods keep no
class alive that is unused, or whose profile is no longer in force.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary, ref

import numpy as np
from numpy.typing import NDArray

from engine.framework.decision import Rejections
from engine.framework.groupedchoice import GroupedChoice
from engine.framework.interface import SILENT, UNSHARED, Points
from engine.framework.keycolumn import KeyColumn, turn_of
from engine.framework.runner import Dependency, PluginRunner, Scoring
from engine.framework.snapshot import Snapshot
from engine.framework.trials import Filtering
from engine.pods.podinfo import PodInfo

_LEAST_CLASSES: Final = 16
_MOST_CLASSES: Final = 2048
_BYTES_A_KEY: Final = 8
_BYTES_A_GROUP: Final = 4
"""What a class may have of each row for itself."""
_KEPT: Final = "class"
"""What a pod remembers: `Classes._stamp` at the time, and its class."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class ByRow:
    """The part of class keys that concerns rows, once for all classes with an equal one.

    `turn` is how it turns the order of ties.
    """

    turn: int
    columns: dict[bool, ref[KeyColumn]] = field(default_factory=dict)
    """By whether the classes have a wide filter; those that some class uses."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class ClassName:
    """The key of a class, one object for all its pods."""

    key: tuple[Hashable, ...]
    by_row: ByRow


_NO_KEYS: Final = KeyColumn(0)
"""The keys of a class that is not filled yet."""


@dataclass(slots=True, eq=False, repr=False)
class PodClass:
    """Pods that no plugin can tell apart: their keys, and the plugins that look beyond a row."""

    name: ClassName | None
    """None: it is not kept."""
    keys: KeyColumn = _NO_KEYS
    fills: int = -1
    """`KeyColumn.fills` when plugins were asked; if that has moved, they are asked again."""
    versions: list[Dependency] = field(default_factory=list)
    """What the answers depend on that the class does not share with others of its keys.

    INVARIANT: if one class asks anew because of the versions of the keys, `fills` moves, so the
    others ask, too.
    """
    filters: list[Filtering] = field(default_factory=list)
    scorers: list[Scoring] = field(default_factory=list)
    only: NDArray[np.intp] | None = None
    """The one row that PreFilter leaves, if there are no keys; then `filters` are all."""
    wide: bool = False
    """Whether there are `filters` or `scorers`, which are asked in every cycle."""
    grouped: GroupedChoice | None = None
    """Chooses the node, if all of them answer by groups."""
    unfit: Rejections | None = None
    """As of `KeyColumn`, if groups or nominations matter; `told` begins with the generation."""
    told: Sequence[Hashable] = ()

    def forget(self) -> None:
        """Everything has to be asked again."""
        self.fills = -1
        self.keys.place.forget()


class Classes:
    """The classes of one profile, least recently used ones leave first."""

    def __init__(
        self,
        keyed: Sequence[tuple[str, Points]],
        runner: PluginRunner,
        *,
        seed: int,
        most_bytes: int,
    ) -> None:
        """`keyed` are the plugins that have parts in class keys, as the runner knows them."""
        self._runner = runner
        self._keyed = [name for name, _ in keyed]
        self._keys = [p.class_key for _, p in keyed]
        self._by_row = [number for number, (_, p) in enumerate(keyed) if not p.wide_key]
        self._seed = seed
        self._most_bytes = most_bytes
        self._versions = [(name, p.key_version) for name, p in keyed if p.key_version is not None]
        """What class keys depend on besides the pod."""
        self.keys_volatile = any(points.key_volatile for _, points in keyed)
        self.keeps = bool(most_bytes)
        """Whether anything is kept for the next pod."""
        self._keep_names = self.keeps and not self.keys_volatile
        self._owner = object()
        self._names: WeakValueDictionary[tuple[Hashable, ...], ClassName] = WeakValueDictionary()
        self._classes: dict[ClassName, PodClass] = {}
        self._rows: WeakValueDictionary[tuple[Hashable, ...], ByRow] = WeakValueDictionary()

    def key(self, pod: PodInfo, snapshot: Snapshot) -> tuple[Hashable, ...] | None:
        """The class key: pods with equal ones get equal answers. None: no other pod is alike.

        Raises:
            PluginError: a plugin raised.
        """
        key: list[Hashable] = []
        try:
            for ask in self._keys:
                key.append(ask(pod, snapshot))
        except Exception as cause:
            raise self._runner.fault(self._keyed[len(key)], "PreFilter", cause) from cause
        return None if UNSHARED in key else tuple(key)

    def name(self, pod: PodInfo, snapshot: Snapshot) -> ClassName | None:
        """The name of the pod's class, which the pod remembers. None: no other pod is alike.

        Raises:
            PluginError: a plugin raised.
        """
        stamp = self._stamp(snapshot)
        kept = None if pod.memo is None else pod.memo.get(_KEPT)
        if isinstance(kept, tuple) and kept[0] == stamp:
            known: ClassName = kept[1]
            return known
        key = self.key(pod, snapshot)
        if key is None:
            return None
        found = self._names.get(key)
        if found is None:
            parts = tuple([key[number] for number in self._by_row])
            by_row = self._rows.get(parts)
            if by_row is None:
                said = tuple([part for part in parts if part is not SILENT])
                by_row = self._rows[parts] = ByRow(turn_of(self._seed, said))
            found = self._names[key] = ClassName(key, by_row)
        if self._keep_names:
            pod.keys[_KEPT] = stamp, found
        return found

    def _stamp(self, snapshot: Snapshot) -> tuple[Hashable, ...]:
        """The owner of the class and all that its key depends on besides the pod."""
        stamp: list[Hashable] = [self._owner]
        for plugin, version in self._versions:
            try:
                stamp.append(version(snapshot))
            except Exception as cause:
                raise self._runner.fault(plugin, "PreFilter", cause) from cause
        return tuple(stamp)

    def of(self, pod: PodInfo, snapshot: Snapshot) -> PodClass:
        """The pod's class; a new one has to be filled.

        Raises:
            PluginError: a plugin raised.
        """
        name = self.name(pod, snapshot)
        if name is None or not self.keeps:
            return PodClass(name)
        found = self._classes.pop(name, None)
        if found is None:
            self._make_room(snapshot.nodes.size)
            found = PodClass(name)
        self._classes[name] = found  # the last to leave
        return found

    def column(self, of: PodClass, *, wide: bool, alone: bool) -> KeyColumn:
        """The column of a class; a new one has to be filled.

        Classes with a `wide` filter score later, so they share no column with others. A column that
        is to be `alone` is shared with none.
        """
        name = of.name
        if name is None:
            return KeyColumn(turn_of(self._seed, None))
        by_row = name.by_row
        if alone or not self.keeps:
            return KeyColumn(by_row.turn)
        known = by_row.columns.get(wide)
        found = None if known is None else known()
        if found is None:
            found = KeyColumn(by_row.turn)
            by_row.columns[wide] = ref(found)
        return found

    def _make_room(self, size: int) -> None:
        """Forgets the least recently used classes once they are too many for their bytes."""
        most = self._most_bytes // max(1, size)
        most_classes = most // (_BYTES_A_KEY + _BYTES_A_GROUP)
        most_classes = min(_MOST_CLASSES, max(_LEAST_CLASSES, most_classes))
        while len(self._classes) >= most_classes:
            del self._classes[next(iter(self._classes))]
