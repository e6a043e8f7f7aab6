"""The policies of one process: their sources, the bundle in force, and who is told of it.

Owns the reloader and what feeds it; has no say in how a bundle decides. Writes through the edge.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dsl.diagnostics import Diagnostic
from engine.clock import Clock, stamp
from engine.configuration.settings import Settings
from engine.framework.edge import EventSink
from engine.framework.profile import Profile
from engine.inforce.sources import ConfiguredSources, Owners, called, folder_of
from engine.inforce.swap import Prepare, Put, Swap
from engine.kube.errors import KubeError, StatusError
from engine.kube.keeper import MOST_BYTES, Keeper
from engine.policy import lastgood
from engine.policy.bundle import NO_POLICIES, Bundle, Refusal, compile_settings, in_a_line
from engine.policy.findings import new_compiler
from engine.policy.guard import Guard, Load, Measure
from engine.policy.reloader import Coming, Kept, Listener, Reloader
from engine.policy.sources import Source
from engine.policy.tenants import Tenants
from engine.telemetry import Count, Telemetry

if TYPE_CHECKING:
    from engine.scheduler import Background

log = logging.getLogger(__name__)

_LONGEST_WHY: Final = 1000
_AGAIN_SECONDS: Final = 1.0
_TENANTS_SHOWN: Final = 100
_IN_FORCE: Final = "InForce"


def _nothing(*_: object) -> Generator[None, None, Put]:
    yield from ()
    return lambda: None


class Callbacks(msgspec.Struct):
    """Callbacks for bundles: `prepare` makes ready, and puts in force then; see `Prepare`.

    `missing` returns what a bundle reads and is not known yet; the text says who asks. `without` is
    what is reported while there is no bundle. `let_go` is told that one cannot come back any more.
    """

    prepare: Prepare = _nothing
    missing: Callable[[Bundle, str], tuple[str, ...]] = lambda _bundle, _asker: ()
    wake: Callable[[], None] = lambda: None
    accepted: list[Callable[[Bundle], None]] = []
    refused: list[Callable[[Refusal], None]] = []
    without: str = "nothing is scheduled"
    let_go: Callable[[], None] = lambda: None


class InForce:
    """The policies in force, and why others are not."""

    def __init__(
        self,
        settings: Settings,
        callbacks: Callbacks,
        profiles: Iterable[Profile],
        *,
        clock: Clock,
        telemetry: Telemetry,
        there: Callable[[], tuple[int, int]],
        load: Measure = lambda **_: Load(0, 0),
    ) -> None:
        """Builds sources, reloader and guard as the configuration has them.

        `there` is how many nodes and pods the cluster has, `load` what the guard looks at.
        """
        policies = settings.berth.policies
        self._callbacks = callbacks
        election = settings.election
        lease = f"{election.resource_namespace}/{election.resource_name}"
        self._lease = lease if election.leader_elect else ""
        self._clock = clock
        self._telemetry = telemetry
        self._there = there
        self._owners = Owners()
        self._keeper: Keeper | None = None
        self._leads: Callable[[], bool] = lambda: True
        self._heeds = True
        self._since = 0.0
        self._told: Bundle | None = None
        self._troubles: Sequence[str] = []
        self._compiler = new_compiler()
        self._settings = compile_settings(settings.berth, profiles)
        self.reloader = self._reloader("")
        self._tenants = None
        if policies.tenants is not None:
            self._tenants = Tenants(self._reloader, clock, callbacks.wake)
            self._tenants.ready = self.reloader.restore
            self.reloader.await_kept()
        self._swap = Swap(
            self.reloader,
            self._tenants,
            policies.tenants,
            clock,
            prepare=lambda *what: callbacks.prepare(*what),
            put=self._put,
            tell=self._tell,
        )
        self._guard = None
        if policies.guard is not None:
            self._guard = Guard(policies.guard, clock, load, self._go_back, self._keep_before)
        self.configured = ConfiguredSources(
            policies, self.reloader, self._tenants, self._owners, clock, callbacks.wake
        )
        own = (self._tenants, self.reloader, self._guard, self._swap)
        folders = self.configured.folders
        self.background: list[Background] = [*folders, *(one for one in own if one is not None)]
        """Work between cycles; see `scheduler.Background`."""

    @property
    def bundle(self) -> Bundle | None:
        """The bundle in force, of all sources."""
        return self._swap.bundle

    def _reloader(self, asker: str) -> Reloader:
        """One for the sources of the scheduler's owner, or for that of a namespace."""
        return Reloader(
            self._compiler,
            self._settings.of_tenant(asker),
            Listener(
                self._refused,
                self._mended,
                self._costly,
                lambda bundle: self._callbacks.missing(bundle, asker),
                partial(self._awaiting, asker),
                self._write_down,
            ),
            self._clock,
            self._there,
        )

    def reloader_of(self, source: Source) -> Reloader:
        """The reloader of its texts; an empty one for a namespace without any so far."""
        if not source.tenant or self._tenants is None:
            return self.reloader
        known = self._tenants.reloader(source.tenant)
        return known or self._reloader(source.tenant)

    # ---- the edge ----------------------------------------------------------------------------

    def connect(
        self, events: EventSink | None, keeper: Keeper | None, leads: Callable[[], bool]
    ) -> None:
        """Says where to write, and whether this replica writes; before anything comes."""
        self._owners.connect(events, leads)
        self._keeper, self._leads, self._heeds = keeper, leads, leads()
        if keeper is not None:
            self.reloader.await_kept()
        else:
            self._known({})

    async def restore(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Asks for what was kept, until the server answers; for sources that are no good now."""
        self._known(await self._loaded(sleep))

    async def _loaded(self, sleep: Callable[[float], Awaitable[None]]) -> Mapping[str, Kept]:
        assert self._keeper is not None
        while True:
            try:
                data = await self._keeper.load()
                return {} if data is None else lastgood.unpack(data)
            except KubeError as failed:
                if not isinstance(failed, StatusError) or failed.may_pass:
                    await sleep(_AGAIN_SECONDS)
                    continue
                log.warning("Kept policies cannot be read: %s", failed)
            except lastgood.UnreadableError as wrong:
                log.warning("Kept policies cannot be used: %s", wrong)
            return {}

    def _known(self, kept: Mapping[str, Kept]) -> None:
        """What was kept; those of namespaces come first, so that no pod misses their rules."""
        if self._tenants is not None:
            self._tenants.restore(kept)
        elif self._keeper is not None:
            self.reloader.restore(kept)
        self._callbacks.wake()

    async def lead(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """This replica reports and takes back from now on; what was taken back stays so."""
        self._owners.lead()
        if self._keeper is not None:
            self.reloader.heed(await self._loaded(sleep))
            self._callbacks.wake()
        self._heeds = True
        self._write_down()

    @property
    def sources(self) -> list[Source]:
        """All of them, those of namespaces last."""
        own = self.reloader.sources
        return own if self._tenants is None else [*own, *self._tenants.sources]

    def stale(self) -> dict[tuple[str, ...], float]:
        """By title of the source: 1 if its newest texts are not in force."""
        return {(one.title,): float(self._stands(one)[0] != _IN_FORCE) for one in self.sources}

    @property
    def not_ready(self) -> str:
        """Why nothing is scheduled, or nothing of some profiles; empty if all have rules."""
        bundle = self.reloader.bundle
        if bundle is not None and not bundle.waits:
            return ""
        why = [
            refusal.summary
            for source in self.reloader.sources
            if (bundle is None or source.title in bundle.waits.values())
            and (refusal := self.reloader.refusal_of(source)) is not None
        ]
        if self.reloader.awaited:
            why.append(f"policies wait for {', '.join(self.reloader.awaited)}")
        of = "" if bundle is None else f" of {', '.join(sorted(bundle.waits))}"
        return f"no pod{of} is scheduled: {'; '.join(why) or 'policies are not compiled yet'}"

    # ---- what happened -----------------------------------------------------------------------

    def _go_back(self, why: str, changes: int) -> None:
        if not self.reloader.go_back(why, changes) and self._guard is not None:
            self._guard.returned()

    def _keep_before(self, changes: int) -> None:
        before = len(self.reloader.may_return)
        self.reloader.keep_before(changes)
        if len(self.reloader.may_return) != before:
            self._callbacks.let_go()

    def _put(self, bundle: Bundle, coming: Coming | None, put: Put) -> None:
        """Other rules come into force, those of the owner or of namespaces alone."""
        before, guard, watched = self.bundle, self._guard, None
        if coming is not None and not coming.back:
            # While nothing is decided, pods wait for that.
            if guard is not None and before is not None and self._leads():
                watched = guard.measure(tried_again=True)
            else:
                self.reloader.keep_before(0)
        put()
        self._since = self._clock.time()
        self._telemetry.add(Count.POLICY_RELOADS)
        for diagnostic in bundle.warnings if coming is not None else ():
            log.warning("%s", in_a_line(diagnostic))
        if guard is not None and coming is not None:
            guard.returned()
            if watched is not None:
                guard.changed(watched)

    def _tell(self, bundle: Bundle, coming: Coming | None) -> None:
        """The log names all sources of the owner where one was edited, or what is new."""
        news, self._told = _changed(self.sources, self._told, bundle), bundle
        folders = {folder_of(name) for name in bundle.files}
        named = [
            source
            for source in (news if coming is None else self.reloader.sources)
            if source.folder in folders
        ]
        whose = {"", *[source.tenant for source in named]}
        log.info(
            'Policies in force source="%s" bundle="%s" policies="%s"',
            ", ".join(source.title for source in named),
            bundle.hash,
            ",".join(p.name for p in bundle.plans if bundle.tenants.get(p.name, "") in whose),
        )
        for source in news:
            if self.reloader_of(source).refusal_of(source) is None:
                self._owners.tell_in_force(source, bundle)
        for callback in self._callbacks.accepted:
            callback(bundle)
        self._write_down()

    def _awaiting(self, tenant: str, bundle: Bundle, missing: tuple[str, ...]) -> None:
        """The rules before it stay in force, and its owners should know what for."""
        kept = self.bundle
        stay = self._callbacks.without if kept is None else f"bundle {kept.hash} stays in force"
        note = f"bundle {bundle.hash} waits for lists that it reads; {stay} until they are there: "
        log.info("%s%s", note, "; ".join(missing))
        own = [one for one in self.sources if one.tenant == tenant]
        for source in _changed(own, kept, bundle):
            self._owners.tell(source, "Normal", "PoliciesAwaiting", note + "; ".join(missing))
        self._write_down()

    def _mended(self, source: Source, bundle: Bundle) -> None:
        log.info('Policies are valid again source="%s" bundle="%s"', source.title, bundle.hash)
        self._owners.tell_in_force(source, self.bundle or bundle)
        self._write_down()

    def _costly(self, bundle: Bundle, found: tuple[Diagnostic, ...]) -> None:
        """The cluster has grown: the bundle stays in force, and its owners are told the cost."""
        nodes, pods = self._there()
        for one in found:
            log.warning("For %d nodes and %d pods: %s", nodes, pods, in_a_line(one))
        note = (
            f"the cluster has {nodes} nodes and {pods} pods now; bundle {bundle.hash} stays in"
            f" force: {in_a_line(found[0])}"
        )
        for source in self.sources:
            if any(one.source.name.startswith(source.folder) for one in found):
                self._owners.tell(source, "Warning", "PoliciesCostly", note)

    def _refused(self, source: Source, refusal: Refusal) -> None:
        self._telemetry.add(Count.POLICY_RELOADS_REFUSED)
        stay = self._stays(source)
        details = "" if refusal.text == refusal.summary else f"\n{refusal.text}"
        log.error("%s; %s%s", refusal.summary, stay, details)
        self._owners.tell(source, "Warning", refusal.reason, f"{refusal.summary}; {stay}{details}")
        for callback in self._callbacks.refused:
            callback(refusal)
        self._write_down()

    def _stays(self, source: Source) -> str:
        if source.tenant and self._tenants is not None:
            if source.tenant in self._tenants.parts:
                return f"the rules of namespace {source.tenant} stay as they were"
            return f"no rules of namespace {source.tenant} are in force"
        if self.bundle is None:
            kept = self.reloader.awaited
            until = "what its last good texts read is listed" if kept else "it is corrected"
            of = f" for {', '.join(sorted(source.profiles))}" if source.profiles else ""
            return f"{self._callbacks.without}{of} until {until}"
        return f"bundle {self.bundle.hash} stays in force"

    def tell_shadow(self, line: str) -> None:
        """Says what policies in shadow have come to, to the owners of all sources."""
        for source in self.reloader.sources:
            self._owners.tell(source, "Normal", "PolicyShadow", line)

    def tell_troubles(self, troubles: Sequence[str]) -> None:
        """Says in the status what this replica lacks of the API server."""
        if troubles != self._troubles:
            self._troubles = troubles
            self._write_down()

    # ---- kept and shown ----------------------------------------------------------------------

    def _write_down(self) -> None:
        """Keeps what is in force, and says in a ConfigMap how all stand."""
        # Not before it is known what the former leader took back.
        if self._keeper is None or not (self._leads() and self._heeds):
            return
        if self.bundle is not None:
            self._keeper.keep(self._last_good)
        self._keeper.tell(self._how_all_stand)

    def _last_good(self) -> bytes:
        tenants = {} if self._tenants is None else self._tenants.kept()
        data = lastgood.pack(self.reloader.kept() | tenants)
        # Those of namespaces are left out where there is no room for all.
        fits = not tenants or len(data) <= MOST_BYTES
        return data if fits else lastgood.pack(self.reloader.kept())

    def _how_all_stand(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self.status()), indent=1)

    def status(self) -> dict[str, Any]:
        """How all sources stand under the bundle in force, as `berth status` shows it."""
        bundle = self.bundle or NO_POLICIES
        policies = called(bundle.plans)
        tenants = [one for one in self.sources if one.tenant]
        refused = [one for one in tenants if self._stands(one)[0] != _IN_FORCE]
        return {
            "bundle": bundle.hash or None,
            "inForce": [one.name for one in bundle.plans if one.name not in bundle.tenants],
            "awaits": list(self.reloader.awaited),
            "cluster": dict(zip(("nodes", "pods"), self._there(), strict=True)),
            "since": stamp(self._since),
            "lease": self._lease,
            "troubles": self._troubles,
            "notKept": "" if self._keeper is None else self._keeper.not_kept,
            "sources": [
                self._standing(one, policies.get(one.folder, []))
                for one in (*self.reloader.sources, *refused[:_TENANTS_SHOWN])
            ],
            "tenants": len(tenants),
            "tenantsRefused": len(refused),
        }

    def _stands(self, source: Source) -> tuple[str, str]:
        """In a word, and why its newest texts are not in force."""
        reloader = self.reloader_of(source)
        refusal = reloader.refusal_of(source)
        if refusal is not None:
            return refusal.reason, refusal.text
        awaited = reloader.awaited_by(source)
        return ("Waiting", f"waits for {', '.join(awaited)}") if awaited else (_IN_FORCE, "")

    def _standing(self, source: Source, policies: list[str]) -> dict[str, Any]:
        state, why = self._stands(source)
        why = why[:_LONGEST_WHY] if source.tenant else why
        return {"source": source.title, "state": state, "policies": policies, "why": why}


def _changed(sources: Iterable[Source], before: Bundle | None, bundle: Bundle) -> list[Source]:
    """Those whose texts are others than before; there may be thousands."""
    if before is None:
        return list(sources)
    folders = {folder_of(name) for name, _ in before.files.items() ^ bundle.files.items()}
    return [one for one in sources if one.folder in folders]
