"""Texts over columns of codes: each distinct text is looked at once, then taken."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsl.lower import numbers
from dsl.lower.frame import Value
from dsl.types import MISSING
from dsl.world import Dictionary

Codes = NDArray[np.int32]
#: No text has this code, and it is not the code of a missing one.
NO_TEXT: Final = -2
_MAX_TABLES: Final = 256
_FEW: Final = 8


class Result(NamedTuple):
    """What a function of texts gives, as a column."""

    missing: float | bool
    dtype: type[np.generic]

    def stored(self, value: Value, dictionary: Dictionary) -> Value:
        """Returns a value as the column holds it: of a text its code."""
        if value is None:
            return self.missing
        return dictionary.code(value) if self is CODE else value


BOOLEAN: Final = Result(missing=False, dtype=np.bool_)
FLOAT: Final = Result(MISSING, np.float64)
CODE: Final = Result(-1, np.int32)


class CodeTable:
    """Values of a function of a text, by code; filled as codes turn up."""

    # Made for the first dictionary.
    _known: NDArray[np.bool_]
    _values: NDArray[Value]

    def __init__(self, function: Callable[[str], Value], kind: Result) -> None:
        self._function = function
        self._kind = kind
        self._dictionary: Dictionary | None = None

    def take(self, codes: Codes, dictionary: Dictionary) -> NDArray[Value]:
        """Returns the value of each code's text."""
        texts = dictionary.texts
        if dictionary is not self._dictionary or len(self._known) <= len(texts):
            self._grow(dictionary, len(texts))
        known = self._known[codes]
        if not known.all():
            for code in np.unique(codes[~known]).tolist():
                self._values[code] = self._kind.stored(self._function(texts[code]), dictionary)
                self._known[code] = True
        return self._values[codes]

    def _grow(self, dictionary: Dictionary, size: int) -> None:
        # The last place stands for code -1, a missing text.
        room = size + size // 2 + 2
        known = np.zeros(room, np.bool_)
        values = np.full(room, *self._kind)
        if dictionary is self._dictionary:
            old = len(self._known) - 1
            known[:old] = self._known[:old]
            values[:old] = self._values[:old]
        known[-1] = True
        self._dictionary = dictionary
        self._known, self._values = known, values


def tables(
    function: Callable[..., Value], place: int, kind: Result
) -> Callable[[tuple[Value, ...]], CodeTable]:
    """Returns what gives the table of the argument at a place, by the others, which are scalars."""

    @lru_cache(maxsize=_MAX_TABLES)
    def table(others: tuple[Value, ...]) -> CodeTable:
        before, after = others[:place], others[place:]
        return CodeTable(lambda text: function(*before, text, *after), kind)

    return table


def code_of(value: Value, dictionary: Dictionary) -> Value:
    """Returns the code of a scalar text, interned; columns stay as they are."""
    if value is None:
        return np.int32(-1)
    return np.int32(dictionary.code(value)) if isinstance(value, str) else value


def find(value: str | None, dictionary: Dictionary) -> int:
    """Returns the code of a scalar text for a comparison; `NO_TEXT` if no column has it."""
    if value is None:
        return NO_TEXT
    code = dictionary.find(value)
    return NO_TEXT if code < 0 else code


def equal(left: Value, right: Value, dictionary: Dictionary) -> NDArray[np.bool_]:
    """Compares two texts, at least one a column; missing equals nothing."""
    if not isinstance(left, np.ndarray):
        left, right = right, left
    if isinstance(right, np.ndarray):
        return np.asarray((left == right) & (left >= 0))
    return np.asarray(left == find(right, dictionary))


def member(codes: Codes, items: tuple[str, ...], dictionary: Dictionary) -> NDArray[np.bool_]:
    """Whether each text is one of the items."""
    wanted = [code for code in (dictionary.find(one) for one in items) if code >= 0]
    if len(wanted) > _FEW:
        return np.isin(codes, wanted)
    out = np.zeros(len(codes), np.bool_)
    for code in wanted:
        out |= codes == code
    return out


def combined(
    function: Callable[..., Value], columns: Iterable[Value], kind: Result, dictionary: Dictionary
) -> NDArray[Value]:
    """Applies a function of texts and numbers to every row, each distinct combination once."""
    coded = np.broadcast_arrays(*[code_of(one, dictionary) for one in columns])
    number, first = numbers.combinations(coded, len(coded[0]))
    rows, texts = zip(*[one[first].tolist() for one in coded], strict=True), dictionary.texts

    def value(row: tuple[float, ...]) -> Value:
        if any(isinstance(one, int) and one < 0 for one in row):
            return kind.missing
        args = (texts[one] if isinstance(one, int) else one for one in row)
        return kind.stored(function(*args), dictionary)

    return np.array([value(one) for one in rows], kind.dtype)[number]
