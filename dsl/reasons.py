"""What is said of a node that a rule rejects: the rule's message, or the values that were tried.

Whoever asks gives the values: both evaluators tell the same.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from dsl import ir
from dsl.types import NUMBER, quoted, show

#: Gives the value of an expression: a float, text, flag or tuple; NaN or None where it is missing.
Ask = Callable[[ir.Expr], Any]
#: What an explanation shows the value of.
_SHOWN = ir.Read | ir.KeyedRead | ir.Metric | ir.Pair | ir.Named | ir.Rank | ir.Aggregate


def message(core: ir.FilterCore, text: str, ask: Ask) -> str:
    """Returns why a node was rejected: the rule's message, else the values tried."""
    said = given(core, text, ask)
    if said is not None:
        return said
    *_, (failed, wanted) = _path(core, ask)
    tried = "; ".join(_tried(failed, text, ask))
    verdict = "false" if wanted else "true"
    return f"{_words(text, failed)} is {verdict}" + (f": {tried}" if tried else "")


def given(core: ir.FilterCore | ir.PermitCore, text: str, ask: Ask) -> str | None:
    """Returns that a list is too long, else the rule's own message; None without one."""
    for one in core.longer:
        if ask(one):
            return beyond(one, text, ask)
    return None if core.message is None else filled(core.message, ask)


def filled(message_of: ir.Message, ask: Ask) -> str:
    """Returns the text of a message, its values put in."""
    return "".join(
        one if isinstance(one, str) else quoted(ask(one), one.type) for one in message_of.parts
    )


def told_by(core: ir.FilterCore, ask: Ask) -> tuple[ir.Expr, ...]:
    """Returns what decides the words of `message`: of nodes with equal values it says the same."""
    found: list[ir.Expr] = []
    for one in core.longer:
        found.append(one)
        if ask(one):
            return (*found, *ir.children(one))
    if core.message is not None:
        return (*found, *(one for one in core.message.parts if not isinstance(one, str)))
    steps = [step for step, _ in _path(core, ask)]
    for outer, inner in pairwise(steps):
        if isinstance(outer, ir.Logical):
            place = [id(one) for one in outer.operands].index(id(inner))
            found.extend(outer.operands[: place + 1])
    return (*found, *_shown(steps[-1]))


def decisive(core: ir.FilterCore, ask: Ask) -> ir.Expr:
    """Returns the part of the right side that alone decides: what a caret is put under."""
    *_, (part, _) = _path(core, ask)
    return part


def _path(core: ir.FilterCore, ask: Ask) -> Iterator[tuple[ir.Expr, bool]]:
    """Yields the right side and, step by step, the part of it that alone decides.

    Each with what it would have to be for the node to pass.
    """
    part, wanted, deeper = core.right, not core.forbids, True
    while deeper:
        yield part, wanted
        part, wanted, deeper = _narrow(part, ask, wanted=wanted)


def beyond(longer: ir.Compare, text: str, ask: Ask) -> str:
    """Returns in words that a list has more items than are looked at."""
    count, most = ask(longer.left), ask(longer.right)
    of_list = _words(text, ir.list_below(longer))
    return f"{of_list} has {show(count, NUMBER)} items, of which {show(most, NUMBER)} are looked at"


def _narrow(node: ir.Expr, ask: Ask, *, wanted: bool) -> tuple[ir.Expr, bool, bool]:
    """Steps to the first part that alone decides; says whether there was one."""
    if isinstance(node, ir.Named):
        return node.body, wanted, True
    if isinstance(node, ir.Not) and isinstance(node.operand, ir.Logical | ir.Not):
        return node.operand, not wanted, True
    if isinstance(node, ir.Logical) and (node.operator == "and") == wanted:
        for one in node.operands:
            if bool(ask(one)) != wanted:
                return one, wanted, True
    return node, wanted, False


def _tried(root: ir.Expr, text: str, ask: Ask) -> Iterator[str]:
    """Yields each value that was read, in the order of the text."""
    # That the whole is false has been said.
    seen = {_words(text, root)}
    for node in _shown(root):
        name = _name(node, text)
        if name not in seen:
            seen.add(name)
            yield f"{name} is {quoted(ask(node), node.type)}"


def _shown(root: ir.Expr) -> Iterator[ir.Expr]:
    stack: list[ir.Expr] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, _SHOWN):
            yield node
        else:
            stack.extend(reversed(ir.children(node)))


def _name(node: ir.Expr, text: str) -> str:
    if isinstance(node, ir.Read):
        if node.key is None:
            return node.field
        if node.field in ("node.label", "pod.label", "node.taint"):
            words = _words(text, node)
            return node.key if " " in words.split("[", 1)[0] else words
        return f"{node.field}[{node.key}]"
    return _words(text, node)


def _words(text: str, node: ir.Expr) -> str:
    return " ".join(text[node.span.start : node.span.end].split())
