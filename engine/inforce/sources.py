"""Sources as the configuration names or selects them: what to watch, and which one what is.

Hands what they offer to the reloader; what comes of it is not known here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine.clock import Clock
from engine.configuration.berth import PoliciesSection
from engine.inforce.owners import Owners
from engine.kube.resources import Resource, config_maps
from engine.objects import ConfigMap, ObjectMeta
from engine.pods.selectors import read_selector
from engine.policy.reloader import Reloader
from engine.policy.sources import (
    ConfigMapSource,
    FolderSource,
    SelectedSources,
    Source,
    Texts,
    selected_source,
    title_of,
)
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
        self._named: dict[str, Source] = {}
        self.watched: list[tuple[Resource[ConfigMap], ConfigMapSource | SelectedSources]] = []
        self.folders: list[FolderSource] = []
        selected = [one for one in policies.all_sources if one.selector is not None]
        for section in policies.all_sources:
            folder = section.folder if policies.in_folders else ""
            names = frozenset(section.profiles)
            if section.config_map is not None:
                namespace, _, name = section.config_map.partition("/")
                source = Source(title_of(namespace, name), folder, names)
                self._named[section.config_map] = source
                reloader.expect(source)
                config_map = config_maps(namespace, name)
                self.watched.append((config_map, self._of(source, namespace, name)))
            elif section.dir is not None:
                source = Source(f"folder {section.dir}", folder, names)
                reloader.expect(source)
                offer = partial(self._offer, source)
                self.folders.append(FolderSource(Path(section.dir), offer, clock))
        for section in selected:
            assert section.namespace is not None
            listed = partial(self._listed, f"{section.selector} in {section.namespace}")
            reloader.await_listed(*listed.args)
            # A source without rules in force leaves nothing behind that has to be mended.
            handler = SelectedSources(
                self._selected, self._leave, listed, lambda gone: gone.title in reloader.kept()
            )
            resource = config_maps(section.namespace, label_selector=section.selector or "")
            self.watched.append((resource, handler))
        if tenants is not None and policies.tenants is not None:
            resource = config_maps("", policies.tenants.config_map)
            self.watched.append((resource, tenants.handler(owners.made, owners.gone)))

    def _of(self, source: Source, namespace: str, name: str) -> ConfigMapSource:
        made = ConfigMapSource(namespace, name, partial(self._offer, source))
        self._owners.made(made)
        return made

    def _selected(self, namespace: str, name: str) -> ConfigMapSource | None:
        """A source for a ConfigMap that a selector found; None: it is one by its name already."""
        if f"{namespace}/{name}" in self._named:
            return None
        return self._of(selected_source(namespace, name), namespace, name)

    def _listed(self, selection: str, found: int) -> None:
        if not found:
            log.info("No ConfigMap matches yet: %s", selection)
        self._reloader.listed(selection)
        self._wake()

    def source_of(self, meta: ObjectMeta) -> Source | None:
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
                return selected_source(meta.namespace, meta.name)
        tenant = self._policies.tenant_of(f"{meta.namespace}/{meta.name}/")
        return selected_source(tenant, meta.name, tenant) if tenant else None

    def is_named(self, source: Source) -> bool:
        """Whether the configuration names the ConfigMap, and does not select it."""
        return source in self._named.values()

    def _leave(self, gone: ConfigMapSource) -> None:
        self._owners.gone(gone)
        self._reloader.leave(Source(gone.title))
        self._wake()

    def _offer(self, source: Source, files: Texts | None, passed_over: tuple[str, ...]) -> None:
        self._reloader.offer(source, files, passed_over)
        self._wake()
