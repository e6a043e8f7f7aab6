"""Kubernetes' protobuf of the few kinds that kubectl's generators send, as plain objects.

`kubectl create configmap|namespace|priorityclass` speak nothing else; everything else is JSON.
Reads only, and only these kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from engine.embedded.errors import Object, bad_request, unsupported_media_type

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
        raise unsupported_media_type()
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        typed = _message(envelope[1], {1: ("apiVersion", _text), 2: ("kind", _text)})
        schema = _KINDS.get(typed["kind"])
        if schema is None:
            raise unsupported_media_type()
        item: Object = typed | _message(envelope[2], schema)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise bad_request(f"cannot read this protobuf: {error}") from error
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
