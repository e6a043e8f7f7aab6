"""Plugins that look at no node: queue order, gates, names that profiles list, and DynamicResources.

Devices are not allocated: a pod that claims some waits, and the reason is reported.

Source: kubernetes plugins/queuesort, schedulinggates and defaultbinder; for extenders
pkg/scheduler/schedule_one.go, findNodesThatFitPod (issue 122019).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from engine.framework.decision import PostFilterResult, Rejections
from engine.framework.events import EVERYTHING, Action, ClusterEventWithHint, Resource
from engine.framework.interface import (
    SKIP_FILTER,
    PluginArgs,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scores,
    State,
    WhatIf,
)
from engine.framework.opinion import NAME as EXTENDER
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.plugins.hints import always, on
from engine.pods.podinfo import PodInfo


class PrioritySort:
    """The order of the active queue: higher priority first, then who was queued first."""

    name: Final = "PrioritySort"

    def points(self) -> Points:
        """Smaller comes first."""
        return Points(sort_key=lambda pod, queued_at, _: (-pod.priority, queued_at))


class SchedulingGates:
    """Keeps a pod with gates out of the active queue until its owner removes them."""

    name: Final = "SchedulingGates"

    def points(self) -> Points:
        """Only the removal of the last gate helps."""
        gone = on(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, always)
        return Points(events=(gone,), pre_enqueue=_pre_enqueue)


def _pre_enqueue(pod: PodInfo, snapshot: Snapshot) -> Status:
    gates = pod.pod.spec.scheduling_gates
    if not gates:
        return Status.SUCCESS
    names = " ".join(gate.name for gate in gates)
    return unresolvable(f"waiting for scheduling gates: [{names}]")


class DefaultBinder:
    """The scheduler's own Binding, which is the default."""

    name: Final = "DefaultBinder"

    def points(self) -> Points:
        """None: what it would do is the default."""
        return Points()


class Extenders:
    """The name by which extenders reject pods; `engine.extenders` asks them.

    What they look at is unknown, so any event has them asked again.
    """

    name: Final = EXTENDER

    def points(self) -> Points:
        """Any event."""
        return Points(events=(ClusterEventWithHint(EVERYTHING),))


DYNAMIC_RESOURCES: Final = "DynamicResources"
NOT_ALLOCATED: Final = PreFilterResult(
    unresolvable(
        "the pod has resource claims, and this scheduler has no plugin DynamicResources that would"
        " allocate them"
    )
)

_DURATION: Final = re.compile(r"\+?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|ms|[smh]))+)", re.ASCII)
_NOTHING: Final = PostFilterResult(unschedulable())
_UNPREPARED: Final = PostFilterResult(
    Status(Code.ERROR, ("not found",), DYNAMIC_RESOURCES), message="not found"
)
_NO_DIFFERENCE: Final = PreScoreResult(causes=Cause(0), shared=True)


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """`pluginConfig` of DynamicResources; both times are read and do nothing."""

    filter_timeout: str | None = None
    binding_timeout: str | None = None

    def __post_init__(self) -> None:
        """Checks them as far as kube-scheduler reads them.

        Raises:
            ValueError: one is no duration.
        """
        times = ("filterTimeout", self.filter_timeout), ("bindingTimeout", self.binding_timeout)
        for name, given in times:
            if given is not None and not _DURATION.fullmatch(given):
                raise ValueError(f"{name}: {given!r} is not a duration; write one like 10s")


class DynamicResources:
    """Rejects every pod with resource claims."""

    def __init__(self, args: DynamicResourcesArgs | None = None) -> None:
        """Takes them as kube-scheduler does."""

    name: Final = DYNAMIC_RESOURCES

    def points(self) -> Points:
        """No events: only another pod or another scheduler helps."""
        return Points(
            class_key=_claims,
            pre_filter=lambda *of: NOT_ALLOCATED if _claims(*of) else SKIP_FILTER,
            pre_score=lambda *_: _NO_DIFFERENCE,
            score=_score,
            post_filter=_post_filter,
        )


def _claims(pod: PodInfo, snapshot: Snapshot) -> bool:
    return bool(pod.pod.spec.resource_claims)


def _post_filter(
    pod: PodInfo, snapshot: Snapshot, rejections: Rejections, what_if: WhatIf
) -> PostFilterResult:
    """Nothing; but kube-scheduler's fails, and preemption is not asked, if it was never prepared.

    That is so where another plugin's PreFilter ended the cycle before its own was asked.
    """
    ended = rejections.ended
    return _UNPREPARED if ended is not None and DYNAMIC_RESOURCES in ended.unasked else _NOTHING


def _score(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
    """Without claims all nodes are alike."""
    return np.zeros(len(snapshot.nodes.present[rows]))
