"""What a plugin is: a name and the functions it has, one an extension point, in two tiers.

The pure tier (everything up to post-filter) is vectorised: where kube-scheduler calls Filter and
Score once a node, ours are called once with `rows`, and answer for all of them. The full pass and
the pass over the rows that changed are the same call. The acting tier returns effects
(`effects.py`) that the scheduler executes; none of it is needed to decide.

Pods that no plugin can tell apart are a class. `class_key` is what a plugin reads of the pod.
What a plugin answers for a class, and what its answer depends on, comes back from `pre_filter` and
`pre_score`: they are asked once a class, and again when what they say they depend on has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.decision import Decision, PostFilterResult, Rejections
from engine.framework.effects import Effect, Emit, Patch
from engine.framework.events import ClusterEvent, ClusterEventWithHint
from engine.framework.gang import Membership
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, PodColumns, Rows, Snapshot
from engine.framework.status import Status
from engine.pods.podinfo import PodInfo

if TYPE_CHECKING:
    from engine.framework.trials import Trial

State = Any
"""What a plugin worked out before the nodes and wants back with each question; its own business."""

Scores = NDArray[np.float64]
"""One number a row. In-tree plugins hold whole numbers in it, exact below 2^53."""

StatusGroups = Sequence[tuple[Status, NDArray[np.intp]]]
"""Equal answers together: the status, and the positions (in the rows asked) it holds for."""

Version = Callable[[Snapshot], Hashable]
"""Something of the cluster that an answer depends on; equal values mean equal answers."""

MAX_SCORE: Final = 100


class Scope(Enum):
    """What an answer about one node depends on, besides the pod's class."""

    ROW = "row"
    """Only that node's row and the version: changed rows can be asked alone."""
    FEASIBLE = "feasible"
    """Of scores: also which nodes are feasible. Asked about these, and again when their set, the
    version, or one of the causes in any row has changed."""
    ALL = "all"
    """Other rows too, or pods elsewhere: asked about all rows in every cycle."""


class Normalization(Enum):
    """How raw scores of the feasible nodes become 0..100."""

    NONE = "none"
    """They are already."""
    BY_MAX = "by max"
    """The highest becomes 100; without any above 0 they stay as they are."""
    BY_MAX_REVERSED = "by max, reversed"
    """The highest becomes 0; without any above 0 all become 100."""
    CUSTOM = "custom"
    """The plugin's `normalize` says it."""


GroupColumn = NDArray[np.int16] | NDArray[np.int32]

Moved = dict[int, int] | None
"""Rows that may have changed their group, each with the group before; None: all are new."""


class Grouped(Protocol):
    """What is answered by groups of rows of which there are few, as pods elsewhere come and go.

    `sync` is asked in every cycle before all else.
    """

    @property
    def column(self) -> GroupColumn:
        """(N,) the group of each row, below `len`; read between two calls of `sync`."""
        ...

    def sync(self, snapshot: Snapshot) -> Moved:
        """Catches up."""
        ...

    def __len__(self) -> int:
        """How many groups there are."""
        ...


class GroupedFilter(Grouped, Protocol):
    """A filter by groups."""

    def passes(self) -> Sequence[bool]:
        """Which groups pass."""
        ...


class GroupedScore(Grouped, Protocol):
    """A score by groups."""

    def scores(self, feasible: Sequence[int]) -> Sequence[float]:
        """0..100 for each group with feasible nodes, by how many each has."""
        ...


class PreResult(msgspec.Struct, frozen=True, eq=False):
    """What a plugin worked out for one class of pods, and what its filter or score depends on.

    `status` not ok (and not Skip) ends the cycle; Skip leaves the plugin's filter or score out.
    `causes` are the changes of a row that can change the answer about the row, `version` is what
    else the result, Skip included, depends on. With `shared`, the answers depend on it and the row
    alone: classes with equal ones keep one column together.
    """

    status: Status = Status.SUCCESS
    state: State = None
    scope: Scope = Scope.ROW
    causes: Cause = Cause.ANY
    version: Version | None = None
    shared: Hashable = None


class PreFilterResult(PreResult, frozen=True, eq=False):
    """How a plugin filters for one class of pods.

    `rows`, if not None, are the only nodes worth asking anyone about; `names` are the same nodes
    and those wanted that do not exist (two plugins conflict if they want no name in common). Where
    `rejects` is false, the filter would pass every node, and is not asked. `grouped` gives what the
    filter gives, of a scope of ALL, by groups.
    """

    rows: NDArray[np.intp] | None = None
    names: frozenset[str] | None = None
    rejects: bool = True
    grouped: GroupedFilter | None = None


