"""Reads files that users name, up to a length. Does not know what is in them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from errno import EFBIG
from pathlib import Path
from typing import Final

MOST_OF_TEXTS: Final = 1 << 20
"""Bytes of policies, or of a configuration."""
MOST_OF_OBJECTS: Final = 256 << 20
"""Bytes of a dump of a cluster."""


def bytes_in(path: str | Path, most: int = MOST_OF_TEXTS) -> bytes:
    """What stands in a file, or in the standard input (`-`); devices do not end.

    Raises:
        OSError: it cannot be read, or is longer than `most` bytes.
    """
    with nullcontext(sys.stdin.buffer) if str(path) == "-" else Path(path).open("rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(EFBIG, f"it is longer than {most >> 20} MiB", str(path))
    return found


def configuration_in(path: str | Path) -> str:
    """The text of a file that configures something.

    Raises:
        OSError: it cannot be read, or is longer than 1 MiB.
        UnicodeDecodeError: it is not UTF-8.
    """
    return bytes_in(path).decode("utf-8")
