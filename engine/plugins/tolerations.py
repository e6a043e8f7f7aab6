"""Does a pod tolerate a taint? Toleration comparison operators (Lt, Gt) are off, as in 1.37.

Source: k8s.io/api core/v1 toleration.go, ToleratesTaint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.objects import Taint, Toleration

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """True if any of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def all_tolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    """True if no taint keeps the pod off: all that forbid scheduling are tolerated."""
    return all(
        tolerates(tolerations, taint)
        for taint in taints
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE)
    )


def intolerable_preferences(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate."""
    return sum(
        taint.effect == PREFER_NO_SCHEDULE and not tolerates(tolerations, taint) for taint in taints
    )
