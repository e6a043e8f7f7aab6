"""The policies in a folder, as `use` names them: by their headers, else by their files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.text.files import bytes_in

ENDING: Final = ".policy"
TESTS: Final = ".policytest"
"""How files of policies and of their tests are called."""
_HEADER: Final = re.compile(rb"^policy:[ \t]*([A-Za-z0-9._/-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PolicyText:
    """A policy that was found: its file, its name and what it says."""

    path: Path
    name: str
    text: bytes


def name_of(path: Path, text: bytes) -> str:
    """The name of a policy."""
    found = _HEADER.search(text)
    return found[1].decode() if found else path.stem


def in_folder(folder: Path) -> list[PolicyText]:
    """Its policies, by the names of the files.

    Raises:
        OSError: a file cannot be read, or is too long.
    """
    paths = [path for path in sorted(folder.glob(f"*{ENDING}")) if path.is_file()]
    texts = [(path, bytes_in(path)) for path in paths]
    return [PolicyText(path, name_of(path, text), text) for path, text in texts]