class PreScoreResult(PreResult, frozen=True, eq=False):
    """How a plugin scores for one class of pods.

    With a scope of ROW `score` is asked about any rows, feasible or not; otherwise about the
    feasible ones: with `shared`, classes that can go to the same nodes keep one answer together.
    `grouped` gives what score and normalisation give, of a scope of ALL, by groups.
    """

    normalization: Normalization = Normalization.NONE
    grouped: GroupedScore | None = None


PASS: Final = PreFilterResult(rejects=False)
SKIP_FILTER: Final = PreFilterResult(Status.SKIP)
SKIP_SCORE: Final = PreScoreResult(Status.SKIP)


class Verdicts(msgspec.Struct, frozen=True, eq=False):
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

    @classmethod
    def by_first(cls, reasons: Sequence[tuple[Status, BoolColumn]]) -> Verdicts:
        """Reasons, and the rows that each is against: a row has the first of them."""
        if not reasons:
            return ALL_PASS
        rejected = np.logical_or.reduce([against for _, against in reasons])

        def groups() -> StatusGroups:
            found, left = [], rejected.copy()
            for status, against in reasons:
                found.append((status, np.flatnonzero(left & against)))
                left &= ~against
            return [(status, positions) for status, positions in found if len(positions)]

        return cls(~rejected, groups)


ALL_PASS = Verdicts(None, tuple)


@dataclass(frozen=True, slots=True)
class Room:
    """An amount that a row must have left for a pod: it passes where `limit - used >= need`.

    A pod that is on the node takes what it requests of `resource`; one, if that is empty. `short`
    is the reason where it does not pass.
    """

    resource: str
    limit: IntColumn
    used: IntColumn
    need: int
    short: str
    quota: str = ""
    """Whose it is, where each node has the same left of it and pods of any nodes hold it."""
    holds: IntColumn | None = None
    """(P,) what they hold then; of pods that are promised a node `used` has it."""

    @property
    def title(self) -> str:
        """Tells it from rooms of which pods take something else."""
        return f"quota {self.quota}" if self.quota else f"request {self.resource}"

    def held(self, pod: PodInfo) -> int:
        """What a pod on the node takes of it."""
        if self.holds is not None:
            return 0
        return pod.requests.get(self.resource, 0) if self.resource else 1

    def held_by(self, pods: PodColumns, rows: NDArray[np.intp]) -> IntColumn:
        """What each of some pods, by their rows, takes of it."""
        if self.holds is not None:
            return self.holds[rows]
        if not self.resource:
            return np.ones(len(rows), dtype=np.int64)
        return pods.request(self.resource)[rows]


@dataclass(frozen=True, slots=True)
class Rooms:
    """All that moves with the pods of a row in the filters for a pod.

    `open` are the rows asked that pass all other filters; `plugins` are those that `each` is of.
    More decides on rows that are `apart`, and where a pod leaves one of those of another filter
    that `concerns` it, by its name.
    """

    plugins: frozenset[str]
    each: Sequence[Room]
    open: BoolColumn
    apart: BoolColumn
    concerns: Sequence[tuple[str, BoolColumn, Callable[[PodInfo], bool]]]


WhatIf = Callable[[PodInfo, Snapshot], "Trial"]
"""Begins a trial. Nothing is kept of it."""


class Joint(Protocol):
    """What a filter by row and scores by row say to one class, in one pass, as each says alone."""

    @property
    def scorers(self) -> Collection[str]:
        """Whose scores it stands for."""
        ...

    def totals(self, snapshot: Snapshot, rows: Rows) -> tuple[BoolColumn, Scores] | None:
        """Which of the rows pass, and what their scores, weighed, add up to; None: ask each alone.

        Borrowed until the next call, and may be written to.
        """
        ...

    def row(self, snapshot: Snapshot) -> Callable[[int], float | None]:
        """Makes what says the same of single rows, while `layout` stays.

        Below zero: it does not pass; None: as for `totals`.
        """
        ...


class _Silent:
    """The type of `SILENT`; ties are broken by how keys are written, so no address may be in it."""

    def __repr__(self) -> str:
        return "SILENT"


UNSHARED: Final = object()
"""As a class key: no other pod is like this one, so nothing is kept for it."""
SILENT: Final = _Silent()
"""As a class key: the plugin has no say about the pod."""


