"""The only composition root: settings in, a running scheduler out.

Builds every room, wires them, and owns the one task group. A task that fails ends the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import engine.kube.reflector as watch
from dsl.diagnostics import Diagnostic
from dsl.plan import MetricSpec
from engine.cache import Cache
from engine.clock import Clock
from engine.comparing import Comparer
from engine.config import Settings
from engine.eventhandlers import EventHandlers, legible
from engine.explain.rules import noted
from engine.framework.decision import Placed
from engine.framework.effects import Emit
from engine.framework.frameworks import Frameworks
from engine.framework.podinfo import make_pod_info
from engine.framework.runtime import PluginError
from engine.framework.snapshot import Snapshot
from engine.front import Front, Inside, served
from engine.joining import Nodes, connect, synced
from engine.kube.election import Candidate
from engine.kube.events import KubeEventSink
from engine.kube.reach import keep_asking
from engine.kube.resources import KINDS
from engine.kube.session import Session
from engine.kube.sharing import EVERYTHING, PodSharing
from engine.kube.wiring import Wiring
from engine.kube.writer import KubeBinder, KubeEffectWriter, KubePodStatusWriter
from engine.objects import Pod
from engine.plugins.profiles import make_profiles
from engine.plugins.registry import is_in_tree
from engine.policy.chain import frameworks_of, worlds_of
from engine.policy.needs import Needs, needs_of
from engine.policy.plugin import Worlds
from engine.policy.reloader import (
    Bundle,
    Listener,
    Refusal,
    Reloader,
    compile_settings,
    in_a_line,
)
from engine.policy.shadow import Shadow
from engine.policy.sources import ConfigMapSource, FolderSource, Offer, Texts
from engine.policy.support import new_compiler
from engine.queue import SchedulingQueue
from engine.records import Records
from engine.scheduler import Edge, Observer, Rulers, Scheduler, rules_of
from engine.serving.server import ServerOptions
from engine.signals.prometheus import PrometheusRefresher, PrometheusSettings
from engine.signals.spec import PROMETHEUS, SignalSpec
from engine.signals.store import SignalStore
from engine.simulate.journal import Recorder
from engine.tasks import tasks, unless
from engine.telemetry import Count, Telemetry
from engine.watching import Rooms as WatchingRooms
from engine.watching import Watching
from engine.watching.objects import OBJECT
from engine.watching.watching import Start

log = logging.getLogger(__name__)

_EVENT_NOTE: Final = 1000
_FLUSH_SECONDS: Final = 2.0
_HAND_OVER_SECONDS: Final = 0.4
"""Another replica waits for the lease; Events are told after that, too."""
_LOOK_SECONDS: Final = 0.01
NO_POLICIES: Final = Bundle("", (), {})


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run was told besides its settings."""

    settings: Settings
    kubeconfig: str | Mapping[str, object] | None = None
    journal: BinaryIO | None = None
    why: bool = False
    """Whether the log line of a binding says what each rule of the policies said of the node."""
    serving: ServerOptions | None = None


@dataclass(slots=True)
class Hooks:
    """Who else wants to know; the demo does."""

    observers: list[Observer] = field(default_factory=list)
    accepted: list[Callable[[Bundle], None]] = field(default_factory=list)
    refused: list[Callable[[Refusal], None]] = field(default_factory=list)
    synced: list[Callable[[], None]] = field(default_factory=list)


