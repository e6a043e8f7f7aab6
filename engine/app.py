"""The only composition root: settings in, a running scheduler out.

Builds every room, wires them, and owns the one task group. A task that fails ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, BinaryIO, Final
from uuid import UUID

import msgspec

from engine.basis import AnyFramework, queue_hooks
from engine.cache import Cache
from engine.clock import Clock
from engine.comparer import Comparer
from engine.configuration.settings import Settings
from engine.endpoints import Endpoints, served
from engine.eventhandlers import EventHandlers
from engine.explain.scores import noted
from engine.extenders.client import Extenders
from engine.extenders.lane import NODES as WHOLE_NODES
from engine.extenders.lane import ExtenderBinder, WholeObjects
from engine.extenders.server import advice_on, calls_of
from engine.framework.decision import Placed
from engine.framework.edge import Binder, Edge
from engine.framework.opinion import NAME as EXTENDER
from engine.framework.runtime import Frameworks, PluginError
from engine.framework.snapshot import Snapshot
from engine.garbage import collecting, keep_sweeping, seldom, sweep
from engine.inforce import Callbacks, InForce
from engine.journal.recorder import Recorder
from engine.kube import resources
from engine.kube.election import Elector
from engine.kube.events import KubeEventSink
from engine.kube.gate import Gate, Priority
from engine.kube.keeper import Keeper
from engine.kube.reflector import Reflector, synced
from engine.kube.session import Session
from engine.kube.sharing import EVERYTHING, PodSharing
from engine.kube.wiring import Wiring, connect, keep_asking
from engine.kube.writer import KubeBinder, KubeEffectWriter, KubePodStatusWriter
from engine.objects import Pod
from engine.placement import Observer
from engine.plugins.no_nodes import SchedulingGates
from engine.plugins.profiles import make_profiles
from engine.plugins.registry import IN_TREE
from engine.pods.legible import as_far_as_legible
from engine.policy.bundle import NO_POLICIES, Bundle, Refusal
from engine.policy.chain import frameworks_of, worlds_of
from engine.policy.findings import rules_of
from engine.policy.guard import Load
from engine.policy.shadow import Shadow
from engine.queue import SchedulingQueue, SubQueue
from engine.records import Records
from engine.scheduler import Scheduler
from engine.serving.server import ServerOptions
from engine.signals.prometheus import PrometheusRefresher
from engine.signals.spec import PROMETHEUS
from engine.signals.store import SignalStore
from engine.tasks import tasks, unless
from engine.telemetry import ATTEMPTS, Count, Telemetry
from engine.watches.watcher import WAITS, Start, Watcher

log = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 2.0
_EVENTS_SECONDS: Final = 20.0
"""Seconds for the last Events; Kubernetes gives a pod 30 s to end."""
_HAND_OVER_SECONDS: Final = 0.4
"""Seconds for the last bindings; another replica waits for the lease."""
_LOOK_SECONDS: Final = 0.01
_TROUBLES_SECONDS: Final = 15.0


class RunOptions(msgspec.Struct, frozen=True):
    """Options of a run besides its settings."""

    settings: Settings
    kubeconfig: str | Mapping[str, object] | None = None
    journal: BinaryIO | None = None
    why: bool = False
    """Whether the log line of every binding says what each rule of the policies said of the node,
    not only while a hundredth of the time is enough for it."""
    serving: ServerOptions | None = None
    advises: bool = False
    """It decides nothing, and answers another scheduler as an extender."""
    context: str | None = None
    """That of the kubeconfig, if not its current one."""


class Hooks(msgspec.Struct):
    """Further observers; the demo has one."""

    observers: list[Observer] = []
    accepted: list[Callable[[Bundle], None]] = []
    refused: list[Callable[[Refusal], None]] = []


class App:
    """One scheduler process."""

    def __init__(self, options: RunOptions, *, clock: Clock, hooks: Hooks | None = None) -> None:
        """Makes the plugins of all profiles.

        Raises:
            ConfigError: a profile cannot be used.
        """
        self._options = options
        self._clock = clock
        self._hooks = hooks or Hooks()
        self.settings = options.settings
        self.telemetry = Telemetry()
        self._recorder = (
            Recorder(options.journal, self._signal_ids) if options.journal is not None else None
        )
        self.cache: Cache = Cache() if self._recorder is None else self._recorder.cache
        if self._recorder is not None:  # they name the plugins, whose kinds come before any policy
            self._recorder.rules("", {}, self._recorded_settings())
        self.signals = SignalStore(clock=clock)
        self._worlds = worlds_of(self.settings.berth)
        self._profiles = make_profiles(self.settings)
        self._names = frozenset(one.scheduler_name for one in self._profiles)
        self._kinds = resources.kinds_of(self._profiles)
        self._extenders = Extenders(self.settings.extenders)
        plain = self.frameworks_of(NO_POLICIES)
        self.queue = SchedulingQueue(
            clock=clock,
            hooks=queue_hooks(plain, self.snapshot),
            snapshot=self.snapshot,
            initial_backoff=self.settings.initial_backoff_seconds,
            max_backoff=self.settings.max_backoff_seconds,
            max_in_unschedulable=self.settings.max_in_unschedulable_seconds,
        )
        self._plain = plain
        self.shadow = Shadow(
            worlds=self._worlds,
            frameworks=lambda: self.frameworks,
            clock=clock,
            telemetry=self.telemetry,
            tell=self._tell_shadow,
        )
        self.records = Records(lambda: self.frameworks, clock)
        self.comparer = Comparer(self.cache, self.queue, self._names)
        self._endpoints = Endpoints(
            self.settings,
            clock,
            self.telemetry,
            self.cache,
            self.queue,
            self.signals,
            self.records,
            self.shadow,
        )
        if options.advises:
            rules = advice_on(lambda: (self.frameworks, self.bundle), self._worlds)
            self._endpoints.calls = calls_of(rules, self.snapshot)
        self.scheduler: Scheduler | None = None
        self.bundle: Bundle | None = None
        self._wanted: dict[str, tuple[Bundle, float]] = {}
        """What is to come into force, by whom it is of, and when it was asked for (monotonic)."""
        self._in_force: InForce | None = None
        self._keeper: Keeper | None = None
        self._watcher: Watcher | None = None
        self._pods: tuple[Reflector[Pod], PodSharing]
        self._report_again: Callable[[], None] = lambda: None

    # ---- running -----------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Schedules until `stop` is set; ends cleanly: bindings in flight are waited for.

        Raises:
            ConfigError: nothing says how to reach a cluster.
            CertificateError, ListenError: it cannot be served.
        """
        host = socket.gethostname()
        async with served(self._options.serving, self._endpoints, stop, host=host):
            kubeconfig = self._options.kubeconfig or self.settings.kubeconfig
            session = await connect(kubeconfig, self._clock, stop, self._options.context)
            if session is not None:
                await self._run(session, stop, host)

    async def _run(self, session: Session, stop: asyncio.Event, host: str) -> None:
        try:
            session.telemetry = self.telemetry
            wiring = Wiring(self._clock, self.telemetry, Random())
            identity = f"{host}_{UUID(int=wiring.random.getrandbits(128), version=4)}"
            elector = Elector(session, self.settings.election, identity, wiring)
            self._endpoints.joined(session, elector)
            gate = elector.gate
            statuses = KubePodStatusWriter(gate, wiring)
            events = KubeEventSink(gate, wiring, controller=self.settings.scheduler_name, host=host)
            whole = WholeObjects(gate.lane(Priority.BINDING))
            writer = KubeEffectWriter(gate, wiring, self._kinds)
            edge = Edge(self._binder(gate), statuses, events, writer, asyncio.sleep)
            self.scheduler = self._make_scheduler(edge, whole)
            advises = self._options.advises
            self.scheduler.leads = not (elector.election.leader_elect or advises)
            kept = self._keeping(gate, wiring, events)
            reflectors = self._reflectors(session, wiring)
            if self._extenders.whole_nodes:
                reflectors.append(Reflector(session, WHOLE_NODES, whole, wiring))
            self._endpoints.decides(self.scheduler, self._in_force, reflectors)
            async with tasks() as group:
                self._watch(session, wiring, group.create_task)
                background = (
                    events.run(),
                    statuses.run(),
                    keep_asking(session, wiring),
                    self.comparer.run(session, wiring),
                )
                running = [group.create_task(each) for each in background]
                keeping = [group.create_task(each) for each in kept]
                if self.settings.delay_cache:
                    elector.start(group.create_task)
                    await unless(stop, elector.leading.wait())
                running.extend(group.create_task(each.run()) for each in reflectors)
                refresher = self._refresher()
                if refresher is not None:
                    running.append(group.create_task(refresher.run()))
                with seldom():
                    filled = await synced(reflectors, stop)
                # Ended by now, it would leave behind a lease that nobody renews.
                if filled and not self.settings.delay_cache:
                    elector.start(group.create_task)
                running.append(group.create_task(elector.hurry(stop)))
                if elector.election.leader_elect:
                    running.append(group.create_task(self._lead(elector)))
                sweep()
                running.append(group.create_task(keep_sweeping(self.scheduler.idle, asyncio.sleep)))
                if filled:
                    names = ", ".join(sorted(self._names))
                    log.info("Caches are synced for pods whose schedulerName is %s", names)
                with collecting():
                    await self.scheduler.run(stop)
                await self._hand_over(elector, statuses, events, keeping)
                _cancel(running + keeping)
                if self._watcher is not None:
                    self._watcher.end()
        finally:
            self._extenders.close()
            await session.close()

    @property
    def frameworks(self) -> AnyFramework | None:
        """The frameworks in force, None before the first bundle."""
        return None if self.scheduler is None else self.scheduler.framework

    async def _lead(self, elector: Elector) -> None:
        """Begins to decide once this replica leads, and reports what it has not until then."""
        await elector.leading.wait()
        assert self.scheduler is not None
        self.scheduler.lead()
        self._report_again()
        if self._in_force is not None:
            await self._in_force.lead(asyncio.sleep)

    async def _hand_over(
        self,
        elector: Elector,
        statuses: KubePodStatusWriter,
        events: KubeEventSink,
        keeping: Sequence[asyncio.Task[None]],
    ) -> None:
        """Writes what is left, and gives the lease up as soon as another replica may decide."""
        elects = elector.election.leader_elect
        await self._written_down(_HAND_OVER_SECONDS if elects else _FLUSH_SECONDS)
        if elects:
            await asyncio.gather(self._confirmed(), statuses.flush(_HAND_OVER_SECONDS))
            _cancel(keeping)  # what is kept is the next leader's from now on
            await elector.resign()
        await asyncio.gather(
            statuses.flush(_FLUSH_SECONDS), events.flush(_FLUSH_SECONDS, _EVENTS_SECONDS)
        )

    async def _written_down(self, seconds: float) -> None:
        """What is in force is kept for the next process, unless that takes longer."""
        if self._keeper is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._keeper.flush()

    async def _confirmed(self) -> None:
        """Waits for the watch to tell our last bindings: the next leader has then heard of them.

        Not for long: it cannot know them worse than after a crash of ours.
        """
        until = self._clock.monotonic() + _HAND_OVER_SECONDS
        while self.cache.assumed_pods and self._clock.monotonic() < until:  # noqa: ASYNC110 - the cache tells nobody
            await asyncio.sleep(_LOOK_SECONDS)

    # ---- wiring ------------------------------------------------------------------------------

    def _binder(self, gate: Gate) -> Binder:
        ours = KubeBinder(gate, is_gone=lambda uid: self.cache.node_of(uid) is None)
        if not self._extenders.bind:
            return ours
        return ExtenderBinder(self._extenders, ours, gate.may_write)

    def _make_scheduler(self, edge: Edge, whole: WholeObjects) -> Scheduler:
        with_source = self.settings.berth.policies.has_sources
        scheduler = Scheduler(
            cache=self.cache,
            queue=self.queue,
            framework=None if with_source else self._plain,
            edge=edge,
            signals=self.signals,
            clock=self._clock,
            telemetry=self.telemetry,
        )
        if self.settings.extenders:
            scheduler.extend(self._extenders, whole)
        if self._recorder is not None:
            scheduler.observe(self._recorder.placed)
            scheduler.observe_acts(self._recorder.acted)
            scheduler.placement.slices_observers.append(self._recorder.sliced)
        noting = (self._note_why,) if self._options.why else ()
        for observer in (self.records.placed, *noting, *self._hooks.observers):
            scheduler.observe(observer)
        scheduler.observe_bindings(self.records.ended)
        if with_source:
            self._in_force = self._policies(scheduler)
            for work in (*self._in_force.background, self.shadow):
                scheduler.add_background(work)
            scheduler.observe(self.shadow.placed)
            scheduler.observe_bindings(self.shadow.ended)
        return scheduler

    def _note_why(self, placed: Placed) -> None:
        frameworks = self.frameworks
        if frameworks is not None:
            noted(placed, frameworks.of(placed.decision.pod))

    def _policies(self, scheduler: Scheduler) -> InForce:
        def load(*, tried_again: bool = False) -> Load:
            failed = sum(self.telemetry.value(ATTEMPTS, "error", name) for name in self._names)
            # No policy can help that the server is away.
            away = self.telemetry[Count.BINDINGS_PUT_OFF]
            errors = int(failed) + self.telemetry[Count.PLUGIN_ERRORS] - away
            counts = self.queue.counts()
            waiting = counts[SubQueue.UNSCHEDULABLE] + counts[SubQueue.GATED]
            if tried_again:
                waiting += self.queue.tried_again()
            # Nor that their owners hold pods.
            return Load(waiting - self.queue.rejected_by().get(SchedulingGates.name, 0), errors)

        return InForce(
            self.settings,
            Callbacks(
                self._prepare,
                self._missing,
                scheduler.wake,
                self._hooks.accepted,
                self._hooks.refused,
                let_go=self._keep,
            ),
            self._profiles,
            clock=self._clock,
            telemetry=self.telemetry,
            there=lambda: (self.cache.nodes.count, self.cache.pods.size),
            load=load,
        )

    def _keeping(
        self, gate: Gate, wiring: Wiring, events: KubeEventSink
    ) -> Sequence[Coroutine[Any, Any, None]]:
        """Connects the policies with the edge; what is to run so that they outlive the process."""
        scheduler = self.scheduler
        if self._in_force is None or scheduler is None:
            return ()
        keeper, state = None, self.settings.berth.policies.state
        if state is not None:
            keeper = self._keeper = Keeper(gate.lane(Priority.EVENT), wiring, state)
        self._in_force.connect(events, keeper, lambda: scheduler.leads)
        if keeper is None:
            return ()
        troubles = self._tell_troubles(self._in_force, wiring.sleep)
        return keeper.run(), self._in_force.restore(wiring.sleep), troubles

    async def _tell_troubles(
        self, rules: InForce, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        while True:
            await sleep(_TROUBLES_SECONDS)
            rules.tell_troubles(self._endpoints.troubles())

    def _watch(self, session: Session, wiring: Wiring, start: Start) -> None:
        """What policies read beside nodes and pods has a place to be watched from."""
        assert self.scheduler is not None
        if self._in_force is None:
            return
        watcher = self._watcher = Watcher(
            session,
            wiring,
            self.cache,
            self.queue,
            self.signals,
            self.scheduler.signals_came,
            self.scheduler.wake,
            start,
            *self._pods,
        )
        self.scheduler.add_background(watcher)
        self._endpoints.watched = lambda: watcher.reflectors

    def _read_of_pods(self) -> frozenset[str]:
        """What of pods on nodes is read whatever policies read: others' plugins may read all."""
        plugins = (one.plugin.name for profile in self._profiles for one in profile.plugins)
        ours = all(name in IN_TREE or name == EXTENDER for name in plugins)
        return frozenset() if ours else EVERYTHING

    def _reflectors(self, session: Session, wiring: Wiring) -> list[Reflector[Any]]:
        assert self.scheduler is not None
        handlers = EventHandlers(
            self.cache,
            self.queue,
            scheduler_names=self._names,
            on_refused=self._pod_refused,
            on_work=self.scheduler.wake,
            on_node=self.signals.nodes_changed,
            telemetry=self.telemetry,
        )
        sharing = PodSharing(self._read_of_pods())
        pods = Reflector(session, resources.pods(sharing=sharing), handlers.pods, wiring)
        self._pods = pods, sharing
        self._report_again = lambda: handlers.pods.report_again(pods.objects.values())
        reflectors: list[Reflector[Any]] = [
            Reflector(session, resources.NAMESPACES, handlers.namespaces, wiring),
            Reflector(session, resources.NODES, handlers.nodes, wiring),
            pods,
        ]
        for kind in self._kinds:
            handler = handlers.of(kind.wakes, self.scheduler.changes.changed)
            reflectors.append(Reflector(session, kind.resource(), handler, wiring))
        configured = () if self._in_force is None else self._in_force.configured.watched
        for resource, source in configured:
            reflectors.append(Reflector(session, resource, source, wiring))
        return reflectors

    def _refresher(self) -> PrometheusRefresher | None:
        prometheus = self.settings.berth.prometheus
        if prometheus.url is None:
            return None
        assert self.scheduler is not None
        return PrometheusRefresher(
            self.signals,
            prometheus,
            clock=self._clock,
            telemetry=self.telemetry,
            came=self.scheduler.signals_came,
            random=Random(),
        )

    # ---- rules -------------------------------------------------------------------------------

    def _prepare(
        self, bundle: Bundle, changed: frozenset[str] | None
    ) -> Generator[None, None, Callable[[], None]]:
        assert self.scheduler is not None
        use = yield from self.scheduler.prepare(self.frameworks_of(bundle), changed)
        return lambda: self._put(bundle, use)

    def _put(self, bundle: Bundle, use: Callable[[], None]) -> None:
        if self.bundle is None:
            sweep()  # what compiling needs stays, too: no edit is held up by a look at all of it
        self.bundle = bundle
        self._keep()
        if self._recorder is not None:
            self._recorder.rules(bundle.hash, bundle.files, self._recorded_settings())
        use()
        self.shadow.use(bundle.plans)
        rules = (rule for plan in bundle.plans for rule in rules_of(plan))
        self.telemetry.keep_rules({(one.source.name, str(one.line)) for one in rules})
        asked = sorted({spec.name for spec in bundle.metrics if spec.source == PROMETHEUS})
        if asked and self.settings.berth.prometheus.url is None:
            log.warning(
                "No Prometheus is configured (--prometheus-url), so these metrics are missing: %s",
                ", ".join(asked),
            )

    def _keep(self) -> None:
        """Watches and asks for the rules in force, and for those that the guard may bring back."""
        if self._in_force is None or self.bundle is None:
            return
        since = self._clock.monotonic() - WAITS
        self._wanted = {asker: one for asker, one in self._wanted.items() if one[1] > since}
        self._ask(self._in_force)
        if self._watcher is not None:
            also = self._in_force.reloader.may_return
            self._watcher.keep(self.bundle.needs, [one.needs for one in also])

    def _ask(self, rules: InForce) -> None:
        also = (*rules.reloader.may_return, *(one for one, _ in self._wanted.values()))
        own = () if self.bundle is None else self.bundle.metrics
        self.signals.set_specs(own, [spec for one in also for spec in one.metrics])
        if self._watcher is not None:
            self._watcher.feed()

    def _missing(self, bundle: Bundle, asker: str) -> tuple[str, ...]:
        if self._watcher is None:
            return ()
        measured = bundle.needs.usage or bundle.needs.fields
        known, _ = self._wanted.get(asker, (None, 0.0))
        self._wanted[asker] = bundle, self._clock.monotonic()
        if self._in_force and measured and known is not bundle:
            # The first answer is for metrics that were asked for before it came.
            self._ask(self._in_force)
        return self._watcher.want(bundle.needs, asker)

    def snapshot(self) -> Snapshot:
        """The cluster as of now."""
        now = self._clock.time()
        return self.cache.snapshot(now, self.signals.view(self.cache, now))

    def frameworks_of(self, bundle: Bundle) -> Frameworks:
        """The profiles with the policies of a bundle."""
        return frameworks_of(
            self._profiles, bundle, worlds=self._worlds, on_fault=self._plugin_failed
        )

    def _tell_shadow(self, line: str) -> None:
        log.info("%s", line)
        if self._in_force is not None:
            self._in_force.tell_shadow(line)

    def _plugin_failed(self, fault: PluginError) -> None:
        self.telemetry.add(Count.PLUGIN_ERRORS)
        log.error("%s", fault, exc_info=fault.__cause__)

    def _pod_refused(self, pod: Pod, reason: str) -> None:
        legible = as_far_as_legible(pod)
        log.error('Pod cannot be read pod="%s" reason="%s"', legible.key, reason)
        assert self.scheduler is not None
        self.scheduler.report(legible, "SchedulerError", reason)

    def _signal_ids(self) -> tuple[str, ...]:
        return tuple(spec.id for spec in self.bundle.metrics) if self.bundle is not None else ()

    def _recorded_settings(self) -> dict[str, str]:
        return {"settings": self.settings.model_dump_json()}


def _cancel(these: Iterable[asyncio.Task[None]]) -> None:
    for task in these:
        task.cancel()
