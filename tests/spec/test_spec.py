"""Every clause of the specification holds, by the columns and by the meaning.

`pytest tests/spec --update` rewrites the diagnostics blocks; read the difference before keeping it.
"""

import re

import pytest

from dsl.diagnostics import render
from dsl.functions import AGGREGATES, FUNCTIONS
from dsl.parser import Parser
from dsl.schema import FIELDS
from engine.policy.findings import new_compiler
from engine.policytests.running import Runner
from tests.effort import each
from tests.spec.cases import read_all

CHAPTERS = read_all()
CLAUSES = [clause for chapter in CHAPTERS for clause in chapter.clauses]
CASES = [case for clause in CLAUSES for case in clause.cases]
TESTED = [case for case in CASES if case.tests]
COMPILER, READER = new_compiler(), Parser()
STATEMENTS = (
    "policy", "description", "version", "language", "mode", "applies to", "order", "weight",
    "param", "let", "metric", "use", "gate", "sort", "prefilter", "filter", "require", "forbid",
    "preempt", "prescore", "score", "first", "prefer", "avoid", "spread", "normalize", "reserve",
    "permit", "prebind", "bind", "postbind", "gang", "quota",
)  # fmt: skip
#: Statements that say nothing a test could ask for.
SILENT = {"description", "version", "language"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, tmp_path):
    result = COMPILER.compile(case.files)
    if case.diagnostics is None:
        assert result.diagnostics == (), render(result.diagnostics)
    else:
        assert render(result.diagnostics) == case.diagnostics
    if not case.tests:
        assert case.diagnostics is not None, "this case shows nothing"
        return
    for name, text in case.files.items():
        (tmp_path / name).write_text(text)
    uses = "" if case.tests.startswith("use ") else "use case\n"
    (tmp_path / "case.policytest").write_text(uses + case.tests)
    runner = Runner(None, COMPILER, READER)
    runner.run(tmp_path / "case.policytest")
    wrong = [one.message or one.outcome for one in runner.report.results if one.outcome != "passed"]
    assert not wrong, "\n".join(wrong)


def test_chapters_and_clauses_are_numbered_through():
    assert [one.number for one in CHAPTERS] == [str(n) for n in range(1, len(CHAPTERS) + 1)]
    for chapter in CHAPTERS:
        wanted = [f"{chapter.number}.{n}" for n in range(1, len(chapter.clauses) + 1)]
        assert [one.number for one in chapter.clauses] == wanted, chapter.path.name
        assert chapter.path.name.startswith(f"{int(chapter.number):02}-")


@each("clause", CLAUSES)
def test_a_clause_says_something_and_shows_it(clause):
    assert clause.prose.endswith("."), "a clause is a sentence or more"
    assert clause.cases
    if clause.forbids:
        refusals = [one for one in clause.cases if one.diagnostics or "expect error" in one.tests]
        assert refusals, "what is refused is shown"


# ---- nothing of the language is without a case


def bare(policy):
    """The text without strings and comments."""
    return re.sub(r'"""[\s\S]*?"""|"(\\.|[^"\\\n])*"|\'[^\'\n]*\'|#.*', '""', policy)


def words(cases):
    return "\n".join(bare(text) for case in cases for text in case.files.values())


WORDS = words(TESTED)


@each("keyword", STATEMENTS)
def test_every_statement_has_a_case(keyword):
    there = words(CASES) if keyword in SILENT else WORDS
    assert re.search(rf"^{keyword}\b", there, re.MULTILINE)


@each("name", [*FUNCTIONS, *AGGREGATES])
def test_every_function_and_aggregate_has_a_case(name):
    assert re.search(rf"(?<![\w.]){name}\(", WORDS)


@each("name", FIELDS)
def test_every_field_has_a_case(name):
    shown = re.escape(name).replace(r"node\.resource\.", r"node\.resource\[.*?\]\.")
    assert re.search(rf"(?<![\w.]){shown}\b", WORDS)
