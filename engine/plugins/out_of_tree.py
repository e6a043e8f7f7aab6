"""Plugins of other packages, by entry points of the group `berth.plugins`.

Nothing of a package is imported before a profile names its plugin. Whatever is wrong with it then
is told by the plugin's name, and nothing runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import numpy as np

from engine.framework import interface
from engine.framework.decision import PostFilterResult
from engine.framework.events import ClusterEventWithHint
from engine.framework.interface import Plugin, Points
from engine.framework.status import Status
from engine.objects import Described

GROUP: Final = "berth.plugins"
_COLLECTION: Final = re.compile(r"/apis?(/[a-z0-9.-]+)+/[a-z][a-z0-9-]*")
_ANSWERS: Final[Mapping[str, Any]] = {
    "class_key": object,
    "pre_filter": interface.PreFilterResult,
    "what_if": interface.PreFilterResult,
    "filter": interface.Verdicts,
    "pre_score": interface.PreScoreResult,
    "score": np.ndarray | None,
    "normalize": np.ndarray,
    "tiers": list | tuple,
    "post_filter": PostFilterResult,
    "reserve": interface.ReserveResult,
    "permit": interface.PermitResult,
    "pre_bind": interface.PreBindResult,
    "bind": interface.BindResult | None,
    "post_bind": list | tuple,
}
"""The types of what functions return that nothing else checks."""


def checked(points: Points) -> Points:
    """The same, but functions raise if they return what the scheduler cannot use."""
    asked = {one: ask for one in _ANSWERS if (ask := getattr(points, one)) is not None}
    changed: dict[str, Any] = {one: _checked(one, ask) for one, ask in asked.items()}
    if points.unfiltered is not None:
        changed["unfiltered"] = checked(points.unfiltered)
    return replace(points, **changed)


def _checked(point: str, ask: Callable[..., Any]) -> Callable[..., Any]:
    kind = _ANSWERS[point]

    def call(*args: Any) -> Any:  # noqa: ANN401 - what the point returns
        found = ask(*args)
        if not isinstance(found, kind):
            wanted = getattr(kind, "__name__", kind)
            raise TypeError(f"{point} returns {type(found).__name__} instead of {wanted}")
        status = getattr(found, "status", Status.SUCCESS)
        if not isinstance(status, Status):
            raise TypeError(f"{point} returns a status that is {type(status).__name__}")
        hash(found if point == "class_key" else getattr(found, "shared", None))
        column = found.passed if point == "filter" else found if point == "score" else None
        if column is not None:
            *_, snapshot, rows = args
            length, is_mask = len(snapshot.nodes.present[rows]), point == "filter"
            if column.shape != (length,) or (column.dtype == np.bool_) != is_mask:
                shape = f"{column.dtype} {column.shape}"
                raise TypeError(f"{point} returns an array of {shape} for {length} rows")
            if not (is_mask or (np.isfinite(column) | ~snapshot.nodes.present[rows]).all()):
                raise ValueError(
                    "a score is not a finite number, be it of a node that does not fit"
                )
        return found

    return call


def names() -> set[str]:
    """The plugins that are installed."""
    return entry_points(group=GROUP).names


def load(name: str, args: Mapping[str, Any]) -> Plugin | None:
    """A new plugin; None if no package has one of that name.

    Raises:
        ValueError: it cannot be used, or does not take the arguments.
    """
    found = {(one.value, _package(one)): one for one in entry_points(group=GROUP, name=name)}
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found.values())))
        raise ValueError(f"several packages have one of that name: {packages}")
    for entry in found.values():
        return _made(entry, args)
    return None


def _made(entry: EntryPoint, args: Mapping[str, Any]) -> Plugin:
    where = f"{entry.value} of {_package(entry)}"
    try:
        make = entry.load()
    except Exception as broken:
        raise ValueError(f"{where} cannot be loaded: {_words(broken)}") from broken
    try:
        plugin = make(args)
        points, called = plugin.points(), plugin.name
    except Exception as broken:
        raise ValueError(f"{where} fails: {_words(broken)}") from broken
    if not isinstance(points, Points):
        raise ValueError(f"{where} returns {type(points).__name__} instead of Points")  # noqa: TRY004 - all that is wrong with a plugin is a ValueError
    if not all(isinstance(one, ClusterEventWithHint) for one in points.events):
        raise ValueError(f"{where} has events that are no ClusterEventWithHint")
    objects: Mapping[str, Any] = points.objects
    for path, struct in objects.items():
        is_kind = isinstance(struct, type) and issubclass(struct, Described)
        if not is_kind or not _COLLECTION.fullmatch(path):
            raise ValueError(f"{where} has objects at {path!r}: no collection, or not Described")
    if called != entry.name:
        raise ValueError(f"{where} has the name {called!r}")
    made: Plugin = plugin
    return made


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else entry.dist.name


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
