"""JSON that others wrote, decoded: bytes and a decoder in, its value or `msgspec.DecodeError` out.

Nothing else is ever raised, whatever the bytes. Values nested deeper than anything we read are
blanked when a decoder cannot go so deep: `managedFields` of any user may be.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Final, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")

_DEEPEST: Final = 100
"""Brackets within brackets that are kept; a list of pods as we read it has about twenty."""
_OPENS, _CLOSES, _QUOTES = 1, 2, 3
_SIGNS: Final = np.zeros(256, np.uint8)
_SIGNS[list(b"{[")] = _OPENS
_SIGNS[list(b"}]")] = _CLOSES
_SIGNS[list(b'"')] = _QUOTES


def decode(decoder: Callable[[bytes], T], data: bytes | msgspec.Raw) -> T:
    """What `decoder` makes of `data`.

    Raises:
        msgspec.DecodeError: it cannot be decoded.
    """
    try:
        return _decoded(decoder, bytes(data))
    except RecursionError:
        return _decoded(decoder, flattened(bytes(data)))


def _decoded(decoder: Callable[[bytes], T], data: bytes) -> T:
    try:
        return decoder(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"invalid UTF-8: {error.reason}") from error
    except (msgspec.DecodeError, RecursionError):
        raise
    except Exception as error:
        # Of a plugin's struct `__post_init__` may raise anything.
        raise msgspec.DecodeError(f"{type(error).__name__}: {error}") from error


def is_deep(data: bytes) -> bool:
    """Whether `flattened` would change it."""
    return data.count(b"{") + data.count(b"[") > _DEEPEST and flattened(data) != data


def flattened(data: bytes) -> bytes:
    """The same JSON with 0 for each value that is nested too deeply; O(bytes), no recursion."""
    # Escaped quotes are no quotes; an escape is overwritten by as many letters, for finding only.
    plain = data.replace(rb"\\", b"xx").replace(rb"\"", b"xx")
    signs = _SIGNS[np.frombuffer(plain, np.uint8)]
    at = np.flatnonzero(signs)
    signs = signs[at]
    outside = np.cumsum(signs == _QUOTES) % 2 == 0
    opens, closes = outside & (signs == _OPENS), outside & (signs == _CLOSES)
    depth = np.cumsum(opens.astype(np.int64) - closes)
    starts = at[opens & (depth == _DEEPEST + 1)].tolist()
    ends = at[closes & (depth == _DEEPEST)].tolist()
    flat = bytearray(data)
    # What is not closed goes on to the end.
    for start, end in zip_longest(starts, ends, fillvalue=len(data) - 1):
        flat[start : end + 1] = b"0".ljust(end + 1 - start)
    return bytes(flat)
