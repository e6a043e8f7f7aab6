"""Our loop over the grammar's tables against Lark's: the same trees, places, words and stops."""

import random
import re
from pathlib import Path

import pytest
from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from dsl.parser import Parser
from dsl.parser.automaton import END, Automaton
from dsl.parser.layout import cut
from dsl.parser.tables import load_tables
from dsl.source import make_source
from tests.effort import EVERY
from tests.fuzz.inputs import SEPARATOR, Mutator, seeds

ROOT = Path(__file__).parents[2]
AUTOMATON = Automaton(load_tables())


class WholeWords:
    """Lark's scanner of a state, but keywords end where a word ends."""

    def __init__(self, scanner):
        self._scanner = scanner
        self.allowed_types = scanner.allowed_types
        self._words = {
            one.name: one.pattern.value
            for one in scanner.terminals
            if one.pattern.type == "str" and one.pattern.value.isidentifier()
        }

    def match(self, text, at):
        found = self._scanner.match(text, at)
        if found is None or found[1] not in self._words:
            return found
        return found if re.match(r"\W|\Z", text.text[at + len(found[0]) :]) else None


def of_whole_words(tables):
    lexers = tables.parser.lexer
    for lexer in {*lexers.lexers.values(), lexers.root_lexer}:
        lexer._scanner = WholeWords(lexer.scanner)
    return tables


# Not those of the process, which other tests read by.
TABLES = of_whole_words(load_tables.__wrapped__())


def statements():
    """Statements of policies and of test files, with their start symbols."""
    texts = []
    for seed in seeds():
        policy, _, test = seed.partition(SEPARATOR)
        texts += [("start", policy), ("testfile", test)]
    for path in sorted((ROOT / "policies").glob("*.policy*")):
        texts.append(("testfile" if path.suffix == ".policytest" else "start", path.read_text()))
    for start, text in texts:
        source = make_source("a", text)
        for chunk in cut(source)[0]:
            yield start, source.slice(chunk).rstrip("\n") + "\n"


def told(tree):
    """All nodes of a tree with their places; the root's hangs on blanks that say nothing."""
    out, todo = [], [tree]
    while todo:
        node = todo.pop()
        if node is None or isinstance(node, Token):
            out.append(node and (node.type, str(node), node.start_pos, node.end_pos))
            continue
        meta = node.meta
        place = None if meta.empty or node is tree else (meta.start_pos, meta.end_pos)
        out.append((str(node.data), len(node.children), place))
        todo.extend(node.children)
    return out


def by_lark(text, start):
    try:
        return told(TABLES.parse(text, start=start))
    except UnexpectedToken as stop:
        token = stop.token
        if token.type == END:
            return END, frozenset(stop.accepts)
        end = len(text[: token.end_pos].rstrip()) if token.type == "_NL" else token.start_pos
        return token.type, end, frozenset(stop.accepts)
    except UnexpectedCharacters as stop:
        return "", stop.pos_in_stream, frozenset(stop.allowed)


def by_us(text, start):
    tree, stop = AUTOMATON.read(text, start)
    if stop is None:
        return told(tree)
    if stop.kind == END:
        return END, stop.accepts()
    at = len(text[: stop.end].rstrip()) if stop.kind == "_NL" else stop.start
    return stop.kind, at, stop.accepts()


@pytest.mark.parametrize("step", EVERY)
def test_texts_are_read_as_by_lark(step):
    found = list(dict.fromkeys(statements()))[::step]
    assert len(found) > 100
    for start, text in found:
        assert by_us(text, start) == by_lark(text, start), text


def test_expressions_and_brackets_around_words_are_read_as_by_lark():
    for text in ("1", "(1)", "((1)) + (2)", "(node.name)", "-(3)", "not (true)", "max((1), 2)",
                 "if (a) then (b) else (c)", "  a  ", "a or (b and (c or d))",
                 "(a+b)-c"):  # fmt: skip
        for more in ("", " ", ")", " ,", " §", " then"):
            assert by_us(text + more, "expr") == by_lark(text + more, "expr"), text + more


def test_reading_stops_where_lark_stops():
    rng, mutator = random.Random("stops"), Mutator(seeds())
    known = [one for one in statements() if len(one[1]) < 300]
    stops = 0
    for start, text in rng.sample(known, 250):
        changed = mutator.change(text, rng).partition(SEPARATOR)[0]
        got = by_us(changed, start)
        stops += isinstance(got, tuple)
        assert got == by_lark(changed, start), changed
    assert stops > 100


def test_words_are_those_of_the_text():
    words = []
    tree, stop = AUTOMATON.read("score: 100 - load # c\n  * (2)\n", "start", words)
    assert tree is not None
    assert stop is None
    assert [str(one) for one in words[:-1]] == [
        "score",
        ":",
        "100",
        "-",
        "load",
        "*",
        "(",
        "2",
        ")",
    ]
    assert [words[-1].type, words[2].type] == ["_NL", "QUANT"]


def words_of(text, start):
    words = []
    _, stop = AUTOMATON.read(text, start, words)
    return None if stop is not None else [str(one) for one in words if one.type != "_NL"]


@pytest.mark.parametrize("step", EVERY)
def test_no_word_loses_its_blank_in_silence(step):
    """Without the blank between them two words are another text: nothing is read into it."""
    found = [one for one in dict.fromkeys(statements()) if not re.search(r"[#\"']", one[1])]
    tried = 0
    for start, text in found[::step]:
        written = words_of(text, start)
        if written is None:
            continue
        for blank in re.finditer(r"(?<=[A-Za-z_])[ \t]+(?=\w)", text):
            glued = text[: blank.start()] + text[blank.end() :]
            assert words_of(glued, start) != written, glued
            tried += 1
    assert tried > 100


class Counting(Automaton):
    def __init__(self):
        super().__init__(load_tables())
        self.texts = []

    def read(self, text, *more):
        self.texts.append(text)
        return super().read(text, *more)


@pytest.mark.parametrize("text", ["filter: pod.name is a\nscore: 5\n", "score: 5*\n  (load)\n"])
def test_each_statement_is_read_once_for_its_words_and_its_tree(text):
    parser, counting = Parser(), Counting()
    parser._reader._loaded = counting
    words, found = parser.lexemes(make_source("a.policy", text))
    assert not found
    assert "".join(counting.texts) == text
    assert len(words) == len(counting.texts)
