"""Expressions of a statement about several pods get values, by columns."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dsl import functions, ir
from dsl.lower import numbers
from dsl.lower.columns import Builder
from dsl.lower.frame import NO_ROWS, Frame, Memo, Run
from dsl.lower.reads import ITS, ROWS
from dsl.types import Kind, Level
from dsl.world import Subject, World

#: A float, text or flag; NaN or None where it is missing.
Value = Any


class Columns:
    """The compiled expressions of one statement; `of` looks at them for a pod."""

    def __init__(self, memo: Memo) -> None:
        self._builder = Builder(memo)

    def of(self, subject: Subject, world: World) -> "Values":
        """Returns the values for one pod on one snapshot."""
        return Values(self, subject, world)

    def run(self, expr: ir.Expr) -> Run:
        """Returns the closure of an expression, made once."""
        return self._builder.build(expr, ITS if expr.level is Level.IT else ROWS)


class Values:
    """What a statement's expressions are for one pod on one snapshot."""

    def __init__(self, columns: Columns, subject: Subject, world: World) -> None:
        self._columns = columns
        self.subject = subject
        self.world = world

    def one(self, expr: ir.Expr) -> Value:
        """Returns the value of an expression about the pod."""
        frame = Frame(self.world, NO_ROWS, subject=self.subject)
        return frame.ask(self._columns.run(expr))

    def _of_pods(self, expr: ir.Expr, world: World) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Returns the used rows of a table, ascending, and a value for each."""
        frame = Frame(world, slice(0, world.nodes), subject=self.subject)
        rows = np.flatnonzero(world.pod_node >= 0)
        found = frame.ask(self._columns.run(expr))
        if expr.level is Level.NODE:
            found = np.asarray(found)[world.pod_node[rows]]
        elif expr.level is not Level.IT and expr.type.kind is Kind.TEXT:
            found = -1 if found is None else world.dictionary.code(found)
        return rows, np.broadcast_to(found, rows.shape)

    def chosen(self, where: ir.Expr, table: str = "pods") -> tuple[int, ...]:
        """Returns the rows of the pods for which a condition holds, ascending."""
        rows, mask = self._of_pods(where, _table(self.world, table))
        return tuple(rows[mask].tolist())

    def ordered(self, rows: Sequence[int], keys: Sequence[ir.SortKey]) -> tuple[int, ...]:
        """Returns rows of the table `pods` in an order; equal ones stay as they are."""
        chosen = np.array(rows, np.intp)
        group = np.zeros(len(chosen), np.intp)
        groups = min(len(chosen), 1)
        for key in keys:
            if groups == len(chosen):
                break
            # Only what is still equal needs another key: names, say, are rarely looked at.
            equal = np.bincount(group)[group] > 1
            places = np.zeros(len(chosen), np.intp)
            places[equal] = self._places(key, chosen[equal])
            distinct, group = np.unique(
                group * (int(places.max()) + 1) + places, return_inverse=True
            )
            groups = len(distinct)
        return tuple(chosen[np.argsort(group, kind="stable")].tolist())

    def _places(self, key: ir.SortKey, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Returns where the value of each row stands among the distinct ones."""
        used, column = self._of_pods(key.value, self.world)
        return self._placed(key, column[np.searchsorted(used, rows)])

    def _placed(self, key: ir.SortKey, column: NDArray[Any]) -> NDArray[np.intp]:
        values, back = np.unique(column, return_inverse=True)
        if key.direction != "listed" and key.value.type.kind is not Kind.TEXT:
            # Sorted already, the missing value last, which is where it stays.
            there = len(values) - int(np.isnan(values[-1:]).sum())
            turned = key.direction == "desc"
            return np.where(back < there, there - 1 - back, back) if turned else back
        if key.direction != "listed":
            return _by_text(values, self.world.dictionary.texts, key.direction)[back]
        kinds = [
            functions.place(one, key.direction, key.items)
            for one in _plain(values, key.value, self.world)
        ]
        rank = {place: number for number, place in enumerate(sorted(set(kinds)))}
        return np.array([rank[one] for one in kinds], np.intp)[back]

    def totals(
        self, key: ir.Expr, amounts: Sequence[ir.Expr], where: ir.Expr | None, table: str = "pods"
    ) -> dict[str | float, tuple[float, ...]]:
        """Returns the sums of amounts of the pods with an equal key, those without one left out."""
        world = _table(self.world, table)
        _, keys = self._of_pods(key, world)
        keep = (keys >= 0) if key.type.kind is Kind.TEXT else ~np.isnan(keys)
        if where is not None:
            keep &= self._of_pods(where, world)[1]
        values, back = np.unique(keys[keep], return_inverse=True)
        sums = [
            numbers.grouped("sum", back, self._of_pods(one, world)[1][keep], len(values)).tolist()
            for one in amounts
        ]
        names = _plain(values, key, world)
        return {name: tuple(row[at] for row in sums) for at, name in enumerate(names)}

    def column(self, expr: ir.Expr, rows: NDArray[np.intp]) -> NDArray[Any]:
        """Returns the values of some rows of the table `pods`."""
        used, column = self._of_pods(expr, self.world)
        return column[np.searchsorted(used, rows)]

    def distinct(
        self, expr: ir.Expr, rows: NDArray[np.intp]
    ) -> tuple[list[Value], NDArray[np.intp]]:
        """Returns the values that some rows of the table `pods` have, and which each has."""
        values, index = np.unique(self.column(expr, rows), return_inverse=True)
        return _plain(values, expr, self.world), index

    def rank(
        self, key: ir.SortKey, rows: NDArray[np.intp], results: Mapping[str, NDArray[Any]]
    ) -> NDArray[Any]:
        """Returns where a key puts each of some nodes whose outcomes would be `results`."""
        if key.value.level < Level.NODE:
            return np.zeros(len(rows), np.intp)
        # Each column of results has the length of the frame.
        frame = Frame(self.world, rows, subject=self.subject, results=cast("Any", results))
        return self._placed(key, np.atleast_1d(frame.ask(self._columns.run(key.value))))


def _by_text(codes: NDArray[Any], texts: Sequence[str], direction: str) -> NDArray[np.intp]:
    """Returns where each of some distinct texts stands among them, a missing one last."""
    there = np.flatnonzero(codes >= 0)
    order = np.argsort(np.array([texts[code] for code in codes[there].tolist()] or [""]))
    places = np.full(len(codes), len(there), np.intp)
    if len(there):
        places[there[order if direction == "asc" else order[::-1]]] = np.arange(len(there))
    return places


def _plain(column: NDArray[Any], expr: ir.Expr, world: World) -> list[Value]:
    """Returns the values behind a column: texts for codes."""
    if expr.type.kind is not Kind.TEXT:
        values: list[Value] = column.tolist()
        return values
    texts = world.dictionary.texts
    return [None if code < 0 else texts[code] for code in column.tolist()]


def _table(world: World, table: str) -> World:
    return world if table == "pods" else world.pod_table(table)
