"""What a plugin is: a name and functions, one for each extension point it has, in two tiers.

The pure tier (everything up to PostFilter) is vectorised: kube-scheduler calls Filter and Score
for each node, here they are called once for all `rows`, and in the same way for the rows that
changed. The acting tier returns effects (`effects.py`) that the scheduler executes; no decision
needs it.

Pods that no plugin can tell apart are a class; `class_key` is what a plugin reads of the pod.
`pre_filter` and `pre_score` return what a plugin answers for a class and what that depends on: they
are called once a class, and again when what they depend on has changed.
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
from engine.framework.effects import AtOnce, Effect, Emit, Patch
from engine.framework.events import ClusterEvent, ClusterEventWithHint
from engine.framework.gang import Membership
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, PodColumns, Rows, Snapshot
from engine.framework.status import Status
from engine.objects import Described
from engine.pods.podinfo import PodInfo

if TYPE_CHECKING:
    from engine.framework.trials import Trial

State = Any
"""What a plugin made in PreFilter or PreScore for its own Filter or Score, as in a CycleState."""

Scores = NDArray[np.float64]
"""One number a row. In-tree plugins hold whole numbers in it, exact below 2^53."""

StatusGroups = Sequence[tuple[Status, NDArray[np.intp]]]
"""Equal answers together: a status, and the indexes into `rows` that it is for."""

Version = Callable[[Snapshot], Hashable]
"""Something of the cluster that an answer depends on; equal values mean equal answers."""

MAX_SCORE: Final = 100


class Scope(Enum):
    """What an answer about one node depends on, besides the pod's class."""

    ROW = "row"
    """Only that node's row and the version: changed rows can be asked alone."""
    FEASIBLE = "feasible"
    """Scores only: also the set of feasible nodes. Asked about those, and again when the set, the
    version, or one of the causes in any row changes."""
    ALL = "all"
    """Other rows too, or pods on other nodes: asked about all rows in every cycle."""


class Normalization(Enum):
    """How raw scores of the feasible nodes become 0..100."""

    NONE = "none"
    """They are in that range already."""
    BY_MAX = "by max"
    """The highest becomes 100; without any above 0 they stay as they are."""
    BY_MAX_REVERSED = "by max, reversed"
    """The highest becomes 0; without any above 0 all become 100."""
    CUSTOM = "custom"
    """By the plugin's `normalize`."""


GroupColumn = NDArray[np.int16] | NDArray[np.int32]

Moved = dict[int, int] | None
"""Rows that may be in another group now, each with its former one; None: any row may be."""


class Grouped(Protocol):
    """Answers of scope ALL that are equal within groups of rows, such as the nodes of a zone.

    `sync` is called first in every cycle.
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

    `rows`, if not None, are the only candidates (NodeNames of kube-scheduler); `names` are their
    names and those of wanted nodes that do not exist: plugins without a name in common conflict. If
    `rejects` is false, the filter would pass every node and is not called. `grouped` answers for a
    filter of scope ALL, by groups.
    """

    rows: NDArray[np.intp] | None = None
    names: frozenset[str] | None = None
    rejects: bool = True
    grouped: GroupedFilter | None = None


class PreScoreResult(PreResult, frozen=True, eq=False):
    """How a plugin scores for one class of pods.

    With scope ROW `score` is called for any rows, feasible or not; otherwise for the feasible ones,
    and with `shared`, classes with the same feasible nodes keep one answer together. `grouped`
    answers for score and normalisation of scope ALL, by groups.
    """

    normalization: Normalization = Normalization.NONE
    grouped: GroupedScore | None = None


PASS: Final = PreFilterResult(rejects=False)
SKIP_FILTER: Final = PreFilterResult(Status.SKIP)
SKIP_SCORE: Final = PreScoreResult(Status.SKIP)


