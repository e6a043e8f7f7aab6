"""Runs the grammar's tables over one text: Lark's trees where it can be read, else where it stops.

Lark makes the tables, the scanners and the nodes; the loop is our own. Lark's copies the parser
for every word that might have followed, keeps lines and columns that nobody asks for, and builds a
node's place from those of its children each time. Same trees, same places, a third of the time.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Tree
from lark.parse_tree_builder import ExpandSingleChild

#: What the end of the text is called.
END: Final = "$END"
_BLANKS: Final = " \t"
#: Whether a word is longer than the keyword it starts with; Lark would stop within `isolated`.
_GOES_ON: Final = re.compile(r"\w").match

#: The pattern of a kind of word that is one of a few.
_WORDS: Final = re.compile(r"\(([a-z |]+)\)\(\?!")

_Place = tuple[int, int]


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


class _Reduction(NamedTuple):
    """What becomes of the last so many nodes; without `build` the one is as it was."""

    size: int
    build: Callable[[list[Any]], Any] | None
    name: str


class _Row(NamedTuple):
    """What is known of one state.

    Attributes:
        scanner: Lark's scanner of the words that fit.
        match: finds the word at a place.
        ignored: the kinds of words that say nothing.
        keywords: by kind, the words that are keywords, and which.
        whole: the keywords that no name could be mistaken for here; they end where a word ends.
        actions: by kind, the state to go to, or what to do first.
    """

    scanner: Any
    match: Callable[[str, int], Any]
    ignored: frozenset[str]
    keywords: Mapping[str, Mapping[str, str]]
    whole: frozenset[str]
    actions: Mapping[str, int | _Reduction]


class _Rows(dict[int, _Row]):
    """The rows by state, each made when it is first asked for."""

    def __init__(self, make: Callable[[int], _Row]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, state: int) -> _Row:
        row = self[state] = self._make(state)
        return row


class _Stack(NamedTuple):
    """The states, nodes and places of what was read so far; an empty node is nowhere."""

    states: list[int]
    values: list[Any]
    places: list[_Place | None]

    def reduce(self, todo: _Reduction) -> None:
        """Makes one node of the last ones; the state that follows is the caller's business."""
        size, build, _ = todo
        states, values, places = self
        place = None
        children: list[Any] = []
        if size:
            children = values[-size:]
            first, last = places[-size], places[-1]
            if first is not None and last is not None:
                place = first[0], last[1]
            else:
                place = _around(places[-size:])
            del states[-size:], values[-size:], places[-size:]
        assert build is not None
        value = build(children)
        if isinstance(value, Token):
            # Brackets around a word leave no trace.
            place = _place(value)
        elif place is not None and value.meta.empty:
            meta = value.meta
            meta.empty = False
            meta.start_pos, meta.end_pos = place
        values.append(value)
        places.append(place)


