"""Columns that grow: NumPy arrays with a read-only view for readers and a memoryview for one row.

A memoryview writes one item in a third of the time of NumPy's item access.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

FIRST_CAPACITY: Final = 64
_FEW: Final = 8
_BROUGHT: Final = 8
"""Texts that go over to a new dictionary as one comes that is new to it."""
MOST_COLUMNS: Final = 4096
"""Columns on demand at most, however few rows they have: each row writes to all of them."""

TEXT: Final = "text "
"""How the names of columns of texts begin."""

Rows = slice | NDArray[np.intp]
"""Which rows a plugin is asked about: a slice for the full pass, an index array otherwise."""

BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]
CodeColumn = NDArray[np.int32]

_T = TypeVar("_T")


class Dictionary:
    """Texts as int32 codes. It only grows, and every column of texts shares it.

    A code may be kept by anybody for as long as the dictionary is the same, so none is freed: who
    owns the columns makes a new dictionary when too many texts are no more.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = [*texts]
        self._codes: dict[str, int] = {}
        # What another dictionary knew, which goes over step by step, and the codes here by codes
        # there; -1 if nobody held the text any more.
        self._before: dict[str, int] = {}
        self._now: memoryview[int] = memoryview(b"")
        self.texts: Sequence[str] = self._texts
        """Code -> text."""

    def code(self, text: str) -> int:
        """The code of `text`, made if new."""
        code = self._codes.get(text)
        if code is None:
            code = self.find(text)
            if code < 0:
                code = len(self._texts)
                self._texts.append(text)
            self._codes[text] = code
            self._bring(_BROUGHT)
        return code

    def find(self, text: str) -> int:
        """The code of `text`, -1 if no column has ever held it."""
        code = self._codes.get(text, -1)
        if code < 0 and self._before:
            code = self._now[self._before.get(text, -1)]
        return code

    def renewed(self, columns: Sequence[Column]) -> Dictionary:
        """Another dictionary, of the texts in these columns, into which their codes are changed.

        This one is of no use then. Linear in cells and texts, but no step of Python for each: those
        are taken as new texts come.
        """
        self._bring(len(self._before))
        used = np.zeros(len(self._texts) + 1, np.bool_)  # the last one is for -1: missing
        for column in columns:
            used[column.array] = True
        used[-1] = False
        codes = np.where(used, np.cumsum(used) - 1, -1).astype(np.int32)
        for column in columns:
            column.array[:] = codes[column.array]
        found = Dictionary(compress(self._texts, used.tolist()))
        found._before, found._now = self._codes, codes.data
        return found

    def _bring(self, most: int) -> None:
        before = self._before
        for _ in range(min(most, len(before))):
            text, code = before.popitem()
            now = self._now[code]
            if now >= 0:
                self._codes[text] = now


class Column:
    """One growing column with a default for rows that hold nothing.

    `cell` reads and writes single rows; `view(n)` is what readers get: the first n rows, read-only.
    `array` is all of it, rows that hold nothing included.
    """

    __slots__ = ("_default", "_view", "array", "cell")

    def __init__(self, dtype: DTypeLike, capacity: int, default: object = 0) -> None:
        self._default = default
        self.array: NDArray[Any] = np.full(capacity, default, dtype=dtype)
        self.cell: memoryview[Any] = self.array.data
        self._view: NDArray[Any] = self.array[:0]

    def grow(self, capacity: int) -> None:
        """Makes room; values stay where they are."""
        old = self.array
        self.array = np.full(capacity, self._default, dtype=old.dtype)
        self.array[: len(old)] = old
        self.cell = self.array.data
        self._view = self.array[:0]

    def fill(self, values: Iterable[object], count: int, first: int = 0) -> None:
        """Writes so many rows from one on."""
        if count > _FEW:
            self.array[first : first + count] = np.fromiter(values, self.array.dtype, count)
            return
        for row, value in enumerate(values, first):
            self.cell[row] = value

    def clear(self, row: int) -> None:
        """Puts the default back."""
        self.array[row] = self._default

    def view(self, size: int) -> NDArray[Any]:
        """The first `size` rows, read-only. Changes of cells show through."""
        view = self._view
        if len(view) != size:
            view = self.array[:size]
            view.flags.writeable = False
            self._view = view
        return view