class Passing(tuple[Hashable, ...]):
    """As a class key: of objects that the pod has for itself, and asked for in each cycle.

    Pods of equal keys share answers now, and each is woken, and rejected, by itself.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """How a pod is bound: by the plugin `by`, by the scheduler if that is empty, or not at all."""

    dry_run: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The answer of `reserve`.

    `effects` are to be carried out at once, undone in reverse if the pod fails; `pre_bind` before
    the pod is bound, as those of `PreBound`: then the cluster shows what is reserved already.
    """

    status: Status = Status.SUCCESS
    effects: tuple[Effect, ...] = ()
    pre_bind: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Permitted:
    """The answer of `permit`.

    Success lets the pod go, for good as far as this plugin is concerned; Code.WAIT holds it, and
    its reasons are told; anything else takes it back. A held pod keeps its node, and the plugin is
    asked again after each of `wakes`, at `Points.turns_at`, under new rules, and when the pod has
    waited for `timeout_seconds` since it got its node: who then says WAIT still has rejected it.

    `others` are answers about pods, by UID, that this plugin holds already: Success or a rejection.
    Who waits is in `Snapshot.waiting`.
    """

    status: Status = Status.SUCCESS
    timeout_seconds: float = 0.0
    wakes: Sequence[ClusterEvent] = ()
    others: Mapping[str, Status] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreBound:
    """The answer of `pre_bind`.

    `annotations` go with the Binding, `labels` are written before it and taken back if the pod is
    not bound; the cache shows both at once. `effects` are carried out before it, in order, outside
    of the slots of bindings; `events` are told.
    """

    status: Status = Status.SUCCESS
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    events: tuple[Emit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """What a plugin does, by extension point; None: nothing there.

    The pure tier:

    Attributes:
        events: what could make a pod that the plugin rejected schedulable.
        pre_enqueue: Success lets the pod into the queue; anything else holds it until one of
            `events` happens.
        gate_moves: `pre_enqueue` looks at more than the pod, so it is asked again at pop.
        turns_at: when the clock alone may change what the plugin said of a pod that it has just
            rejected; seconds since the epoch, infinite for never.
        sort_key: the place in the queue, smaller first; exactly one plugin of a profile has it.
            Taken when the pod is queued, at that time in seconds since the epoch.
        kin: of a pod that is in a gang, what the other members share with it, None otherwise.
        gang: the gang of a pod, None if it is in none.
        class_key: what filter and score read of the pod. Made of texts, numbers, bytes, tuples and
            frozensets, or `UNSHARED` or `Passing`. `SILENT` of a plugin that has no say about the
            pod: among equal nodes the choice is then the same as without it.
        wide_key: `class_key` says nothing of what is answered by row: what it tells apart are
            answers of a scope of ALL, and whether there are any.
        key_version: what else `class_key` depends on, if it is cheap to tell.
        key_moves: `class_key` looks at more than that, so it is asked in every cycle; otherwise
            once a pod.
        told_key: what the reasons of rejected nodes say of the pod beside that: pods of a class are
            told the same while it is equal.
        pre_filter: once a class at most, before any node: what is said by rows alone, of a pod with
            this `class_key`, is kept. Without it, the filter is always asked.
        filter: once a class for all rows, then for changed rows.
        unfiltered: what the plugin has in a profile that turns its filter off, where the rest of it
            builds on what the filter finds.
        pre_score: as `pre_filter`.
        score: raw scores of rows; None: the plugin abstains.
        normalize: raw scores of all feasible nodes -> 0..100, for Normalization.CUSTOM.
        tiers: masks over candidates: who comes before others whatever the scores are, the most
            important first.
        with_pod: the state of `pre_filter` with a pod more (1) or less (-1) on a row; what it sees
            in the what-if snapshot of such a question is enough without it.
        counts_pods: `pre_filter` counts pods wherever they are, so that pods that come together
            can be too many though each alone is not.
        what_if: instead of `pre_filter` for questions about rows as they could be, where pods that
            leave may change what that says of all nodes: it never ends the question.
        concerns: whether another pod that comes to a row or leaves it can change the answer about
            it; of two pods equal but for name and requests both do, or neither. Without it, all
            may.
        yields: of the rows, those where pods that leave can change the answer. Without it, all.
        rooms: what the filter comes to if it is nothing but a look at amounts of the row.
        joint: what stands for the filter and some of these scores, each with weight and state.
        warm: what the first question would take long for, in steps of some milliseconds; taken
            between cycles, on a snapshot that may be out of date. They change no answer.
        post_filter: asked in order when no node is feasible, until one succeeds, or says that
            nothing helps (unresolvable).
        rescue_key: what `post_filter` reads of the pod, but its class, priority and preemption
            policy; as `class_key`.

    The acting tier, on a snapshot that has the pod on its node already:

    Attributes:
        reserve: anything but Success takes the pod back.
        permit: lets the pod go, holds it or takes it back; also asked how many seconds it has
            waited by now, 0 at first.
        pre_bind: what is to be done before the pod is bound.
        bind: how it is bound; the first that has a say, and does not say None, wins.
        binder: what has to be done so that somebody else binds a pod that `bind` hands to this
            plugin; then the scheduler waits until the pod is on its node.
        post_bind: Events to tell and patches to write once the pod is known to be bound; one that
            cannot be written is logged.
        acts_on: whether any of these has anything to do with the pod; what it says of a pod never
            changes. Without it, they are asked about every pod.
        reads_scores: `pre_bind` or `post_bind` reads the scores of the chosen node.
    """

    events: Sequence[ClusterEventWithHint] = ()
    pre_enqueue: Callable[[PodInfo, Snapshot], Status] | None = None
    gate_moves: bool = False
    turns_at: Callable[[PodInfo, Snapshot], float] | None = None
    sort_key: Callable[[PodInfo, float, Snapshot], tuple[Any, ...]] | None = None
    kin: Callable[[PodInfo, Snapshot], Hashable] | None = None
    gang: Callable[[PodInfo, Snapshot], Membership | None] | None = None
    class_key: Callable[[PodInfo, Snapshot], Hashable] = lambda *_: None
    wide_key: bool = False
    key_version: Version | None = None
    key_moves: bool = False
    told_key: Callable[[PodInfo, Snapshot], Hashable] | None = None
    pre_filter: Callable[[PodInfo, Snapshot], PreFilterResult] | None = None
    filter: Callable[[State, PodInfo, Snapshot, Rows], Verdicts] | None = None
    unfiltered: Points | None = None
    pre_score: Callable[[PodInfo, Snapshot], PreScoreResult] | None = None
    score: Callable[[State, PodInfo, Snapshot, Rows], Scores | None] | None = None
    normalize: Callable[[State, Scores], Scores] | None = None
    tiers: Callable[[PodInfo, Snapshot, NDArray[np.intp]], Sequence[BoolColumn]] | None = None
    with_pod: Callable[[State, PodInfo, Snapshot, int, int], State] | None = None
    counts_pods: bool = False
    what_if: Callable[[PodInfo, Snapshot], PreFilterResult] | None = None
    concerns: Callable[[State, PodInfo, PodInfo, Snapshot], bool] | None = None
    yields: Callable[[State, PodInfo, Snapshot, Rows], BoolColumn] | None = None
    rooms: Callable[[PodInfo, Snapshot], Sequence[Room]] | None = None
    joint: Callable[[PodInfo, Mapping[str, tuple[float, State]]], Joint | None] | None = None
    warm: Callable[[Snapshot], Iterator[object]] | None = None
    post_filter: Callable[[PodInfo, Snapshot, Rejections, WhatIf], PostFilterResult] | None = None
    rescue_key: Callable[[PodInfo], Hashable] | None = None
    reserve: Callable[[PodInfo, Snapshot, int], Reserved] | None = None
    permit: Callable[[PodInfo, Snapshot, int, float], Permitted] | None = None
    pre_bind: Callable[[PodInfo, Snapshot, int, Decision], PreBound] | None = None
    bind: Callable[[PodInfo, Snapshot], Binding | None] | None = None
    binder: Callable[[PodInfo, Snapshot, int], Sequence[Effect]] | None = None
    post_bind: Callable[[PodInfo, Snapshot, int, Decision], Sequence[Emit | Patch]] | None = None
    acts_on: Callable[[PodInfo], bool] | None = None
    reads_scores: bool = False


class Plugin(Protocol):
    """What all plugins have."""

    @property
    def name(self) -> str:
        """The name in configuration, logs, metrics and events."""
        ...

    def points(self) -> Points:
        """What it does. Asked once, when a profile is made."""
        ...


class PluginArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a plugin takes in `pluginConfig[].args`: fields of a subclass; others are refused."""

    api_version: str = ""
    kind: str = ""
