"""Every stated limit: one case at it, one above."""

import sys

import pytest

from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.files import read_source
from dsl.source import SourceFile
from tests.effort import each, sizes

COMPILER = Compiler()


def codes(text):
    return [one.code for one in COMPILER.compile({"a.policy": text}).diagnostics]


def chain(count):
    lets = "".join(f"let a{i} = {f'-a{i - 1}' if i else 'load'}\n" for i in range(count))
    return lets + f"score: a{count - 1}\n"


CASES = {
    "bytes": lambda n: "#" * (128 * 1024 - 1 + n) + "\n",
    "tokens": lambda n: ("score: 1" + "+1" * 998 + "\n") * 10 + "score: 1" + "+1" * (3 + n),
    "tokens of a statement": lambda n: "score: 1" + "+1" * (998 + n) + "\nscore: 1" + "+1" * 998,
    "statements": lambda n: "score: 5\n" * (1_000 + n),
    "not": lambda n: "filter: " + "not " * (64 + n) + "true\n",
    "minus": lambda n: "score: " + "- " * (64 + n) + "1\n",
    "brackets": lambda n: "score: " + "(" * (64 + n) + "1" + ")" * (64 + n) + "\n",
    "items": lambda n: "filter: node.label a in [" + ", ".join(["a"] * (256 + n)) + "]\n",
}


@pytest.mark.parametrize("name", CASES)
def test_limit(name):
    at, above = codes(CASES[name](0)), codes(CASES[name](1))
    assert "P006" not in at
    assert above == ["P006"]


def test_depth_through_lets():
    assert codes(chain(60)) == []
    assert set(codes(chain(100))) == {"P006"}
    assert set(codes(chain(900))) == {"P006"}


@pytest.mark.parametrize("backwards", [False, True])
def test_depth_through_lets_at_the_limit_and_above(backwards):
    """Each is a level: 64 lets, the 63 signs between them, and the load of the first."""
    *lets, score = chain(64).splitlines()
    above = score.replace("a63", "-a63")
    for last, expected in ((score, []), (above, ["P006"])):
        lines = [last, *reversed(lets)] if backwards else [*lets, last]
        assert codes("\n".join(lines)) == expected


def test_lets_declared_backwards_are_limited_too():
    lines = chain(900).splitlines()
    assert "P006" in codes("\n".join([lines[-1], *reversed(lines[:-1])]))


def test_doubling_lets_take_no_time():
    lets = "let a0 = load\n" + "".join(f"let a{i} = a{i - 1} + a{i - 1}\n" for i in range(1, 40))
    assert codes(lets + "score: a39\n") == []


def test_absurd_numbers():
    assert codes("score: 1e999999999\n") == codes("score: " + "9" * 5000 + "\n") == ["P007"]
    assert codes("score: 1e300*1e300*load\n") == []


# ---- what is no policy at all, or nearly one

GOOD = "filter: pod.name contains nginx -> node.label test=test\n"
UNUSABLE = {
    "NUL": (b"filter: pod.name contains ng\0inx\n", "P003", "NUL character"),
    "NUL in a text": (b'filter: pod.name is "a\0b"\n', "P003", "NUL character"),
    "NUL in a comment": (b"score: load # a\0b\n", "P003", "NUL character"),
    "NUL alone": (b"\0", "P003", "UTF-16"),
    "UTF-16 with a mark": (GOOD.encode("utf-16"), "P003", "UTF-16"),
    "UTF-16, little end first": (GOOD.encode("utf-16-le"), "P003", "UTF-16"),
    "UTF-16, big end first": (GOOD.encode("utf-16-be"), "P003", "UTF-16"),
    "Latin-1": ("score: load # caf\xe9\n".encode("latin-1"), "P003", "Latin-1"),
    "lone CR": (b"filter: node.ready\rscore: load\r", "P003", "carriage return"),
    "CR that hides rules": (b"# comment\rfilter: node.ready\r", "P003", "carriage return"),
    "escape": (b"score: \x1b[31mload\n", "P003", "0x1b"),
    "no-break space": ("score:\u00a0load\n", "P003", "no-break space"),
    "curly quotes": ("filter: pod.name is \u201cweb\u201d\n", "P003", "double quotation mark"),
    "tab before the first": (b"\tscore: load\n", "P012", "leading spaces"),
    "one byte too many": (b"#" * (128 * 1024) + b"\n", "P006", "128 KiB"),
    "1,000 times not": ("filter: " + "not " * 1_000 + "true\n", "P006", "64 levels"),
    "900 parentheses": ("score: " + "(" * 900 + "1" + ")" * 900 + "\n", "P006", "64 levels"),
    "1,000 that do not close": ("score: " + "[" * 1_000, "P006", "64 levels"),
    "1,000 in a message": (
        'filter: node.ready message "{' + "(" * 1_000 + '}"\n', "P006", "64 levels",
    ),
    "20,001 words": ("score: 1" + "+1" * 10_000, "P006", "20,000 words"),
    "1,001 statements": ("score: load\n" * 1_001, "P006", "1,000 statements"),
    "one huge line": ("score: " + "1+" * 60_000 + "1\n", "P006", "20,000 words"),
    "one huge name": ("score: " + "a" * 120_000 + "\n", "P102", "called `aaa"),
    "regex bomb": ('filter: pod.name matches "((a{99}){99}){99}"\n', "P112", "repetition"),
    "regex of nothing": ('filter: pod.name matches "(((){99}){99}){99}"\n', "P112", "repetition"),
    "regex that looks around": ('filter: pod.name matches "(?=a)b"\n', "P112", "perl operator"),
    "huge regex": ('filter: pod.name matches "' + "(" * 500 + '"\n', "P112", "200 characters"),
    "Rego": ("package a\n\ndeny[msg] {\n  input.x\n}\n", "P010", "Rego"),
    "YAML": ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n", "P010", "YAML"),
    "YAML, of a ConfigMap": ("data:\n  a.policy: |\n    score: load\n", "P010", "YAML"),
    "YAML, its data alone": ("a.policy: |\n  score: load\n", "P010", "YAML"),
    "JSON": ('{\n  "kind": "Pod"\n}\n', "P010", "JSON"),
    "Python": ("import os\nprint(os.environ)\n", "P010", "Python"),
    "dunder field": ("filter: pod.__class__ == a\n", "P101", "pod.__class__"),
    "dunder function": ('score: __import__("os")\n', "P106", "__import__"),
    "dunder name": ("score: __class__\n", "P102", "__class__"),
    "keyword": ("score: lambda\n", "P102", "lambda"),
}  # fmt: skip


