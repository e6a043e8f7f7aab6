"""Policies of namespaces about their own pods: texts of many in, one bundle each out.

    texts of one ─▶ its own reloader ─▶ parts[namespace] ┐
    texts of another ─▶ its own reloader ─▶ ...          ┴─ another `version`

Each namespace is compiled by itself, waits by itself and is refused by itself; whoever edits has
those that edited before go first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.clock import Clock
from engine.policy.bundle import Bundle
from engine.policy.reloader import Kept, Reloader
from engine.policy.sources import Source, Texts

_LOOK_SECONDS: Final = 1.0
"""How often it is looked whether the cluster has outgrown what costs were bounded for."""


class Tenants:
    """Those of a process; implements `scheduler.Background`.

    Attributes:
        parts: the rules of each namespace that has some, as they are to be in force.
        version: another one when they are others.
        ready: told, with what was kept, when all that there was at the start was compiled.
    """

    def __init__(
        self, make: Callable[[str], Reloader], clock: Clock, wake: Callable[[], None]
    ) -> None:
        """Starts without any; `make` gives a reloader for the texts of a namespace."""
        self.parts: dict[str, Bundle] = {}
        self.version = 0
        self.ready: Callable[[Mapping[str, Kept]], None] = lambda _: None
        self._make = make
        self._clock = clock
        self._wake = wake
        self._tenants: dict[str, Reloader] = {}
        self._working: dict[str, Reloader] = {}
        self._kept: Mapping[str, Kept] | None = None
        self._listed = self._is_ready = False
        self._look = clock.monotonic()

    # ---- what comes --------------------------------------------------------------------------

    def listed(self) -> None:
        """Every namespace that has policies at the start was told of."""
        self._listed = True
        self._wake()

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

    def leave(self, source: Source) -> None:
        """The ConfigMap of a namespace is gone, and its rules with it."""
        namespace = source.tenant
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
            coming = one.ready()
            if coming is not None:
                one.came(coming)
                # Texts that were never good leave nothing to be in force.
                if coming.bundle.files:
                    self.parts[namespace] = coming.bundle
                    self.version += 1
            if one.due is None and self._kept is not None:
                self._working.pop(namespace, None)
            if self._clock.monotonic() >= deadline:
                break
        compiling = any(one.due is None for one in self._working.values())
        if not self._is_ready and self._listed and self._kept is not None and not compiling:
            self._is_ready = True
            # It is of those that were there at the start: one that comes later is a new one.
            kept, self._kept = self._kept, {}
            self.ready(kept)
        return compiling and self._kept is not None
