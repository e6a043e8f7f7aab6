"""A profile: a scheduler name and the plugins that decide for its pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.framework.interface import Plugin, Points


@dataclass(frozen=True, slots=True)
class Weighted:
    """A plugin and the weight of its scores."""

    plugin: Plugin
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Changed:
    """A plugin with other points than it has by itself."""

    plugin: Plugin
    change: Callable[[Points], Points]

    @property
    def name(self) -> str:
        """See `Plugin.name`."""
        return self.plugin.name

    def points(self) -> Points:
        """See `Plugin.points`."""
        return self.change(self.plugin.points())


def without(off: frozenset[str], points: Points) -> Points:
    """The points but for some, which the profile disables."""
    nothing: dict[str, Any] = dict.fromkeys(off)
    if "filter" in off and points.unfiltered is not None:
        points = points.unfiltered
    return replace(points, **nothing)


@dataclass(frozen=True, slots=True)
class Profile:
    """Plugins in the order in which they are asked, at every extension point they implement.

    `order` has the names at the points where the order is another; those it does not name follow.
    `node_selector` is the labels of the nodes that it sees; to its pods there are no others.
    """

    scheduler_name: str
    plugins: tuple[Weighted, ...]
    seed: int = 0
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
