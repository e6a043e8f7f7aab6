"""Runs the grammar's tables over one text: Lark's tree where it can be read, else where it stops.

Lark reads; here its keywords end where a word ends, and what it raises becomes a `Stop`.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

#: What the end of the text is called.
END: Final = "$END"
_GOES_ON: Final = re.compile(r"\w").match
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
