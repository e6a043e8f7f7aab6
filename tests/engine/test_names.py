"""What holds for all modules: importing starts and says nothing, and every name is used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.telemetry import Count

ROOT = Path(__file__).parents[2]
IMPORT_ALL = """
import asyncio, importlib, logging, pkgutil, sys, threading
records = []
handler = logging.Handler()
handler.emit = records.append
logging.getLogger().addHandler(handler)
logging.getLogger().setLevel(logging.DEBUG)
names = []
for package in ("dsl", "engine"):
    top = importlib.import_module(package)
    for module in pkgutil.walk_packages(top.__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            names.append(module.name)
            importlib.import_module(module.name)
assert len(names) > 60, names
ours = [r.getMessage() for r in records if r.name.partition(".")[0] in ("dsl", "engine")]
assert not ours, ours
assert not logging.getLogger("engine").handlers + logging.getLogger("dsl").handlers
assert threading.enumerate() == [threading.main_thread()]
"""


@pytest.mark.slow
def test_importing_every_module_starts_nothing_and_says_nothing():
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_everything_that_has_a_name_is_counted_somewhere():
    sources = [
        path.read_text("utf-8")
        for path in (ROOT / "engine").rglob("*.py")
        if path.name != "telemetry.py"
    ]
    used = {name for text in sources for name in re.findall(r"\bCount\.([A-Z_]+)", text)}
    assert used == {count.name for count in Count}


def test_names_of_counts_are_unlike():
    values = [count.value for count in Count]
    assert len(set(values)) == len(values)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", value) for value in values)
