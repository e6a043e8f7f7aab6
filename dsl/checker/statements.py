"""The statements around filters and scores: spread, sort, permit, bind, actions.

And `preempt:`, `gang:` and `quota:`: what the built-in engines over several pods are told.
"""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import comparisons, names, peers
from dsl.checker.aggregates import asks_each, too_long
from dsl.checker.literals import read_word, settle
from dsl.checker.rules import Checked, Parts, Rules, holes, refuse_unsaid, unless
from dsl.checker.typer import Place
from dsl.making import arith, compare, constant, func, logical, made, read
from dsl.schema import FIELDS, QOS, request_unit
from dsl.source import Span
from dsl.types import BOOL, NUMBER, TEXT, TIME, Kind, Level

_SCORES: Final = frozenset(name for name in FIELDS if name.startswith("score"))
#: Keys of the queue that put first who is meant to be last, and what is meant.
_LAST_FIRST: Final = {
    "pod.priority": ("of the lowest priority", "pod.priority desc"),
    "pod.qos": ("of BestEffort", f"pod.qos [{', '.join(QOS)}]"),
}
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
#: A value as messages have it.
_HOLE: Final = re.compile(r"\{(([a-z_.]+)(\[[^]]+\])?)\}")
_PROTECTED: Final = ("kubernetes.io", "k8s.io")


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
    said = ir.Message(parts["over"].span, (text,))
    core = ir.FilterCore(guard=guard, test=test, left=left, right=test, message=said)
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
    first, written = part.values[0], rules.text(part.values[0])
    if written in _LAST_FIRST:
        who, fix = _LAST_FIRST[written]
        help_ = f"write  {fix}   or, if that is meant,  {written} asc"
        rules.warn("P224", f"this puts the pods {who} first", first, help_, fix=fix)
    return ir.SortCore(keys=order), tuple(key.value for key in order)


def keys(rules: Rules, part: s.Clause | None) -> tuple[ir.SortKey, ...]:
    """Returns the keys of an order."""
    return tuple(_key(rules, one) for one in part.values) if part is not None else ()


def _key(rules: Rules, node: s.Key) -> ir.SortKey:
    typed = rules.expression(node.value)
    value = rules.want(typed, "single value", "an order")
    text = rules.text(node.value)
    inner = value.operand if isinstance(value, ir.Not) else None
    negative = isinstance(value, ir.Missing) or (inner and not isinstance(inner, ir.Missing))
    if value.type == BOOL and not negative and rules.text(node) == text:
        help_ = f"write  {text} desc   or, if that is meant,  {text} asc"
        rules.warn("P224", "`no` comes before `yes`", node, help_)
    if node.direction == "desc" and re.fullmatch(r"it\.priority|victims\.(?!late)\w+", text):
        rules.warn("P224", "by this the greatest goes first", node, fix=text)
    if node.direction != "listed" and value.type == TEXT and getattr(value, "key", None):
        help_ = f"write  number({text})   or  {text} [FIRST, SECOND]"
        rules.warn("P224", "as texts `10` comes before `9`", node.value, help_)
    items: list[str | float] = []
    for item in node.items.items if node.items is not None else ():
        key = s.Text(item.span, names.fixed_text(rules, item))
        found = read_word(rules, key, value)
        comparisons.closed_set(rules, value, found)
        assert isinstance(found.value, str | float)
        items.append(found.value)
    return ir.SortKey(
        value=value,
        direction=node.direction,
        items=tuple(items),  # type: ignore[arg-type]  # all of one kind, that of the value
    )


# ---- permit


