"""Functions of lists, and the items that are gone through, as closures over a frame."""

from functools import partial

import numpy as np

from dsl import functions, ir
from dsl.lower import numbers, reads, texts
from dsl.lower.conditions import plain_list, text_function
from dsl.lower.frame import Frame, Run, Value
from dsl.lower.reads import ROWS, Building, missing_of
from dsl.lower.texts import CODE, FLOAT
from dsl.types import MISSING, Kind, Level


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
    missing = missing_of(node.type)

    def one_item(frame: Frame, at: float) -> Value:
        found = functions.item(items(frame), at)
        return missing if found is None else found

    if node.level <= Level.POD:
        return lambda frame: one_item(frame, place(frame))
    is_text = node.type.kind is Kind.TEXT

    def column(frame: Frame) -> Value:
        def found(at: float) -> Value:
            one = one_item(frame, at)
            return texts.code_of(one, frame.world.dictionary) if is_text else one

        return numbers.mapped(found, place(frame), np.int32 if is_text else np.float64)

    return column


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
