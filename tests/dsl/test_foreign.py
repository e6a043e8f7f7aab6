"""What others write: each row of the table is sound, and what is put there is sure or is asked."""

import re

import pytest

from dsl.codes import OLD
from dsl.compiler import Compiler
from dsl.foreign.forms import rows
from dsl.foreign.matcher import Matcher, Row, tokens_of
from dsl.nearest import closest, edit_distance
from dsl.parser.statements import DECLARATIONS, STATEMENTS
from tests.effort import each

COMPILER = Compiler()
ROWS = list(rows())
LETTER = re.compile(r"[A-Z]\d?")


def found(text):
    return COMPILER.compile({"a.policy": text}).diagnostics


def matched(form, better, text, at):
    matcher = Matcher([("P015", Row(form, better))])
    return [(one.start, one.end, one.better) for one in matcher.around(text, at, frozenset())]


@each("code, row", ROWS)
def test_a_row_is_sound(code, row):
    parts = [one.removeprefix("@") for one in row.form.split() if one not in ("@", ">>", "<<")]
    letters = {one for one in parts if LETTER.fullmatch(one)} | {"N"}
    named = set(re.findall(r"\b[A-Z]\d?\b", row.better)) - {"A"} if row.sure else set()
    assert named <= letters | {"X"}, "what it puts there is in the form"
    numbers = [int(one) for one in re.findall(r"\{(\d)[}.]", row.better)]
    assert all(1 <= one <= len(parts) for one in numbers)
    assert row.sure or row.better or row.say, "a question says something"
    assert set(row.where.split()) <= {"head", "test", "any", "applies", *STATEMENTS, *DECLARATIONS}
    assert re.fullmatch(r"P0\d\d", code)


def test_a_form_stands_once():
    seen = [(row.form, row.where) for _, row in ROWS]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("form", "better", "text", "at", "expected"),
    [
        ("&&", "and", "a && b", 2, [(2, 4, "and")]),
        ("A ** B", "pow(A, B)", "x.y[k] ** (1 + 2)", 7, [(0, 17, "pow(x.y[k], (1 + 2))")]),
        ("in >> ( M )", "[M]", "x in (a, 'b')", 5, [(5, 13, "[a, 'b']")]),
        ("in >> ( M )", "[M]", "x in (a + 1)", 5, []),
        ("X @? X2 : X3", "if X then X2 else X3", ": a ? b : c", 4,
         [(2, 11, "if a then b else c")]),
        ("#gb|gib", "{N}Gi", "2GB", 0, [(0, 3, "2Gi")]),
        ("#gb|gib", "{N}Gi", "2 GiB", 0, [(0, 5, "2Gi")]),
        ("is >> Q", "{Q.quote}", "a is b:1,", 5, [(5, 8, '"b:1"')]),
        ("V A >> :", "->", "a is b : c", 7, [(7, 8, "->")]),
        ("then A << END", "then A else 0", "if a then 5", 11, [(5, 11, "then 5 else 0")]),
        ("!", "not", "a and !b", 6, [(6, 7, "not ")]),
        ("&&", "and", "a && b and c", 11, []),
        ("is >> Q", "{Q.quote}", "# is b:1\nx", 9, []),
    ],
)  # fmt: skip
def test_forms(form, better, text, at, expected):
    assert matched(form, better, text, at) == expected


def test_words_and_signs():
    text = "a.b[k]==='x # y' // 2 # z"
    assert [one.text for one in tokens_of(text)] == [
        "a.b", "[", "k", "]", "===", "'x # y'", "//", "2",
    ]  # fmt: skip


@each(
    "text, code, fix",
    [
        ("filter: node.ready adn pod.name is a", "P016", "and"),
        ("filter: NOT node.ready", "P016", "not"),
        ("filter: node.ready mesage 'x'", "P016", "message"),
        ("filter: pod.name.startsWith('a')", "P106", "pod.name starts with 'a'"),
        (
            "filter: node.pods.exists(p, p.name == 'x')",
            "P106",
            "any(node.pods where it.name == 'x')",
        ),
        ("sort: pod.priority desc pod.name", "P023", None),
        ("filter: node.ready if pod.name is a message 'x'", "P018", "pod.name is a -> node.ready"),
        ("filter: pod.name is a -> node.ready if pod.gpu > 0", "P001", None),
        ("score: lowest node.cpu.free", "P018", "prefer: least"),
        ("prefer: nodes with labels a=b", "P015", "node.label a"),
        ("filter: node.label a exists", "P019", "node.label[a] is present"),
        ("filter: node.zone is pod.label[z]", "P018", "(pod.label[z])"),
        ("filter: pod.name matches 'web'", "P317", None),
        ("filter: any(node.pods where label[a] is b)", "P101", None),
        ("metric m = promql('up') by node", "P021", "promql 'up'"),
        ("param a = 5 in 1..9", "P015", "from 1 to 9"),
        ("spread: zone skew 2", "P015", "over zone"),
        ("policy: my big policy", "P017", "my-big-policy"),
        ("filter: any(node.pods, it.ready)", "P209", "any(node.pods where it.ready)"),
        ("filter: sum(node.pods, it.cpu) < 3", "P209", "sum(it.cpu over node.pods)"),
        ("filter: sum(node.pods.cpu) < 3", "P101", None),
        ("filter: 'a' in node.labels", "P101", "node.label[a] is present"),
        ("filter: 'a/b' not in pod.annotation", "P101", "pod.annotation[a/b] is missing"),
        ("filter: node.label a=[b, c]", "P019", "node.label[a] in [b, c]"),
        ("filter: node.ready)", "P002", ""),
        ("filter: node.lable a=b", "P101", "node.label"),
        ("filter: node.ready\n  score: load", "P012", ""),
        # Questions: another text could be meant.
        ("filter: pod.namespace prod", "P023", None),
        ("filter: node.ready pod.name is a", "P023", None),
        ("filter: pod.name contains 'a and node.ready", "P002", None),
        ("sort: desc pod.priority", "P023", None),
        ("filter: pod.priority > (1 + 2) * 3)", "P002", None),
    ],
)
def test_what_is_sure_is_a_fix(text, code, fix):
    (one, *_) = found(text)
    assert (one.code, None if one.fix is None else one.fix.text) == (code, fix)


def test_of_many_wrong_statements_the_last_are_told_of_without_a_try():
    text = "filter: node.ready && pod.name is a\n" * 60
    fixes = [one.fix is not None for one in found(text) if one.code == "P014"]
    assert all(fixes[:40])
    assert not any(fixes[41:])


def test_a_code_became_others():
    for old, new in OLD.items():
        assert old not in new
        assert len(set(new)) == len(new)


def test_the_nearest_name():
    assert closest("wieght", ["weight", "height"]) == "weight"
    assert closest("xyz", ["abc"]) is closest("hpu", ["gpu", "cpu"]) is None
    assert edit_distance("ab", "ba") == 1
