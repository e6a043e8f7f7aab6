"""What parser and checker say to wrong policies of every kind: data/refusals.txt.

`python -m tests.dsl.test_checker_edges` writes the findings anew; read the difference.
"""

import re
from pathlib import Path

import pytest

from dsl.checker import FileChecker
from dsl.diagnostics import sort_key
from dsl.parser import Parser
from dsl.source import read_source

PAGE = Path(__file__).parent / "data" / "refusals.txt"
PARSER = Parser()


def read_page():
    """Returns the policy and the findings of each section."""
    parts = re.split(r"^=== (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {
        title: (body + "---\n").split("---\n")[:2]
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def checked(policy, **params):
    """Returns what is found without looking at several rules at once."""
    source, _ = read_source("p.policy", policy)
    statements, found = [], []
    for statement, wrong in PARSER.statements(source):
        found.extend(wrong)
        statements.extend([] if statement is None else [statement])
    checker = FileChecker(source, statements, params=params)
    for _ in checker.steps():
        pass
    return sorted([*found, *checker.result()[1]], key=sort_key)


def findings(policy):
    """Returns all findings: code, place, the text underlined, then labels, helps and the fix."""
    out = []
    for one in checked(policy):
        line, column = one.source.position(one.span.start)
        said = f"{one.label}: " if one.label else ""
        out.append(f"{one.code} {line}:{column} {one.message}")
        out.append(f"  {said}{one.source.slice(one.span)}")
        out.extend(f"  {label.text}: {one.source.slice(label.span)}" for label in one.labels)
        out.extend(f"  help: {text}" for text in (*one.helps, *one.notes))
        if one.fix is not None:
            out.append(f"  fix: {one.source.slice(one.fix.span)} -> {one.fix.text}")
    return "\n".join(out) + "\n"


def written():
    sections = (
        f"=== {title}\n{policy}---\n{findings(policy)}"
        for title, (policy, _) in read_page().items()
    )
    return "\n".join(sections).replace("\n\n===", "\n===")


@pytest.mark.parametrize("title", read_page())
def test_findings(title):
    policy, expected = read_page()[title]
    assert findings(policy).rstrip() == expected.rstrip()


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
