"""DynamicResources, which is not there: pods that need it are rejected.

Devices are not allocated. A pod that claims some waits, and the reason is reported.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from engine.framework.decision import PostFilterResult, Rejections
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
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.pods.podinfo import PodInfo

NAME: Final = "DynamicResources"
NOT_ALLOCATED: Final = PreFilterResult(
    unresolvable(
        "the pod has resource claims, and this scheduler has no plugin DynamicResources that would"
        " allocate them"
    )
)

_DURATION: Final = re.compile(r"\+?(0|((\d+\.?\d*|\.\d+)(ns|us|µs|ms|[smh]))+)", re.ASCII)
_NOTHING: Final = PostFilterResult(unschedulable())
_UNPREPARED: Final = PostFilterResult(Status(Code.ERROR, ("not found",), NAME), message="not found")
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

    name: Final = NAME

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
    return _UNPREPARED if ended is not None and NAME in ended.unasked else _NOTHING


def _score(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
    """Without claims all nodes are alike."""
    return np.zeros(len(snapshot.nodes.present[rows]))
