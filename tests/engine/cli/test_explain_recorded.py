"""How asking a running scheduler what it remembers of a pod can fail."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from engine.cli import main


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["pod", "a/b", "--scheduler", "http://x"],
            1,
            "http://x is not a scheduler's address",
        ),
        (
            ["pod", "a/b", "--scheduler", "https://127.0.0.1:9"],
            1,
            "cannot be asked: connection refused\n",
        ),
        (["node", "n", "--scheduler", "https://127.0.0.1:9"], 2, "--scheduler explains pods only"),
    ],
)
def test_what_cannot_be_asked_is_said(words, code, said):
    result = CliRunner().invoke(main, ["explain", *words])
    assert (result.exit_code, said in result.output) == (code, True), result.output
