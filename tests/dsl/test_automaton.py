"""The grammar's tables run over texts: words are whole, and each statement is read once."""

import re
from pathlib import Path

import pytest

from dsl.parser import Parser
from dsl.parser.automaton import Automaton
from dsl.parser.layout import cut
from dsl.parser.tables import load_tables
from dsl.source import make_source
from tests.effort import EVERY
from tests.fuzz.inputs import SEPARATOR, seeds

ROOT = Path(__file__).parents[2]
AUTOMATON = Automaton(load_tables())


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
    assert tried > len(found) // step


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
    parser._loaded = counting
    words, found = parser.lexemes(make_source("a.policy", text))
    assert not found
    assert "".join(counting.texts) == text
    assert len(words) == len(counting.texts)
