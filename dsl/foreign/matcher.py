"""Rows of the table against a text: which of them fit around a place, and what they put there.

A form is words and signs as they stand in the text, in any case (`a|b`: one of them), and letters
for what may stand between:

    A B C D  a value, with its brackets      P  a path of a pod, a node ...    O  its labels
    N  a number      R  a percentage         T  a quoted text                  Q  any run of letters
    K  a word of letters, digits and -./     J  one with a dot or a slash         V  a word operator
    W  a word        E  a version            U  a number with its unit
    L  values with commas, two or more       M  the same, or one               S  a statement's word
    X  anything, its brackets closed         Y  the same, no text at first     #x  a number of x
    Z  the rest of the line, from a word

`>>` is where what is replaced starts, `<<` where it ends; `@` stands before what is underlined
(otherwise the first word or sign), and alone for all of it. `END` is the end of the text. What is
put there names the letters again, `{A.how}` with a change of `CHANGES`, `{2}` for the second part
and `{*}` for all that is replaced.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Final, NamedTuple

from dsl.schema import ROOTS
from dsl.source import QUOTED

_NAME: Final = r"\$?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_TOKEN: Final = re.compile(
    rf"{QUOTED}|(?P<comment>#[^\n]*)|{_NAME}|\d\w*(?:\.\d+\w*)?%?"
    r"|->>|==>|-->|\.\.\.|===|!==|:=|\+=|\*\*|//|/\*|\*/|--|&&|\|\||[=!<>]=|=[>~]|!~|<>|->|<-|\.\."
    r"|\S"
)
#: Letters for what has a form of its own, whole tokens of it.
_LETTERS: Final = {
    "N": re.compile(r"\d+(?:\.\d+)?"),
    "R": re.compile(r"\d+(?:\.\d+)?%"),
    "U": re.compile(r"\d[\w.]*%?"),
    "T": re.compile(QUOTED),
    "V": re.compile(r"(?i)is|contains|starts|ends|like|matches"),
    "O": re.compile(r"(?:pod|node|workload|it|(?:it\.)?namespace)\.(?:label|annotation|taint)s?"),
    "W": re.compile(_NAME),
    "K": re.compile(r"[A-Za-z0-9$_](?:(?:(?!\.\.)[\w./-])*\w)?"),
    "Q": re.compile(r"(?!->)[\w.-](?:[^\s\"'()\[\],#*%|{}$=]*[^\s\"'()\[\],#*%|{}$=;:])?"),
    "E": re.compile(r"v\d[\w.-]*\w|\d+\.\d+\.\d[\w.-]*"),
    "J": re.compile(r"[\w-]+[./][\w./-]*\w"),
}
_COUNTED: Final = re.compile(r"(\d[\d_]*(?:\.\d+)?)([A-Za-z]*)\Z")
_PAIRS: Final = {"(": ")", "[": "]", "{": "}"}
#: Tokens in front of a place, and behind it, among which a form may start.
_BEFORE, _BEHIND = 60, 2
#: Parts of forms that are tried around one place, whatever the text.
_MOST_STEPS: Final = 1500
#: Lengths that are tried of what may be anything.
_MOST: Final = 40
_SLOT: Final = re.compile(r"\{([A-Z]\d?|\d|\*)(?:\.(\w+))?\}|\b([A-Z]\d?)\b")


class Row(NamedTuple):
    """One form and what it is here.

    Attributes:
        form: what others write; see above.
        better: what to write instead.
        say: what is wrong, where the code does not say it; with `{}` for what is underlined.
        where: the statements in which it holds, `head` for the start of a line, `test` for tests.
        sure: whether `better` may replace what was written without a look.
    """

    form: str
    better: str
    say: str = ""
    where: str = ""
    sure: bool = True


class Match(NamedTuple):
    """A row that fits: where, what to write there, and what is underlined."""

    code: str
    row: Row
    order: int
    start: int
    end: int
    better: str
    place: tuple[int, int]


class Token(NamedTuple):
    """A word, a sign or a quoted text."""

    text: str
    start: int
    end: int


class _Form(NamedTuple):
    """The parts of a row's form; `marks` are where the replaced starts and ends, and the place."""

    row: Row
    code: str
    order: int
    parts: tuple[str, ...]
    marks: tuple[int, int, int]
    lead: int


