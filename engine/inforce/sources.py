"""Sources as the configuration names or selects them: what to watch, and which one what is.

Hands what they offer to the reloader; what comes of it is not known here. Owners of sources are
told by Events about their ConfigMaps once this replica leads; words for a bundle are here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from dsl.plan import Plan
from engine.clock import Clock
from engine.configuration.berth import PoliciesSection
from engine.framework.edge import EventSink
from engine.framework.effects import Emit
from engine.kube.resources import Resource, config_maps
from engine.objects import ConfigMap, ObjectMeta
from engine.pods.selectors import read_selector
from engine.policy import sources
from engine.policy.bundle import Bundle, file_of, in_a_line
from engine.policy.reloader import Reloader
from engine.policy.tenants import Tenants

log = logging.getLogger(__name__)


class ConfiguredSources:
    """Those of one process.

    Attributes:
        watched: the resources to list and watch, and their handlers.
        folders: to be looked at between cycles; see `scheduler.Background`.
    """

    def __init__(
        self,
        policies: PoliciesSection,
        reloader: Reloader,
        tenants: Tenants | None,
        owners: Owners,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        """Has the reloader expect all of them; `wake` is told of each offer."""
        self._policies = policies
        self._reloader = reloader
        self._owners = owners
        self._wake = wake
        self._tenants = tenants
        self._named: dict[str, sources.Source] = {}
        self.watched: list[tuple[Resource[ConfigMap], sources.ConfigMapSources]] = []
        self.folders: list[sources.FolderSource] = []
        handler = partial(sources.ConfigMapSources, offer=self._seen, leave=self._leave)
        for section in policies.all_sources:
            folder = section.folder if policies.in_folders else ""
            names = frozenset(section.profiles)
            if section.config_map is not None:
                namespace, _, name = section.config_map.partition("/")
                source = sources.source_of(namespace, name, folder=folder, profiles=names)
                self._named[section.config_map] = source
                reloader.expect(source)
                found = handler(self.source_of, named=source)
                self.watched.append((config_maps(namespace, name), found))
            elif section.dir is not None:
                source = sources.Source(f"folder {section.dir}", folder, names)
                reloader.expect(source)
                offer = partial(self._offer, source)
                self.folders.append(sources.FolderSource(Path(section.dir), offer, clock))
        for section in policies.all_sources:
            if section.selector is None:
                continue
            assert section.namespace is not None
            listed = partial(self._listed, f"{section.selector} in {section.namespace}")
            reloader.await_listed(*listed.args)
            found = handler(
                self._selected,
                synced=listed,
                # A source without rules in force leaves nothing behind that has to be mended.
                keeps=lambda gone: gone.title in reloader.kept(),
            )
            resource = config_maps(section.namespace, label_selector=section.selector)
            self.watched.append((resource, found))
        if tenants is not None and policies.tenants is not None:
            resource = config_maps("", policies.tenants.config_map)
            found = handler(
                self._of_tenant, synced=lambda _: tenants.listed(), keeps=lambda _: False
            )
            self.watched.append((resource, found))

    def _selected(self, meta: ObjectMeta) -> sources.Source | None:
        """A source for a ConfigMap that a selector found; None: it is one by its name already."""
        found = sources.source_of(meta.namespace, meta.name)
        return None if found.config_map in self._named else found

    def _of_tenant(self, meta: ObjectMeta) -> sources.Source | None:
        found = sources.source_of(meta.namespace, meta.name, meta.namespace)
        if self._policies.tenant_of(found.folder):
            return found
        log.info("%s is skipped: policies.tenants does not list its namespace", found.title)
        return None

    def _listed(self, selection: str, found: int) -> None:
        if not found:
            log.info("No ConfigMap matches yet: %s", selection)
        self._reloader.listed(selection)
        self._wake()

    def source_of(self, meta: ObjectMeta) -> sources.Source | None:
        """The source that a ConfigMap of this name and these labels is; None: it is none.

        Raises:
            SelectorError: what selects sources cannot be read.
        """
        named = self._named.get(f"{meta.namespace}/{meta.name}")
        if named is not None:
            return named
        for one in self._policies.all_sources:
            chosen = one.selector is not None and one.namespace == meta.namespace
            if chosen and read_selector(one.selector or "").matches(meta.labels or {}):
                return sources.source_of(meta.namespace, meta.name)
        tenant = self._policies.tenant_of(f"{meta.namespace}/{meta.name}/")
        return sources.source_of(tenant, meta.name, tenant) if tenant else None

    def is_named(self, source: sources.Source) -> bool:
        """Whether the configuration names the ConfigMap, and does not select it."""
        return source in self._named.values()

    def _seen(
        self, source: sources.Source, files: sources.Texts | None, over: tuple[str, ...], uid: str
    ) -> None:
        self._owners.seen(source, uid)
        self._offer(source, files, over)

    def _offer(
        self, source: sources.Source, files: sources.Texts | None, passed_over: tuple[str, ...]
    ) -> None:
        self._takes(source).offer(source, files, passed_over)
        self._wake()

    def _leave(self, gone: sources.Source) -> None:
        self._owners.gone(gone)
        self._takes(gone).leave(gone)
        self._wake()

    def _takes(self, source: sources.Source) -> Reloader | Tenants:
        return self._tenants if source.tenant and self._tenants is not None else self._reloader


# ---- who is told


class Owners:
    """Those of the ConfigMaps that are sources; a folder has none."""

    def __init__(self) -> None:
        self._events: EventSink | None = None
        self._leads: Callable[[], bool] = lambda: True
        self._untold: dict[str, Emit] = {}
        self._uids: dict[str, str] = {}

    def connect(self, events: EventSink | None, leads: Callable[[], bool]) -> None:
        """Says where to write, and whether this replica does."""
        self._events, self._leads = events, leads

    def seen(self, source: sources.Source, uid: str) -> None:
        """The ConfigMap of a source has this UID, empty without one."""
        self._uids[source.title] = uid

    def gone(self, source: sources.Source) -> None:
        """It is none any more."""
        self._uids.pop(source.title, None)
        self._untold.pop(source.title, None)

    def lead(self) -> None:
        """This replica leads from now on: the last of what there was to tell of each source."""
        if self._events is not None:
            for event in self._untold.values():
                self._events.emit(event)
        self._untold.clear()

    def tell_in_force(self, source: sources.Source, bundle: Bundle) -> None:
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

    def tell(self, source: sources.Source, kind: str, reason: str, note: str) -> None:
        """An Event about the ConfigMap; a folder has none."""
        uid = self._uids.get(source.title)
        if uid is None:
            return
        namespace, _, name = source.config_map.partition("/")
        event = Emit("ConfigMap", namespace, name, uid, kind, reason, "Reload", note)
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
