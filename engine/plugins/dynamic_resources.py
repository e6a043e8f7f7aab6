"""DynamicResources, as far as it is there: it keeps pods that need it from going where they cannot.

Devices are not allocated. A pod that claims some waits, and is told why.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.framework.interface import (
    SKIP_FILTER,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scores,
    State,
)
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import unresolvable

NAME: Final = "DynamicResources"
NOT_ALLOCATED: Final = PreFilterResult(
    unresolvable(
        "the pod has resource claims, and this scheduler has no plugin DynamicResources that would"
        " allocate them"
    )
)

_NO_DIFFERENCE: Final = PreScoreResult(causes=Cause(0), shared=True)


class DynamicResources:
    """Rejects every pod with resource claims."""

    name: Final = NAME

    def points(self) -> Points:
        """Nothing changes it but another scheduler, or another pod."""
        return Points(class_key=_claims, pre_filter=_pre_filter, pre_score=_pre_score, score=_score)


def _claims(pod: PodInfo, snapshot: Snapshot) -> bool:
    return bool(pod.pod.spec.resource_claims)


def _pre_score(pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
    return _NO_DIFFERENCE


def _score(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
    """Without claims all nodes are alike."""
    return np.zeros(len(snapshot.nodes.present[rows]))


def _pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    return NOT_ALLOCATED if _claims(pod, snapshot) else SKIP_FILTER
