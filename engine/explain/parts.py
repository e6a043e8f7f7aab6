"""The parts of conditions and numbers with their values, for explanations and failed tests.

No line may say of a text what is not so: what is asked of many items has a line for each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dsl import ir, reference
from dsl.plan import RuleBase
from dsl.types import Level, show

_MOST_VALUES: Final = 24
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
    for node, items in _visible(roots, view):
        words = " ".join(text[node.span.start : node.span.end].split())
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


#: What a part is asked of where that are several: how each is called, and its view.
_Each = list[tuple[str, reference.View]]
_Around = ir.ContainerAggregate | ir.ItemAggregate


def _visible(
    roots: Sequence[ir.Expr], view: reference.View
) -> Iterator[tuple[ir.Expr, _Each | None]]:
    """The parts that can be asked here; says of which containers or items, None where of none."""
    met: set[int] = set()
    stack: list[tuple[ir.Expr, bool, _Around | None]]
    stack = [(root, False, None) for root in reversed(roots)]
    while stack:
        node, in_pods, around = stack.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        other_pod = node.level is Level.IT and (in_pods or view.pod < 0)
        no_node = node.level is Level.NODE and view.row < 0
        if not (isinstance(node, ir.Const | ir.Item) or other_pod or no_node):
            yield node, _each(node, around, view)
        in_pods = in_pods or isinstance(node, ir.PodAggregate)
        inner = node if isinstance(node, _Around) else around
        stack.extend((one, in_pods, inner) for one in reversed(ir.children(node)))


def _each(node: ir.Expr, around: _Around | None, view: reference.View) -> _Each | None:
    """The containers or items that a part is asked of; None if it is asked once."""
    reads = {type(one) for one in ir.walk(node)} if around is not None else set()
    if isinstance(around, ir.ContainerAggregate) and ir.ContainerRead in reads:
        subject = view.subject
        return [
            (f"of {subject.container_text(place, 'name')}", replace(view, container=place))
            for place in range(subject.containers)
        ]
    if not isinstance(around, ir.ItemAggregate) or ir.Item not in reads:
        return None
    kind = next(one.type for one in ir.walk(around) if isinstance(one, ir.Item))
    items = reference.evaluate(around.items, view) or ()
    return [(f"it is {show(one, kind)}", replace(view, item=one)) for one in items[: around.most]]
