"""How much is tried: 1 is usual, `make check` takes less, `make test-long` more."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest


def examples(usual: int) -> int:
    """The number of examples to try where `usual` would do on an ordinary day.

    `make test` runs with the usual number what Hypothesis has marked, and what is marked `sized`.
    """
    return max(10, int(usual * float(os.environ.get("EFFORT", "0.1"))))


def sizes(less: Any, usual: Any) -> tuple[Any, Any]:
    """Values of a parameter: less in `make check`, the usual size in `make test`."""
    some, full = (one if isinstance(one, tuple) else (one,) for one in (less, usual))
    return pytest.param(*some, id="some"), pytest.param(*full, id="all", marks=pytest.mark.slow)


EVERY: Final = sizes(32, 1)
"""Steps through a long list: few in `make check`, all in `make test`."""


def each(names: str, cases: Iterable[Any]) -> Callable[..., Callable[..., None]]:
    """Like `pytest.mark.parametrize`, as one test: for cases that take less time than a test does.

    All are tried; each that fails is named.
    """
    rows, own = list(cases), names.split(", ")
    assert rows, f"no {names} to try"

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def of_all(**fixtures: object) -> None:
            wrong = []
            for row in rows:
                values = dict(zip(own, row if len(own) > 1 else (row,), strict=True))
                try:
                    test(**fixtures, **values)
                except Exception as error:  # noqa: BLE001 - all are raised at the end
                    error.add_note(f"The case: {values}")
                    wrong.append(error)
            if wrong:
                raise ExceptionGroup(f"{len(wrong)} of {len(rows)} cases", wrong)

        asked = inspect.signature(test)
        fixtures = [one for name, one in asked.parameters.items() if name not in own]
        of_all.__signature__ = asked.replace(parameters=fixtures)
        return of_all

    return decorated
