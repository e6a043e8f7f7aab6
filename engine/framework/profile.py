"""A profile: a scheduler name and the plugins that decide for its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.framework.interface import Plugin, Points


@dataclass(frozen=True, slots=True)
class Weighted:
    """A plugin and the weight of its scores."""

    plugin: Plugin
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Restricted:
    """A plugin without some of its points, which the profile disables."""

    plugin: Plugin
    off: frozenset[str]

    @property
    def name(self) -> str:
        """See `Plugin.name`."""
        return self.plugin.name

    def points(self) -> Points:
        """See `Plugin.points`."""
        without: dict[str, Any] = dict.fromkeys(self.off)
        points = self.plugin.points()
        if "filter" in self.off and points.unfiltered is not None:
            points = points.unfiltered
        return replace(points, **without)


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
