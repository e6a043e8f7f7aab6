"""Wrong policies of every habit: what is said about each, where, and what is proposed.

Each file of tests/dsl/wrong is a list of texts between lines `====`, each followed by a line `>>>>`
and what the compiler says: code, place, the text underlined, message, helps, the text to write.
`python -m tests.dsl.test_wrong` writes that part anew: read the difference, line by line.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from dsl.parser.build import StatementReader
from dsl.policytest import read_suite
from engine.policy.support import new_compiler

FOLDER = Path(__file__).parent / "wrong"
FILES = sorted(FOLDER.glob("*.txt"))
COMPILER = new_compiler()
READER = StatementReader()
AT_LEAST = 900
SEVERAL = 2
AGAIN = 2
#: Words of the parser's machinery that no user may read.
MACHINERY = re.compile(
    r"\b(LPAR|RPAR|LSQB|RSQB|EQUAL|COMMA|COLON|QUANT|DOTTED|DOTTAIL|LABELOF|RELOP|TEXTOP|GLOB|WORD|"
    r"STRING|PARAM|PERCENT|INDEX|NAME|_NL|__ANON_\d+|CONTINUED|Token|Tree|lark|Unexpected\w*)\b"
)
#: Where a placeholder is meant, its name is written in capitals in helps.
PLACEHOLDERS = re.compile(r"\b(NAME|PARAM)\b")


def found(text, of_test=False):
    if of_test:
        return read_suite("a.policytest", text, READER).diagnostics
    return COMPILER.compile({"a.policy": text}).diagnostics


def cases(path):
    """Yields line, text and expectation of each case."""
    written = path.read_text(encoding="utf-8")
    line = 1
    for part in re.split(r"(?m)^====\n", written):
        if part.strip():
            text, _, expected = part.partition(">>>>\n")
            yield line, text, expected
        line += part.count("\n") + 1


def place(source, span):
    line, column = source.position(span.start)
    end_line, end = source.position(span.end)
    return f"{line}:{column}-{end}" if line == end_line else f"{line}:{column}-{end_line}:{end}"


def shown(findings):
    """What is said, in lines that can be read and compared."""
    out = []
    for one in findings:
        under = one.source.slice(one.span).replace("\n", "\\n")
        kind = "" if one.is_error else f"{one.severity.value} "
        out.append(f"{kind}{one.code} {place(one.source, one.span)} [{under}] {one.message}")
        out.extend(f"    {one.source.slice(mark.span)}: {mark.text}" for mark in one.labels)
        out.extend(f"  note: {line}" for line in one.notes)
        out.extend(f"  help: {line}" for line in one.helps)
        if one.fix is not None:
            at = "" if one.fix.span == one.span else f" {place(one.source, one.fix.span)}"
            out.append(f"  fix{at}: {one.fix.text!r}")
    return "".join(f"{line}\n" for line in out)


def of_test(path):
    return path.stem.startswith("policytest")


@cache
def said(path):
    return [(line, text, found(text, of_test(path))) for line, text, _ in cases(path)]


def each(path):
    return [(f"{path.name}:{line}", text, findings) for line, text, findings in said(path)]


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda one: one.stem)


@named(FILES)
def test_what_is_said(path):
    expected = {line: words for line, _, words in cases(path)}
    wrong = [
        f"{path.name}:{line}\n{text}--- expected\n{expected[line]}--- said\n{shown(findings)}"
        for line, text, findings in said(path)
        if shown(findings) != expected[line]
    ]
    assert not wrong, "\n".join(wrong[:5])


@named(FILES)
def test_nothing_wrong_is_taken_in_silence(path):
    assert [where for where, _, findings in each(path) if not findings] == []


@named(FILES)
def test_a_fix_cures_its_finding(path):
    left = []
    for where, text, findings in each(path):
        source = findings[0].source if findings else None
        for one in findings:
            if one.fix is None:
                continue
            before, after = text[: one.fix.span.start], text[one.fix.span.end :]
            mended = before + one.fix.text + after
            shift = len(mended) - len(text)
            again = [
                other
                for other in found(mended, of_test(path))
                if (other.code, other.message) == (one.code, one.message)
                and other.span.start in (one.span.start, one.span.start + shift)
                and other.source.slice(other.span) == source.slice(one.span)
            ]
            left.extend((where, one.message, mended) for _ in again)
    assert left == []


@named([one for one in FILES if not of_test(one)])
def test_several_fixes_together_leave_a_statement_that_can_be_read(path):
    """Several mistakes of a line are reported only where the line can be read without them."""
    left = []
    for where, text, findings in each(path):
        fixes = [one.fix for one in findings if one.code < "P013" or one.code == "P014"]
        if len(fixes) < SEVERAL or None in fixes:
            continue
        mended = text
        for fix in sorted(fixes, key=lambda one: one.span.start, reverse=True):
            mended = mended[: fix.span.start] + fix.text + mended[fix.span.end :]
        again = {one.code for one in found(mended)}
        if any(code < "P013" or code == "P014" for code in again - {"P011"}):
            left.append((where, mended, sorted(again)))
    assert left == []


@named([one for one in FILES if of_test(one)])
def test_all_fixes_of_a_test_file_together_make_one_that_can_be_read(path):
    """What is left is a name that nothing has, or a part of the file that is not there."""
    left = []
    for where, text, findings in each(path):
        fixes = [one.fix for one in findings]
        if None in fixes:
            continue
        mended, last = text, len(text) + 1
        for fix in sorted(fixes, key=lambda one: one.span.start, reverse=True):
            assert fix.span.end <= last, where
            mended = mended[: fix.span.start] + fix.text + mended[fix.span.end :]
            last = fix.span.start
        again = [(one.code, one.message) for one in found(mended, True) if one.is_error]
        again = [
            one
            for one in again
            if one[0] != "P703" and not re.match("no pod `.*` is given|there is no node", one[1])
        ]
        left.extend((where, mended, one) for one in again)
    # Each needs a second look: the word in front was in the way.
    assert len(left) <= AGAIN, left


@named(FILES)
def test_no_word_of_the_machinery(path):
    for where, _, findings in each(path):
        for one in findings:
            written = one.source.text
            for line in (one.message, one.label, *one.helps, *one.notes):
                words = {word[0] for word in MACHINERY.finditer(PLACEHOLDERS.sub("", line))}
                assert {word for word in words if word not in written} == set(), (where, line)
                assert "Traceback" not in line


@named(FILES)
def test_the_place_is_small(path):
    """What is underlined is part of the text, and never a whole file of several statements."""
    for where, text, findings in each(path):
        for one in findings:
            assert 0 <= one.span.start <= one.span.end <= len(one.source.text), where
            assert text.count("\n") < 2 or one.source.slice(one.span) != text, where


def test_a_policy_that_is_right_loads_nothing_of_it():
    code = """
import sys
from pathlib import Path
from dsl.parser import Parser
from dsl.parser.tests import parse_test
from dsl.source import make_source

def complaints():
    return [one for one in sys.modules if one.startswith("dsl.parser.complaints")]

def read(text):
    return list(Parser().statements(make_source("a.policy", text)))

for one in sorted(Path("policies").glob("*.policy"))[::4]:
    assert not any(found for _, found in read(one.read_text("utf-8"))), one
for one in sorted(Path("policies").glob("*.policytest"))[::4]:
    assert not parse_test(make_source(one.name, one.read_text("utf-8")))[1], one
assert not complaints(), complaints()
assert read("filter: node.ready &&")[0][1]
assert complaints()
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_there_are_enough():
    assert sum(len(list(cases(one))) for one in FILES) >= AT_LEAST


def rewrite():
    for path in FILES:
        parts = []
        for _, text, _ in list(cases(path)):
            parts.append(f"{text}>>>>\n{shown(found(text, of_test(path)))}")
        path.write_text("".join(f"====\n{one}" for one in parts), encoding="utf-8")


if __name__ == "__main__":
    rewrite()
