"""The HTTP endpoints of a scheduler: health checks, metrics and pages.

Reads the rooms of a running scheduler and changes none. A request is answered from
what they hold; nothing here asks the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import msgspec
import yaml

from engine import __version__
from engine import telemetry as names
from engine.cache import Cache
from engine.clock import Clock, stamp
from engine.configuration.scheduler import SCHEDULER_API
from engine.configuration.settings import Settings
from engine.inforce import InForce
from engine.kube.election import Elector
from engine.kube.reflector import Reflector
from engine.kube.session import Session
from engine.policy.shadow import Shadow
from engine.queue import SchedulingQueue, SubQueue
from engine.records import Records
from engine.scheduler import Scheduler
from engine.serving import server as serving
from engine.serving.exposition import CONTENT_TYPE, exposition, measure_process
from engine.signals.spec import SignalStatus
from engine.signals.store import SignalStore
from engine.telemetry import Labels, Telemetry

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_OVERDUE_SECONDS: Final = 20.0
"""How long a lease may be overdue before the process counts as hung."""
_SILENT_SECONDS: Final = 60.0
"""A watch that breaks, or is refused for a moment, is opened again long before."""
_NEWEST: Final = 50
_SHOWN: Final = 100

Values = dict[Labels, float]


@dataclass(eq=False)
class Endpoints:
    """Checks, metrics and pages of these rooms; those that are None are set once connected."""

    settings: Settings
    clock: Clock
    telemetry: Telemetry
    cache: Cache
    queue: SchedulingQueue
    signals: SignalStore
    records: Records
    shadow: Shadow
    elector: Elector | None = None
    scheduler: Scheduler | None = None
    in_force: InForce | None = None
    reflectors: Sequence[Reflector[Any]] = ()
    watched: Callable[[], Sequence[Reflector[Any]]] = tuple
    """Those of what policies read beside that."""
    calls: Mapping[str, serving.Call] = field(default_factory=dict)
    """The calls of another scheduler, by path."""
    server: serving.Server | None = None
    ending: Callable[[], bool] = lambda: False
    """Whether the process ends."""

    def __post_init__(self) -> None:
        self.began = self.clock.time()
        self._session: Session | None = None
        self._measure()

    @property
    def site(self) -> serving.Site:
        """All checks, metrics and pages."""
        ping = (serving.PING,)
        elects = (serving.Check("leaderElection", self._lease_overdue),)
        ready = (
            serving.Check("sched-handler-sync", self._not_synced),
            serving.Check("watches", lambda: "; ".join(self._silent())),
            serving.Check("policies", lambda: self.in_force.not_ready if self.in_force else ""),
            serving.Check("shutdown", lambda: "the process is ending" if self.ending() else ""),
        )
        checks = {"livez": ping, "healthz": ping + elects, "readyz": ping + elects + ready}
        pages = {
            "/metrics": serving.Page(CONTENT_TYPE, lambda _: exposition(self.telemetry.families())),
            "/configz": serving.Page(_JSON, lambda _: _json(configuration(self.settings))),
            "/statusz": serving.Page(_TEXT, self._status_page),
            "/debug/decisions": serving.Page(_JSON, self._decisions),
        }
        return serving.Site(dict(checks), pages, dict(self.calls))

    def joined(self, session: Session, elector: Elector) -> None:
        """The API server is connected: it says who may read what."""
        self._session, self.elector = session, elector
        gate, read = elector.gate, self.telemetry.read
        if self.server is not None:
            self.server.access.ask(session, lambda: gate.away)
        read(names.AWAY, lambda: {(): float(gate.away)})
        read(names.WRITES, lambda: {(): float(gate.wanted)})
        if elector.election.leader_elect:
            lease = elector.election.resource_name
            read(names.LEADER, lambda: _values({lease: elector.may_write()}))

    def decides(
        self, scheduler: Scheduler, rules: InForce | None, reflectors: Sequence[Reflector[Any]]
    ) -> None:
        """The rooms that decide are built."""
        self.scheduler, self.in_force, self.reflectors = scheduler, rules, reflectors
        read = self.telemetry.read
        read(names.BINDING, lambda: _values({"binding": scheduler.in_flight}))
        if rules is not None:
            read(names.BUNDLE, lambda: {(one.hash,): 1.0} if (one := rules.bundle) else {})
            loaded = names.POLICIES_LOADED
            read(loaded, lambda: {(): len(one.plans) if (one := rules.bundle) else 0.0})
            read(names.POLICIES_REFUSED, rules.stale)
            read(names.POLICIES_AWAITED, lambda: {(): float(len(rules.reloader.awaited))})

    # ---- checks ------------------------------------------------------------------------------

    def _lease_overdue(self) -> str:
        elector = self.elector
        if elector is None or elector.overdue_seconds <= _OVERDUE_SECONDS:
            return ""
        return f"lease {elector.title} is overdue for renewal, and the process has not ended"

    def _not_synced(self) -> str:
        missing = [one.name for one in self.reflectors if not one.synced.is_set()]
        if not self.reflectors:
            return "not connected to a cluster yet"
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    def _silent(self) -> list[str]:
        """What nothing has been heard of for long, and why."""
        silent: dict[str, list[str]] = {}
        for one in (*self.reflectors, *self.watched()):
            if one.listens and one.quiet_seconds > _SILENT_SECONDS:
                silent.setdefault(one.last_error, []).append(one.name)
        return [f"{', '.join(names)}: {why}" for why, names in silent.items()]

    def troubles(self) -> list[str]:
        """What the API server has not given, or not allowed, for longer than a moment."""
        silent = self._silent()
        forbidden = [] if self._session is None else self._session.forbidden
        return silent + [one for one in forbidden if not any(one in why for why in silent)]

    # ---- metrics -----------------------------------------------------------------------------

    def _measure(self) -> None:
        read, queue, cache = self.telemetry.read, self.queue, self.cache
        self.telemetry.expect(
            names.ALGORITHM_SECONDS,
            names.POD_ATTEMPTS,
            names.PREEMPTION_ATTEMPTS,
            names.PREEMPTION_VICTIMS,
        )
        read(names.BUILD, lambda: {(__version__,): 1.0})
        read(names.PENDING_PODS, lambda: _values(self._pending()))
        read(
            names.INCOMING_PODS,
            lambda: {(where.value, why): float(n) for (where, why), n in queue.incoming.items()},
        )
        read(names.UNSCHEDULABLE_PODS, self._unschedulable)
        read(
            names.CACHE_SIZE,
            lambda: _values(
                {
                    "nodes": cache.nodes.count,
                    "pods": cache.pods.size,
                    "assumed_pods": cache.assumed_pods,
                }
            ),
        )
        read(names.BINDING, lambda: _values({"binding": 0}))
        read(names.POLICIES_LOADED, lambda: {(): 0.0})
        read(names.METRIC_AGE, lambda: self._of_metrics(lambda one: one.age_seconds))
        read(names.METRIC_MISSING, lambda: self._of_metrics(lambda one: one.missing))
        read(names.METRIC_SERIES, lambda: self._of_metrics(lambda one: one.series))
        read(
            names.QUIET,
            lambda: {(one.name,): one.quiet_seconds for one in self.reflectors if one.listens},
        )
        measure_process(self.telemetry, self.clock)

    def _pending(self) -> dict[str, int]:
        counts = self.queue.counts()
        return {where.value: n for where, n in counts.items() if where is not SubQueue.IN_FLIGHT}

    def _unschedulable(self) -> Values:
        profiles = self.settings.profiles
        profile = profiles[0].scheduler_name if len(profiles) == 1 else ""
        found = self.queue.rejected_by()
        return {(plugin, profile): float(pods) for plugin, pods in found.items()}

    def _of_metrics(self, what: Callable[[SignalStatus], float | None]) -> Values:
        """By name; of metrics that policies define apart under one name the largest."""
        found: Values = {}
        for one in self.signals.status():
            value = what(one)
            if value is not None:
                found[one.name,] = max(found.get((one.name,), 0.0), float(value))
        return found

    # ---- pages -------------------------------------------------------------------------------

    def _decisions(self, query: serving.Query) -> str:
        """`?pod=NAMESPACE/NAME`, or the newest ones."""
        pod = query.get("pod")
        if pod is None:
            return _json(self.records.newest(_NEWEST))
        found, waits = self.records.of(pod), self._waits(pod)
        if waits is not None:
            # One that is gone may have had the same name.
            same = found is not None and found["uid"] == waits["uid"]
            found = {**(found if found is not None and same else {"pod": pod}), "waits": waits}
        if found is None:
            raise serving.NoSuchPageError(
                f"no decision about {pod} (NAMESPACE/NAME) is kept{self._who()}"
            )
        return _json(found)

    def _waits(self, pod: str) -> dict[str, Any] | None:
        """Where a pod waits and who holds it there; None: it does not wait, or not for us."""
        scheduler = self.scheduler
        queued = next((one for one in self.queue if one.pod.key == pod), None)
        if queued is None or scheduler is None or not scheduler.leads:
            return None
        uid = queued.pod.uid
        told = {"uid": uid, "queue": queued.where.value, "attempts": queued.attempts}
        held = scheduler.waiting_pods.get(uid)
        if held is not None:
            told |= {"node": held.node, "since": stamp(held.since_time), "for": held.why}
        elif queued.gating_plugin:
            told |= {"by": queued.gating_plugin, "for": "; ".join(queued.gating_reasons)}
        return told

    def _who(self) -> str:
        """Where else to ask, if not here."""
        scheduler, elector = self.scheduler, self.elector
        if scheduler is None or scheduler.leads or elector is None:
            return ", and it is not pending here; does it ask for another scheduler?"
        return f" here, as this replica does not lead; {elector.holder or 'nobody'} does"

    def status(self) -> dict[str, Any]:
        """How the process is, for people and for JSON."""
        elector = self.elector
        now = self.clock.time()
        status: dict[str, Any] = {
            "version": __version__,
            "started": stamp(self.began),
            "upSeconds": round(now - self.began),
            "schedulerNames": [one.scheduler_name for one in self.settings.profiles],
            "synced": not self._not_synced(),
            "leads": self.scheduler is not None and self.scheduler.leads,
            "nodes": self.cache.nodes.count,
            "podsOnNodes": self.cache.pods.size,
            "pending": self._pending(),
            "troubles": self.troubles(),
        }
        if self.scheduler is not None:
            status["waitingInPermit"] = {
                one.pod.key: {"node": one.node, "since": stamp(one.since_time), "for": one.why}
                for one in islice(self.scheduler.waiting_pods, _SHOWN)
            }
        status["shadow"] = {name: str(one) for name, one in self.shadow.tallies().items()}
        if elector is not None and elector.election.leader_elect:
            status["lease"] = {"name": elector.title, "holder": elector.holder}
        if self.in_force is not None:
            status["policies"] = self.in_force.status()
        metrics: dict[str, Any] = {}
        for one in self.signals.status():
            # Two policies may define one name apart.
            metrics[one.id if one.name in metrics else one.name] = msgspec.to_builtins(one)
        status["metrics"] = metrics
        status["watches"] = {
            one.name: {
                "phase": one.phase.value,
                "objects": len(one.objects),
                "quietSeconds": round(one.quiet_seconds, 1),
                "lastError": one.last_error,
            }
            for one in self.reflectors
        }
        return status

    def _status_page(self, query: serving.Query) -> str:
        if query.get("format") == "json":
            return _json(self.status())
        shown = self.status() | {"paths": [] if self.server is None else self.server.paths}
        plain = json.loads(_json(shown))
        text = yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, allow_unicode=True)
        return f"berth statusz\nFor people; ?format=json is for programs.\n\n{text}"


@contextlib.asynccontextmanager
async def served(
    options: serving.ServerOptions | None, endpoints: Endpoints, stop: asyncio.Event, *, host: str
) -> AsyncIterator[None]:
    """The endpoints are behind a server meanwhile, if there are options for one.

    Raises:
        CertificateError, ListenError: there cannot be one.
    """
    endpoints.ending = stop.is_set
    if options is None:
        yield
        return
    endpoints.server = serving.Server(options, endpoints.site, endpoints.clock, host=host)
    async with endpoints.server.running():
        yield


def configuration(settings: Settings) -> dict[str, Any]:
    """The settings in force as the documents of a configuration file would say them."""
    stock = {
        "apiVersion": SCHEDULER_API,
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": settings.election.model_dump(by_alias=True),
        "delayCacheUntilActive": settings.delay_cache,
        "podInitialBackoffSeconds": round(settings.initial_backoff_seconds),
        "podMaxBackoffSeconds": round(settings.max_backoff_seconds),
        "profiles": [one.model_dump(by_alias=True) for one in settings.profiles],
        "extenders": [one.model_dump(by_alias=True) for one in settings.extenders],
    }
    return {"componentconfig": stock, "berth": settings.berth.model_dump(by_alias=True)}


def _values(values: Mapping[str, float]) -> Values:
    return {(name,): float(value) for name, value in values.items()}


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"