class App:
    """One scheduler process."""

    def __init__(
        self,
        options: RunOptions,
        *,
        clock: Clock,
        telemetry: Telemetry | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        """Makes the plugins of all profiles.

        Raises:
            ConfigError: a profile cannot be used.
        """
        self._options = options
        self._clock = clock
        self._hooks = hooks or Hooks()
        self.settings = options.settings
        self.telemetry = telemetry or Telemetry()
        self._recorder = (
            Recorder(options.journal, self._signal_ids) if options.journal is not None else None
        )
        self.cache: Cache = Cache() if self._recorder is None else self._recorder.cache
        self.signals = SignalStore(clock=clock)
        berth = self.settings.berth
        self._worlds = worlds_of(ZoneInfo(berth.time_zone), berth.gpu_resources)
        self._profiles = make_profiles(self.settings)
        plain = self.frameworks_of(NO_POLICIES)
        self.queue = SchedulingQueue(
            clock=clock,
            rules=rules_of(plain, self._snapshot),
            snapshot=self._snapshot,
            initial_backoff=self.settings.initial_backoff_seconds,
            max_backoff=self.settings.max_backoff_seconds,
            max_in_unschedulable=self.settings.max_in_unschedulable_seconds,
        )
        self._plain = plain
        self.shadow = Shadow(
            worlds=self._worlds,
            rulers=lambda: self.frameworks,
            clock=clock,
            telemetry=self.telemetry,
            tell=self._tell_shadow,
        )
        self.records = Records(lambda: self.frameworks, clock)
        names = {one.scheduler_name for one in self._profiles}
        self.comparer = Comparer(self.cache, self.queue, names)
        self._inside = Inside(
            self.settings,
            clock,
            self.telemetry,
            self.cache,
            self.queue,
            self.signals,
            self.records,
            shadow=self.shadow,
        )
        self.scheduler: Scheduler | None = None
        self.reloader: Reloader | None = None
        self._watching: Watching | None = None
        self._pods: tuple[watch.Reflector[Pod], PodSharing]
        self._config_map: ConfigMapSource | None = None
        self._events: KubeEventSink | None = None
        self._report_again: Callable[[], None] = lambda: None
        self._untold: tuple[str, str, str] | None = None

    # ---- running -----------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Schedules until `stop` is set; ends cleanly: bindings in flight are waited for."""
        host = socket.gethostname()
        async with served(self._options.serving, self._inside, stop, host=host) as front:
            kubeconfig = self._options.kubeconfig or self.settings.kubeconfig
            session = await connect(kubeconfig, self._clock, stop)
            if session is not None:
                await self._run(session, stop, front, host)

    async def _run(self, session: Session, stop: asyncio.Event, front: Front, host: str) -> None:
        try:
            session.telemetry = self.telemetry
            wiring = Wiring(self._clock, self.telemetry, Random())
            identity = f"{host}_{UUID(int=wiring.random.getrandbits(128), version=4)}"
            candidate = Candidate(session, wiring, self.settings.election, identity)
            front.joined(session, candidate)
            gate = candidate.gate
            statuses = KubePodStatusWriter(gate, wiring)
            events = KubeEventSink(
                gate,
                wiring,
                controller=self.settings.scheduler_name,
                host=host,
            )
            self._events = events
            self.scheduler = self._make_scheduler(
                Edge(KubeBinder(gate, wiring), statuses, events, KubeEffectWriter(gate, wiring))
            )
            self.scheduler.leads = not candidate.election.leader_elect
            reflectors = self._reflectors(session, wiring)
            self._inside.scheduler, self._inside.reloader = self.scheduler, self.reloader
            self._inside.reflectors = reflectors
            async with tasks() as group:
                self._watch(session, wiring, group.create_task)
                background = (
                    events.run(),
                    statuses.run(),
                    keep_asking(session, wiring),
                    self.comparer.run(session, wiring),
                )
                running = [group.create_task(each) for each in background]
                if self.settings.delay_cache:
                    candidate.start(group.create_task)
                    await unless(stop, candidate.elector.leading.wait())
                running.extend(group.create_task(each.run()) for each in reflectors)
                refresher = self._refresher()
                if refresher is not None:
                    running.append(group.create_task(refresher.run()))
                await synced(reflectors, stop)
                if not self.settings.delay_cache:
                    candidate.start(group.create_task)
                running.append(group.create_task(candidate.hurry(stop)))
                if candidate.election.leader_elect:
                    running.append(group.create_task(self._lead(candidate)))
                # The cluster stays: the collector need not walk it again and again.
                gc.collect()
                gc.freeze()
                for hook in self._hooks.synced:
                    hook()
                await self.scheduler.run(stop)
                if candidate.election.leader_elect:
                    await asyncio.gather(self._confirmed(), statuses.flush(_HAND_OVER_SECONDS))
                    await candidate.resign()
                await asyncio.gather(statuses.flush(_FLUSH_SECONDS), events.flush(_FLUSH_SECONDS))
                for task in running:
                    task.cancel()
                if self._watching is not None:
                    self._watching.keep(Needs())
        finally:
            await session.close()

    @property
    def frameworks(self) -> Rulers | None:
        """The rules in force, None before the first."""
        return None if self.scheduler is None else self.scheduler.framework

    async def _lead(self, candidate: Candidate) -> None:
        """Begins to decide once this replica leads, and tells what it kept to itself till then."""
        await candidate.elector.leading.wait()
        assert self.scheduler is not None
        self.scheduler.lead()
        self._report_again()
        if self._untold is not None:
            self._tell_source(*self._untold)

    async def _confirmed(self) -> None:
        """Waits for the watch to tell our last bindings: the next leader has then heard of them.

        Not for long: it cannot know them worse than after a crash of ours.
        """
        until = self._clock.monotonic() + _HAND_OVER_SECONDS
        while self.cache.assumed_pods and self._clock.monotonic() < until:  # noqa: ASYNC110 - the cache tells nobody
            await asyncio.sleep(_LOOK_SECONDS)

    # ---- wiring ------------------------------------------------------------------------------

    def _make_scheduler(self, edge: Edge) -> Scheduler:
        policies = self.settings.berth.policies
        with_source = policies.config_map is not None or policies.dir is not None
        scheduler = Scheduler(
            cache=self.cache,
            queue=self.queue,
            framework=None if with_source else self._plain,
            edge=edge,
            signals=self.signals,
            clock=self._clock,
            telemetry=self.telemetry,
        )
        if self._recorder is not None:
            scheduler.observe(self._recorder.placed)
            scheduler.observe_acts(self._recorder.acted)
            if not with_source:
                self._recorder.rules("", {}, self._recorded_settings())
        noting = (self._note_why,) if self._options.why else ()
        for observer in (self.records.placed, *noting, *self._hooks.observers):
            scheduler.observe(observer)
        if with_source:
            self._add_source(scheduler)
        return scheduler

    def _note_why(self, placed: Placed) -> None:
        rulers = self.frameworks
        if rulers is not None:
            noted(placed, rulers.of(placed.decision.pod))

    def _add_source(self, scheduler: Scheduler) -> None:
        def offer(files: Texts | None, passed_over: tuple[str, ...] = ()) -> None:
            assert self.reloader is not None
            self.reloader.offer(files, passed_over)
            scheduler.wake()

        source = self._source(offer)
        self.reloader = Reloader(
            source.title,
            new_compiler(),
            compile_settings(self.settings.berth, self._profiles),
            Listener(
                self._accepted,
                self._refused,
                self._mended,
                self._costly,
                self._missing,
                self._awaiting,
            ),
            self._clock,
            lambda: (self.cache.nodes.count, self.cache.pods.size),
        )
        if isinstance(source, FolderSource):
            scheduler.add_background(source)
        else:
            self._config_map = source
        scheduler.add_background(self.reloader)
        scheduler.add_background(self.shadow)
        scheduler.observe(self.shadow.placed)

    def _watch(self, session: Session, wiring: Wiring, start: Start) -> None:
        """What policies read beside nodes and pods has a place to be watched from."""
        assert self.scheduler is not None
        if self.reloader is None:
            return
        rooms = WatchingRooms(
            self.cache,
            self.queue,
            self.signals,
            self._clock,
            self.scheduler.signals_came,
            self.scheduler.wake,
            start,
            *self._pods,
        )
        self._watching = Watching(rooms, session, wiring)
        self.scheduler.add_background(self._watching)

    def _read_of_pods(self) -> frozenset[str]:
        """What of pods on nodes is read whatever policies read: others' plugins may read all."""
        plugins = (one.plugin.name for profile in self._profiles for one in profile.plugins)
        return frozenset() if all(map(is_in_tree, plugins)) else EVERYTHING

    def _source(self, offer: Offer) -> ConfigMapSource | FolderSource:
        policies = self.settings.berth.policies
        if policies.config_map is not None:
            namespace, _, name = policies.config_map.partition("/")
            return ConfigMapSource(namespace, name, offer)
        return FolderSource(Path(policies.dir or "."), offer, self._clock)

    def _reflectors(self, session: Session, wiring: Wiring) -> list[watch.Reflector[Any]]:
        assert self.scheduler is not None
        handlers = EventHandlers(
            self.cache,
            self.queue,
            scheduler_names={one.scheduler_name for one in self._profiles},
            make_pod_info=make_pod_info,
            on_refused=self._pod_refused,
            on_work=self.scheduler.wake,
            telemetry=self.telemetry,
        )
        sharing = PodSharing(self._read_of_pods())
        pods = watch.Reflector(session, watch.pods(sharing=sharing), handlers.pods, wiring)
        self._pods = pods, sharing
        self._report_again = lambda: handlers.pods.report_again(pods.objects.values())
        reflectors: list[watch.Reflector[Any]] = [
            watch.Reflector(session, watch.namespaces(), handlers.namespaces, wiring),
            watch.Reflector(session, watch.nodes(), Nodes(handlers.nodes, self.signals), wiring),
            pods,
        ]
        for kind in KINDS:
            handler = handlers.of(kind.wakes, self.scheduler.changes.changed)
            reflectors.append(watch.Reflector(session, kind.resource(), handler, wiring))
        if self._config_map is not None:
            source = self._config_map
            resource = watch.config_maps(source.namespace, source.name)
            reflectors.append(watch.Reflector(session, resource, source, wiring))
        return reflectors

    def _refresher(self) -> PrometheusRefresher | None:
        prometheus = self.settings.berth.prometheus
        if prometheus.url is None:
            return None
        assert self.scheduler is not None
        return PrometheusRefresher(
            self.signals,
            PrometheusSettings.of(prometheus, prometheus.url),
            clock=self._clock,
            telemetry=self.telemetry,
            came=self.scheduler.signals_came,
            random=Random(),
        )

    # ---- rules -------------------------------------------------------------------------------

    def _accepted(self, bundle: Bundle) -> None:
        assert self.scheduler is not None
        assert self.reloader is not None
        changed = bundle.changed_since(self.reloader.bundle)
        self.telemetry.add(Count.POLICY_RELOADS)
        self.signals.set_specs([signal_spec(spec) for spec in bundle.metrics])
        if self._watching is not None:
            self._watching.keep(needs_of(bundle.plans))
        if self._recorder is not None:
            self._recorder.rules(bundle.hash, bundle.files, self._recorded_settings())
        self.scheduler.use(self.frameworks_of(bundle), changed)
        self.shadow.use(bundle.plans)
        log.info(
            'Policies in force source="%s" bundle="%s" policies="%s"',
            self.reloader.title,
            bundle.hash,
            ",".join(plan.name for plan in bundle.plans),
        )
        asked = sorted({spec.name for spec in bundle.metrics if spec.source == PROMETHEUS})
        if asked and self.settings.berth.prometheus.url is None:
            log.warning(
                "No Prometheus is configured (--prometheus-url), so these metrics are missing: %s",
                ", ".join(asked),
            )
        for diagnostic in bundle.warnings:
            log.warning("%s", in_a_line(diagnostic))
        self._tell_in_force(bundle)
        for hook in self._hooks.accepted:
            hook(bundle)

    def _missing(self, bundle: Bundle) -> tuple[str, ...]:
        """What the bundle reads that is not known yet."""
        return () if self._watching is None else self._watching.want(needs_of(bundle.plans))

    def _awaiting(self, bundle: Bundle, missing: tuple[str, ...]) -> None:
        """The rules before it stay in force, and its owners should know what for."""
        assert self.reloader is not None
        kept = self.reloader.bundle
        stay = "nothing is scheduled" if kept is None else f"bundle {kept.hash} stays in force"
        note = f"bundle {bundle.hash} reads what has to be listed first; {stay} until there is: "
        log.info("%s%s", note, "; ".join(missing))
        self._tell_source("Normal", "PoliciesAwaiting", note + "; ".join(missing))

    def _mended(self, bundle: Bundle) -> None:
        assert self.reloader is not None
        log.info(
            'Policies are well again source="%s" bundle="%s"', self.reloader.title, bundle.hash
        )
        self._tell_in_force(bundle)

    def _costly(self, bundle: Bundle, found: tuple[Diagnostic, ...]) -> None:
        """The cluster has grown: what is in force stays, and its owners should know the price."""
        nodes, pods = self.cache.nodes.count, self.cache.pods.size
        for one in found:
            log.warning("For %d nodes and %d pods: %s", nodes, pods, in_a_line(one))
        note = (
            f"the cluster has {nodes} nodes and {pods} pods now; bundle {bundle.hash} stays in"
            f" force: {in_a_line(found[0])}"
        )
        self._tell_source("Warning", "PoliciesCostly", note)

    def _tell_in_force(self, bundle: Bundle) -> None:
        names = ", ".join(plan.name for plan in bundle.plans) or "no policy"
        note = f"in force: {names} (bundle {bundle.hash})"
        warnings = [one for one in bundle.warnings if one.severity.value == "warning"]
        if warnings:
            word = "1 warning" if len(warnings) == 1 else f"{len(warnings)} warnings"
            note = f"{note}; {word}: {in_a_line(warnings[0])}"
        self._tell_source("Normal", "PoliciesInForce", note)

    def _snapshot(self) -> Snapshot:
        now = self._clock.time()
        return self.cache.snapshot(now, self.signals.view(self.cache, now))

    def frameworks_of(self, bundle: Bundle) -> Frameworks:
        """The profiles with the policies of a bundle."""
        return frameworks_of(
            self._profiles, bundle, worlds=self._worlds, on_fault=self._plugin_failed
        )

    def _refused(self, refusal: Refusal) -> None:
        assert self.reloader is not None
        self.telemetry.add(Count.POLICY_RELOADS_REFUSED)
        kept = self.reloader.bundle
        stay = (
            "nothing is scheduled until it is mended"
            if kept is None
            else f"bundle {kept.hash} stays in force"
        )
        details = "" if refusal.text == refusal.summary else f"\n{refusal.text}"
        log.error("%s; %s%s", refusal.summary, stay, details)
        self._tell_source("Warning", "PoliciesRefused", f"{refusal.summary}; {stay}{details}")
        for hook in self._hooks.refused:
            hook(refusal)

    def _tell_shadow(self, line: str) -> None:
        log.info("%s", line)
        self._tell_source("Normal", "PolicyShadow", line)

    def _tell_source(self, kind: str, reason: str, note: str) -> None:
        source = self._config_map
        if source is None or self._events is None:
            return
        if self.scheduler is not None and not self.scheduler.leads:
            self._untold = (kind, reason, note)
            return
        uid = source.seen.metadata.uid if source.seen is not None else ""
        if len(note) > _EVENT_NOTE:
            note = note[: _EVENT_NOTE - 3] + "..."
        self._events.emit(
            Emit("ConfigMap", source.namespace, source.name, uid, kind, reason, "Reload", note)
        )

    def _plugin_failed(self, fault: PluginError) -> None:
        self.telemetry.add(Count.PLUGIN_ERRORS)
        log.error("%s", fault, exc_info=fault.__cause__)

    def _pod_refused(self, pod: Pod, reason: str) -> None:
        log.error(
            'Pod cannot be read pod="%s/%s" reason="%s"',
            pod.metadata.namespace,
            pod.metadata.name,
            reason,
        )
        assert self.scheduler is not None
        self.scheduler.report(make_pod_info(legible(pod)), "SchedulerError", reason)

    def _signal_ids(self) -> tuple[str, ...]:
        bundle = self.reloader.bundle if self.reloader is not None else None
        return tuple(spec.id for spec in bundle.metrics) if bundle is not None else ()

    def _recorded_settings(self) -> dict[str, str]:
        return {"settings": self.settings.model_dump_json()}


def signal_spec(spec: MetricSpec) -> SignalSpec:
    """What the signals room needs of a metric that a policy reads."""
    by_object = spec.source == OBJECT
    return SignalSpec(
        id=spec.id,
        query=spec.query,
        of=spec.of,
        by=(spec.keys or None) if by_object else spec.labels,
        every_seconds=spec.every_seconds,
        # What is watched is known as it is, however long ago it changed.
        stale_seconds=math.inf if by_object else spec.stale_seconds,
        default=spec.default,
        scale=spec.scale,
        name=spec.name,
        source=spec.source,
    )


def settings_worlds(settings: Settings) -> Worlds:
    """What policies share under these settings."""
    return worlds_of(ZoneInfo(settings.berth.time_zone), settings.berth.gpu_resources)
