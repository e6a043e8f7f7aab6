"""Tests and choices over columns, also where a value is missing; functions of texts and lists."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from dsl import functions, ir
from dsl.lower import reads, texts
from dsl.lower.frame import Frame, Run, Value
from dsl.lower.reads import ROWS, Building
from dsl.lower.texts import CODE, FLOAT
from dsl.types import MISSING, Kind, Level, is_missing


def text_function(
    builder: reads.Building,
    function: Callable[..., Value],
    args: tuple[ir.Expr, ...],
    domain: str,
    kind: texts.Result,
) -> Run:
    """Returns a function of texts: of columns each distinct text is looked at once."""
    runs = [builder.build(one, domain) for one in args]
    columns = [place for place, one in enumerate(args) if one.level > Level.POD]
    if not columns:
        missing = None if kind is texts.CODE else kind.missing

        def scalar(frame: Frame) -> Value:
            values = [run(frame) for run in runs]
            return missing if None in values else function(*values)

        return scalar
    if len(columns) > 1 or args[columns[0]].type.is_number:

        def several(frame: Frame) -> Value:
            values = (run(frame) for run in runs)
            return texts.combined(function, values, kind, frame.world.dictionary)

        return several
    place = columns[0]
    table = texts.tables(function, place, kind)

    def one_column(frame: Frame) -> Value:
        values = [run(frame) for run in runs]
        codes = values.pop(place)
        if None in values:
            return np.full(len(codes), *kind)
        return table(tuple(values)).take(codes, frame.world.dictionary)

    return one_column


def _compare(builder: reads.Building, node: ir.Compare, domain: str) -> Run:
    left, right = builder.build(node.left, domain), builder.build(node.right, domain)
    scalar = node.level <= Level.POD
    if node.left.type.kind is Kind.TEXT:
        if scalar:
            return lambda frame: left(frame) == right(frame) is not None
        fixed = next((one for one in (node.left, node.right) if isinstance(one, ir.Const)), None)
        if fixed is not None and isinstance(fixed.value, str):
            text, column = fixed.value, left if fixed is node.right else right
            # The column is read first: the text may have no code before.
            return lambda frame: column(frame) == texts.find(text, frame.world.dictionary)
        return lambda frame: texts.equal(left(frame), right(frame), frame.world.dictionary)
    test = functions.COMPARISONS[node.operator]
    return lambda frame: test(left(frame), right(frame))


def _member(builder: reads.Building, node: ir.Member, domain: str) -> Run:
    made = ir.split_of(node.items)
    if made is not None:
        return text_function(builder, _in_split, (node.item, *made.args), domain, texts.BOOLEAN)
    if node.items.level is Level.NODE:
        field = plain_list(node.items).field
        return reads.in_list(field, builder.build(node.item, domain), domain)
    item, items = builder.build(node.item, domain), builder.build(node.items)
    is_text = node.item.type.kind is Kind.TEXT
    if node.level <= Level.POD:
        return lambda frame: item(frame) in items(frame)
    if is_text:
        return lambda frame: texts.member(item(frame), items(frame), frame.world.dictionary)
    return lambda frame: np.isin(item(frame), items(frame))


def _missing(builder: reads.Building, node: ir.Missing, domain: str) -> Run:
    operand = builder.build(node.operand, domain)
    is_text = node.operand.type.kind is Kind.TEXT
    if node.level <= Level.POD:
        return lambda frame: is_missing(operand(frame))
    if is_text:
        return lambda frame: operand(frame) < 0
    return lambda frame: np.isnan(operand(frame))


def _coalesce(builder: reads.Building, node: ir.Coalesce, domain: str) -> Run:
    if node.level <= Level.POD:
        runs = [builder.build(one, domain) for one in node.operands]

        def first(frame: Frame) -> Value:
            for run in runs:
                value = run(frame)
                if value is not None and value == value:
                    return value
            return node.type.missing

        return first

    is_text = node.type.kind is Kind.TEXT
    *others, last = [builder.coded(one, domain) for one in node.operands]

    def columns(frame: Frame) -> Value:
        result = last(frame)
        for run in reversed(others):
            value = run(frame)
            result = np.where(value < 0 if is_text else np.isnan(value), result, value)
        return result

    return columns


def _logical(builder: reads.Building, node: ir.Logical, domain: str) -> Run:
    runs = [builder.build(one, domain) for one in node.operands]
    if node.level <= Level.POD:
        decided = all if node.operator == "and" else any
        return lambda frame: decided(run(frame) for run in runs)
    join = operator.and_ if node.operator == "and" else operator.or_
    decides, of_rows = node.operator == "or", domain == reads.ROWS

    def logical(frame: Frame) -> Value:
        result = runs[0](frame)
        for run in runs[1:]:
            if result is decides and of_rows:
                # The pod alone decided, of all rows: what is asked of nodes costs nothing.
                return np.full(frame.count, decides)
            result = join(result, run(frame))
        return result

    return logical


def _if(builder: reads.Building, node: ir.If, domain: str) -> Run:
    condition, scalar = builder.build(node.condition, domain), node.level <= Level.POD
    build = builder.build if scalar else builder.coded
    then, other = build(node.then, domain), build(node.other, domain)
    if scalar:
        return lambda frame: then(frame) if condition(frame) else other(frame)
    # The pod alone decides: what is not chosen, the rest of a long list say, costs nothing.
    once = node.condition.level <= Level.POD and domain == reads.ROWS

    def choose(frame: Frame) -> Value:
        if once:
            chosen = (then if condition(frame) else other)(frame)
            return chosen if isinstance(chosen, np.ndarray) else np.full(frame.count, chosen)
        return np.where(condition(frame), then(frame), other(frame))

    return choose


def plain_list(node: ir.Expr) -> ir.Read:
    """Returns the read of a list of the node; there is no other list at its level."""
    node = ir.unnamed(node)
    assert isinstance(node, ir.Read)
    return node


def _in_split(item: str, text: str, separator: str) -> bool:
    return item in (functions.split(text, separator) or ())


def _text_test(builder: reads.Building, node: ir.TextTest, domain: str) -> Run:
    function = functions.TEXT_TESTS[node.operator]
    return text_function(builder, function, (node.left, node.right), domain, texts.BOOLEAN)


def _not(builder: reads.Building, node: ir.Not, domain: str) -> Run:
    operand = builder.build(node.operand, domain)
    if node.level <= Level.POD:
        return lambda frame: not operand(frame)
    return lambda frame: ~operand(frame)


#: What builds the closure of a comparison, a test, or a choice between values, in a domain.
CONDITIONS: Final[dict[type, Callable[[reads.Building, Any, str], Run]]] = {
    ir.Compare: _compare,
    ir.TextTest: _text_test,
    ir.Member: _member,
    ir.Missing: _missing,
    ir.Coalesce: _coalesce,
    ir.Logical: _logical,
    ir.Not: _not,
    ir.If: _if,
}


def list_function(builder: Building, node: ir.Func, domain: str) -> Run:
    """Returns `len` and `item` of a list."""
    made = ir.split_of(node.args[0])
    if made is not None:
        if node.name == "len":
            return text_function(builder, _count_of_split, made.args, domain, FLOAT)
        args = (*made.args, node.args[1])
        return text_function(builder, _item_of_split, args, domain, CODE)
    if node.name == "len":
        if node.level is Level.NODE:
            return reads.list_lengths(plain_list(node.args[0]).field)
        items = builder.build(node.args[0])
        return lambda frame: float(len(items(frame)))
    items, place = (builder.build(one, domain) for one in node.args)
    if node.level > Level.POD:
        kind = CODE if node.type.kind is Kind.TEXT else FLOAT
        return lambda frame: texts.combined(
            partial(functions.item, items(frame)), [place(frame)], kind, frame.world.dictionary
        )
    missing = node.type.missing

    def one_item(frame: Frame) -> Value:
        found = functions.item(items(frame), place(frame))
        return missing if found is None else found

    return one_item


def items_of(builder: Building, node: ir.ItemAggregate) -> Run:
    """Returns the items of a list, each a value or, of lists of nodes, a column of codes."""
    most = node.most
    if node.items.level is not Level.NODE:
        whole = builder.build(node.items)
        return lambda frame: (whole(frame) or ())[:most]
    made = ir.split_of(node.items)
    assert made is not None
    lengths = text_function(builder, _count_of_split, made.args, ROWS, FLOAT)
    places = [text_function(builder, partial(_item_of_split, place=place), made.args, ROWS, CODE)
              for place in range(most)]  # fmt: skip

    def columns(frame: Frame) -> Value:
        longest = np.nanmax(lengths(frame), initial=0.0)
        return [place(frame) for place in places[: int(longest)]]

    return columns


def _count_of_split(text: str, separator: str) -> float:
    parts = functions.split(text, separator)
    return MISSING if parts is None else float(len(parts))


def _item_of_split(text: str, separator: str, place: float) -> str | None:
    found = functions.item(functions.split(text, separator) or (), place)
    return found if isinstance(found, str) else None
