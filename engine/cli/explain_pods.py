"""`berth explain pod` and `berth explain node`: from the API server, from files, from a journal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from msgspec.structs import replace

from dsl.nearest import closest
from engine.cli.clusters import Cluster, from_files, from_server, scheduled, waits_in_permit
from engine.cli.loop import run_in_loop
from engine.cli.refusals import reported
from engine.cli.replay import frameworks_of
from engine.cli.settings import with_flags
from engine.configuration.settings import ConfigError, load
from engine.explain import pods
from engine.explain.gangs import group_of, start_of
from engine.framework.runtime import Framework, PluginError
from engine.framework.snapshot import Snapshot
from engine.journal.replay import replay
from engine.kube.errors import KubeError
from engine.objects import Pod
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.text.display import few, plain

_ANEW: Final = "Decided again, by the cluster as it is now; nothing was changed."


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for on the command line."""

    paths: tuple[Path, ...]
    journal: Path | None
    kubeconfig: str | None
    context: str | None
    config: str | None
    flags: dict[str, str | None]
    metrics: tuple[str, ...]
    now: float
    nodes: tuple[str, ...]
    most: int
    as_json: bool


def answer(what: str, name: str, request: Request) -> None:
    """Prints what is asked of a `pod` or a `node`.

    Raises:
        click.ClickException: it is not there, or what is needed cannot be read.
    """
    if request.journal is not None:
        _of_journal(what, name, request.journal, request)
        return
    with reported(KubeError, ConnectionError, ConfigError):
        cluster = _cluster(request)
    (_pod if what == "pod" else _node)(name, cluster, request)


def _cluster(request: Request) -> Cluster:
    if request.paths:
        settings = with_flags(load(request.config), request.flags)
        return from_files(request.paths, settings, request.metrics, request.now)
    given = request.kubeconfig, request.context, request.config, request.flags
    return run_in_loop(from_server(*given))


def _print(
    told: dict[str, Any],
    head: Sequence[str],
    lines: Iterable[str],
    notes: Sequence[str],
    request: Request,
) -> None:
    for note in notes:
        click.echo(plain(f"note: {note}"), err=True)
    if request.as_json:
        click.echo(json.dumps({**told, "notes": list(notes)}, ensure_ascii=False, indent=2))
        return
    for line in chain(head, ("",) if head else (), lines):
        click.echo(plain(line, len(line)))


# ---- a pod --------------------------------------------------------------------------------------


def _pod(name: str, cluster: Cluster, request: Request) -> None:
    key = name if "/" in name else f"default/{name}"
    pod = cluster.pods.get(key)
    if pod is None:
        raise _unknown("pod", key, cluster.pods)
    lab = cluster.lab
    info = make_pod_info(_unbound(pod))
    if lab.cache.node_of(info.uid):
        lab.cache.remove_pod(info.uid)
    elif not lab.cache.nominations.node_of(info.uid):  # ours reads no promises to others'
        lab.cache.nominate(info, info.pod.status.nominated_node_name)
    told = pods.explain(info, lab.snapshot(), lab.frameworks.of(info))
    here = pod.node_name or ""
    also = (*request.nodes, *([here] if here and here != told.decision.node else []))
    _known(also, lab.snapshot())
    said = "" if here else scheduled(pod).message
    notes = [*cluster.notes, *_not_ours(info, told), *_holding(key, cluster)]
    source = "files" if request.paths else "cluster"
    gang = _gang(info, cluster)
    head = {"source": source, "on": here or None, "said": said or None, "gang": gang}
    heads = (*_heads(pod, said, source), *((gang, "By itself:") if gang else ()))
    values = {**head, **pods.object_of(told, request.most, also)}
    _print(values, heads, pods.lines_of(told, request.most, also), notes, request)


def _gang(pod: PodInfo, cluster: Cluster) -> str | None:
    """What is to be said of the pod's gang, whose members start together or not at all."""
    lab = cluster.lab
    framework = lab.frameworks.of(pod)
    others = [one.pod for one in lab.queue.pending() if one.pod.uid != pod.uid]
    try:
        group = group_of(pod, others, lab.snapshot(), framework)
        if group is None:
            return None
        start = start_of(group, lab.cache, lab.snapshot, framework)
    except PluginError as fault:
        return str(fault)
    able = "they can start together" if start.rows and not start.waits else start.reason
    if start.rows and start.waits:
        able += ", and may wait on their nodes for the others"
    if start.rows and group.gang.within:
        names = sorted(lab.snapshot().nodes.name(row) for row in start.rows)
        able += f", the pod on one of {few(names)}"
    return f"It is in a gang ({group.gang.place}). {group}: {able}."


