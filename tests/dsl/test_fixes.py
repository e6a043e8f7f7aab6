"""Findings in machine form: places are code points of the file, and a fix cures its finding."""

import json

import pytest

from dsl.compiler import Compiler
from dsl.diagnostics import to_json
from engine.cli.check import to_github, to_sarif
from tests.dsl.corpus import policies
from tests.effort import EVERY

COMPILER = Compiler()
#: The same text as others write it: what is before it, and how its lines end.
WAYS = {
    "plain": lambda text: text,
    "CRLF": lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"),
    "astral": lambda text: f"# \U0001d4d0\U0001f680\u0301\n{text}",
    "BOM": lambda text: f"\ufeff{text}",
}


def found(text):
    return COMPILER.compile({"a.policy": text}).diagnostics


def lines_of(text):
    """What an editor shows: lines without their ends, and no byte-order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")


def under(lines, place):
    first, last = place["line"] - 1, place["end_line"] - 1
    if first == last:
        return lines[first][place["column"] - 1 : place["end_column"] - 1]
    inside = [lines[first][place["column"] - 1 :], *lines[first + 1 : last]]
    return "\n".join([*inside, lines[last][: place["end_column"] - 1]])


def replaced(lines, fix):
    before = "\n".join([*lines[: fix["line"] - 1], lines[fix["line"] - 1][: fix["column"] - 1]])
    rest = [lines[fix["end_line"] - 1][fix["end_column"] - 1 :], *lines[fix["end_line"] :]]
    return before + fix["text"] + "\n".join(rest)


def told(text):
    return json.loads(to_json(found(text)))["diagnostics"]


def check_fixes(text):
    many = 0
    for one in told(text):
        if one["fix"] is None:
            continue
        many += 1
        mended = replaced(lines_of(text), one["fix"])
        assert mended != "\n".join(lines_of(text))
        again = {
            (each["code"], each["line"], each["column"], each["message"]) for each in told(mended)
        }
        key = one["code"], one["line"], one["column"], one["message"]
        assert key not in again, (text, mended, one)
    return many


def check_places(text):
    diagnostics = found(text)
    lines = lines_of(text)
    sarif = json.loads(to_sarif(diagnostics))["runs"][0]["results"]
    github = to_github(diagnostics).split("\n") if diagnostics else []
    plain = json.loads(to_json(diagnostics))["diagnostics"]
    for one, each, result, command in zip(diagnostics, plain, sarif, github, strict=True):
        assert under(lines, each) == one.source.slice(one.span), text
        if one.fix is not None:
            assert under(lines, each["fix"]) == one.source.slice(one.fix.span)
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region == {
            "startLine": each["line"],
            "startColumn": each["column"],
            "endLine": each["end_line"],
            "endColumn": each["end_column"],
        }
        head, _, message = command.partition("::")[2].partition("::")
        assert message.startswith(each["message"].split("%")[0])
        parts = dict(part.split("=") for part in head.partition(" ")[2].split(","))
        assert (int(parts["line"]), int(parts["endLine"])) == (each["line"], each["end_line"])
        if "col" in parts:
            last = max(each["end_column"] - 1, each["column"])
            assert (int(parts["col"]), int(parts["endColumn"])) == (each["column"], last)


@pytest.mark.parametrize("step", EVERY)
def test_the_corpus_is_there(step):
    some = policies()[::step]
    assert len(some) * step > 1_000
    wrong = [one for one in some if any(each.is_error for each in found(one))]
    assert len(wrong) * step > 300


@pytest.mark.parametrize("step", EVERY)
def test_every_fix_cures_its_finding(step):
    assert sum(check_fixes(one) for one in policies()[::step]) * step > 80


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.parametrize("way", WAYS)
def test_places_are_code_points(way, step):
    for one in policies()[::step]:
        check_places(WAYS[way](one))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('filter: pod.label["\U0001f680\U0001d4d0"] is a and node.lable a=b\n', (1, 34, 44)),
        ("filter: node.ready\n\tand node.lable a=b\n", (2, 6, 16)),
        (
            "# \U0001f680\r\nfilter: node.ready # \U0001f680\r\nfilter: node.lable a=b\r\n",
            (3, 9, 19),
        ),
        ("filter: node.ready\n  and\tnode.lable a=b", (2, 7, 17)),
        ("\ufefffilter: node.lable a=b", (1, 9, 19)),
    ],
)
def test_places_by_hand(text, place):
    (one,) = told(text)
    assert (one["line"], one["column"], one["end_column"]) == place
    assert one["fix"]["text"] == "node.label"
