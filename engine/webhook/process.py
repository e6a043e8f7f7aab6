"""The composition of `berth webhook`: settings in, a process that answers reviews out.

It reads the sources as a scheduler does and puts nothing in force; what it writes is the Secret of
its certificate and the configuration that has the API server ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine.clock import Clock
from engine.configuration.settings import Settings
from engine.inforce import Callbacks, InForce
from engine.kube.client import KubeClient
from engine.kube.errors import KubeError
from engine.kube.keeper import Keeper
from engine.kube.reflector import Reflector
from engine.kube.session import Session
from engine.kube.wiring import Wiring, connect, keep_asking
from engine.plugins.profiles import make_profiles
from engine.policy import lastgood
from engine.policy.reloader import Kept
from engine.serving.certificates import Certificates, SharedPair, repeated
from engine.serving.exposition import CONTENT_TYPE, exposition, measure_process
from engine.serving.server import PING, Call, Check, Page, Server, ServerOptions, Site
from engine.tasks import first, tasks
from engine.telemetry import WEBHOOK_CERTIFICATE_ENDS, Telemetry
from engine.text import wire
from engine.tls import certificates_in
from engine.webhook.judging import MOST_BYTES, Judge
from engine.webhook.registration import PATH, Place, Registration

_LOG = logging.getLogger(__name__)

_SLICE_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.5
"""How often it is looked whether a folder, or the clock, has brought something."""
_ASK_SECONDS: Final = 1.5
"""With what judging may take still less than the API server waits."""
PORT: Final = 9443
OPEN: Final = ("/healthz", "/readyz", "/livez", PATH)


class WebhookOptions(msgspec.Struct, frozen=True):
    """What `berth webhook` was told.

    Without a certificate in `serving.files` the Secret of `place` has it. `trusted` is a file with
    whom the API server is to trust; without it somebody else writes that beside certificate files.
    """

    settings: Settings
    kubeconfig: str | None
    place: Place
    serving: ServerOptions = msgspec.field(default_factory=lambda: ServerOptions(port=PORT))
    trusted: Path | None = None
    context: str | None = None


class _Cluster(msgspec.Struct, frozen=True):
    nodes: int = 0
    pods: int = 0


class _Status(msgspec.Struct, frozen=True):
    cluster: _Cluster = _Cluster()


_status = msgspec.json.Decoder(_Status)


class Webhook:
    """One process that answers reviews."""

    def __init__(self, options: WebhookOptions, clock: Clock) -> None:
        """Makes the sources.

        Raises:
            ConfigError: a profile cannot be used.
        """
        self._options = options
        self._clock = clock
        self._cluster = _Cluster()
        self._work = asyncio.Event()
        self._told = ""
        self.telemetry = Telemetry()
        measure_process(self.telemetry, clock)
        self.in_force = InForce(
            options.settings,
            Callbacks(wake=self._work.set, without="changes are checked without it"),
            make_profiles(options.settings),
            clock=clock,
            telemetry=self.telemetry,
            there=lambda: (self._cluster.nodes, self._cluster.pods),
        )
        self.in_force.connect(None, None, lambda: False)
        self._reflectors: Sequence[Reflector[Any]] = ()

    async def run(self, stop: asyncio.Event) -> None:
        """Answers until `stop` is set.

        Raises:
            ConfigError: nothing says how to reach a cluster.
            CertificateError, ListenError: it cannot be served.
        """
        options = self._options
        kubeconfig = options.kubeconfig or options.settings.kubeconfig
        session = await connect(kubeconfig, self._clock, stop, options.context)
        if session is None:
            return
        async with session:
            await self._run(session, stop)

    async def _run(self, session: Session, stop: asyncio.Event) -> None:
        options = self._options
        session.telemetry = self.telemetry
        wiring = Wiring(self._clock, self.telemetry, Random())
        registration = Registration(session, options.place, options.settings.berth.policies)
        self._reflectors = [
            Reflector(session, resource, handler, wiring)
            for resource, handler in self.in_force.configured.watched
        ]
        state = options.settings.berth.policies.state
        keeper = None if state is None else Keeper(session, wiring, state)
        remembered = partial(self._remembered, keeper)
        judge = Judge(self.in_force, self._clock, remembered, self._not_synced)
        ready = (
            PING,
            Check("sources", self._not_synced),
            Check("registration", lambda: registration.missing),
        )
        site = Site(
            {"livez": (PING,), "healthz": (PING,), "readyz": ready},
            {"/metrics": Page(CONTENT_TYPE, lambda _: exposition(self.telemetry.families()))},
            calls={PATH: Call(judge.answered, MOST_BYTES)},
        )
        holder, beside = self._certificates(session, registration, wiring)
        server = Server(
            replace(options.serving, always_allowed=OPEN),
            site,
            self._clock,
            host=options.place.host,
            certificates=holder,
        )
        server.access.ask(session, lambda: wiring.reach.away)
        async with server.running(), tasks() as group:
            work = [keep_asking(session, wiring), self._keep_up(), *beside]
            work += [each.run() for each in self._reflectors]
            running = [group.create_task(each) for each in work]
            await stop.wait()
            for task in running:
                task.cancel()

    def _certificates(
        self, client: KubeClient, registration: Registration, wiring: Wiring
    ) -> tuple[Certificates | SharedPair, list[Any]]:
        """Who holds the certificate, and what else is to run."""
        files, place = self._options.serving.files, self._options.place
        if files.maker is not None and not files.certificate:
            name = place.namespace, place.name
            shared = SharedPair(
                client,
                name,
                files.maker,
                registration.apply,
                self._clock,
                host=place.host,
                sleep=wiring.sleep,
            )
            self.telemetry.read(WEBHOOK_CERTIFICATE_ENDS, lambda: {(): shared.until})
            return shared, []

        async def apply() -> None:
            trusted = self._options.trusted
            await registration.apply(None if trusted is None else certificates_in(trusted))

        holder = Certificates(files, self._clock, host=place.host, sleep=wiring.sleep)
        return holder, [repeated("the webhook cannot be registered", apply, wiring.sleep)]

    def _not_synced(self) -> str:
        missing = [one.name for one in self._reflectors if not one.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    async def _keep_up(self) -> None:
        while True:
            self._work.clear()
            until = self._clock.monotonic() + _SLICE_SECONDS
            busy = [one.step(until) for one in self.in_force.background]
            if any(busy):
                await asyncio.sleep(0)
            else:
                await first(self._work.wait(), asyncio.sleep(_LOOK_SECONDS))

    async def _remembered(self, keeper: Keeper | None) -> Mapping[str, Kept]:
        """What the leader keeps: texts that it took back, and the size of the cluster."""
        if keeper is None:
            return {}
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                status, data = await keeper.told(), await keeper.load()
            if status is not None:
                self._cluster = wire.decode(_status.decode, status).cluster
            return {} if data is None else lastgood.unpack(data)
        except (KubeError, TimeoutError, msgspec.DecodeError, lastgood.UnreadableError) as failed:
            why = str(failed) or "the API server did not answer in time"
            if why != self._told:
                self._told = why
                _LOG.warning("The policies that the scheduler keeps cannot be read: %s", why)
            return {}
