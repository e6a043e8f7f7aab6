"""How hard properties are tried: 1 is usual, `make check` takes less, `make test-long` more."""

from __future__ import annotations

import os


def examples(usual: int) -> int:
    """The number of examples to try where `usual` would do on an ordinary day."""
    return max(10, int(usual * float(os.environ.get("EFFORT", "0.4"))))