def _heads(pod: Pod, said: str, source: str) -> Iterator[str]:
    if source == "cluster":
        yield _ANEW
    if pod.node_name:
        yield f"The pod is on {pod.node_name}. If it were pending, it would be placed as follows:"
    elif said:
        yield f"Its condition says: {said}"


def _unbound(pod: Pod) -> Pod:
    if not pod.node_name:
        return pod
    status = replace(pod.status, nominated_node_name="")
    return replace(pod, spec=replace(pod.spec, node_name=""), status=status, bound_to="")


def _not_ours(info: PodInfo, told: pods.Explanation) -> list[str]:
    name = info.pod.spec.scheduler_name
    if name in ("", told.profile):
        return []
    return [f"{info.key} asks for scheduler {name}; it is explained as a pod of {told.profile}"]


def _holding(key: str, cluster: Cluster) -> list[str]:
    """Pods wait on nodes that they were given, and nothing but their status says so."""
    held = [
        f"{other} on {one.status.nominated_node_name or 'a node that is not known'}"
        for other, one in sorted(cluster.pods.items())
        if other != key and waits_in_permit(one)
    ]
    return [f"these pods were given nodes, and wait in permit: {few(held)}"] if held else []


def _known(names: Sequence[str], snapshot: Snapshot) -> None:
    for name in names:
        if snapshot.nodes.row(name) < 0:
            there = np.flatnonzero(snapshot.nodes.present).tolist()
            raise _unknown("node", name, map(snapshot.nodes.name, there))


def _unknown(what: str, name: str, known: Iterable[str]) -> click.ClickException:
    near = closest(name, known)
    hint = "" if near is None else f"; did you mean {near}?"
    return click.ClickException(f"there is no {what} {name}{hint}")


# ---- a node -------------------------------------------------------------------------------------


def _node(name: str, cluster: Cluster, request: Request) -> None:
    lab = cluster.lab
    snapshot = lab.snapshot()
    _known((name,), snapshot)
    each = [lab.frameworks] if isinstance(lab.frameworks, Framework) else [*lab.frameworks]
    ours = {"", *(one.profile.scheduler_name for one in each)}
    waiting = [make_pod_info(one) for one in cluster.pods.values() if _waits(one, ours)]
    found: list[pods.Guest] = []
    for framework in each:
        own = [one for one in waiting if lab.frameworks.of(one) is framework]
        found += pods.guests(name, own, snapshot, framework)
    source = "files" if request.paths else "cluster"
    head = (_ANEW,) if source == "cluster" else ()
    told = {"source": source, **pods.object_of_node(name, found)}
    _print(told, head, pods.lines_of_node(name, found), cluster.notes, request)


def _waits(pod: Pod, ours: set[str]) -> bool:
    bound = pod.node_name or pod.status.phase in ("Succeeded", "Failed")
    has_room = waits_in_permit(pod) and pod.status.nominated_node_name
    return (
        not (bound or has_room)
        and not pod.metadata.deletion_timestamp
        and pod.spec.scheduler_name in ours
    )


# ---- a journal ----------------------------------------------------------------------------------


def _of_journal(what: str, name: str, path: Path, request: Request) -> None:
    if what == "node":
        raise click.ClickException("a journal explains pods only: berth explain pod NS/NAME")
    key = name if "/" in name else f"default/{name}"
    seen: dict[str, int] = {}
    lines: tuple[str, ...] = ()
    values: dict[str, Any] = {}

    def watch(line: int, pod: PodInfo, snapshot: Snapshot, framework: Framework) -> None:
        nonlocal lines, values
        seen[pod.key] = seen.get(pod.key, 0) + 1
        if pod.key != key:
            return
        told = pods.explain(pod, snapshot, framework)
        # Words are made while the snapshot is the newest.
        lines = tuple(pods.lines_of(told, request.most, request.nodes))
        at = datetime.fromtimestamp(snapshot.now, UTC).isoformat(timespec="seconds")
        values = {"source": "journal", "at": at, "line": line}
        values |= pods.object_of(told, request.most, request.nodes)

    with reported(OSError, ValueError):
        replay(path, frameworks_of(), watch)
    if not values:
        raise _unknown("pod", key, seen)
    decided = "once" if seen[key] == 1 else f"{seen[key]} times"
    last = f"the last time at {values['at']}, line {values['line']} of {path}"
    _print(values, (f"Decided {decided}; {last}.",), lines, (), request)
