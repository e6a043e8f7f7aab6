"""What `mixed` says of pods left pending."""

from __future__ import annotations

import pytest

from tests.conformance.mixed import too_many


@pytest.mark.parametrize(
    ("ours", "first", "second", "many", "said"),
    [
        (4, 8, 8, 180, False),
        (8, 8, 8, 180, False),
        (11, 8, 8, 180, False),
        (12, 8, 8, 180, True),
        (9, 8, 8, 10, False),
        (10, 8, 8, 10, True),
        (17, 4, 10, 180, True),
    ],
)
def test_only_more_pending_pods_than_both_runs_explain_are_a_fault(
    ours: int, first: int, second: int, many: int, *, said: bool
) -> None:
    assert too_many(ours, first, second, many) is said
