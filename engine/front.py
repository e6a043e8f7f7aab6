"""What a scheduler shows of itself: health checks, metrics and pages, put before a server.

Reads the rooms of a running scheduler and changes none. What is read at a request is read from
what they hold already; nothing here asks the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from engine import __version__
from engine.cache import Cache
from engine.clock import Clock
from engine.config import SCHEDULER_API, Settings
from engine.inforce import InForce
from engine.kube.election import Elector
from engine.kube.gate import Gate
from engine.kube.protocol import Phase
from engine.kube.reflector import Reflector
from engine.kube.session import Session
from engine.policy.bundle import Bundle
from engine.policy.shadow import Shadow
from engine.queue import SchedulingQueue, SubQueue
from engine.records import Records
from engine.scheduler import Scheduler
from engine.serving import process
from engine.serving.exposition import CONTENT_TYPE, exposition
from engine.serving.health import PING, Check
from engine.serving.server import Call, NoSuchPageError, Page, Query, Server, ServerOptions, Site
from engine.signals.spec import SignalStatus
from engine.signals.store import SignalStore
from engine.telemetry import (
    AWAY,
    BINDING,
    BUILD,
    BUNDLE,
    CACHE_SIZE,
    INCOMING_PODS,
    LEADER,
    METRIC_AGE,
    METRIC_SERIES,
    PENDING_PODS,
    POLICIES_AWAITED,
    POLICIES_LOADED,
    POLICIES_REFUSED,
    QUIET,
    UNSCHEDULABLE_PODS,
    WRITES,
    Labels,
    Telemetry,
)

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_OVERDUE_SECONDS: Final = 20.0
"""For how long an overdue lease is borne before the process counts as hung."""
_NEWEST: Final = 50
_SHOWN: Final = 100

Values = dict[Labels, float]


@dataclass(slots=True)
class Inside:
    """The rooms of a scheduler; those that are None come once it is connected."""

    settings: Settings
    clock: Clock
    telemetry: Telemetry
    cache: Cache
    queue: SchedulingQueue
    signals: SignalStore
    records: Records
    session: Session | None = None
    elector: Elector | None = None
    scheduler: Scheduler | None = None
    in_force: InForce | None = None
    shadow: Shadow | None = None
    reflectors: Sequence[Reflector[Any]] = ()
    calls: Mapping[str, Call] = field(default_factory=dict)
    """What another scheduler may ask, by path."""
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.time()


class Front:
    """Checks, metrics and pages of the inside."""

    def __init__(self, inside: Inside, stop: asyncio.Event) -> None:
        self._inside = inside
        self._stop = stop
        self.server: Server | None = None
        self._measure()

    @property
    def site(self) -> Site:
        """All that is shown."""
        ping = (PING,)
        elects = (Check("leaderElection", self._lease_overdue),)
        ready = (
            Check("sched-handler-sync", self._not_synced),
            Check("policies", self._no_rules),
            Check("shutdown", lambda: "the process is ending" if self._stop.is_set() else ""),
        )
        checks = {
            "livez": ping,
            "healthz": ping + elects,
            "readyz": ping + elects + ready,
        }
        pages = {
            "/metrics": Page(CONTENT_TYPE, lambda _: exposition(self._inside.telemetry.families())),
            "/configz": Page(_JSON, lambda _: _json(configuration(self._inside.settings))),
            "/statusz": Page(_TEXT, self._status_page),
            "/debug/decisions": Page(_JSON, self._decisions),
        }
        return Site(dict(checks), pages, dict(self._inside.calls))

    def joined(self, session: Session, elector: Elector) -> None:
        """The cluster is there to be asked who may read what."""
        self._inside.session, self._inside.elector = session, elector
        if self.server is not None:
            self.server.access.ask(session, lambda: elector.gate.away)

    # ---- checks ------------------------------------------------------------------------------

    def _lease_overdue(self) -> str:
        elector = self._inside.elector
        if elector is None or elector.overdue_seconds <= _OVERDUE_SECONDS:
            return ""
        return f"lease {elector.title} was not renewed, and the process goes on"

    def _not_synced(self) -> str:
        inside = self._inside
        missing = [one.health().resource for one in inside.reflectors if not one.synced.is_set()]
        if not inside.reflectors:
            return "not connected to a cluster yet"
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    def _no_rules(self) -> str:
        in_force = self._inside.in_force
        return in_force.not_ready if in_force is not None else ""

    # ---- metrics -----------------------------------------------------------------------------

    def _measure(self) -> None:
        inside = self._inside
        read = inside.telemetry.read
        queue, cache = inside.queue, inside.cache
        read(BUILD, lambda: {(__version__,): 1.0})
        read(PENDING_PODS, lambda: _values(self._pending()))
        read(
            INCOMING_PODS,
            lambda: {(where.value, why): float(n) for (where, why), n in queue.incoming.items()},
        )
        read(UNSCHEDULABLE_PODS, self._unschedulable)
        read(
            CACHE_SIZE,
            lambda: _values(
                {
                    "nodes": cache.nodes.count,
                    "pods": cache.pods.size,
                    "assumed_pods": cache.assumed_pods,
                }
            ),
        )
        read(BINDING, lambda: _values({"binding": self._in_flight()}))
        read(LEADER, self._leads)
        read(BUNDLE, lambda: self._of_bundle(lambda one: {(one.hash,): 1.0}))
        read(
            POLICIES_LOADED,
            lambda: self._of_bundle(lambda one: {(): float(len(one.plans))}) or {(): 0.0},
        )
        read(POLICIES_REFUSED, lambda: self._of_rules(lambda rules: rules.stale()))
        read(
            POLICIES_AWAITED,
            lambda: self._of_rules(lambda rules: {(): float(len(rules.reloader.awaited))}),
        )
        read(METRIC_AGE, lambda: self._of_metrics(lambda one: one.age_seconds))
        read(METRIC_SERIES, lambda: self._of_metrics(lambda one: one.series))
        read(
            QUIET,
            lambda: {
                (health.resource,): health.quiet_seconds
                for health in (one.health() for one in inside.reflectors)
                # Of what the server does not have, or keeps to itself, nothing is to be heard.
                if health.phase is not Phase.ABSENT
            },
        )
        read(AWAY, lambda: self._of_gate(lambda gate: gate.away))
        read(WRITES, lambda: self._of_gate(lambda gate: gate.wanted))
        process.measure(inside.telemetry)

    def _pending(self) -> dict[str, int]:
        counts = self._inside.queue.counts()
        return {where.value: n for where, n in counts.items() if where is not SubQueue.IN_FLIGHT}

    def _unschedulable(self) -> Values:
        profiles = self._inside.settings.profiles
        profile = profiles[0].scheduler_name if len(profiles) == 1 else ""
        found = self._inside.queue.rejected_by()
        return {(plugin, profile): float(pods) for plugin, pods in found.items()}

    def _in_flight(self) -> int:
        return 0 if self._inside.scheduler is None else self._inside.scheduler.in_flight

    def _leads(self) -> Values:
        elector = self._inside.elector
        if elector is None or not elector.election.leader_elect:
            return {}
        return {(elector.election.resource_name,): float(elector.may_write())}

    def _of_gate(self, what: Callable[[Gate], float]) -> Values:
        elector = self._inside.elector
        return {} if elector is None else {(): float(what(elector.gate))}

    def _of_metrics(self, what: Callable[[SignalStatus], float | None]) -> Values:
        """By name; of metrics that policies define apart under one name the largest."""
        found: Values = {}
        for one in self._inside.signals.status():
            value = what(one)
            if value is not None:
                found[one.name,] = max(found.get((one.name,), 0.0), float(value))
        return found

    def _of_rules(self, what: Callable[[InForce], Values]) -> Values:
        in_force = self._inside.in_force
        return {} if in_force is None else what(in_force)

    def _of_bundle(self, what: Callable[[Bundle], Values]) -> Values:
        bundle = None if self._inside.in_force is None else self._inside.in_force.bundle
        return {} if bundle is None else what(bundle)

    # ---- pages -------------------------------------------------------------------------------

    def _decisions(self, query: Query) -> str:
        """`?pod=NAMESPACE/NAME`, or the newest ones."""
        pod = query.get("pod")
        if pod is None:
            return _json(self._inside.records.newest(_NEWEST))
        found = self._inside.records.of(pod)
        if found is None:
            raise NoSuchPageError(f"no decision about {pod} (NAMESPACE/NAME) is kept{self._who()}")
        return _json(found)

    def _who(self) -> str:
        """Where else to ask, if not here."""
        scheduler, elector = self._inside.scheduler, self._inside.elector
        if scheduler is None or scheduler.leads or elector is None:
            return ""
        return f" here, where nothing is decided; {elector.holder or 'nobody'} leads"

    def status(self) -> dict[str, Any]:
        """How the process is, for people and for JSON."""
        inside = self._inside
        elector = inside.elector
        now = inside.clock.time()
        status: dict[str, Any] = {
            "version": __version__,
            "started": _seconds(inside.began),
            "upSeconds": round(now - inside.began),
            "schedulerNames": [one.scheduler_name for one in inside.settings.profiles],
            "synced": not self._not_synced(),
            "leads": inside.scheduler is not None and inside.scheduler.leads,
            "nodes": inside.cache.nodes.count,
            "podsOnNodes": inside.cache.pods.size,
            "pending": self._pending(),
        }
        if inside.scheduler is not None:
            status["waitingInPermit"] = {
                one.pod.key: {"node": one.node, "since": _seconds(one.since_time), "for": one.why}
                for one in islice(inside.scheduler.permits, _SHOWN)
            }
        if inside.shadow is not None:
            status["shadow"] = {name: str(one) for name, one in inside.shadow.tallies().items()}
        if elector is not None and elector.election.leader_elect:
            status["lease"] = {"name": elector.title, "holder": elector.holder}
        if inside.in_force is not None:
            status["policies"] = inside.in_force.status(inside.in_force.bundle)
        status["metrics"] = {
            one.name: {"ageSeconds": one.age_seconds, "series": one.series, "error": one.error}
            for one in inside.signals.status()
        }
        status["watches"] = {
            health.resource: {
                "phase": health.phase.value,
                "objects": health.objects,
                "quietSeconds": round(health.quiet_seconds, 1),
                "lastError": health.last_error,
            }
            for health in (one.health() for one in inside.reflectors)
        }
        return status

    def _status_page(self, query: Query) -> str:
        if query.get("format") == "json":
            return _json(self.status())
        paths = [] if self.server is None else self.server.paths
        lines = ["berth statusz", "Meant for people; ?format=json is for programs.", ""]
        lines += _lines(self.status())
        return "\n".join([*lines, f"paths: {' '.join(paths)}", ""])


def _seconds(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


@contextlib.asynccontextmanager
async def served(
    options: ServerOptions | None, inside: Inside, stop: asyncio.Event, *, host: str
) -> AsyncIterator[Front]:
    """The front of the rooms, behind a server if there are options for one.

    Raises:
        CertificateError, ListenError: there cannot be one.
    """
    front = Front(inside, stop)
    if options is None:
        yield front
        return
    server = front.server = Server(options, front.site, inside.clock, host=host)
    async with server.running():
        yield front


def configuration(settings: Settings) -> dict[str, Any]:
    """The settings in force as the documents of a configuration file would say them."""
    api, _, kind = SCHEDULER_API.rpartition("/")
    stock = {
        "apiVersion": f"{api}/{kind}",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": settings.election.model_dump(by_alias=True),
        "delayCacheUntilActive": settings.delay_cache,
        "podInitialBackoffSeconds": settings.initial_backoff_seconds,
        "podMaxBackoffSeconds": settings.max_backoff_seconds,
        "profiles": [one.model_dump(by_alias=True) for one in settings.profiles],
        "extenders": [one.model_dump(by_alias=True) for one in settings.extenders],
    }
    return {"componentconfig": stock, "berth": settings.berth.model_dump(by_alias=True)}


def _values(values: Mapping[str, float]) -> Values:
    return {(name,): float(value) for name, value in values.items()}


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _lines(value: Mapping[str, Any], before: str = "") -> list[str]:
    lines = []
    for name, one in value.items():
        several = one if isinstance(one, list) and one and isinstance(one[0], Mapping) else []
        for each in several or ([one] if isinstance(one, Mapping) else []):
            lines += [f"{before}{name}:", *_lines(each, before + "  ")]
        if several or isinstance(one, Mapping):
            continue
        text = " ".join(map(str, one)) if isinstance(one, list) else one
        lines.append(f"{before}{name}: {text}")
    return lines