def tokens_of(text: str) -> list[Token]:
    """Returns the words and signs of a text, comments left out."""
    return [
        Token(one.group(), *one.span())
        for one in _TOKEN.finditer(text)
        if one.lastgroup != "comment"
    ]


class Matcher:
    """Finds the rows that fit around a place of a text."""

    def __init__(self, table: Iterable[tuple[str, Row]]) -> None:
        self._by_literal: dict[str, list[_Form]] = {}
        self._counted: list[_Form] = []
        self._without: list[_Form] = []
        for order, (code, row) in enumerate(table):
            self._add(_form(row, code, order))

    def _add(self, form: _Form) -> None:
        if form.lead < 0:
            self._without.append(form)
        elif form.parts[form.lead].startswith("#"):
            self._counted.append(form)
        else:
            for one in _choices(form.parts[form.lead]):
                self._by_literal.setdefault(one, []).append(form)

    def around(
        self, text: str, at: int, where: frozenset[str], words: frozenset[str] = frozenset()
    ) -> Iterator[Match]:
        """Yields the rows that fit a stretch of text which touches a place.

        `where` is the statement's word, and `test` in a test file; `words` start statements.
        """
        tokens, steps = tokens_of(text), [_MOST_STEPS]
        here = next((n for n, one in enumerate(tokens) if one.end > at), len(tokens))
        # Nearest first: of a text that takes too long the rest is left.
        near = range(max(0, here - _BEFORE), min(len(tokens), here + _BEHIND) + 1)
        for n in sorted(near, key=lambda one: abs(one - here)):
            for form in self._at(tokens, n):
                wanted = {*form.row.where.split()} - {"head"}
                if wanted & where or (not wanted and "test" not in where):
                    yield from _Matching(text, tokens, words, form, steps).starting(n, at)

    def _at(self, tokens: Sequence[Token], n: int) -> Iterable[_Form]:
        if n == len(tokens):
            return self._by_literal.get("END", ())
        text = tokens[n].text
        counted = self._counted if text[:1].isdigit() else ()
        return (*self._by_literal.get(text.lower(), ()), *counted, *self._without)


def _form(row: Row, code: str, order: int) -> _Form:
    parts: list[str] = []
    start, end, place, whole = 0, -1, -1, False
    for one in row.form.split():
        if one == ">>":
            start = len(parts)
        elif one == "<<":
            end = len(parts)
        elif one == "@":
            whole = True
        else:
            if one.startswith("@"):
                place, one = len(parts), one[1:]
            parts.append(one)
    lead = next((n for n, one in enumerate(parts) if not _is_slot(one)), -1)
    shown = start if start else max(lead, 0)
    place = start if whole else shown if place < 0 else place
    end = len(parts) if end < 0 else end
    return _Form(row, code, order, tuple(parts), (start, end, place), lead)


@cache
def _choices(part: str) -> tuple[str, ...]:
    """The words or signs that a part of a form stands for; `END` keeps its case."""
    words = (part,) if part.strip("|") == "" else part.split("|")
    return tuple(one if one == "END" else one.lower() for one in words)


@cache
def _is_slot(part: str) -> bool:
    return re.fullmatch(r"[A-Z]\d?", part) is not None


