"""Log lines on the console: what others wrote in them can neither forge a line nor drive it."""

from __future__ import annotations

import logging
import sys
from typing import Final

from engine.display import plain

_MOST: Final = 65_536


class _Tame(logging.Formatter):
    """Escapes what a terminal obeys; only the first line of a record starts at the margin."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return plain(super().format(record), _MOST, keep="\n").replace("\n", "\n    ")


def log_to_stderr(level: int, form: str) -> None:
    """Logs of this level and above go to the console."""
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(_Tame(form))
    logging.basicConfig(level=level, handlers=[console])