def permit(rules: Rules, node: s.Special, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `permit:`."""
    name = node.clauses[0].name
    guard, rest = rules.split(left, closed=name != "allow")
    message, status = rules.message(parts), rules.status(parts)
    waits = name in ("wait_until", "wait_then")
    seconds, until = 0.0, None
    if waits:
        seconds = rules.seconds(parts[name].values[0], "wait")
        until = rules.condition(parts[name].values[1], "`until`")
        refuse_unsaid(rules, node, "wait", until)
    if name == "wait_then" and "wait_until" in parts:
        what = "after a wait the pod is allowed or rejected"
        help_ = "write  wait 60s until CONDITION, then allow   or   then reject"
        raise rules.refuse("P209", what, node, help_)
    if left is not None:
        refuse_unsaid(rules, node, "left", left)
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
    for part in node.clauses:
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
        key = names.fixed_text(rules, key_node)
        _writable(rules, key, key_node)
        comparisons.field_as_text(rules, written)
        typed = rules.expression(written)
        value = rules.want(typed, "single value", f"`{key}`")
        found = _HOLE.search(written.value) if isinstance(written, s.Text) else None
        spec = FIELDS.get(found[2]) if found is not None else None
        if found is not None and spec is not None and spec.keyed == bool(found[3]):
            what = "only messages and events take values in braces"
            sure = found[0] == written.value and spec.type.kind not in (Kind.LIST, Kind.PODS)
            helps = () if sure else (f'put it together:  join("text ", {found[1]})',)
            rules.warn("P317", what, written, *helps, fix=found[1] if sure else None)
    kind = "label" if part.name == "set_label" else "annotate"
    known = value.value if isinstance(value, ir.Const) else ":" if value.type == TIME else ""
    if kind == "label" and found is None and known and not _NAME.fullmatch(str(known)):
        message = "no label can have this value: the pod would not be bound"
        help_ = f"write  annotate {rules.text(key_node)} = {rules.text(written)}"
        rules.warn("P317", message, written, help_)
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


_VICTIMS: Final = frozenset(name for name in FIELDS if name.startswith("victims."))
_MOST_NODES: Final = 4
_MOST_VICTIMS: Final = 1000
_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
_ALL: Final = 100.0

# ---- preempt


def preempt(rules: Rules, node: s.Special, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `preempt:`."""
    guard = rules.pod_guard(node, left)
    if "never" in parts:
        return ir.PreemptCore(guard=guard, never=True), (guard,)
    victims = parts["victims"]
    where: ir.Expr | None = None
    with rules.inside(Place(pods=True)):
        if victims.values:
            where = rules.condition(victims.values[0], "`where`")
        order = keys(rules, parts.get("victim_order"))
        asks_each(rules, where, *(key.value for key in order))
    with rules.inside(Place(results=_VICTIMS)):
        pick = keys(rules, parts.get("pick"))
    limit, across = parts.get("victim_limit"), parts.get("across")
    core = ir.PreemptCore(
        guard=guard,
        never=False,
        where=_less_important(rules, where, victims.span.nobody),
        order=order,
        pick=pick,
        limit=None if limit is None else rules.whole(limit, "limit", 1, _MOST_VICTIMS),
        across=1 if across is None else rules.whole(across, "across", 1, _MOST_NODES),
    )
    return core, (guard, core.where, *(key.value for key in (*order, *pick)))


def _less_important(rules: Rules, where: ir.Expr | None, span: Span) -> ir.Expr:
    """Returns who may be evicted: only less important pods, unless `where` speaks of priority."""
    own = ["it.priority", "pod.priority"]
    for one in ir.joined(where):
        sides = [getattr(each, "field", "") for each in ir.children(one)]
        if isinstance(one, ir.Compare) and sides == own and one.operator[0] != "<":
            what = "no less important pod goes by this"
            rules.warn("P224", what, one, fix="it.priority < pod.priority")
    if where is not None and any(
        isinstance(one, ir.Read) and one.field == "it.priority" for one in ir.walk(where)
    ):
        return where
    lower = compare(span, read(span, "it.priority"), "<", read(span, "pod.priority"))
    return logical(span, "and", (lower, *([] if where is None else [where])))


# ---- gang


def gang(rules: Rules, node: s.Special, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `gang:`."""
    guard = rules.pod_guard(node, left)
    by, member = peers.member(rules, parts["by"].values[0], "by", guard)
    minimum = wait = None
    if "gang_min" in parts:
        typed = rules.expression(parts["gang_min"].values[0])
        minimum = rules.want(typed, "plain number", "`min`")
        rules.pod_only("`min` looks at the pod", minimum)
        known = minimum.value if isinstance(minimum, ir.Const) else None
        if isinstance(known, float) and (known < 1 or known != int(known)):
            message = "a gang has a whole number of members from 1"
            raise rules.refuse("P111", message, minimum)
    elif not (isinstance(by, ir.Read) and (by.key == _GROUP_LABEL or by.field == "pod.group")):
        message = "this `gang` does not say how many members it needs"
        help_ = "end it with  min 4   or   min number(pod.annotation[KEY])"
        raise rules.refuse("P209", message, node, help_)
    if "gang_wait" in parts:
        wait = rules.duration(parts["gang_wait"].values[0], "wait")
        rules.pod_only("`wait` looks at the pod", wait)
    backoff, within = parts.get("gang_backoff"), parts.get("gang_within")
    core = ir.GangCore(
        guard=guard,
        by=by,
        member=member,
        minimum=minimum,
        wait=wait,
        backoff_seconds=rules.seconds(backoff.values[0], "backoff") if backoff else 0.0,
        reject_above=_share(rules, parts["gang_reject"]) if "gang_reject" in parts else None,
        within=peers.domain(rules, within.values[0]) if within else None,
    )
    return core, (guard, by, minimum, wait)


def _share(rules: Rules, clause: s.Clause) -> float:
    share = float(rules.text(clause.values[0]).removesuffix("%"))
    if share > _ALL:
        raise rules.refuse("P111", "a share is at most 100%", clause)
    return share / _ALL


# ---- quota


def quota(rules: Rules, node: s.Special, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks a `quota:`."""
    guard = rules.pod_guard(node, left)
    by, member = peers.member(rules, parts["by"].values[0], "by", guard)
    low, high = (_amounts(rules, parts.get(name)) for name in ("quota_min", "quota_max"))
    if not ("quota_elastic" in parts or low or high):
        what = "this `quota` limits nothing"
        help_ = "end it with  max cpu 10, memory 32Gi   or   elastic"
        raise rules.refuse("P209", what, node, help_)
    for key, (least, span) in low.items():
        if key in high and least > high[key][0]:
            raise rules.refuse("P111", f"the minimum of {key} is above its maximum", span)
    for name in ("quota_min", "quota_reclaim"):
        if name in parts and "quota_elastic" not in parts:
            what = "without `elastic` nobody lends or takes back, so this has no effect"
            rules.warn("P316", what, parts[name], "end the line with  elastic   or leave it out")
    with rules.inside(Place(pods=True)):
        reclaim = keys(rules, parts.get("quota_reclaim"))
        asks_each(rules, *(key.value for key in reclaim))
    message = rules.message(parts)
    rules.pod_only("a quota is asked before any node", *holes(message))
    within = [
        (key, _stays_within(key, value, (by, member), span)) for key, (value, span) in high.items()
    ]
    core = ir.QuotaCore(
        guard=guard,
        by=by,
        member=member,
        minimum=tuple((key, value) for key, (value, _) in low.items()),
        maximum=tuple((key, value) for key, (value, _) in high.items()),
        elastic="quota_elastic" in parts,
        reclaim=reclaim,
        within=tuple(within),
        message=message,
        status=rules.status(parts),
    )
    # Whatever its amounts are, a quota looks at the pods that use them.
    used = _used("cpu", None, node.span)
    tests = (test for _, test in within)
    return core, (guard, by, used, *tests, *(key.value for key in reclaim))


def _amounts(rules: Rules, part: s.Clause | None) -> dict[str, tuple[float, Span]]:
    out: dict[str, tuple[float, Span]] = {}
    for one in part.values if part is not None else ():
        key = names.fixed_text(rules, one.key)
        names.name_resource(rules, key, one.key.span)
        if key in out:
            raise rules.refuse("P109", f"`{key}` is given twice", one)
        out[key] = _amount(rules, key, one.value), one.span
    return out


def _amount(rules: Rules, key: str, node: s.Literal) -> float:
    unit = request_unit(key)
    typed = rules.fixed(node)
    value = settle(rules, typed, unit) if typed is not None else None
    amount = value.value if isinstance(value, ir.Const) and value.type.unit == unit else None
    # A parameter that is a text has no unit either.
    if not isinstance(amount, float) or not amount >= 0:
        message = f"`{rules.text(node)}` is no amount of {key}"
        example = {"cpu": "10", "memory": "32Gi"}.get(key, "4")
        help_ = f"write for example  {key} {example}"
        raise rules.refuse("P111", message, node, help_)
    return amount


def _stays_within(key: str, most: float, by: tuple[ir.Expr, ir.Expr], span: Span) -> ir.Expr:
    """Returns the condition that use and request of a resource stay within an amount."""
    asked = read(span, "pod.request", key)
    used = _used(key, compare(span, by[1], "==", by[0]), span)
    total = arith(span, asked.type, ("+",), (used, asked))
    return compare(span, total, "<=", constant(span, most, asked.type))


def _used(key: str, where: ir.Expr | None, span: Span) -> ir.Expr:
    value = read(span, "it.request", key)
    parts = {"function": "sum", "over": "cluster", "value": value, "where": where}
    return made(ir.PodAggregate, span, value.type, Level.POD, **parts)
