"""Any text gives plans or diagnostics, never an exception, and always in a place of the file."""

import json
import re
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dsl.compiler import Compiler
from dsl.diagnostics import render, to_json
from tests.effort import examples

ROOT = Path(__file__).parents[1]
EXAMPLES = (ROOT / "dsl" / "data" / "examples.txt").read_text(encoding="utf-8")
STATEMENTS = [line for line in EXAMPLES.splitlines() if line and not line.startswith("===")]
WORDS = sorted(set(re.findall(r"[\w.$-]+|[^\w\s]", EXAMPLES)))
TOKENS = [*WORDS, "\n", "\n  ", " ", '"""', "\t"]
COMPILER = Compiler()
SETTINGS = settings(
    deadline=None,
    max_examples=examples(150),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def check(text):
    result = COMPILER.compile({"a.policy": text})
    assert result.ok == (not any(one.is_error for one in result.diagnostics))
    assert len(result.plans) == (1 if result.ok else 0)
    render(result.diagnostics, color=True)
    for one in json.loads(to_json(result.diagnostics))["diagnostics"]:
        assert one["line"] >= 1
        assert one["column"] >= 1
        assert (one["line"], one["column"]) <= (one["end_line"], one["end_column"])
        assert one["message"]
        leaked = re.search(r"\b(LPAR|RPAR|QUANT|DOTTED|__ANON|TEXTOP|NoneType)", one["message"])
        assert leaked is None or leaked.group() in str(text)


@SETTINGS
@given(st.binary(max_size=200))
def test_bytes(data):
    check(data)


@SETTINGS
@given(st.text(max_size=200))
def test_text(text):
    check(text)


@SETTINGS
@given(st.lists(st.sampled_from(TOKENS), max_size=30), st.sampled_from(["", " "]))
def test_soup_of_words(tokens, between):
    check("filter: " + between.join(tokens))


@SETTINGS
@given(st.sampled_from(STATEMENTS), st.data())
def test_damaged_statements(line, data):
    at = data.draw(st.integers(0, len(line)))
    cut = data.draw(st.integers(0, 5))
    put = data.draw(st.one_of(st.sampled_from(TOKENS), st.text(max_size=3)))
    check(line[:at] + put + line[at + cut :] + "\nscore: 5\n")
