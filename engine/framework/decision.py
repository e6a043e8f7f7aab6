"""The result of a cycle: a record for messages, observers and replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.effects import Evict
from engine.framework.opinion import Opinion
from engine.framework.snapshot import BoolColumn, Snapshot
from engine.framework.status import Code, Status
from engine.pods.podinfo import PodInfo

NO_NODES: Final = "no nodes available to schedule pods"
_PAST_HELP: Final = (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.ERROR)


@dataclass(frozen=True, slots=True)
class FitError:
    """No node fits: how many there were, and how often each reason was given.

    A node counts once for each reason of the first plugin that rejected it. Nodes that a PreFilter
    left out count for its message.

    Source: kubernetes pkg/scheduler/framework/types.go, FitError.Error.
    """

    nodes: int
    reasons: Mapping[str, int]
    pre_filter_message: str = ""
    plugins: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    """Those of `plugins` that returned Pending: their events skip the backoff."""
    unresolvable: bool = False
    """A PreFilter returned that evicting pods helps on no node."""
    unasked: frozenset[str] = frozenset()
    """Plugins that were not called, because a PreFilter ended the cycle."""

    def message(self) -> str:
        """The text of the FailedScheduling event, as kube-scheduler words it."""
        head = f"0/{self.nodes} nodes are available"
        if self.pre_filter_message:
            return f"{head}: {self.pre_filter_message}."
        if not self.reasons:
            return f"{head}."
        return f"{head}: {', '.join(sorted(_counted(n, r) for r, n in self.reasons.items()))}."

    def told(self, rescue: str) -> str:
        """The message to report; `rescue` is that of PostFilter."""
        return f"{self.message()} {rescue}".rstrip() if self.nodes else NO_NODES


def _counted(nodes: int, reason: str) -> str:
    if reason[:1].isdigit():  # a rule's own words; two numbers would read as one
        return f"{nodes} node{'s' if nodes != 1 else ''}: {reason}"
    return f"{nodes} {reason}"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Nodes that one plugin was the first to reject, for the same reasons."""

    plugin: str
    status: Status
    rows: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Rejections:
    """The nodes that were rejected, each by its first rejecting plugin.

    `left_out` are the rows that a PreFilter did not leave, by the plugins that left them out; if it
    ended the cycle, that is `ended`.
    """

    nodes: int
    each: Sequence[Rejection] = ()
    left_out: NDArray[np.intp] | None = None
    left_out_by: tuple[str, ...] = ()
    ended: FitError | None = None
    memo: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)
    """A cache of what callers derive from it."""

    def by_plugin(self) -> dict[str, NDArray[np.intp]]:
        """The rows that each plugin was the first to reject, ascending."""
        found: dict[str, list[NDArray[np.intp]]] = {}
        for one in self.each:
            found.setdefault(one.plugin, []).append(one.rows)
        return {plugin: np.sort(np.concatenate(rows)) for plugin, rows in found.items()}

    def unresolvable(self, size: int) -> BoolColumn:
        """(N,) rows that evicting pods would not help, those that a PreFilter left out included."""
        mask = np.full(size, self.ended is not None and self.ended.unresolvable, dtype=np.bool_)
        for one in self.each:
            if one.status.code in _PAST_HELP:
                mask[one.rows] = True
        if self.left_out is not None:
            mask[self.left_out] = True
        return mask

    def fit_error(self) -> FitError:
        """The rejections counted by reason."""
        if self.ended is not None:
            return self.ended
        known: FitError | None = self.memo.get("fit error")
        if known is None:
            known = self.memo["fit error"] = self._counted()
        return known

    def _counted(self) -> FitError:
        reasons: Counter[str] = Counter()
        plugins, pending = set(self.left_out_by), set[str]()
        for one in self.each:
            plugins.add(one.plugin)
            if one.status.code is Code.PENDING:
                pending.add(one.plugin)
            for reason in one.status.reasons:
                reasons[reason] += len(one.rows)
        if self.left_out is not None and len(self.left_out):
            names = " ".join(sorted(self.left_out_by))
            reasons[f"node(s) didn't satisfy plugin(s) [{names}]"] += len(self.left_out)
        return FitError(self.nodes, reasons, plugins=frozenset(plugins), pending=frozenset(pending))


Rank = Callable[[NDArray[np.intp], Mapping[str, NDArray[Any]]], NDArray[Any]]
"""(C,) nodes, and the outcomes of evictions there by name -> (C,) the lower, the better."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The candidates of a preemption; valid as long as the snapshot is."""

    victims: Callable[[], Mapping[str, tuple[Sequence[PodInfo], int]]]
    """Node -> the victims there, and how many of them a disruption budget protects."""
    among: Callable[[Mapping[str, Collection[str]]], PostFilterResult]
    """The choice among the nodes that extenders left, with their victims by UID."""


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The answer of PostFilter: how a pod could be made to fit.

    After a success no further plugin is called; `nominated` is the node that will have room once
    `evictions` are carried out, None to leave the pod's nomination as it is, "" to remove it.
    `message` is appended to the pod's message. `clears` are pods that lose their own nomination.
    `violations` of the evictions break a disruption budget; `ranks` compare such results by their
    rows and outcomes (`victims.*`), the most important first; the least is best. Events of
    `plugins` wake the pod, too: their answer may be another one then.
    """

    status: Status
    nominated: str | None = None
    evictions: tuple[Evict, ...] = ()
    clears: tuple[PodInfo, ...] = ()
    message: str = ""
    violations: int = 0
    ranks: Sequence[Rank] = ()
    plugins: frozenset[str] = frozenset()
    choices: Choices | None = field(default=None, compare=False, repr=False)
    """The other candidates, if the plugin knows them."""


@dataclass(frozen=True, slots=True)
class PluginScore:
    """What one plugin gave the chosen node: before and after normalisation, and its weight."""

    plugin: str
    raw: float
    normalized: float
    weight: float


class Decision(msgspec.Struct, eq=False):
    """The outcome of one cycle.

    Exactly one of `node`, `fit_error` and `error` is set. `generation` and `bundle` name the state
    and the rules it was made from.
    """

    pod: PodInfo
    generation: int
    bundle: str
    evaluated: int
    node: str | None = None
    row: int = -1
    feasible: int = 0
    total: float = 0.0
    fit_error: FitError | None = None
    rejections: Rejections | None = None
    """Why no node fits; set with `fit_error`."""
    rescue: PostFilterResult | None = None
    """The answer of PostFilter, if it was asked."""
    error: Status | None = None
    opinion: Opinion | None = None
    """What extenders said of the pod, if any was asked."""
    scores: tuple[PluginScore, ...] = ()
    """What each plugin gave the chosen node, if a plugin reads that (`Points.reads_scores`)."""
    said: tuple[str, ...] = ()
    """The answers of the acting tier as text, in order."""
    why: str = ""
    """What policies said of the node, if an observer has put it there for the log."""

    @property
    def message(self) -> str:
        """The message to report if there is no node."""
        if self.error is not None:
            return " ".join(self.error.reasons)
        if self.fit_error is None:
            return ""
        return self.fit_error.told("" if self.rescue is None else self.rescue.message)


class Placed(msgspec.Struct, frozen=True, eq=False):
    """A decision with its snapshot, for observers: the demo, a recorder, an explanation.

    `seconds` is what the cycle took, `slices` in how many its search for victims went. The snapshot
    is borrowed: good only while the observer runs.
    """

    decision: Decision
    snapshot: Snapshot
    seconds: float
    slices: int = 0
    as_member: bool = False
    """The pod is a member of a gang that is being tried: PostFilter was not asked."""
