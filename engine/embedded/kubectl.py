"""What kubectl alone asks of a server: protobuf of its generators in, tables as it prints them out.

`kubectl create configmap|namespace|priorityclass` speak protobuf and nothing else; of it these few
kinds are read. All the rest is JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from engine.embedded.errors import ApiError, Object

Schema = Mapping[int, tuple[str, Any]]
"""By the number of a field its name, and what reads it: a function, or the schema of a message."""

MAGIC = b"k8s\x00"
_VARINT, _BYTES = 0, 2
_SKIPPED = {1: 8, 5: 4}
"""Wire types of fixed width, and that width."""


def decode(body: bytes) -> Object:
    """The object in a protobuf body.

    Raises:
        ApiError: 415 for kinds that are not read here, 400 for bytes that make no sense.
    """
    if not body.startswith(MAGIC):
        raise ApiError(415, "415: Unsupported Media Type")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        typed = _message(envelope[1], {1: ("apiVersion", _text), 2: ("kind", _text)})
        schema = _KINDS.get(typed["kind"])
        if schema is None:
            raise ApiError(415, "415: Unsupported Media Type")
        item: Object = typed | _message(envelope[2], schema)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise ApiError(400, f"cannot read this protobuf: {error}") from error
    return item


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case wire if wire == _VARINT:
                value, position = _varint(data, position)
                yield tag >> 3, value
            case wire if wire == _BYTES:
                size, position = _varint(data, position)
                if position + size > len(data):
                    raise IndexError("it ends too early")
                yield tag >> 3, data[position : position + size]
                position += size
            case wire if wire in _SKIPPED:
                position += _SKIPPED[wire]
            case wire:
                raise ValueError(f"unknown wire type {wire}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position


def _message(data: bytes, schema: Schema) -> Object:
    item: Object = {}
    for number, value in _fields(data):
        name, read = schema.get(number, ("", None))
        if read is None:
            continue
        found = _message(value, read) if isinstance(read, Mapping) else read(value)
        if isinstance(found, dict):
            found = item.get(name, {}) | found
        if found not in ("", {}):
            item[name] = found
    return item


def _text(value: bytes) -> str:
    return value.decode()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _entry(data: bytes) -> Object:
    pair = dict(_fields(data))
    return {_text(pair.get(1, b"")): _text(pair.get(2, b""))}


def _entry_of_bytes(data: bytes) -> Object:
    pair = dict(_fields(data))
    return {_text(pair.get(1, b"")): msgspec.to_builtins(pair.get(2, b""))}


_METADATA: Schema = {
    1: ("name", _text),
    2: ("generateName", _text),
    3: ("namespace", _text),
    11: ("labels", _entry),
    12: ("annotations", _entry),
}
_KINDS: Mapping[str, Schema] = {
    "ConfigMap": {
        1: ("metadata", _METADATA),
        2: ("data", _entry),
        3: ("binaryData", _entry_of_bytes),
        4: ("immutable", bool),
    },
    "Namespace": {1: ("metadata", _METADATA)},
    "PriorityClass": {
        1: ("metadata", _METADATA),
        2: ("value", _signed),
        3: ("globalDefault", bool),
        4: ("description", _text),
        5: ("preemptionPolicy", _text),
    },
}


# ---- tables (meta.k8s.io/v1 Table)


Cells = Callable[[Object, float], list[Any]]

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "y": 365 * 86_400}
_AGES = (
    *((2, "m", "s", ""), (10, "m", "m", "s"), (3, "h", "m", ""), (8, "h", "h", "m")),
    *((2, "d", "h", ""), (8, "d", "d", "h"), (2, "y", "d", ""), (8, "y", "y", "d")),
)
"""Below so many of a unit: the units that are written, the second one unless it is 0.

Source: k8s.io/apimachinery pkg/util/duration, HumanDuration.
"""


def human_age(seconds: float) -> str:
    """A duration as kubectl writes it: `119s`, `2m5s`, `47h`, `12d`."""
    whole = max(0, int(seconds))
    below = ((big, small) for most, unit, big, small in _AGES if whole < most * _SECONDS[unit])
    big, small = next(below, ("y", ""))
    rest = whole % _SECONDS[big] // _SECONDS[small] if small else 0
    return f"{whole // _SECONDS[big]}{big}{f'{rest}{small}' if rest else ''}"


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
