"""Files that nobody but their owner may read: journals hold pods, kubeconfigs credentials."""

from __future__ import annotations

import contextlib
import os
from io import FileIO
from pathlib import Path

_OWN = 0o600


def open_private(path: Path) -> FileIO:
    """Opens a file for writing, unbuffered; one that is there already is made private too.

    Raises:
        OSError: it cannot be written.
    """
    file = FileIO(path, "w", opener=lambda name, how: os.open(name, how, _OWN))
    if path.is_file():
        # Whoever may write to another's file may do so; it is theirs to hide.
        with contextlib.suppress(PermissionError):
            os.fchmod(file.fileno(), _OWN)
    return file
