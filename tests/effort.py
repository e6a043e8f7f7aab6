"""How hard properties are tried: 1 is usual, `make check` takes less, `make test-long` more."""

from __future__ import annotations

import os
from typing import Final

import pytest


def examples(usual: int) -> int:
    """The number of examples to try where `usual` would do on an ordinary day."""
    return max(10, int(usual * float(os.environ.get("EFFORT", "0.2"))))


EVERY: Final = (pytest.param(16, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow))
"""Steps through a long list: each sixteenth in `make check`, all in `make test`."""
