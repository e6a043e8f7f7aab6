"""Whom an event wakes where all have their say: handlers, queue, and the hints of who rejected.

The rows are what kube-scheduler 1.37.1's integration test of its queue holds, but for gates that
are off and devices: the plugins, the cluster, what happens then, and who is tried again.
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
from tests.engine.test_scheduler import World

WOKEN = Path(__file__).with_name("woken.jsonl.gz")
ROWS = [json.loads(line) for line in gzip.decompress(WOKEN.read_bytes()).splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_an_event_wakes_whom_it_wakes_in_kube_scheduler(row: dict[str, Any]) -> None:
    made = World(nodes=(), rules=framework_of({"profile": profile_of(row.get("plugins"))}))
    known = {key_of(value): read(value) for value in row["objects"]}
    made.add(known.values())
    waiting = {queued.pod.name for queued in made.queue}
    made.run(made.turn())
    left = {queued.pod.name: queued.where for queued in made.queue}
    assert left == dict.fromkeys(waiting, SubQueue.UNSCHEDULABLE), "all of them are rejected first"
    for value in row["then"]:
        happens(made, known, value)
    woken = {queued.pod.name for queued in made.queue if queued.where is not SubQueue.UNSCHEDULABLE}
    assert woken == set(row["woken"])


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


def happens(made: World, known: dict[tuple[str, str], Any], value: dict[str, Any]) -> None:
    """The object comes, is otherwise, or is gone."""
    kind = value["kind"]
    handlers = {"Pod": made.handlers.pods, "Node": made.handlers.nodes}
    handler = handlers.get(kind) or made._handler(kind)
    before = known.pop(key_of(value), None)
    if value.get("gone"):
        handler.on_delete(before)
        return
    after = known[key_of(value)] = read(value)
    if before is None:
        handler.on_add(after)
    else:
        handler.on_update(before, after)
