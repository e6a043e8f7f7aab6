"""Owners of sources, told by Events about their ConfigMaps once this replica leads.

Knows what is worth telling from `InForce`; words for a bundle are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dsl.plan import Plan
from engine.framework.edge import EventSink
from engine.framework.effects import Emit
from engine.policy.bundle import Bundle, file_of, in_a_line
from engine.policy.sources import ConfigMapSource, Source


class Owners:
    """Those of the ConfigMaps that are sources; a folder has none."""

    def __init__(self) -> None:
        self._events: EventSink | None = None
        self._leads: Callable[[], bool] = lambda: True
        self._untold: dict[str, Emit] = {}
        self._config_maps: dict[str, ConfigMapSource] = {}

    def connect(self, events: EventSink | None, leads: Callable[[], bool]) -> None:
        """Says where to write, and whether this replica does."""
        self._events, self._leads = events, leads

    def made(self, source: ConfigMapSource) -> None:
        """A ConfigMap is a source."""
        self._config_maps[source.title] = source

    def gone(self, source: ConfigMapSource) -> None:
        """It is none any more."""
        del self._config_maps[source.title]
        self._untold.pop(source.title, None)

    def lead(self) -> None:
        """This replica leads from now on: the last of what there was to tell of each source."""
        if self._events is not None:
            for event in self._untold.values():
                self._events.emit(event)
        self._untold.clear()

    def tell_in_force(self, source: Source, bundle: Bundle) -> None:
        """Which policies of the source are in force, and what is odd about them."""
        plans = [one for one in bundle.plans if file_of(one).startswith(source.folder)]
        own = called(plans).get(source.folder, ())
        note = f"in force: {', '.join(own) or 'no policy'} (bundle {bundle.hash})"
        warnings = [
            one
            for one in bundle.warnings
            if one.severity.value == "warning" and one.source.name.startswith(source.folder)
        ]
        if warnings:
            word = "1 warning" if len(warnings) == 1 else f"{len(warnings)} warnings"
            note = f"{note}; {word}: {in_a_line(warnings[0])}"
        self.tell(source, "Normal", "PoliciesInForce", note)

    def tell(self, source: Source, kind: str, reason: str, note: str) -> None:
        """An Event about the ConfigMap; a folder has none."""
        about = self._config_maps.get(source.title)
        if about is None:
            return
        uid = about.seen.metadata.uid if about.seen is not None else ""
        event = Emit("ConfigMap", about.namespace, about.name, uid, kind, reason, "Reload", note)
        if not self._leads():
            self._untold[source.title] = event
        elif self._events is not None:
            self._events.emit(event)


def called(plans: Iterable[Plan]) -> Mapping[str, list[str]]:
    """The names of policies by the folder of their source, with the mode of those that have one."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        name = plan.name if plan.mode == "enforce" else f"{plan.name} ({plan.mode})"
        found.setdefault(folder_of(file_of(plan)), []).append(name)
    return found


def folder_of(file: str) -> str:
    """The prefix of a file name, which names its source."""
    return file[: file.rfind("/") + 1]
