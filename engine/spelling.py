"""A name that is not known, and the known ones that are like it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` with the known names like this one, empty if there are none."""
    like = get_close_matches(name, known)
    return f"; did you mean {' or '.join(like)}?" if like else ""