class _Matching(NamedTuple):
    """One form against the tokens of one text; `steps` are those that are left."""

    text: str
    tokens: Sequence[Token]
    words: frozenset[str]
    form: _Form
    steps: list[int]

    def starting(self, n: int, place: int) -> Iterator[Match]:
        """Yields the matches whose first word or sign is the token `n`, and that touch a place."""
        first, last, _ = self.form.marks
        for i in self._starts(n):
            if self.form.row.where.startswith("head") and i:
                continue
            for at in self._match(i, 0, (i,)):
                start = self._start(at[first])
                end = max(start + 1, self.tokens[at[last] - 1].end if at[last] else 0)
                touches = start <= place and not self.text[end:place].strip()
                if touches and (self.form.lead < 0 or at[self.form.lead] == n):
                    yield self._made(at)

    def _starts(self, n: int) -> Iterator[int]:
        lead, parts = self.form.lead, self.form.parts
        if lead <= 0:
            yield n
        elif parts[0][0] in "XYL":
            yield self._boundary(n)
        else:
            yield from range(n - 1, max(-1, n - _MOST), -1)

    def _boundary(self, n: int) -> int:
        depth = 0
        while n > 0:
            text = self.tokens[n - 1].text
            depth += (text in ")]}") - (text in "([{")
            given = text == "=" and self.tokens[0].text == "let"
            if depth < 0 or given or (depth == 0 and text in (":", "->", ",")):
                break
            n -= 1
        return n

    def _match(self, i: int, part: int, at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yields where each part starts, and where the last one ends, as numbers of tokens."""
        if part == len(self.form.parts):
            yield at
            return
        for end in self._ends(self.form.parts[part], i):
            self.steps[0] -= 1
            if self.steps[0] < 0:
                return
            yield from self._match(end, part + 1, (*at, end))

    def _ends(self, part: str, i: int) -> Iterable[int]:
        if not _is_slot(part):
            return self._literal(part, i)
        if i >= len(self.tokens):
            return ()
        letter, token = part[0], self.tokens[i].text
        if letter in "XY":
            return self._anything(i) if letter == "X" or token[0].isalpha() else ()
        # The first word of a statement is no name.
        if letter == "S" or (letter == "W" and not i and token in self.words):
            return (i + 1,) if letter == "S" and token in self.words else ()
        end = self._end(letter, i)
        return () if end is None else (end,)

    def _literal(self, part: str, i: int) -> Iterable[int]:
        if i == len(self.tokens):
            return (i,) if "END" in _choices(part) else ()
        if part.startswith("#"):
            return self._number_of(part[1:].split("|"), i)
        return (i + 1,) if self.tokens[i].text.lower() in _choices(part) else ()

    def _number_of(self, units: Sequence[str], i: int) -> Iterable[int]:
        found = _COUNTED.match(self.tokens[i].text)
        if found is None:
            return ()
        if found[2]:
            return (i + 1,) if found[2] in units or found[2].lower() in units else ()
        follows = self.tokens[i + 1].text if i + 1 < len(self.tokens) else ""
        return (i + 2,) if follows in units or follows.lower() in units else ()

    # ---- letters

    def _end(self, letter: str, i: int) -> int | None:
        if letter in _LETTERS:
            return self._run(letter, i)
        match letter:
            case "P":
                owner, dot, _ = self.tokens[i].text.partition(".")
                return self.value(i) if dot and owner in ROOTS else None
            case "L" | "M":
                return self.several(i, at_least=2 if letter == "L" else 1)
            case "Z":
                return self.rest(i)
            case _:
                return self.value(i)

    def _close(self, i: int) -> int | None:
        close = _PAIRS[self.tokens[i].text]
        depth = 0
        for n in range(i, min(len(self.tokens), i + 4 * _MOST)):
            text = self.tokens[n].text
            depth += (text in _PAIRS) - (text in _PAIRS.values())
            if depth == 0:
                return n + 1 if text == close else None
        return None

    def value(self, i: int) -> int | None:
        """A word, a number, a text or brackets, with the brackets that follow at once."""
        token = self.tokens[i]
        if token.text == "(":
            end = self._close(i)
        elif re.match(r"[\w$\"']", token.text) and token.text not in ("'", '"'):
            end = i + 1
        else:
            return None
        while end is not None and end < len(self.tokens):
            follows = self.tokens[end]
            if follows.start != self.tokens[end - 1].end or follows.text not in "([.":
                break
            if follows.text != ".":
                end = self._close(end)
            elif end + 1 < len(self.tokens) and re.match(r"\.[a-z]", self.text[follows.start :]):
                end += 2
            else:
                break
        return end

    def _run(self, letter: str, i: int) -> int | None:
        found = _LETTERS[letter].match(self.text, self.tokens[i].start)
        if found is None:
            return None
        n = i
        while n < len(self.tokens) and self.tokens[n].end <= found.end():
            n += 1
        return n if n > i and self.tokens[n - 1].end == found.end() else None

    def several(self, i: int, at_least: int) -> int | None:
        """Values with commas between them, until a field: that is where the next test starts."""
        end, follows = None, self._run("K", i) or self.value(i)
        while follows is not None and (end is None or self._end("P", end + 1) is None):
            end, at_least = follows, at_least - 1
            if end + 1 >= len(self.tokens) or self.tokens[end].text != ",":
                break
            follows = self._run("K", end + 1) or self.value(end + 1)
        return end if at_least <= 0 else None

    def rest(self, i: int) -> int | None:
        start = self.tokens[i].start
        line = self.text[start:].partition("\n")[0]
        remark = self.text[:start].rstrip().endswith(("//", "--"))
        if (re.search(r"[\"']", line) and not remark) or not re.match(r"[\w$(-]", line):
            return None
        return bisect_left(self.tokens, start + len(line), key=attrgetter("start"))

    def _anything(self, i: int) -> Iterator[int]:
        depth = 0
        for n in range(i, min(len(self.tokens), i + _MOST)):
            text = self.tokens[n].text
            depth += (text in "([{") - (text in ")]}")
            if depth < 0:
                return
            if depth == 0:
                yield n + 1

    # ---- what is put there

    def _made(self, at: tuple[int, ...]) -> Match:
        first, last, shown = self.form.marks
        start = self._start(at[first])
        end = max(start, self.tokens[at[last] - 1].end if at[last] > at[first] else start)
        place = start, end
        if shown != first:
            begin = self._start(at[shown])
            place = begin, max(begin, self.tokens[max(at[shown + 1] - 1, 0)].end)
        better = _SLOT.sub(lambda found: self._filled(found, at), self.form.row.better)
        if not better and (start == 0 or self.text[start - 1].isspace()):
            end += len(self.text[end:]) - len(self.text[end:].lstrip(" \t"))
        better = _apart(self.text, start, end, better)
        return Match(self.form.code, self.form.row, self.form.order, start, end, better, place)

    def _start(self, n: int) -> int:
        return self.tokens[n].start if n < len(self.tokens) else len(self.text.rstrip())

    def _slice(self, n: int, at: tuple[int, ...]) -> str:
        return self.text[self._start(at[n]) : self.tokens[at[n + 1] - 1].end]

    def _filled(self, found: re.Match[str], at: tuple[int, ...]) -> str:
        name = found[1] or found[3]
        parts = self.form.parts
        if name == "N" and "N" not in parts:
            # The number of `#x`.
            n = next(n for n, one in enumerate(parts) if one.startswith("#"))
            counted = _COUNTED.match(self.tokens[at[n]].text)
            text = counted[1] if counted is not None else ""
        elif name == "*":
            first, last, _ = self.form.marks
            text = self.text[self._start(at[first]) : self.tokens[at[last] - 1].end]
        elif name.isdigit():
            text = self._slice(int(name) - 1, at)
        elif name in parts:
            text = self._slice(parts.index(name), at)
        else:
            return found[0]
        if found[2] == "it":
            return re.sub(rf"\b{re.escape(self._slice(parts.index('W'), at))}\.", "it.", text)
        return CHANGES[found[2]](text) if found[2] else text


def _apart(text: str, start: int, end: int, better: str) -> str:
    """Puts a blank where a word would run into its neighbour."""
    if better[-1:].isalnum() and re.match(r"[\w$\"']", text[end : end + 1]):
        better += " "
    if re.match(r"\w", better) and re.match(r"\w", text[start - 1 : start]) and start:
        better = f" {better}"
    return better


# ---- what a captured text may be turned into where a row puts it down


def bare(text: str) -> str:
    """Returns a text without its quotes."""
    return text[1:-1] if text[:1] in ("'", '"') else text


def in_quotes(text: str) -> str:
    """Returns a text in quotes, those that it does not hold itself."""
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'


CHANGES: Final[dict[str, Callable[[str], str]]] = {
    "equal": lambda text: text.rjust(2, "="),
    "before": lambda text: f"{float(text) - 1:g}",
    "share": lambda text: f"{float(text) * (100 if float(text) < 1 else 1):g}",
    "weeks": lambda text: f"{float(text) * 7:g}",
    "years": lambda text: f"{float(text) * 365:g}",
    "binary": lambda text: re.sub(r"(?i) *([kmgt])i?b?$", lambda one: f"{one[1].upper()}i", text),
    "bare": bare,
    "quote": in_quotes,
    "glob": lambda text: in_quotes(bare(text).replace("%", "*")),
    "low": str.lower,
    "tail": lambda text: text.rpartition(".")[2],
    "one": lambda text: text.removesuffix("s"),
    "name": lambda text: re.sub(r"\W", "_", text.lstrip("$")),
    "kebab": lambda text: re.sub(r"[^\w.-]+", "-", bare(text)).strip("-"),
}
