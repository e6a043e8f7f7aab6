"""The tables of docs/language.md are those of the schema, and its examples compile.

`python -m tests.dsl.test_language_page` rewrites the tables.
"""

import re
from pathlib import Path

import pytest

from dsl.compiler import Compiler
from dsl.functions import FUNCTIONS
from dsl.schema import CATALOGUE, FIELDS
from dsl.types import Kind

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
KINDS = {Kind.BOOL: "condition", Kind.TEXT: "text", Kind.TIME: "time", Kind.LIST: "list of texts",
         Kind.PODS: "set of pods"}  # fmt: skip
TAKES = {"n": "number", "u": "number", "s": "text", "a": "text or number", "l": "text or list",
         "m": "metric", "t": "topology", "k": "key", "i": "list"}  # fmt: skip
COMPILER = Compiler()


def type_name(kind):
    if kind.kind is Kind.NUMBER:
        return "number" if kind.unit.is_plain else str(kind.unit)
    return KINDS[kind.kind]


def fields_table():
    yield "| field | type | may be missing | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, spec in FIELDS.items():
        if spec.served:
            shown = f"{name}[KEY]" if spec.keyed else name
            if name.startswith("node.resource."):
                shown = name.replace("node.resource", "node.resource[KEY]")
            words = f": {', '.join(spec.words)}" if spec.words else ""
            missing = "yes" if spec.optional else ""
            yield f"| `{shown}` | {type_name(spec.type)} | {missing} | {spec.doc}{words} |"


def later_table():
    yield ", ".join(f"`{name}`" for name, spec in FIELDS.items() if not spec.served)


def functions_table():
    yield "| function | meaning |"
    yield "| --- | --- |"
    for name, spec in FUNCTIONS.items():
        if spec.available:
            args = ", ".join(TAKES[one] for one in spec.takes) + (", ..." if spec.variadic else "")
            yield f"| `{name}({args})` | {spec.doc} |"


def metrics_table():
    yield "| metric | unit | meaning |"
    yield "| --- | --- | --- |"
    for name, one in CATALOGUE.items():
        unit = "plain" if one.unit.is_plain else str(one.unit)
        yield f"| `{name}` | {unit} | {one.doc} |"


TABLES = {"fields": fields_table, "later": later_table, "functions": functions_table,
          "metrics": metrics_table}  # fmt: skip


def block(name):
    return re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)


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


if __name__ == "__main__":
    rewrite()