class Derived(Generic[_T]):
    """Columns built on demand, by name, each with the function that computes it; bounded by bytes.

    Beyond the bound the least recently used ones are dropped; they are built again on demand.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._columns: dict[str, tuple[Column, Callable[[_T], object]]] = {}

    def __iter__(self) -> Iterator[tuple[Column, Callable[[_T], object]]]:
        return iter(self._columns.values())

    def get(self, name: str) -> Column | None:
        """The column, which is the most recently used one from now on."""
        found = self._columns.pop(name, None)
        if found is None:
            return None
        self._columns[name] = found
        return found[0]

    def named(self, prefix: str) -> list[tuple[Column, Callable[[_T], object]]]:
        """The columns whose name begins with the prefix."""
        return [found for name, found in self._columns.items() if name.startswith(prefix)]

    def drop(self, name: str, column: Column) -> bool:
        """Drops a column; False if it was not there, or another one is in its place."""
        found = self._columns.get(name)
        is_there = found is not None and found[0] is column
        if is_there:
            del self._columns[name]
        return is_there

    def write(
        self, write: Callable[[Column, Callable[[_T], object]], None], prefix: str = ""
    ) -> bool:
        """Calls `write` for each column whose name begins with the prefix.

        Drops those whose functions, which are plugins', raise; True if there are any. Whoever asks
        for such a column next builds it, and meets the exception: there it has a name.
        """
        broken = []
        for name, (column, of) in self._columns.items():
            try:
                if name.startswith(prefix):
                    write(column, of)
            except Exception:  # noqa: BLE001 - see above
                broken.append(name)
        for name in broken:
            del self._columns[name]
        return bool(broken)

    def put(self, name: str, column: Column, of: Callable[[_T], object]) -> bool:
        """Adds a column. True if others were dropped for it."""
        self._columns[name] = column, of
        least = self._most // MOST_COLUMNS
        sizes = {name: max(one.array.nbytes, least) for name, (one, _) in self._columns.items()}
        size = sum(sizes.values())
        if size <= self._most:
            return False
        for old in list(sizes)[:-1]:
            if size > self._most // 2:
                size -= sizes[old]
                del self._columns[old]
        return True


class ColumnTable(ABC, Generic[_T]):
    """A table with columns that are computed from its objects, built on first use."""

    dictionary: Dictionary
    """Of all text columns."""

    _derived: Derived[_T]

    def texts(self) -> list[Column]:
        """The columns that hold codes of the dictionary."""
        return [column for column, _ in self._derived.named(TEXT)]

    def recode(self, dictionary: Dictionary) -> None:
        """The codes of `texts` are of another dictionary now."""
        self.dictionary = dictionary

    @abstractmethod
    def derived(
        self, name: str, dtype: type, default: object, of: Callable[[_T], object]
    ) -> NDArray[Any]:
        """A column of any type, with an entry for each row; its name has to include the type."""

    def text(self, column: str, of: Callable[[_T], str | None]) -> CodeColumn:
        """Dictionary codes of a text of each object, -1 = missing.

        Built with `of` on first use under the name `column` and kept up to date; one name must
        always be used with the same function. `label_column` and `annotation_column` return such
        pairs for nodes.
        """

        def code(one: _T) -> int:
            text = of(one)
            return -1 if text is None else self.dictionary.code(text)

        return self.derived(f"{TEXT}{column}", np.int32, -1, code)

    def number(self, column: str, of: Callable[[_T], float]) -> FloatColumn:
        """Like `text`, for numbers; NaN = missing."""
        return self.derived(f"number {column}", np.float64, np.nan, of)

    def flag(self, column: str, of: Callable[[_T], bool]) -> BoolColumn:
        """Like `text`, for booleans."""
        return self.derived(f"flag {column}", np.bool_, 0, of)
