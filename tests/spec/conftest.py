"""Rewrites the diagnostics blocks of the specification when asked to."""

from dsl.diagnostics import render
from engine.policy.findings import new_compiler
from tests.spec.cases import read_all


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite the diagnostics blocks")


def pytest_configure(config):
    if not config.getoption("--update", default=False):
        return
    compiler = new_compiler()
    for chapter in read_all():
        text = chapter.path.read_text(encoding="utf-8")
        cases = [case for clause in chapter.clauses for case in clause.cases]
        for case in reversed(cases):
            if case.diagnostics is not None:
                start, end = case.place
                now = render(compiler.compile(case.files).diagnostics)
                text = text[:start] + now + text[end:]
        chapter.path.write_text(text, encoding="utf-8")
