"""What a plugin is: one protocol an extension point, in two tiers.

The pure tier (everything up to scoring) is vectorised: where kube-scheduler calls Filter and Score
once a node, ours are called once with `rows`, and answer for all of them. The full pass and the
pass over the rows that changed are the same call. The acting tier returns effects (`effects.py`)
that the scheduler executes; none of it is needed to decide.

A plugin says what it reads: `class_key` is what it reads of the pod (pods with equal keys get equal
answers), `events` is what could change its answer, `scope` is how far its answer about one row
depends on others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from engine.framework.decision import Decision
from engine.framework.effects import Emit
from engine.framework.events import ClusterEventWithHint
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import BoolColumn, Rows, Snapshot
from engine.framework.status import Status

State = Any
"""What a plugin worked out before the nodes and wants back with each question; its own business."""

Scores = NDArray[np.float64]
"""One number a row. In-tree plugins hold whole numbers in it, exact below 2^53."""

StatusGroups = Sequence[tuple[Status, NDArray[np.intp]]]
"""Equal answers together: the status, and the positions (in the rows asked) it holds for."""


class Scope(Enum):
    """What an answer about one node depends on, besides the pod."""

    ROW = "row"
    """Only that node's row and the version: changed rows can be asked alone."""
    ALL = "all"
    """Other rows too (a maximum, a rank): asked about all rows again when any changed."""


class Plugin(Protocol):
    """What all plugins have."""

    @property
    def name(self) -> str:
        """The name in configuration, logs, metrics and events."""
        ...

    def events(self) -> Sequence[ClusterEventWithHint]:
        """What could make a pod that this plugin rejected schedulable."""
        ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """Keeps pods out of the active queue."""

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Success lets the pod in; anything else holds it until one of `events` happens."""
        ...


@runtime_checkable
class MovingGate(Plugin, Protocol):
    """A PreEnqueue plugin that may look at more than the pod."""

    #: Whether it does: then it is asked once more when the pod is popped.
    gate_moves: bool


@runtime_checkable
class TurningPlugin(Plugin, Protocol):
    """Rejects pods for reasons that the clock alone changes, at instants it can tell."""

    def turns_at(self, pod: PodInfo) -> float:
        """When it may first say something else of a pod that it has just rejected.

        Seconds since the epoch; infinite if the clock alone changes nothing.
        """
        ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """The order of the active queue; exactly one a profile."""

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Smaller comes first. Taken when the pod is queued; made of comparable values."""
        ...


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The answer of `pre_filter`.

    `status` not ok (and not Skip) ends the cycle; Skip leaves the plugin's filter out. `rows`, if
    not None, are the only nodes worth asking anyone about; `names` are the same nodes and those
    wanted that do not exist (two plugins conflict if they want no name in common).
    """

    status: Status = Status.SUCCESS
    state: State = None
    rows: NDArray[np.intp] | None = None
    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One plugin's answer about the rows asked: who passes, and on demand why not.

    `passed` is bool with one entry a row asked, None when all pass. `groups()` gives the reasons of
    those that do not; it is called only when no node is left, or to explain.
    """

    passed: BoolColumn | None
    groups: Callable[[], StatusGroups]

    @classmethod
    def uniform(cls, passed: BoolColumn | None, status: Status) -> Verdicts:
        """All rejected rows have the same reason."""
        if passed is None:
            return ALL_PASS
        return cls(passed, lambda: ((status, np.flatnonzero(~passed)),))


ALL_PASS = Verdicts(None, tuple)


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Says which nodes can take the pod."""

    @property
    def scope(self) -> Scope:
        """Of `filter`."""
        ...

    def class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """What filter and score read of the pod (and of cluster-wide numbers). Asked for every pod.

        Made of values that are equal, and have an equal repr, in every process.
        """
        ...

    def version(self, snapshot: Snapshot) -> Hashable:
        """What filter and score read that is in no row (metrics, time).

        Full pass when it changes.
        """
        ...

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Once a pod, before any node."""
        ...

    def filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Once a pod for all `rows`."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """Says how well the feasible nodes suit the pod."""

    @property
    def score_scope(self) -> Scope:
        """Of `score`, before normalisation."""
        ...

    def class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """See `FilterPlugin.class_key`."""
        ...

    def version(self, snapshot: Snapshot) -> Hashable:
        """See `FilterPlugin.version`."""
        ...

    def pre_score(self, pod: PodInfo, snapshot: Snapshot) -> tuple[Status, State]:
        """Skip leaves the plugin out of this pod's scores."""
        ...

    def score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores | None:
        """Raw scores of the rows; None: the plugin abstains.

        With Scope.ALL `rows` are the feasible nodes; with Scope.ROW any rows.
        """
        ...

    def normalize(self, state: State, scores: Scores) -> Scores:
        """Raw scores of all feasible nodes -> 0..100."""
        ...


@runtime_checkable
class TierPlugin(Plugin, Protocol):
    """Says which candidates come before others, whatever the scores are."""

    def preferred(
        self, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> Sequence[BoolColumn]:
        """Masks over `rows`, the most important first."""
        ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """Looks at the chosen node once more, with the pod on it."""

    def reserve(self, pod: PodInfo, snapshot: Snapshot, row: int) -> Status:
        """Anything but Success takes the pod back."""
        ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Allows or rejects the pod on the chosen node."""

    def permit(self, pod: PodInfo, snapshot: Snapshot, row: int) -> Status:
        """Anything but Success takes the pod back."""
        ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """Has something done before the pod is bound."""

    def pre_bind(
        self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision
    ) -> tuple[Mapping[str, str], Sequence[Emit]]:
        """Annotations that go with the Binding, and Events."""
        ...


class Binding(Enum):
    """How a pod is bound."""

    NO_SAY = "no say"
    DEFAULT = "default"
    DRY_RUN = "dry run"


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Says how the pod is bound; the first that has a say wins."""

    def bind(self, pod: PodInfo, snapshot: Snapshot) -> Binding:
        """How."""
        ...


@runtime_checkable
class ReadsScores(Plugin, Protocol):
    """Reads what the chosen node was given, in PreBind or PostBind."""

    #: Whether the scores are wanted where the choice needs none: of the only feasible node.
    reads_scores: bool


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Has something told after the pod was bound."""

    def post_bind(
        self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision
    ) -> Sequence[Emit]:
        """Events."""
        ...
