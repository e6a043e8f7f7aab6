"""Kubernetes' protobuf of the few kinds that kubectl's generators send, as plain objects.

`kubectl create configmap|namespace|priorityclass` speak nothing else; everything else is JSON.
Reads only, and only these kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from engine.embedded.errors import Object, bad_request, unsupported_media_type

Read = Callable[[Any], Any]
Schema = Mapping[int, tuple[str, Read]]

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
        envelope = _message(_ENVELOPE)(body[len(MAGIC) :])
        typed = envelope["type"]
        schema = _KINDS.get(typed["kind"])
        if schema is None:
            raise unsupported_media_type()
        item: Object = typed | _message(schema)(envelope["raw"])
    except (IndexError, KeyError, ValueError, TypeError) as error:
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


def _message(schema: Schema) -> Callable[[bytes], Object]:
    def read(data: bytes) -> Object:
        item: Object = {}
        for number, value in _fields(_raw(data)):
            if number not in schema:
                continue
            name, convert = schema[number]
            converted = convert(value)
            if isinstance(converted, dict) and name in item:
                converted = item[name] | converted
            if converted not in ("", {}):
                item[name] = converted
        return item

    return read


def _raw(value: bytes | int) -> bytes:
    """The bytes of a field that has bytes; of a number, `bytes` would make as many zeros."""
    if isinstance(value, int):
        raise TypeError("a number where bytes belong")
    return value


def _text(value: bytes | int) -> str:
    return _raw(value).decode()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _entry(convert: Read) -> Callable[[bytes], Object]:
    def read(data: bytes) -> Object:
        pair = dict(_fields(_raw(data)))
        return {_text(pair.get(1, b"")): convert(pair.get(2, b""))}

    return read


def _base64(value: bytes) -> str:
    text: str = msgspec.to_builtins(value)
    return text


_METADATA: Schema = {
    1: ("name", _text),
    2: ("generateName", _text),
    3: ("namespace", _text),
    11: ("labels", _entry(_text)),
    12: ("annotations", _entry(_text)),
}
_ENVELOPE: Schema = {
    1: ("type", _message({1: ("apiVersion", _text), 2: ("kind", _text)})),
    2: ("raw", _raw),
}
_KINDS: Mapping[str, Schema] = {
    "ConfigMap": {
        1: ("metadata", _message(_METADATA)),
        2: ("data", _entry(_text)),
        3: ("binaryData", _entry(_base64)),
        4: ("immutable", bool),
    },
    "Namespace": {1: ("metadata", _message(_METADATA))},
    "PriorityClass": {
        1: ("metadata", _message(_METADATA)),
        2: ("value", _signed),
        3: ("globalDefault", bool),
        4: ("description", _text),
        5: ("preemptionPolicy", _text),
    },
}
