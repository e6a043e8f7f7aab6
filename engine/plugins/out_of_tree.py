"""Plugins of other packages, by entry points of the group `berth.plugins`.

Nothing of a package is imported before a profile names its plugin. Whatever is wrong with it then
is told by the plugin's name, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from engine.framework.interface import Plugin, Points

GROUP: Final = "berth.plugins"


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
    if called != entry.name:
        raise ValueError(f"{where} has the name {called!r}")
    made: Plugin = plugin
    return made


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else entry.dist.name


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
