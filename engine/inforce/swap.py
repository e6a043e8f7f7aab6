"""How rules come into force: prepared in steps between cycles, then put, whole, by one reference.

    an edit of the owner, rules at the start, a way back ─▶ Reloader.ready ┐
    edits of namespaces ─▶ Tenants.parts, all that changed together         ┴─▶ prepared ─▶ put

There is one that is prepared at a time. What the owner wants takes the place of anything else, as
it brings the rules of namespaces with it; what comes of namespaces meanwhile comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from engine.clock import Clock
from engine.configuration.berth import TenantsSection
from engine.policy.bundle import Bundle, together
from engine.policy.reloader import Coming, Reloader
from engine.policy.tenants import Tenants
from engine.steps import Steps

_PAUSE: Final = 0.5
"""Seconds between two changes of namespaces' rules, as each costs all pods a little."""
Put = Callable[[], None]
Prepare = Callable[[Bundle, frozenset[str] | None], Generator[None, None, Put]]
"""Does in steps what is long, and returns what then puts the bundle in force at once."""


class Swap:
    """See the module; implements `scheduler.Background`."""

    def __init__(
        self,
        owner: Reloader,
        tenants: Tenants | None,
        bounds: TenantsSection | None,
        clock: Clock,
        *,
        prepare: Prepare,
        put: Callable[[Bundle, Coming | None, Put], None],
        tell: Callable[[Bundle, Coming | None], None],
    ) -> None:
        """`prepare` is given the names of policies that are not as before; None: look at all.

        `put` puts a bundle in force, by what it is given; `tell` is told then, in a step of its
        own, unless another one is coming by that time.
        """
        self.bundle: Bundle | None = None
        """The bundle in force, of all sources."""
        self._owner = owner
        self._tenants = tenants
        self._bounds = bounds
        self._clock = clock
        self._prepare = prepare
        self._put = put
        self._tell = tell
        self._steps = Steps(clock)
        self._coming: Coming | None = None
        """What is prepared, if it is of the owner."""
        self._version = 0
        """Of the rules of namespaces that are in force."""
        self._next = clock.monotonic()

    @property
    def due(self) -> float | None:
        """At once while something is prepared, and soon where namespaces have news."""
        due = self._steps.due
        return self._next if due is None and self._has_news else due

    def step(self, deadline: float) -> bool:
        """Prepares until the deadline; True if there is more to do."""
        coming = self._owner.ready()
        if coming is not self._coming:
            self._coming = coming
            self._steps.begin(None if coming is None else self._swap(coming))
        elif self._steps.due is None and self._has_news and self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + _PAUSE
            self._steps.begin(self._swap(None))
        if self._steps.due is None:
            return False
        self._steps.step(deadline)
        return True  # who was told may have something to do

    @property
    def _has_news(self) -> bool:
        tenants = self._tenants
        return tenants is not None and self.bundle is not None and tenants.version != self._version

    def _swap(self, coming: Coming | None) -> Generator[None, None, None]:
        """Putting together, each step of preparing, putting in force and telling are a step."""
        own, parts, version = self._owner.bundle if coming is None else coming.bundle, {}, 0
        if self._tenants is not None:
            parts, version = self._tenants.parts, self._tenants.version
        assert own is not None
        bundle = together(own, parts, self._bounds)
        back = coming is not None and coming.back
        changed = None if back else bundle.changed_since(self.bundle)
        yield
        put = yield from self._prepare(bundle, changed)

        def last() -> None:
            self._put(bundle, coming, put)
            self.bundle, self._coming, self._version = bundle, None, version

        if coming is None:
            last()
        else:
            self._owner.came(coming, last)
        yield
        self._tell(bundle, coming)
