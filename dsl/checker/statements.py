"""The statements around filters and scores: spread, sort, permit, bind, actions."""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import comparisons, fields, peers
from dsl.checker.lists import too_long
from dsl.checker.literals import read_word
from dsl.checker.rules import Checked, Parts, Rules, holes, unless
from dsl.checker.typer import Place
from dsl.checker.undecided import Side, refuse_unsaid
from dsl.making import arith, compare, constant, func, made, read
from dsl.schema import FIELDS
from dsl.types import NUMBER, Level

_SCORES: Final = frozenset(name for name in FIELDS if name.startswith("score"))
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PROTECTED: Final = ("kubernetes.io", "k8s.io")
_DIRECTIONS: Final = {"ascending": "asc", "descending": "desc", "listed": "listed"}


# ---- spread


def spread(rules: Rules, node: s.Special, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `spread:`: a filter if it is hard, else a score."""
    span = node.span
    guard = rules.pod_guard(node, left)
    over = peers.domain(rules, parts["over"].values[0])
    skew = rules.whole(parts["skew"], "skew", 1, 1_000_000) if "skew" in parts else 1
    by = None
    if "peers_by" in parts:
        by = peers.member(rules, parts["peers_by"].values[0], "peers by")
    value = peers.count(over, by, span)
    if "hard" not in parts:
        if "skew" in parts:
            above = arith(span, NUMBER, ("-",), (value, constant(span, skew - 1.0, NUMBER)))
            value = func(span, NUMBER, "max", (constant(span, 0.0, NUMBER), above))
        guard = rules.scored(guard)
        score = ir.ScoreCore(
            guard=guard, value=value, norm="default", reverse=True, missing=None,
            weight=rules.weight(parts),
        )  # fmt: skip
        return score, (guard, value)
    if "weight" in parts:
        message = "a hard `spread` is a filter, and filters have no weight"
        raise rules.refuse("P209", message, parts["weight"], "drop `weight`")
    fewest = made(
        ir.NodeAggregate, span, NUMBER, Level.POD, function="min", over="nodes",
        value=value, where=read(span, "node.eligible"),
    )  # fmt: skip
    one = constant(span, 1.0, NUMBER)
    more = arith(span, NUMBER, ("+", "-"), (value, one, fewest))
    test = compare(span, more, "<=", constant(span, float(skew), NUMBER))
    text = f"more than {skew} apart over {rules.text(parts['over'].values[0])}"
    core = ir.FilterCore(
        guard=guard, test=test, left=left, right=test, forbids=False,
        message=ir.Message(parts["over"].span, (text,)), status=None,
    )  # fmt: skip
    return core, (guard, test)


# ---- orders


def sort(rules: Rules, _node: s.Special, _left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `sort:`, whose keys may not change while a pod waits in its place of the queue."""
    (part,) = parts.values()
    order = keys(rules, part)
    for root in (key.value for key in order):
        rules.pod_only("`sort` looks at the pod", root)
        for one in ir.walk(root):
            clock = isinstance(one, ir.Read) and one.level is Level.CYCLE
            if clock or isinstance(one, ir.PodAggregate | ir.Metric | ir.Pair):
                text = rules.text(one)
                message = f"a key of the queue is taken once, and `{text}` changes while pods wait"
                help_ = "sort by fields of the pod:  pod.priority desc, pod.queued_at"
                raise rules.refuse("P202", message, one, help_)
    first, written = part.keys[0], rules.text(part.keys[0])
    if first.direction == "ascending" and written == "pod.priority":
        message, fix = "this puts the pods of the lowest priority first", "pod.priority desc"
        help_ = f"write  {fix}   or, if that is meant,  pod.priority asc"
        rules.warn("P224", message, first, help_, fix=fix)
    return ir.SortCore(keys=order), tuple(key.value for key in order)


def keys(rules: Rules, part: s.KeysClause | None) -> tuple[ir.SortKey, ...]:
    """Returns the keys of an order."""
    return tuple(_key(rules, one) for one in part.keys) if part is not None else ()


def _key(rules: Rules, node: s.Key) -> ir.SortKey:
    typed = rules.expression(node.value)
    value = rules.want(typed, "single value", "an order")
    items: list[str | float] = []
    for item in node.items.items if node.items is not None else ():
        key = s.Text(item.span, fields.fixed_text(rules, item))
        found = read_word(rules, key, value)
        comparisons.closed_set(rules, value, found)
        assert isinstance(found.value, str | float)
        items.append(found.value)
    return ir.SortKey(
        value=value,
        direction=_DIRECTIONS[node.direction],
        items=tuple(items),  # type: ignore[arg-type]  # all of one kind, that of the value
    )


# ---- permit


def permit(rules: Rules, node: s.Special, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `permit:`."""
    name = node.parts[0].name
    guard, rest = rules.split(left, closed=name != "allow")
    message, status = rules.message(parts), rules.status(parts)
    waits = name in ("wait_until", "wait_then")
    seconds, until = 0.0, None
    if waits:
        seconds = rules.seconds(parts[name].values[0], "wait")
        written = parts[name].values[1]
        until = rules.condition(written, "`until`")
        refuse_unsaid(rules, Side(node, written, "wait"), until)
    if name == "wait_then" and "wait_until" in parts:
        what = "after a wait the pod is allowed or rejected"
        help_ = "write  wait 60s until CONDITION, then allow   or   then reject"
        raise rules.refuse("P209", what, node, help_)
    if left is not None and node.left is not None:
        refuse_unsaid(rules, Side(node, node.left, "left"), left)
    longer = () if name == "allow" else too_long(rules, guard, rest, until)
    until = None if until is None else unless(longer, until)
    core = ir.PermitCore(
        guard=guard,
        left=rest,
        decision="wait" if waits else name,
        seconds=seconds,
        until=until,
        then="allow" if name == "wait_then" and "allow" in parts else "reject",
        message=message,
        status=status,
        longer=longer,
    )
    return core, (guard, rest, until)


# ---- bind, prebind, postbind


def bind(rules: Rules, node: s.Special, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `bind:`."""
    guard = rules.pod_guard(node, left)
    (part,) = parts.values()
    name = part.values[0].value if part.name == "bind_with" else ""
    return ir.BindCore(guard=guard, kind=part.name.removeprefix("bind_"), name=name), (guard,)


def actions(rules: Rules, node: s.Special, left: ir.Expr | None, _parts: Parts) -> Checked:
    """Checks a `prebind:` or `postbind:`."""
    guard, rest = rules.split(left)
    done: dict[tuple[str, str], ir.Action] = {}
    for part in node.parts:
        assert isinstance(part, s.Clause)
        action = _action(rules, part)
        if action.kind != "event" and (action.kind, action.key) in done:
            raise rules.refuse("P109", f"`{action.key}` is set twice", part)
        # Of events there may be several.
        done[action.kind, action.key or str(len(done))] = action
    told = tuple(done.values())
    values = (value for one in told for value in (one.value, *holes(one.text)))
    return ir.ActionCore(guard=guard, left=rest, actions=told), (guard, rest, *values)


def _action(rules: Rules, part: s.Clause) -> ir.Action:
    with rules.inside(Place(results=_SCORES)):
        if part.name == "event":
            text = rules.message({"event": part}, "event")
            return ir.Action(span=part.span, kind="event", text=text)
        key_node, written = part.values
        assert not isinstance(key_node, s.Template)
        assert not isinstance(written, s.Template)
        key = fields.fixed_text(rules, key_node)
        _writable(rules, key, key_node)
        typed = rules.expression(written)
        value = rules.want(typed, "single value", f"`{key}`")
    kind = "label" if part.name == "set_label" else "annotate"
    return ir.Action(span=part.span, kind=kind, key=key, value=value)


def _writable(rules: Rules, key: str, node: s.Expr) -> None:
    prefix, slash, name = key.rpartition("/")
    if any(prefix == one or prefix.endswith(f".{one}") for one in _PROTECTED):
        message = f"`{key}` belongs to Kubernetes, and policies do not set its keys"
        help_ = f"use a domain of your own:  example.com/{name}"
        raise rules.refuse("P117", message, node, help_)
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        message = f"`{key}` is not a key that Kubernetes takes"
        help_ = "write  example.com/name: letters, digits, `-`, `_` and `.`, at most 63 of them"
        raise rules.refuse("P117", message, node, help_)