class Automaton:
    """Reads texts by the tables of the grammar."""

    def __init__(self, tables: Lark) -> None:
        parts: Any = tables.parser
        self._terminals = tables.terminals
        self._lexers = parts.lexer.lexers
        self._table = parts.parser.parser.parse_table
        self._callbacks = parts.parser.parser.callbacks
        self._rows = _Rows(self._made)
        self._reductions: dict[int, _Reduction] = {}
        #: Knows all words of the grammar, whatever the state.
        self._anywhere = _row(parts.lexer.root_lexer, {})

    @cached_property
    def spelt(self) -> Mapping[str, tuple[str, ...]]:
        """The words and signs that each name of the grammar stands for, where it is a few."""
        found = {}
        for one in self._terminals:
            words = _WORDS.match(re.sub(r"\[[^\]]*\]\+", " ", one.pattern.value))
            if one.pattern.type == "str":
                found[str(one.name)] = (str(one.pattern.value),)
            elif words is not None:
                found[str(one.name)] = tuple(words[1].split("|"))
        return found

    def warm(self) -> None:
        """Makes the rows of all states, which otherwise are made when first asked for."""
        for state in self._table.states:
            self._rows[state]

    def read(
        self, text: str, start: str, words: list[Token] | None = None
    ) -> tuple[Tree[Token] | None, Stop | None]:
        """Returns the tree of a text, or where reading stopped; `words` gets every word."""
        states = [self._table.start_states[start]]
        stack = _Stack(states, [], [])
        end = self._table.end_states[start]
        at = 0
        while True:
            row = self._rows[states[-1]]
            word = _word(row, text, at)
            if not word.type:
                return None, self._strange((row, states, end), text, _place(word)[0])
            if not self._feed(stack, word.type, end):
                return None, Stop(*_place(word), word.type, lambda: self._accepts(states, end))
            if word.type == END:
                return stack.values[-1], None
            place = _place(word)
            at = place[1]
            stack.values.append(word)
            stack.places.append(place)
            if words is not None:
                words.append(word)

    def _strange(self, before: tuple[_Row, list[int], int], text: str, at: int) -> Stop:
        """A place where a state knows no word: one that fits elsewhere, or none at all."""
        row, states, end = before
        word = _word(self._anywhere, text, at)
        if word.type:
            return Stop(*_place(word), word.type, lambda: self._accepts(states, end))
        return Stop(at, at + 1, "", lambda: frozenset(row.scanner.allowed_types - row.ignored))

    # ---- states

    def _feed(self, stack: _Stack, kind: str, end: int) -> bool:
        """Goes to the state after a word, as far as that is possible; whether it is."""
        states, rows = stack.states, self._rows
        while True:
            if states[-1] == end and kind == END:
                return True
            action = rows[states[-1]].actions.get(kind)
            if action is None:
                return False
            if isinstance(action, int):
                states.append(action)
                return True
            if action.build is None:
                follow = rows[states[-2]].actions[action.name]
                assert isinstance(follow, int)
                states[-1] = follow
                continue
            stack.reduce(action)
            follow = rows[states[-1]].actions[action.name]
            assert isinstance(follow, int)
            states.append(follow)

    def _accepts(self, states: list[int], end: int) -> frozenset[str]:
        """Returns the words that could follow, without building anything."""
        row = self._rows[states[-1]]
        return frozenset(
            one for one in row.actions if one.isupper() and self._fits(one, states, end)
        )

    def _fits(self, kind: str, states: list[int], end: int) -> bool:
        states = states.copy()
        while states[-1] != end or kind != END:
            action = self._rows[states[-1]].actions.get(kind)
            if action is None or isinstance(action, int):
                return action is not None
            if action.size:
                del states[-action.size :]
            follow = self._rows[states[-1]].actions[action.name]
            assert isinstance(follow, int)
            states.append(follow)
        return True

    def _made(self, state: int) -> _Row:
        actions = {
            kind: to if isinstance(to, int) else self._reduction(to)
            for kind, (_, to) in self._table.states[state].items()
        }
        return _row(self._lexers[state], actions)

    def _reduction(self, rule: Any) -> _Reduction:  # noqa: ANN401 - Lark says nothing of its rules
        found = self._reductions.get(id(rule))
        if found is None:
            # The inner of the two builders; the outer one adds the places.
            build = self._callbacks[rule].node_builder
            as_it_is = isinstance(build, ExpandSingleChild) and len(rule.expansion) == 1
            size, name = len(rule.expansion), str(rule.origin.name)
            found = self._reductions[id(rule)] = _Reduction(size, None if as_it_is else build, name)
        return found


# ---- words


def _row(lexer: Any, actions: Mapping[str, int | _Reduction]) -> _Row:  # noqa: ANN401 - Lark's
    scanner = lexer.scanner
    (pattern,) = scanner._mres  # noqa: SLF001 - `scanner.match` is three calls around this one
    keywords = {
        kind: {one.pattern.value: one.name for one in unless.scanner.terminals}
        for kind, unless in lexer.callback.items()
    }
    words = (one for one in scanner.terminals if one.pattern.type == "str")
    whole = frozenset(one.name for one in words if one.pattern.value.isidentifier())
    return _Row(scanner, pattern.match, lexer.ignore_types, keywords, whole, actions)


def _word(row: _Row, text: str, at: int) -> Token:
    """Returns the next word, of no kind where there is none of those that fit."""
    size = len(text)
    while True:
        while at < size and text[at] in _BLANKS:
            at += 1
        if at == size:
            return _token(END, "", at)
        found = row.match(text, at)
        if found is None:
            return _token("", text[at], at)
        kind = found.lastgroup
        if kind not in row.ignored:
            word = found.group()
            if kind in row.whole and _GOES_ON(text, found.end()):
                return _token("", word, at)
            keywords = row.keywords.get(kind)
            return _token(kind if keywords is None else keywords.get(word, kind), word, at)
        at = found.end()


def _token(kind: str, text: str, start: int) -> Token:
    """Makes a word of Lark's with what is asked of it."""
    token = str.__new__(Token, text)
    token.type = kind
    token.start_pos = start
    token.end_pos = start + len(text)
    return token


def _place(word: Token) -> _Place:
    assert word.start_pos is not None
    assert word.end_pos is not None
    return word.start_pos, word.end_pos


def _around(places: Sequence[_Place | None]) -> _Place | None:
    """Returns the place of several neighbours; empty ones are nowhere."""
    there = [one for one in places if one is not None]
    return (there[0][0], there[-1][1]) if there else None
