"""Extenders as a plugin of a profile: as which they reject pods. They are asked by `extenders`."""

from __future__ import annotations

from typing import Final

from engine.framework.events import EVERYTHING, ClusterEventWithHint
from engine.framework.interface import Points
from engine.framework.opinion import NAME


class Extenders:
    """They tell nobody what they look at, so whatever happens they are asked again.

    Source: kubernetes pkg/scheduler schedule_one.go, findNodesThatFitPod (issue 122019).
    """

    name: Final = NAME

    def points(self) -> Points:
        """What wakes a pod that they rejected."""
        return Points(events=(ClusterEventWithHint(EVERYTHING),))