@each("name", UNUSABLE)
def test_what_is_wrong_is_said_clearly(name):
    text, code, words = UNUSABLE[name]
    found = COMPILER.compile({"a.policy": text}).diagnostics
    assert found[0].code == code
    assert words in render(found[:1])
    assert len(found) <= 2


@pytest.mark.parametrize(
    "text", [GOOD, "\ufeff" + GOOD, GOOD.replace("\n", "\r\n"), GOOD.replace(" ", "\t")]
)
def test_marks_line_ends_and_tabs_are_no_matter(text):
    assert codes(text) == codes(text.encode()) == []


@pytest.mark.parametrize("name", ["import", "class", "None", "__class__", "__init__", "lambda"])
def test_names_of_python_are_names(name):
    assert codes(f"let {name} = load\nscore: {name}\n") == []
    assert codes(f"param {name}: number = 1\nscore: load*${name}\n") == []


@pytest.mark.slow
def test_thousands_of_unknown_names_take_no_time_each():
    names = [f"n{at:x}" for at in range(4_950)]
    lines = [names[at : at + 990] for at in range(0, 4_950, 990)]
    assert codes("".join(f"score: {' + '.join(line)}\n" for line in lines)) == ["P102"] * 4_950


#: Long statements: what they consist of, what joins it, and the words and signs of a part.
LONG = {
    "tests": ("filter: ", "pod.name is a{i}", " or ", 5),
    "labels": ("forbid: ", "node.label a{i}=b", " and ", 6),
    "metrics": ('metric m = promql "x"\nfilter: ', "m < {i}", " and ", 4),
    "bare aggregates": ("score: load + ", "max/{i}", " + ", 4),
    "fallbacks": ("score: ", "(load ?? {i})", " + ", 6),
    "sets": ("filter: ", "any(node.pods where it.name is a{i})", " or ", 11),
    "choices": ("score: ", "(if pod.name is x{i} then 1 else max)", " * ", 12),
    "patterns": ("filter: ", 'pod.name matches "a{i}.*"', " or ", 4),
    "what never holds": ("filter: ", 'pod.name is "A*{i}"', " or ", 4),
    "victims": ("preempt: victims where ", "it.label a{i}=b", " or ", 6),
    "times": ("filter: ", "now - node.created > {i}m", " or ", 6),
}


def steps(text, monkeypatch):
    """Calls and characters read in the dearest slice."""
    count = 0

    class Read(SourceFile, frozen=True, eq=False):
        @property
        def text(self):
            nonlocal count
            count += len(whole)
            return whole

        def slice(self, span):
            nonlocal count
            count += span.end - span.start
            return whole[span.start : span.end]

        def line(self, number):
            start = self.line_starts[number - 1]
            return whole[start : whole.find("\n", start)]

    def counted(*_):
        nonlocal count
        count += 1

    source, problems = read_source("a.policy", text)
    whole = source.text
    read = Read("a.policy", "", source.line_starts)
    monkeypatch.setattr("dsl.compiler.read_source", lambda *_: (read, problems))
    work, dearest, before = COMPILER.steps({"a.policy": text}), 0, sys.getprofile()
    while True:
        count = 0
        sys.setprofile(counted)
        try:
            next(work)
        except StopIteration:
            return dearest
        finally:
            sys.setprofile(before)
            dearest = max(dearest, count)


@pytest.mark.parametrize(("size", "most"), sizes((480, 140_000), (1_900, 500_000)))
@pytest.mark.parametrize("name", LONG)
def test_a_slice_is_bounded_by_the_size_of_a_statement(name, size, most, monkeypatch):
    head, part, sign, words = LONG[name]
    half, full = (
        head + sign.join(part.replace("{i}", str(i + 1)) for i in range(count // words)) + "\n"
        for count in (size // 2, size)
    )
    first, then = steps(half, monkeypatch), steps(full, monkeypatch)
    assert then < 2.4 * first
    assert then < most
