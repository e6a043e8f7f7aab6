"""The recipes: what their pages say to write is accepted as it stands, and acts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import policies
from engine.policy.findings import new_compiler

FOLDER = Path(__file__).parents[2] / "docs" / "recipes"
BUNDLED = {name: policies.text(name) for name in policies.names()}
BLOCKS = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in sorted(FOLDER.glob("*.md"))
    for number, block in enumerate(
        re.findall(r"```policy\n(.*?)```", path.read_text("utf-8"), re.S)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_recipe_is_a_policy(block):
    # What is told of another policy's score stands beside that policy.
    beside = "use network-traffic\n" if "score[network-traffic]" in block else ""
    result = new_compiler().compile({"a.policy": beside + block}, bundled=BUNDLED)
    assert result.diagnostics == ()


def test_every_page_is_on_the_list():
    text = (FOLDER / "README.md").read_text("utf-8")
    assert set(re.findall(r"\]\(([a-z-]+\.md)\)", text)) == {
        path.name for path in FOLDER.glob("*.md") if path.name != "README.md"
    }
