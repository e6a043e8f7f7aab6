"""A profile: a scheduler name and the plugins that decide for its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.framework.interface import Plugin


@dataclass(frozen=True, slots=True)
class Weighted:
    """A plugin and the weight of its scores."""

    plugin: Plugin
    weight: float = 1.0


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
