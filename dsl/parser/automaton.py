"""Runs the grammar's tables over one text: its tree, or where reading stops and what fits there.

Lark reads; here its keywords end where a word ends, and what it raises becomes a `Stop`.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from dsl.parser.layout import deepest
from dsl.source import blanked

#: What the end of the text is called.
END: Final = "$END"
_GOES_ON: Final = re.compile(r"\w").match
_WORD: Final = re.compile(r"[A-Za-z_$][\w.]*|\d[\w.%]*|[&|=<>!~?*^+%-]+")
#: The pattern of a kind of word that is one of a few.
_WORDS: Final = re.compile(r"\(([a-z |]+)\)\(\?!")


class Stop(NamedTuple):
    """Where reading stopped.

    Attributes:
        start: where what was met starts.
        end: where it ends.
        kind: what was met, as the grammar calls it; `$END`, or nothing for what is no word.
        accepts: finds what the grammar would have taken, as it calls it.
    """

    start: int
    end: int
    kind: str
    accepts: Callable[[], frozenset[str]]


class Automaton:
    """Reads texts by the tables of the grammar."""

    def __init__(self, tables: Lark) -> None:
        self._tables: Any = tables
        lexer = self._tables.parser.lexer
        self._lexers = {*lexer.lexers.values(), lexer.root_lexer}
        strings = [one for one in tables.terminals if one.pattern.type == "str"]
        keywords = {one.name for one in strings if one.pattern.value.isidentifier()}
        for one in self._lexers:
            one.match = _whole_words(one, keywords)
        # A rule of one part that stands for it is that part: half of all.
        made = self._tables.parser.parser.parser.callbacks
        alone = (one for one in made if one.options.expand1 and not one.alias)
        made.update((one, itemgetter(0)) for one in alone if len(one.expansion) == 1)

    @cached_property
    def spelt(self) -> Mapping[str, tuple[str, ...]]:
        """The words and signs that each name of the grammar stands for, where it is a few."""
        found = {}
        for one in self._tables.terminals:
            words = _WORDS.match(re.sub(r"\[[^\]]*\]\+", " ", one.pattern.value))
            if one.pattern.type == "str":
                found[str(one.name)] = (str(one.pattern.value),)
            elif words is not None:
                found[str(one.name)] = tuple(words[1].split("|"))
        return found

    def warm(self) -> None:
        """Makes the scanners of all states, which otherwise are made when first asked for."""
        for one in self._lexers:
            assert one.scanner

    def read(
        self, text: str, start: str, words: list[Token] | None = None
    ) -> tuple[Tree[Token] | None, Stop | None]:
        """Returns the tree of a text, or where reading stopped; `words` gets every word."""
        state = self._tables.parse_interactive(text, start=start)
        try:
            for word in state.lexer_thread.lex(state.parser_state):
                state.parser_state.feed_token(word)
                if words is not None:
                    words.append(word)
            return state.feed_eof(), None
        except UnexpectedToken as stop:
            met = stop.token
            first = len(text) if met.type == END else met.start_pos or 0
            return None, Stop(first, first + len(met), met.type, lambda: frozenset(state.accepts()))
        except UnexpectedCharacters as stop:
            place: Any = stop.pos_in_stream
            allowed = frozenset(stop.allowed)
            return None, Stop(place, place + 1, "", lambda: allowed)


def _whole_words(lexer: Any, keywords: set[str]) -> Callable[[Any, int], Any]:  # noqa: ANN401 - Lark's
    """Returns what finds a word at a place: a keyword that a longer word starts with is none."""
    scan: Any = None  # made when it is first asked for

    def match(text: Any, at: int) -> Any:  # noqa: ANN401 - Lark's
        nonlocal scan
        scan = scan or lexer.scanner.match
        found = scan(text, at)
        if found is None or found[1] not in keywords:
            return found
        return None if _GOES_ON(text.text, at + len(found[0])) else found

    return match


# ---- where reading stopped


def stopped(stop: Stop, text: str) -> tuple[int, int, bool]:
    """Returns where what was met starts and ends, and whether it is the end of the text."""
    if stop.kind == END:
        return len(text), len(text), True
    if stop.kind == "_NL":
        end = len(text[: stop.start].rstrip(" \t"))
        return end, end, True
    return stop.start, stop.end, False


class Place:
    """Where reading stopped, and what stands there.

    Attributes:
        text: the statement, or an expression alone.
        bare: the same, comments and the insides of texts blanked out.
        start: where reading stopped, at the start of a word.
        end: where what was met there ends.
        met: a word, a sign, or nothing at the end.
        accepts: what the grammar would have taken.
        spelt: the words and signs that the grammar's names stand for.
        alone: whether the text is an expression, not a statement.
        of_test: whether it is a statement of a test file.
    """

    def __init__(self, automaton: Automaton, text: str, symbol: str, stop: Stop) -> None:
        self.text, self.bare, self.met = text, blanked(text), ""
        self.start, self.end, self.at_end = stopped(stop, text)
        self.accepts, self.spelt = stop.accepts(), automaton.spelt
        self.alone, self.of_test = symbol == "expr", symbol == "testfile"
        self._automaton, self._symbol = automaton, symbol
        bare = self.bare
        if self.at_end:
            self.start = self.end = len(bare[: self.start].rstrip())
            return
        # Where a keyword is the beginning of a word, the grammar stops within: `desc|ending`.
        while self.start > 0 and re.match(r"\w\w", bare[self.start - 1 : self.start + 1]):
            self.start -= 1
        found = _WORD.match(text, self.start)
        whole = text[self.start : max(self.end, self.start + 1)]
        self.met = whole if found is None else found.group().rstrip(".")
        self.end = max(self.start + len(self.met), self.start + 1)

    def read(self, text: str) -> int:
        """Returns how far a text in the place of this one can be read, beyond its end if all."""
        if deepest(text) is not None:
            return 0
        _, stop = self._automaton.read(text, self._symbol)
        return len(text) + 1 if stop is None else stopped(stop, text)[0]

    def fits(self, at: int) -> frozenset[str]:
        """Returns what the grammar would have taken at an earlier place."""
        _, stop = self._automaton.read(self.text[:at], self._symbol)
        return stop.accepts() if stop is not None and stop.kind == END else frozenset()

    @property
    def before(self) -> str:
        """What stands before, blanked out."""
        return self.bare[: self.start].rstrip()

    @property
    def keyword(self) -> str:
        """The word the statement starts with."""
        found = None if self.alone else re.match(r"[A-Za-z]+", self.text)
        return found.group() if found is not None else ""

    @property
    def where(self) -> frozenset[str]:
        """What rows of the table may name: the statement's word, and the kind of the file."""
        return frozenset((self.keyword, "any", *(("test",) if self.of_test else ())))

    @property
    def keywords(self) -> frozenset[str]:
        """All words that mean something to the grammar."""
        return frozenset(one for words in self.spelt.values() for one in words)

    def named(self, accepts: frozenset[str]) -> list[str]:
        """Returns the words among what the grammar would take."""
        words = (one for name in sorted(accepts) for one in self.spelt.get(name, ()))
        return [one for one in words if one[:1].isalpha()]