class Verdicts(msgspec.Struct, frozen=True, eq=False):
    """One plugin's answer about `rows`: which pass, and on demand why the others do not.

    `passed` is bool with an entry for each of the rows, None when all pass. `groups()` gives the
    reasons of those that do not; it is called only when no node is left, or to explain.
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
        """Reasons, each with the rows that it rejects; the first of them is that of the row."""
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
    """An amount that a node must have left for the pod: it passes where `limit - used >= need`.

    A pod on the node uses what it requests of `resource`, or 1 if that is empty. `short` is the
    reason of a rejection.
    """

    resource: str
    limit: IntColumn
    used: IntColumn
    need: int
    short: str
    quota: str = ""
    """The quota that it is of, if any: equal on all nodes, and used by pods of any node."""
    holds: IntColumn | None = None
    """(P,) what each pod uses of the quota; `used` includes nominated pods."""

    @property
    def title(self) -> str:
        """Identifies it among the rooms of a pod."""
        return f"quota {self.quota}" if self.quota else f"request {self.resource}"

    def held(self, pod: PodInfo) -> int:
        """What a pod on the node uses of it."""
        if self.holds is not None:
            return 0
        return pod.requests.get(self.resource, 0) if self.resource else 1

    def held_by(self, pods: PodColumns, rows: NDArray[np.intp]) -> IntColumn:
        """What each of some pods, by their rows, uses of it."""
        if self.holds is not None:
            return self.holds[rows]
        if not self.resource:
            return np.ones(len(rows), dtype=np.int64)
        return pods.request(self.resource)[rows]


@dataclass(frozen=True, slots=True)
class Rooms:
    """Whether the pod fits nodes without some of their pods, where amounts alone decide that.

    `each` replaces the filters of `plugins`; `open` are the rows that all other filters pass. More
    than amounts decides on the rows of `apart`, and where a pod leaves a row of `concerns` (plugin,
    rows, whether its filter looks at that pod).
    """

    plugins: frozenset[str]
    each: Sequence[Room]
    open: BoolColumn
    apart: BoolColumn
    concerns: Sequence[tuple[str, BoolColumn, Callable[[PodInfo], bool]]]


WhatIf = Callable[[PodInfo, Snapshot], "Trial"]
"""Makes a trial; nothing of it is kept in the memo."""


class Joint(Protocol):
    """A filter and scores of scope ROW for one class, in one pass, with equal results."""

    @property
    def scorers(self) -> Collection[str]:
        """The plugins whose scores it computes."""
        ...

    def totals(self, snapshot: Snapshot, rows: Rows) -> tuple[BoolColumn, Scores] | None:
        """Which of the rows pass, and their weighted total scores; None: ask each plugin.

        Rows without a node do not pass. Borrowed until the next call, and may be written to.
        """
        ...

    def row(self, snapshot: Snapshot) -> Callable[[int], float | None]:
        """A function with the answer for a single row, valid while `layout` stays.

        Below zero: the row does not pass; None: as for `totals`.
        """
        ...


class _Silent:
    """The type of `SILENT`; ties are broken by how keys are written, so no address may be in it."""

    def __repr__(self) -> str:
        return "SILENT"


UNSHARED: Final = object()
"""As a class key: no other pod is like this one, so nothing is kept for it."""
SILENT: Final = _Silent()
"""As a class key: the plugin does nothing for the pod."""


@dataclass(frozen=True, slots=True)
class BindResult:
    """How a pod is bound: by the plugin `by`, by the scheduler if that is empty, or not at all."""

    dry_run: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class ReserveResult:
    """The answer of `reserve`.

    `effects` are to be carried out at once, undone in reverse if the pod fails; `pre_bind` before
    the pod is bound, as those of `PreBindResult`: then the cluster shows what is reserved already.
    """

    status: Status = Status.SUCCESS
    effects: tuple[AtOnce, ...] = ()
    pre_bind: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class PermitResult:
    """The answer of `permit`.

    Success allows the pod, and the plugin is not asked about it again; Code.WAIT holds it, and the
    reasons are reported; any other code rejects it. A held pod keeps its node. The plugin is asked
    again when the pod changes, after each event of `wakes`, at `Points.recheck_at`, when policies
    change, and `timeout_seconds` after the pod got its node; then WAIT counts as a rejection.

    `others` are answers about pods that this plugin holds, by UID: Success or a rejection. All held
    pods are in `Snapshot.waiting`.
    """

    status: Status = Status.SUCCESS
    timeout_seconds: float = 0.0
    wakes: Sequence[ClusterEvent] = ()
    others: Mapping[str, Status] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreBindResult:
    """The answer of `pre_bind`.

    `annotations` go with the Binding, `labels` are written before it and taken back if the pod is
    not bound; the cache shows both at once. `effects` are carried out before it, in order; they do
    not count among the bindings in flight. `events` are emitted.
    """

    status: Status = Status.SUCCESS
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    effects: tuple[Effect, ...] = ()
    events: tuple[Emit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The functions of a plugin by extension point; None where it has none.

    The pure tier:

    Attributes:
        events: what could make a pod that the plugin rejected schedulable. Of a plugin of another
            package that rejects and names none, and has no `recheck_at`: anything.
        objects: kinds that the plugin reads by `Snapshot.objects` and Berth does not watch itself:
            the path of each collection (`/apis/example.com/v1/racks`), and a subclass of
            `engine.objects.Described` that has the kind's name and the fields to decode. Changes
            are events of `Resource.OBJECT`.
        pre_enqueue: Success lets the pod into the queue; anything else holds it until one of
            `events` happens.
        gate_volatile: `pre_enqueue` looks at more than the pod, so it is asked again at pop.
        recheck_at: when the plugin is to be asked again about a pod that it has just rejected or
            holds, without any event; seconds since the epoch, infinite for never.
        sort_key: the place in the queue, smaller first; exactly one plugin of a profile has it.
            Taken when the pod is queued, at that time in seconds since the epoch.
        kin: the key that all members of the pod's gang share, None if it is in none.
        gang: the gang of a pod, None if it is in none.
        class_key: what filter and score read of the pod. Made of texts, numbers, bytes, tuples and
            frozensets, or `UNSHARED`. `SILENT` if the plugin does nothing for the
            pod: among equal nodes the choice is then the same as without the plugin.
        wide_key: `class_key` is about answers of scope ALL only (and whether there are any); rows
            are answered alike whatever it is.
        key_version: what `class_key` depends on besides the pod, if that is cheap to compute.
        key_volatile: `class_key` depends on more, so it is computed in every cycle; otherwise once
            for each pod.
        reason_key: what reasons mention of the pod that is not in its class: pods of a class with
            equal ones get the same message.
        pre_filter: once a class at most; an answer of scope ROW without a version is kept for all
            pods with this `class_key`. Without it, the filter is always called.
        filter: once a class for all rows, then for changed rows.
        unfiltered: what the plugin does in a profile that turns its filter off, where the rest of
            it builds on what the filter finds.
        pre_score: as `pre_filter`.
        score: raw scores of rows; None: the plugin abstains.
        normalize: raw scores of all feasible nodes -> 0..100, for Normalization.CUSTOM.
        tiers: masks over candidates: which come before others whatever their scores, the most
            important mask first.
        with_pod: the state of `pre_filter` after a pod came to a row (1) or left it (-1), as
            AddPod and RemovePod; not needed where the filter reads the what-if snapshot alone.
        counts_pods: `pre_filter` counts pods wherever they are: several may be too many together.
        what_if: replaces `pre_filter` in what-if questions, where pods that leave may change what
            it says of all nodes; never ends the cycle.
        concerns: whether another pod that comes to a row or leaves it can change the answer about
            the row; the same for pods equal but for name and requests. Without it, all may.
        yields: the rows where pods that leave can change the answer. Without it, all.
        rooms: the amounts that the filter compares, if it compares nothing else.
        joint: answers the filter and some of these scores, each with weight and state, in one pass.
            Only of plugins of Berth itself, as is `grouped` of results.
        warm: prepares what would make the first call slow, in steps of some milliseconds between
            cycles, on a snapshot that may be out of date. Changes no answer.
        post_filter: called in order when no node is feasible, until one succeeds, or returns that
            nothing helps (unresolvable).
        post_filter_key: what `post_filter` reads of the pod, except its class, priority and
            preemption policy; as `class_key`.

    The acting tier, on a snapshot that has the pod on its node already:

    Attributes:
        reserve: anything but Success rejects the pod.
        permit: allows the pod, holds it or rejects it; given how many seconds it has waited.
        pre_bind: what is to be done before the pod is bound.
        bind: how it is bound; the first answer that is not None counts.
        binder: has somebody else bind a pod that `bind` hands to this plugin; the scheduler waits
            until the pod is on its node.
        post_bind: Events and patches to write once the pod is known to be bound; one that cannot be
            written is logged.
        acts_on: whether any of these has anything to do for the pod; its answer for a pod never
            changes. Without it, they are called for every pod.
        reads_scores: `pre_bind` or `post_bind` reads the scores of the chosen node.
    """

    events: Sequence[ClusterEventWithHint] = ()
    objects: Mapping[str, type[Described]] = field(default_factory=dict)
    pre_enqueue: Callable[[PodInfo, Snapshot], Status] | None = None
    gate_volatile: bool = False
    recheck_at: Callable[[PodInfo, Snapshot], float] | None = None
    sort_key: Callable[[PodInfo, float, Snapshot], tuple[Any, ...]] | None = None
    kin: Callable[[PodInfo, Snapshot], Hashable] | None = None
    gang: Callable[[PodInfo, Snapshot], Membership | None] | None = None
    class_key: Callable[[PodInfo, Snapshot], Hashable] = lambda *_: None
    wide_key: bool = False
    key_version: Version | None = None
    key_volatile: bool = False
    reason_key: Callable[[PodInfo, Snapshot], Hashable] | None = None
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
    post_filter_key: Callable[[PodInfo], Hashable] | None = None
    reserve: Callable[[PodInfo, Snapshot, int], ReserveResult] | None = None
    permit: Callable[[PodInfo, Snapshot, int, float], PermitResult] | None = None
    pre_bind: Callable[[PodInfo, Snapshot, int, Decision], PreBindResult] | None = None
    bind: Callable[[PodInfo, Snapshot], BindResult | None] | None = None
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
