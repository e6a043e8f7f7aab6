"""Whom an event wakes where all have their say: handlers, queue, and the hints of who rejected.

The rows are what kube-scheduler 1.37.1's integration test of its queue holds, but for gates that
are off and devices: the plugins, the cluster, what happens then, and who is tried again. `others`
are what 1.37.1's own scheduler did with the pods of the row when what happens in another row, by
its number, happened to them: under the plugins of the row, and under the default profile.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from engine.objects import Node, from_builtins
from engine.queue import SubQueue
from tests.conformance.adapter import framework_of, read_pod
from tests.conformance.events import read_object
from tests.effort import sizes
from tests.engine.test_scheduler import World

WOKEN = Path(__file__).with_name("woken.jsonl.gz")
ROWS = [json.loads(line) for line in gzip.decompress(WOKEN.read_bytes()).splitlines()]
Known = dict[tuple[str, str], Any]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_an_event_wakes_whom_it_wakes_in_kube_scheduler(row: dict[str, Any]) -> None:
    made, known = rejected(row, row.get("plugins"))
    for value in row["then"]:
        happens(made, known, value)
    assert woken(made) == set(row["woken"])


@pytest.mark.parametrize("every", sizes(40, 3))
def test_no_other_event_wakes_fewer_than_in_kube_scheduler(every: int) -> None:
    """Nor more, but what finer hints of ours say of affinity (docs/parity.md)."""
    pairs = [
        (row, plugins, number, names)
        for row in ROWS
        for plugins, answers in row["others"].items()
        for number, names in enumerate(answers)
        if names is not None
    ]
    for row, plugins, number, names in pairs[::every]:
        made, known = rejected(row, row["plugins"] if plugins == "own" else None)
        changed = [happens(made, known, value) for value in ROWS[number]["then"]]
        said = f"{row['id']}, {plugins} plugins, then {ROWS[number]['id']}"
        more = woken(made) - set(names)
        left = set(names) - woken(made)
        tried = [shape(made, name) for name in woken(made)]
        assert not any(changed) or all(shape(made, name) in tried for name in left), said
        assert all(
            queued.unschedulable_plugins == {"InterPodAffinity"}
            for queued in made.queue
            if queued.pod.name in more
        ), said


def rejected(row: dict[str, Any], plugins: list[str] | None) -> tuple[World, Known]:
    """The pods of a row, none of which fits; `plugins` as for `profile_of`."""
    made = World(nodes=(), rules=framework_of({"profile": profile_of(plugins)}))
    known = {key_of(value): read(value) for value in row["objects"]}
    made.add(known.values())
    waiting = {queued.pod.name for queued in made.queue}
    made.run(made.turn())
    left = {queued.pod.name: queued.where for queued in made.queue}
    assert left == dict.fromkeys(waiting, SubQueue.UNSCHEDULABLE), "all of them are rejected first"
    return made, known


def woken(made: World) -> set[str]:
    """Who is to be tried again; one stands for all that nothing tells apart."""
    return {queued.pod.name for queued in made.queue if queued.where is not SubQueue.UNSCHEDULABLE}


def shape(made: World, name: str) -> Any:
    """The same for pods that nothing tells apart."""
    [pod] = [queued.pod.pod for queued in made.queue if queued.pod.name == name]
    return pod.spec, pod.metadata.labels


def profile_of(plugins: list[str] | None) -> dict[str, Any]:
    """Of these plugins alone, and those without which there is no profile; None: the default."""
    if plugins is None:
        return {"schedulerName": "berth"}
    enabled = [{"name": name} for name in ("PrioritySort", "DefaultBinder", *plugins)]
    multi_point = {"disabled": [{"name": "*"}], "enabled": enabled}
    return {"schedulerName": "berth", "plugins": {"multiPoint": multi_point}}


def key_of(value: dict[str, Any]) -> tuple[str, str]:
    return value["kind"], value["metadata"]["name"]


def read(value: dict[str, Any]) -> Any:
    match value["kind"]:
        case "Pod":
            spec = {"schedulerName": "berth", **value.get("spec", {})}
            return read_pod({**value, "spec": spec}).pod
        case "Node":
            return from_builtins(Node, value)
        case kind:
            return read_object(kind, value)


def happens(made: World, known: Known, value: dict[str, Any]) -> bool:
    """The object comes, is otherwise, or is gone. Whether that is a change."""
    kind = value["kind"]
    handlers = {"Pod": made.handlers.pods, "Node": made.handlers.nodes}
    handler = handlers.get(kind) or made._handler(kind)
    before = known.pop(key_of(value), None)
    if value.get("gone"):
        if before is not None:
            handler.on_delete(before)
        return before is not None
    after = known[key_of(value)] = read(value)
    if before is None:
        handler.on_add(after)
    else:
        handler.on_update(before, after)
    return bool(before != after)
