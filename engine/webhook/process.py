"""The composition of `berth webhook`: settings in, a process that answers reviews out.

It reads the sources as a scheduler does and puts nothing in force; what it writes is the Secret of
its certificate and the configuration that has the API server ask.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine.clock import Clock
from engine.configuration.berth import PoliciesSection
from engine.configuration.settings import Settings
from engine.inforce import Callbacks, InForce
from engine.kube.client import APPLY_PATCH, KubeClient, segment
from engine.kube.errors import KubeError, StatusError
from engine.kube.keeper import Keeper
from engine.kube.reflector import Reflector
from engine.kube.session import Session
from engine.kube.wiring import Wiring, connect, keep_asking
from engine.plugins.profiles import make_profiles
from engine.pods.selectors import Selector, SelectorError, read_selector
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

_LOG = logging.getLogger(__name__)

_SLICE_SECONDS: Final = 0.01
_LOOK_SECONDS: Final = 0.5
"""How often it is looked whether a folder, or the clock, has brought something."""
_ASK_SECONDS: Final = 1.5
"""With what judging may take still less than the API server waits."""
PORT: Final = 9443
PATH: Final = "/policies"
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
        if session is not None:
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


# ---- which ConfigMaps the API server asks about, and where: the sources and nothing else
# The object is there already, without webhooks: who may change it by its name may not make one.

_API: Final = "admissionregistration.k8s.io/v1"
_KIND: Final = "ValidatingWebhookConfiguration"
_COLLECTION: Final = f"/apis/{_API}/validatingwebhookconfigurations"
_MANAGER: Final = "berth-webhook"
_DOMAIN: Final = "policies.berth.dev"
_NAMESPACE: Final = "kubernetes.io/metadata.name"
_TIMEOUT_SECONDS: Final = 5
_FORBIDDEN: Final = 403
_PIECE: Final = re.compile(r"\[[^\]]+\]|.")
_WILD: Final = {"*": ".*", "?": "."}


class Place(msgspec.Struct, frozen=True):
    """Where the webhook is, and what its objects are called.

    Its Service, and its Secret unless there are files, are called `name` in `namespace`, and so is
    the configuration. With a `url` the API server goes there, and not to the Service.
    """

    namespace: str
    name: str
    url: str = ""

    @property
    def host(self) -> str:
        """The name that the certificate is for."""
        return f"{self.name}.{self.namespace}.svc"

    @property
    def client(self) -> dict[str, Any]:
        """`clientConfig`, but for whom it trusts."""
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{PATH}"}
        service = {"namespace": self.namespace, "name": self.name, "path": PATH, "port": 443}
        return {"service": service}


def webhooks(policies: PoliciesSection, client: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The webhooks for the sources of a configuration; folders have none.

    Raises:
        SelectorError: what selects sources is nothing that a webhook can have.
    """
    return [
        {
            "name": name,
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                    "scope": "Namespaced",
                }
            ],
            **which,
            "clientConfig": client,
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": _TIMEOUT_SECONDS,
        }
        for name, which in _which(policies)
    ]


def _which(policies: PoliciesSection) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of webhooks, and what each is asked about."""
    named = sorted(one.config_map for one in policies.all_sources if one.config_map is not None)
    among = f"(request.namespace + '/' + request.name) in [{', '.join(map(_text, named))}]"
    if named:
        namespaces = sorted({one.partition("/")[0] for one in named})
        yield (
            _DOMAIN,
            {
                "namespaceSelector": _in_namespaces(namespaces),
                "matchConditions": [{"name": "named", "expression": among}],
            },
        )
    selected = [one for one in policies.all_sources if one.selector is not None]
    for number, one in enumerate(selected):
        which: dict[str, Any] = {
            "namespaceSelector": _in_namespaces([one.namespace or ""]),
            "objectSelector": _as_object(read_selector(one.selector or "")),
        }
        if named:
            which["matchConditions"] = [{"name": "not-named", "expression": f"!({among})"}]
        yield f"selected-{number}.{_DOMAIN}", which
    if policies.tenants is not None:
        spaces = "|".join(map(_as_expression, policies.tenants.namespaces))
        conditions = {
            "name": f"request.name == {_text(policies.tenants.config_map)}",
            "namespace": f"request.namespace.matches(r'^({spaces})$')",
            "not-named": f"!({among})",
        }
        of_tenants = [{"name": n, "expression": text} for n, text in conditions.items()]
        yield f"tenants.{_DOMAIN}", {"matchConditions": of_tenants}


def _text(name: str) -> str:
    """A text of CEL: the configuration lets in names of objects only, which need no escapes."""
    return f"'{name}'"


def _as_expression(pattern: str) -> str:
    """The regular expression of a pattern of namespaces, as fnmatch has it."""
    return "".join(
        one.replace("[!", "[^") if len(one) > 1 else _WILD.get(one) or re.escape(one)
        for one in _PIECE.findall(pattern)
    )


def _in_namespaces(names: list[str]) -> dict[str, Any]:
    one = {"key": _NAMESPACE, "operator": "In", "values": names}
    return {"matchExpressions": [one]}


def _as_object(selector: Selector) -> dict[str, Any]:
    found = []
    for one in selector.requirements or ():
        if one.operator in ("Gt", "Lt"):
            raise SelectorError(f"{one.key}: a webhook selects by =, !=, in, notin or existence")
        values = {"values": list(one.values)} if one.values else {}
        found.append({"key": one.key, "operator": one.operator, **values})
    return {"matchExpressions": found}


@dataclass(eq=False)
class Registration:
    """Keeps the configuration as it is to be, as long as somebody calls `apply`."""

    client: KubeClient
    place: Place
    policies: PoliciesSection
    _applied: bytes = field(default=b"", init=False)
    _trusted: bytes = field(default=b"", init=False)

    @property
    def missing(self) -> str:
        """Why nobody asks; empty once the API server has been told to."""
        return "" if self._applied else f"{_KIND} {self.place.name} is not written yet"

    async def apply(self, trusted: bytes | None) -> None:
        """Has the API server ask here, and trust these certificates (PEM).

        Those of the call before, too, as they may still be served, here or by another replica.
        None leaves whom it trusts to somebody else.

        Raises:
            KubeError: it could not be told.
        """
        client = self.place.client
        if trusted is not None:
            bundle = trusted
            if self._trusted not in (b"", trusted):
                bundle = trusted.rstrip() + b"\n" + self._trusted
            client["caBundle"] = base64.b64encode(bundle).decode()
        body = {
            "apiVersion": _API,
            "kind": _KIND,
            "metadata": {"name": self.place.name},
            "webhooks": webhooks(self.policies, client),
        }
        encoded = msgspec.json.encode(body)
        answer = await self.client.request(
            "PATCH",
            f"{_COLLECTION}/{segment(self.place.name)}",
            params={"fieldManager": _MANAGER, "force": "true"},
            body=encoded,
            content_type=APPLY_PATCH,
        )
        try:
            answer.checked()
        except StatusError as refused:
            if refused.code == _FORBIDDEN:
                refused.add_note(f"{_KIND} {self.place.name} is created by the manifests")
            raise
        if self._applied != encoded:
            _LOG.info('The API server now asks about policies configuration="%s"', self.place.name)
        self._applied, self._trusted = encoded, trusted or b""
