"""Policies of namespaces about their own pods: texts of many in, one bundle each out.

    texts of one ─▶ its own reloader ─▶ parts[namespace] ┐
    texts of another ─▶ its own reloader ─▶ ...          ┴─ another `version`

Each namespace is compiled by itself, waits by itself and is refused by itself; whoever edits has
those that edited before go first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from engine.clock import Clock
from engine.configuration.berth import PoliciesSection
from engine.policy.bundle import Bundle
from engine.policy.reloader import Kept, Reloader
from engine.policy.sources import (
    ConfigMapSource,
    SelectedSources,
    Source,
    Texts,
    selected_source,
    title_of,
)

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 1.0
"""How often it is looked whether the cluster has outgrown what costs were bounded for."""


class Tenants:
    """Those of a process; implements `scheduler.Background`.

    Attributes:
        parts: the rules of each namespace that has some, as they are to be in force.
        version: another one when they are others.
        ready: told when all that there was at the start was compiled.
    """

    def __init__(
        self,
        policies: PoliciesSection,
        make: Callable[[str], Reloader],
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        """Starts without any; `make` gives a reloader for the texts of a namespace."""
        self.parts: dict[str, Bundle] = {}
        self.version = 0
        self.ready: Callable[[], None] = lambda: None
        self._policies = policies
        self._make = make
        self._clock = clock
        self._wake = wake
        self._tenants: dict[str, Reloader] = {}
        self._working: dict[str, Reloader] = {}
        self._kept: Mapping[str, Kept] | None = None
        self._listed = self._is_ready = False
        self._look = clock.monotonic()

    # ---- what comes --------------------------------------------------------------------------

    def handler(
        self, made: Callable[[ConfigMapSource], None], gone: Callable[[ConfigMapSource], None]
    ) -> SelectedSources:
        """Takes the ConfigMaps of all namespaces; tells of each that is one of ours."""

        def source_of(namespace: str, name: str) -> ConfigMapSource | None:
            if not self._policies.tenant_of(f"{namespace}/{name}/"):
                title = title_of(namespace, name)
                _LOG.info("%s is skipped: policies.tenants does not list its namespace", title)
                return None
            offer = partial(self.offer, selected_source(namespace, name, namespace))
            of = ConfigMapSource(namespace, name, offer)
            made(of)
            return of

        def leave(source: ConfigMapSource) -> None:
            self.leave(source.namespace)
            gone(source)

        def listed(_found: int) -> None:
            self._listed = True
            self._wake()

        return SelectedSources(source_of, leave, listed, lambda _: False)

    def offer(self, source: Source, files: Texts | None, passed_over: tuple[str, ...]) -> None:
        """The files of a namespace are these now."""
        namespace = source.tenant
        one = self._tenants.get(namespace)
        if one is None:
            one = self._tenants[namespace] = self._make(namespace)
            if self._kept is None:
                one.await_kept()
            else:
                one.restore(self._kept)
        one.offer(source, files, passed_over)
        self._working.pop(namespace, None)
        self._working[namespace] = one
        self._wake()

    def leave(self, namespace: str) -> None:
        """The ConfigMap of a namespace is gone, and its rules with it."""
        if self._tenants.pop(namespace, None) is not None:
            self._working.pop(namespace, None)
            self.version += self.parts.pop(namespace, None) is not None
            self._wake()

    def restore(self, kept: Mapping[str, Kept]) -> None:
        """What was kept of sources, by title, is known."""
        self._kept = kept
        for one in self._tenants.values():
            one.restore(kept)
        self._working |= self._tenants

    # ---- what is known -----------------------------------------------------------------------

    def reloader(self, namespace: str) -> Reloader | None:
        """The one of a namespace, if that has policies."""
        return self._tenants.get(namespace)

    @property
    def sources(self) -> list[Source]:
        """Those that there are."""
        return [source for one in self._tenants.values() for source in one.sources]

    def kept(self) -> dict[str, Kept]:
        """What is to be kept of them beyond this process, by title."""
        return {t: k for one in self._tenants.values() for t, k in one.kept().items()}

    # ---- the work ----------------------------------------------------------------------------

    @property
    def due(self) -> float | None:
        """Soon where something waits for what it reads."""
        found = (due for one in self._working.values() if (due := one.due) is not None)
        return min(found, default=None)

    def step(self, deadline: float) -> bool:
        """Compiles until the deadline; True if there is more to do."""
        now = self._clock.monotonic()
        if now >= self._look:
            self._look = now + _LOOK_SECONDS
            self._working = {**self._tenants, **self._working}
        for namespace, one in list(self._working.items()):
            if one.step(deadline):
                return True
            if one.is_ready():
                one.came()
                # Texts that were never good leave nothing to be in force.
                if one.bundle is not None and one.bundle.files:
                    self.parts[namespace] = one.bundle
                    self.version += 1
            if one.due is None and self._kept is not None:
                self._working.pop(namespace, None)
            if self._clock.monotonic() >= deadline:
                break
        compiling = any(one.due is None for one in self._working.values())
        if not self._is_ready and self._listed and self._kept is not None and not compiling:
            self._is_ready = True
            # It is of those that were there at the start: one that comes later is a new one.
            self._kept = {}
            self.ready()
        return compiling and self._kept is not None
