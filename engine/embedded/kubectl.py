"""What kubectl alone asks of a server: tables (meta.k8s.io/v1 Table), as it prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from engine.embedded.errors import Object

Cells = Callable[[Object, float], list[Any]]

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))


def human_age(seconds: float) -> str:
    """A duration in the largest unit of which it has two: `119s`, `2m`, `47h`, `12d`."""
    larger = ((unit, size) for unit, size in _UNITS if seconds >= 2 * size)
    unit, size = next(larger, ("s", 1))
    return f"{max(0, int(seconds // size))}{unit}"


def table(plural: str, items: Iterable[Object], now: float, revision: int) -> Object:
    """A Table of objects; `now` is seconds since the epoch, for ages."""
    columns, cells = _LAYOUTS.get(plural, _PLAIN)
    rows = [
        {
            "cells": cells(item, now),
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": item["metadata"],
            },
        }
        for item in items
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(revision)},
        "columnDefinitions": [_column(name) for name in columns],
        "rows": rows,
    }


def _column(name: str) -> Object:
    """A column from its name; a trailing `*` means it shows with `-o wide` only."""
    plain = name.rstrip("*")
    return {
        "name": plain,
        "type": "string",
        "format": "name" if plain == "Name" else "",
        "description": "",
        "priority": 1 if name.endswith("*") else 0,
    }


def _age(stamp: str | None, now: float) -> str:
    try:
        return human_age(now - datetime.fromisoformat(stamp or "").timestamp())
    except (TypeError, ValueError):  # not all kinds are checked as they are written
        return "<unknown>"


def _created(item: Object, now: float) -> str:
    return _age(item["metadata"].get("creationTimestamp"), now)


def _pod(item: Object, now: float) -> list[Any]:
    spec, status = item["spec"], item.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(1 for container in statuses if container.get("ready"))
    restarts = sum(container.get("restartCount", 0) for container in statuses)
    return [
        item["metadata"]["name"],
        f"{ready}/{len(spec['containers'])}",
        _pod_state(item, status),
        str(restarts),
        _created(item, now),
        spec.get("nodeName") or "<none>",
    ]


def _pod_state(item: Object, status: Object) -> str:
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return status.get("reason") or status.get("phase") or "Unknown"


def _node(item: Object, now: float) -> list[Any]:
    status = item.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    state = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if item.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = item["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return [
        item["metadata"]["name"],
        state,
        ",".join(roles) or "<none>",
        _created(item, now),
        (status.get("nodeInfo") or {}).get("kubeletVersion", ""),
    ]


def _event(item: Object, now: float) -> list[Any]:
    about = item.get("involvedObject") or {}
    last = item.get("lastTimestamp") or item.get("eventTime")
    return [
        _age(last, now) if last else _created(item, now),
        item.get("type", ""),
        item.get("reason", ""),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        (item.get("message") or "").strip(),
    ]


def _plain(item: Object, now: float) -> list[Any]:
    return [item["metadata"]["name"], _created(item, now)]


_PLAIN: tuple[tuple[str, ...], Cells] = (("Name", "Age"), _plain)
_LAYOUTS: dict[str, tuple[tuple[str, ...], Cells]] = {
    "pods": (("Name", "Ready", "Status", "Restarts", "Age", "Node*"), _pod),
    "nodes": (("Name", "Status", "Roles", "Age", "Version"), _node),
    "events": (("Last Seen", "Type", "Reason", "Object", "Message"), _event),
}
