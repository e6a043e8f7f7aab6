"""Rewrites the diagnostics blocks of the specification when asked to."""

import re
from pathlib import Path

from dsl.compiler import Compiler
from dsl.diagnostics import render


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite the diagnostics blocks")


def pytest_configure(config):
    if not config.getoption("--update", default=False):
        return
    compiler = Compiler()
    for path in sorted(Path(__file__).parent.glob("*.md")):
        text = path.read_text(encoding="utf-8")

        def again(found):
            result = compiler.compile({"case.policy": found.group(2)})
            return f"{found.group(1)}{render(result.diagnostics)}```"

        pair = r"(```policy\n((?:(?!```).*\n)*)```\n+```diagnostics\n)(?:(?!```).*\n)*```"
        path.write_text(re.sub(pair, again, text), encoding="utf-8")
