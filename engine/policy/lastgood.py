"""The last good texts of sources as bytes for a cluster to keep, and back. No I/O."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

import msgspec

from engine.policy.reloader import Kept
from engine.text import wire

_FORMAT: Final = 1
_MOST: Final = 64 * 1024 * 1024
"""Bytes; far above what sources can hold, and a bomb is not unpacked."""


class UnreadableError(Exception):
    """What was kept cannot be read; the message says why."""


class _Document(msgspec.Struct):
    format: int
    sources: Mapping[str, Kept]


_decode = msgspec.json.Decoder(_Document).decode


def pack(kept: Mapping[str, Kept]) -> bytes:
    """Equal texts are equal bytes."""
    return zlib.compress(msgspec.json.encode(_Document(_FORMAT, kept), order="deterministic"))


def unpack(data: bytes) -> Mapping[str, Kept]:
    """Texts by the title of their source.

    Raises:
        UnreadableError: somebody changed it, or a later version wrote it.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, _MOST)
        if not reader.eof:
            raise UnreadableError("it is truncated or too large")
        document = wire.decode(_decode, text)
    except (zlib.error, msgspec.DecodeError) as wrong:
        raise UnreadableError(str(wrong)) from wrong
    if document.format != _FORMAT:
        raise UnreadableError(f"its format is {document.format}, and this version reads {_FORMAT}")
    return document.sources
