"""The parts of conditions and numbers with their values, for explanations and failed tests.

No line may say of a text what is not so: what is asked of many items has a line for each of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dsl import ir, reference
from dsl.plan import RuleBase
from dsl.types import MISSING, Level, is_missing, show

_MOST_VALUES: Final = 24
#: How the whole begins that goes through a list, of which there may be one item.
_OF_ALL: Final = re.compile(r"[a-z]+\(.*\b(where|over)\b", re.DOTALL)
#: Of the items of which a part says the same, so many are shown.
_MOST_ALIKE: Final = 3
_WIDEST: Final = 44
_LONGEST: Final = 200

Row = tuple[str, str]


def table(roots: Sequence[ir.Expr], rule: RuleBase, view: reference.View) -> Iterator[str]:
    """The lines of a rule's parts, each with its value for this pod and node."""
    rows = values(roots, rule, view)
    width = min(max((len(words) for words, _ in rows), default=0), _WIDEST)
    for words, value in rows[:_MOST_VALUES]:
        clipped = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."
        yield f"    {words:<{width}}  {clipped}"
    if len(rows) > _MOST_VALUES:
        yield "    ..."


def values(roots: Sequence[ir.Expr], rule: RuleBase, view: reference.View) -> list[Row]:
    """A rule's parts, the whole before them, each with its value for this pod and node."""
    return [row for group in _groups(roots, rule.source.text, view) for row in _few(group)]


def asked(value: ir.Expr) -> ir.Expr:
    """The condition of a `prefer:` or `avoid:`, which stands where the points do."""
    stands_for_it = isinstance(value, ir.If) and value.span == value.condition.span
    return value.condition if stands_for_it and isinstance(value, ir.If) else value


def _few(group: list[Row]) -> Iterator[Row]:
    """Some items of each value: which one differs is seen however many are alike."""
    shown: Counter[str] = Counter()
    for words, value in dict.fromkeys(group):
        shown[value] += 1
        if shown[value] <= _MOST_ALIKE:
            yield words, value


def _groups(roots: Sequence[ir.Expr], text: str, view: reference.View) -> list[list[Row]]:
    """Each part that has a value here, the whole before its parts, each text once."""
    seen: set[str] = set()
    of_items: dict[str, list[Row]] = {}
    out: list[list[Row]] = []
    for node, of_container in _visible(roots, view):
        words = " ".join(text[node.span.start : node.span.end].split())
        items = _containers(view) if of_container else _item(node, text, view)
        if items is not None:
            if words not in of_items:
                of_items[words] = []
                out.append(of_items[words])
            of_items[words].extend(
                (f"{words}, {name}", show(reference.evaluate(node, one), node.type))
                for name, one in items
            )
            continue
        if (not words or words in seen) and isinstance(node, ir.Read):
            words = node.field if node.key is None else f"{node.field}[{node.key}]"
        if words and words not in seen:
            seen.add(words)
            out.append([(words, show(reference.evaluate(node, view), node.type))])
    return out


def _visible(roots: Sequence[ir.Expr], view: reference.View) -> Iterator[tuple[ir.Expr, bool]]:
    """The parts that can be asked here; says which of them are asked of a container."""
    met: set[int] = set()
    stack = [(root, False, False) for root in reversed(roots)]
    while stack:
        node, in_pods, in_containers = stack.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        other_pod = node.level is Level.IT and (in_pods or view.pod < 0)
        no_node = node.level is Level.NODE and view.row < 0
        of_container = in_containers and _reads_container(node)
        if not (isinstance(node, ir.Const) or other_pod or no_node):
            yield node, of_container
        in_pods = in_pods or isinstance(node, ir.PodAggregate)
        in_containers = isinstance(node, ir.ContainerAggregate) or in_containers
        stack.extend((one, in_pods, in_containers) for one in reversed(ir.children(node)))


def _reads_container(root: ir.Expr) -> bool:
    return any(isinstance(one, ir.ContainerRead) for one in ir.walk(root))


def _containers(view: reference.View) -> list[tuple[str, reference.View]]:
    subject = view.subject
    return [
        (f"of {subject.container_text(place, 'name')}", replace(view, container=place))
        for place in range(subject.containers)
    ]


def _item(
    node: ir.Expr, text: str, view: reference.View
) -> list[tuple[str, reference.View]] | None:
    """The item of a list that a part is asked of; none if it is asked once.

    Lists are written out item by item, and each item stands where `it` does.
    """
    own = text[node.span.start : node.span.end]
    items = [one for one in ir.walk(node) if _is_item(one, text)]
    if not items or _OF_ALL.match(own) or any(_place(one) != _place(items[0]) for one in items):
        return None
    value = MISSING if own == "it" else reference.evaluate(items[0], view)
    return [] if is_missing(value) else [(f"it is {show(value, items[0].type)}", view)]


def _is_item(node: ir.Expr, text: str) -> bool:
    of_list = isinstance(node, ir.Const) or (isinstance(node, ir.Func) and node.name == "item")
    return of_list and text[node.span.start : node.span.end] == "it"


def _place(item: ir.Expr) -> object:
    place = item.args[1] if isinstance(item, ir.Func) else item
    return place.value if isinstance(place, ir.Const) else id(place)
