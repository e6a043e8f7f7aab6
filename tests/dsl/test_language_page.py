"""The tables of docs/language.md are those of the schema, and its examples compile.

`python -m tests.dsl.test_language_page` rewrites the tables.
"""

import re
import textwrap
from pathlib import Path

import pytest

from dsl.checker.scope import RESERVED
from dsl.compiler import Compiler
from dsl.functions import FUNCTIONS
from dsl.schema import CATALOGUE, FIELDS, RESULTS
from dsl.types import Kind, Level
from tests.effort import each

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
KINDS = {Kind.BOOL: "condition", Kind.TEXT: "text", Kind.TIME: "time", Kind.LIST: "list of texts",
         Kind.PODS: "set of pods", Kind.NODES: "set of nodes"}  # fmt: skip
TAKES = {"n": "number", "u": "number", "s": "text", "a": "text or number", "l": "text or list",
         "m": "metric", "t": "topology", "k": "key", "i": "list"}  # fmt: skip
LEVELS = {Level.CYCLE: "clock, cluster", Level.POD: "pod", Level.NODE: "node", Level.IT: "of a set"}
COMPILER = Compiler()


def type_name(kind):
    if kind.kind is Kind.NUMBER:
        return "number" if kind.unit.is_plain else str(kind.unit)
    return KINDS[kind.kind]


def fields_table():
    yield "| field | type | level | may be missing | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for name, spec in FIELDS.items():
        shown = f"{name}[KEY]" if spec.keyed else name
        if name.startswith("node.resource."):
            shown = name.replace("node.resource", "node.resource[KEY]")
        kind, missing = type_name(spec.type), "yes" if spec.optional else ""
        words = f": {', '.join(spec.words)}" if spec.words else ""
        where = RESULTS.get(name.partition(".")[0])
        doc = spec.doc + words + (f"; only {where}" if where else "")
        yield f"| `{shown}` | {kind} | {LEVELS[spec.level]} | {missing} | {doc} |"


def functions_table():
    yield "| function | meaning |"
    yield "| --- | --- |"
    for name, spec in FUNCTIONS.items():
        args = ", ".join(TAKES[one] for one in spec.takes) + (", ..." if spec.variadic else "")
        yield f"| `{name}({args})` | {spec.doc} |"


def metrics_table():
    yield "| metric | unit | meaning |"
    yield "| --- | --- | --- |"
    for name, one in CATALOGUE.items():
        unit = "plain" if one.unit.is_plain else str(one.unit)
        yield f"| `{name}` | {unit} | {one.doc} |"


def reserved_table():
    words = ", ".join(f"`{word}`" for word in sorted(RESERVED))
    yield from (f"  {line}" for line in textwrap.wrap(f"{words}.", 98, break_long_words=False))


TABLES = {
    "reserved": reserved_table,
    "fields": fields_table,
    "functions": functions_table,
    "metrics": metrics_table,
}


def block(name):
    return re.compile(rf"(<!-- {name} -->\n).*?( *<!-- end -->)", re.DOTALL)


def rewrite():
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        body = "\n".join(table())
        text = block(name).sub(lambda found, body=body: f"{found[1]}{body}\n{found[2]}", text)
    PAGE.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_code(name):
    found = block(name).search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found.group().splitlines()[1:-1] == list(TABLES[name]())


def test_examples_compile():
    text = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"```policy\n(.*?)```", text, re.DOTALL)
    assert examples
    for example in examples:
        assert COMPILER.compile({"a.policy": example}).diagnostics == (), example


def recipes():
    rows = block("recipes").search(PAGE.read_text(encoding="utf-8")).group().splitlines()
    for row in rows:
        what, _, code = row.strip("| ").partition(" | ")
        if "`" in code:
            policy = "".join(f"{one}\n" for one in re.findall("`([^`]+)`", code))
            yield what, policy


@each("what, policy", recipes())
def test_every_recipe_is_a_policy(what, policy):
    assert policy
    result = COMPILER.compile({"a.policy": policy})
    assert result.diagnostics == ()


if __name__ == "__main__":
    rewrite()
