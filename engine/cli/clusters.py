"""A cluster to ask questions of, from the API server or from files, as a lab under its rules."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any, Final

import click
import msgspec
from msgspec.structs import replace

from engine.cli.check import read as bytes_of
from engine.cli.eval import read_metrics, samples_of
from engine.cli.manifests import Objects
from engine.cli.replay import ruled
from engine.cli.settings import with_flags
from engine.clock import ManualClock, SystemClock
from engine.configuration.settings import Settings, load, read
from engine.framework.effects import POD_SCHEDULED
from engine.framework.runtime import Frameworks
from engine.inforce import Callbacks, InForce
from engine.kube.errors import NotFound, StatusError
from engine.kube.keeper import Keeper
from engine.kube.listing import list_all
from engine.kube.reflector import Reflector
from engine.kube.resources import NAMESPACES, NODES, kinds_of, pods
from engine.kube.session import Session
from engine.kube.sharing import PodSharing
from engine.kube.wiring import Wiring
from engine.objects import Condition, ConfigMap, Pod
from engine.plugins.profiles import make_profiles
from engine.policy import chain
from engine.policy.bundle import Bundle, Needs
from engine.policy.findings import new_compiler
from engine.policy.sources import Texts, policies_in
from engine.signals.prometheus import ask_once
from engine.signals.spec import PROMETHEUS
from engine.signals.store import SignalStore
from engine.simulate.lab import Lab
from engine.telemetry import Telemetry
from engine.watches.watcher import Watcher, attend

_NO_POLICIES: Final = "no policies given: name those in force with --policies or --policy-configmap"
_USUAL: Final = {"config_map": "berth-system/policies", "state": "berth-system/berth"}
"""The policies of the chart, of `berth install` and of `berth up`."""
_USUAL_CONFIG: Final = "berth-system/berth-config", "config.yaml"
"""The configuration of the first two, and its key."""
_OLDER: Final = "A scheduler that cannot list it either keeps its older rules"
_PATIENCE_SECONDS: Final = 5.0
"""For what policies read beside: a list that is refused is asked for again and again."""
_IN_FORCE: Final = (
    "A running scheduler keeps its older rules; to ask it: --scheduler https://HOST:10259"
)


@dataclass(slots=True)
class Cluster:
    """A lab with a cluster in it. `pods` are all but finished ones; `notes` says what it lacks."""

    lab: Lab
    pods: Mapping[str, Pod]
    notes: list[str] = field(default_factory=list)


def from_files(
    paths: Sequence[Path], settings: Settings, metrics: tuple[str, ...], now: float
) -> Cluster:
    """The cluster of manifests, under the policies of a folder.

    Raises:
        click.ClickException: something of it cannot be read or used.
    """
    objects = Objects()
    for path in paths:
        objects.read(path)
    texts = _texts_of(settings)
    frameworks, bundle = ruled(settings, texts, new_compiler())
    given = read_metrics(metrics, objects)
    samples = samples_of(given, bundle.metrics, objects.nodes, now)
    lab = Lab(frameworks, clock=ManualClock(now), signals=samples)
    attend(lab.cache, lab.queue, bundle.needs.attended)
    there = [one.pod for one in objects.pods]
    before = *objects.namespaces.values(), *objects.nodes.values(), *objects.others
    lab.add([*before, *map(_where_it_waits, there)])
    notes = [] if texts else [_NO_POLICIES]
    read = {one.name for one in bundle.metrics} - {name for name, _ in given}
    notes += [f"metric {name} is missing: give it with --metric" for name in sorted(read)]
    return Cluster(lab, _by_key(there), notes)


async def from_server(
    kubeconfig: str | None, context: str | None, config: str | None, flags: dict[str, Any]
) -> Cluster:
    """What a running cluster has now: it is asked once, and nothing is written.

    Without a configuration file the usual one of the cluster holds, under the flags, and where that
    and they name no policies, those of the usual ConfigMap.

    Raises:
        click.ClickException: the policies or the profiles cannot be used.
        ConfigError: the configuration cannot be.
        KubeError: the server cannot be asked.
    """
    settings = with_flags(load(config), flags)
    clock = SystemClock()
    notes: list[str] = []
    kubeconfig = kubeconfig or settings.kubeconfig
    async with await Session.connect(kubeconfig, context, clock=clock) as session:
        hosts = await list_all(session, NODES)
        there = await list_all(session, pods())
        named, key = _USUAL_CONFIG
        text = None if config else (await _data_of(named, session) or {}).get(key)
        if text is not None:
            settings = with_flags(read(f"ConfigMap {named}: {key}", text), flags)
            notes.append(f"no --config given: that of ConfigMap {named} holds")
        usual = not (config or settings.berth.policies.has_sources)
        if usual and await _data_of(_USUAL["config_map"], session) is not None:
            policies = settings.berth.policies.model_copy(update=_USUAL)
            berth = settings.berth.model_copy(update={"policies": policies})
            settings = settings.model_copy(update={"berth": berth})
            notes.append(f"no policies given: those of ConfigMap {policies.config_map} are asked")
        frameworks, bundle = await _rules(session, settings, (len(hosts), len(there)), notes)
        objects: list[Any] = [*await list_all(session, NAMESPACES), *hosts]
        for kind in kinds_of([one.profile for one in frameworks]):
            try:
                objects += await list_all(session, kind.resource())
            except NotFound:
                continue  # a kind that this server does not have
            except StatusError as refused:
                notes.append(f"{kind.resource().name} are left out: {refused}")
        prometheus = settings.berth.prometheus
        signals = await ask_once(prometheus, bundle.metrics, hosts, clock)
        lab = Lab(frameworks, clock=ManualClock(clock.time()), signals=signals)
        lab.add([*objects, *map(_where_it_waits, there)])
        await _watched(lab, session, bundle.needs, signals, notes)
    unasked = {
        one.id for one in bundle.metrics if one.source == PROMETHEUS and prometheus.url is None
    }
    for one in signals.status():
        if one.error or not one.matched:
            why = "no --prometheus-url" if one.id in unasked else "no sample of it"
            notes.append(f"{one.name} is missing: {one.error or why}")
    return Cluster(lab, _by_key(there), notes)


def scheduled(pod: Pod) -> Condition:
    """What its condition says of it; empty without one."""
    each = pod.status.conditions or ()
    return next((one for one in each if one.type == POD_SCHEDULED), Condition())


def waits_in_permit(pod: Pod) -> bool:
    """Whether it has no node, and room on the one that it was given, if that is known."""
    return not pod.node_name and scheduled(pod).reason == "WaitingOnPermit"


def _where_it_waits(pod: Pod) -> Pod:
    node = pod.status.nominated_node_name
    if not (node and waits_in_permit(pod)):
        return pod
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _by_key(there: Sequence[Pod]) -> dict[str, Pod]:
    return {f"{one.metadata.namespace}/{one.metadata.name}": one for one in there}


# ---- policies -----------------------------------------------------------------------------------


def _texts_of(settings: Settings) -> Texts | None:
    """The policies of folders, or of a single file; None: none were named."""
    policies = settings.berth.policies
    found: dict[str, str | bytes] = {}
    for section in policies.all_sources:
        if section.dir is not None:
            folder = section.folder if policies.in_folders else ""
            path = Path(section.dir)
            alone = None if path.is_dir() else {path.name: bytes_of(path)}
            # As a scheduler does, which passes over folders and links that lead nowhere.
            texts, why = policies_in(path) if alone is None else (alone, ())
            if not texts:
                raise click.ClickException("; ".join(why) or f"{path}: has no policy")
            found |= {f"{folder}{name}": text for name, text in texts.items()}
    return found or None


async def _data_of(config_map: str, session: Session) -> Mapping[str, str] | None:
    """None: it is not there, or not for us."""
    namespace, _, name = config_map.partition("/")
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    try:
        answer = await session.request("GET", path)
        return answer.decoded(msgspec.json.Decoder(ConfigMap).decode, path).data or {}
    except StatusError as refused:
        if refused.code not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            raise
        return None


async def _rules(
    session: Session, settings: Settings, there: tuple[int, int], notes: list[str]
) -> tuple[Frameworks, Bundle]:
    """What decides in a scheduler of these settings, in a cluster of so many nodes and pods.

    Raises:
        click.ClickException: none of its policies is any good.
        ConfigError: its profiles cannot be used.
        KubeError: the server cannot be asked.
    """
    policies = settings.berth.policies
    if policies.tenants is None and all(one.dir is not None for one in policies.all_sources):
        texts = _texts_of(settings)
        notes += [] if texts else [_NO_POLICIES]
        return ruled(settings, texts, new_compiler())
    profiles = make_profiles(settings)
    # What it says of sources that are no good is among the notes.
    logging.getLogger("engine.inforce").addHandler(logging.NullHandler())
    in_force = InForce(
        settings,
        Callbacks(),
        profiles,
        clock=SystemClock(),
        telemetry=Telemetry(),
        there=lambda: there,
    )
    await _fed(in_force, session, policies.state)
    bundle = in_force.bundle
    refused = [
        (source, why)
        for source in in_force.sources
        if (why := in_force.reloader_of(source).refusal_of(source)) is not None
    ]
    if bundle is None:
        raise click.ClickException("\n".join([*(why.text for _, why in refused), _IN_FORCE]))
    for source, why in refused:
        kept = in_force.reloader_of(source).kept().get(source.title)
        good = kept is not None and bool(kept.files)
        instead = "its last good texts are in force" if good else "none of its rules is in force"
        notes.append(f"{why.summary}; {instead}")
    return chain.frameworks_of(profiles, bundle, worlds=chain.worlds_of(settings.berth)), bundle


async def _fed(in_force: InForce, session: Session, state: str | None) -> None:
    """Gives it what the sources have now, and what was kept of them; nothing is written."""
    keeper = None
    if state is not None:
        keeper = Keeper(session, Wiring(SystemClock(), Telemetry(), Random()), state)
    in_force.connect(None, keeper, lambda: False)
    for resource, handler in in_force.configured.watched:
        for one in await list_all(session, resource):
            handler.on_add(one)
        handler.on_synced()
    if keeper is not None:
        await in_force.restore(asyncio.sleep)
    busy = [True]
    while any(busy):
        busy = [one.step(math.inf) for one in in_force.background]


# ---- what policies read beside ------------------------------------------------------------------


async def _watched(
    lab: Lab, session: Session, needs: Needs, signals: SignalStore, notes: list[str]
) -> None:
    """What policies read beside is listed as by a scheduler, until all of it is there."""
    for name in ("engine.kube.reflector", "engine.watches"):
        logging.getLogger(name).addHandler(logging.NullHandler())  # it is among the notes
    wiring = Wiring(SystemClock(), Telemetry(), Random())
    every = Reflector(session, pods(), lab.handlers.pods, wiring)
    tasks: list[asyncio.Task[None]] = []

    def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    came = asyncio.Event()
    inside = lab.cache, lab.queue, signals
    watcher = Watcher(session, wiring, *inside, came.set, came.set, start, every, PodSharing())
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while watcher.want(needs):
                came.clear()
                await came.wait()
    if lacking := watcher.want(needs):
        notes.append(f"left out: {'; '.join(lacking)}. {_OLDER}")
    watcher.keep(needs)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
