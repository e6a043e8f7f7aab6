"""The grammar: builds strictly, reads every example, and treats bare words as text."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsl import syntax as s
from dsl.files import read_source
from dsl.parser import Parser
from dsl.parser.tables import build_tables, grammar_text, load_tables, write_tables
from dsl.source import make_source
from tests.effort import each

EXAMPLES = (Path(__file__).parent / "data" / "examples.txt").read_text(encoding="utf-8")
PARSER = Parser()


def examples():
    for part in re.split(r"^=== ", EXAMPLES, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        yield name, text


def read(text):
    statements, findings = [], []
    for statement, found in PARSER.statements(make_source("a.policy", text)):
        findings += found
        if statement is not None:
            statements.append(statement)
    return statements, findings


def only(text):
    statements, findings = read(text)
    assert not findings, findings
    assert len(statements) == 1
    return statements[0]


def test_there_are_81_examples():
    assert len(list(examples())) == 81


@each("name, text", examples())
def test_examples_parse_whatever_the_line_ends(name, text):
    statements, findings = read(text)
    assert not findings
    for other in (text.replace("\n", "\r\n"), text.rstrip("\n"), "\ufeff" + text):
        again, findings = read(other)
        assert not findings
        assert again == statements


@pytest.mark.slow
def test_grammar_has_no_conflicts():
    tables = build_tables(strict=True)
    tree = tables.parse("filter: node.ready\n", start="start")
    assert tree.data == "start"


def test_no_literal_hides_a_pattern_in_any_state():
    """In each state, a literal that a pattern would also match is a word of the language."""
    tables = load_tables()
    literals = {
        one.name: one.pattern.value for one in tables.terminals if one.pattern.type == "str"
    }
    patterns = {
        one.name: one.pattern.to_regexp() for one in tables.terminals if one.pattern.type == "re"
    }
    for accepts in {frozenset(one) for one in tables.parser.parser._parse_table.states.values()}:
        for literal in accepts & literals.keys():
            for pattern in accepts & patterns.keys():
                if re.fullmatch(patterns[pattern], literals[literal]):
                    assert re.fullmatch(r"[A-Za-z_]+|-", literals[literal]), (literal, pattern)


def keywords():
    text = grammar_text()
    found = set(re.findall(r'"([A-Za-z]{2,})"', text))
    return sorted(found | {"contains", "enforce", "shadow", "off", "canary", "missing", "present"})


PLACES = {
    "filter: pod.name contains {} -> node.ready": lambda st: st.left.right,
    "filter: pod.name starts with {}": lambda st: st.right.right,
    "filter: pod.name ends with {}": lambda st: st.right.right,
    "filter: pod.name like {}": lambda st: st.right.right,
    "filter: pod.name is {}": lambda st: st.right.right,
    "filter: pod.name is not {}": lambda st: st.right.right,
    "filter: pod.name in [{}, x]": lambda st: st.right.members.items[0],
    "filter: pod.name not in [x, {}]": lambda st: st.right.members.items[1],
    "filter: node.label {}": lambda st: st.right.key,
    "filter: node.label {}=v": lambda st: st.right.key,
    "filter: node.label k={}": lambda st: st.right.value,
    "filter: node.label k in [{}]": lambda st: st.right.value.items[0],
    "filter: node.label[{}] is present": lambda st: st.right.operand.key,
    "param p = {}": lambda st: st.default,
    "policy: {}": lambda st: st.value,
}


@pytest.mark.parametrize("place", PLACES, ids=lambda one: one.split(":")[0] + one[-12:])
def test_keywords_are_words_where_words_may_stand(place):
    words = keywords()
    assert len(words) > 110
    for word in words:
        if " is" in place and place.endswith("is {}") and word in ("missing", "present", "not"):
            continue
        if place.endswith("is not {}") and word == "not":
            continue
        found = PLACES[place](only(place.format(word)))
        assert isinstance(found, s.Word), (place, word)
        assert found.value == word


def test_statements_are_cut_at_column_one():
    text = 'description: """\nfilter: no\n"""\n# comment\nfilter:\n  node.ready\n# c\n  and true\n'
    statements, findings = read(text)
    assert not findings
    assert [type(one) for one in statements] == [s.Header, s.Rule]


def test_one_broken_statement_hides_no_other():
    statements, findings = read("filter: (\nscore: 5\nlet x = *\nscore: 6\n")
    assert [one.code for one in findings] == ["P002", "P001"]
    assert [type(one) for one in statements] == [s.Broken, s.Rule, s.Broken, s.Rule]
    assert statements[2].declares == ("x",)


def test_long_chains_are_flat():
    text = "score: " + " + ".join(["1"] * 990)
    assert len(only(text).right.operands) == 990
    text = "filter: " + " or ".join(["node.ready"] * 990)
    assert len(only(text).right.operands) == 990
    text = "score: " + " ?? ".join(["load"] * 600)
    assert len(only(text).right.operands) == 600


def test_spans_are_code_points_of_the_file():
    source = make_source("a.policy", '# é\nfilter: pod.name is "ü" and node.ready\n')
    ((statement, _),) = PARSER.statements(source)
    assert source.slice(statement.span) == 'filter: pod.name is "ü" and node.ready'
    assert source.slice(statement.right.operands[1].span) == "node.ready"
    assert source.position(statement.right.operands[1].span.start) == (2, 29)


def test_message_holes_have_their_place():
    source = make_source("a.policy", 'filter: node.ready message "on {node.name} {{x}}"\n')
    ((statement, _),) = PARSER.statements(source)
    text, hole, rest = statement.clauses[0].values[0].parts
    assert (text, rest) == ("on ", " {x}")
    assert source.slice(hole.span) == "node.name"


@pytest.mark.slow
def test_kept_tables_are_those_of_this_grammar_and_read_the_same(tmp_path):
    write_tables(tmp_path / "tables")
    head, _, _ = (tmp_path / "tables").read_bytes().partition(b"\n")
    kept, built = load_tables(), build_tables()
    text = "filter: pod.name contains nginx -> node.label test=test\n"
    assert len(head) == 64
    assert kept.parse(text, start="start") == built.parse(text, start="start")


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("\u00e4 " * 3_000, 1),
        ("\u00e4\n" * 3_000, 20),
        ("\u201c " * 3_000, 20),
        ("\u201c\u0430 " * 3_000, 21),
        ("a" * 120_000 + " \u00e4", 1),
        ("a\u00e4" * 30_000, 1),
        ("# \u00e4\u201c\n'\u00e4\u201c'", 0),
    ],
)
def test_characters_of_one_kind_are_told_of_a_few_times(text, findings):
    assert len(read_source("a.policy", text)[1]) == findings


def test_a_policy_that_is_right_loads_nothing_of_what_is_wrong():
    code = """
import sys
from pathlib import Path
from dsl.parser import Parser
from dsl.source import make_source

def loaded():
    return [one for one in sys.modules if one.startswith(("dsl.foreign", "dsl.parser.repair"))]

def read(text):
    return list(Parser().statements(make_source("a.policy", text)))

for one in sorted(Path("policies").glob("*.policy"))[::4]:
    assert not any(found for _, found in read(one.read_text("utf-8"))), one
for one in sorted(Path("policies").glob("*.policytest"))[::4]:
    assert not Parser().tests(make_source(one.name, one.read_text("utf-8")))[1], one
assert not loaded(), loaded()
assert read("filter: node.ready &&")[0][1]
assert loaded()
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_signs_that_close_a_broken_statement_are_read_in_linear_time():
    """A comment of many `#` behind one was gone through in all ways; this did not end."""
    for ending in ("\n x", "\n", ""):
        text = "filter: (\n)" + "#" * 200 + ending
        assert list(Parser().statements(read_source("p.policy", text)[0]))
