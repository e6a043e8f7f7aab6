"""The statements around filters and scores: first, spread, sort, permit, bind, actions."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import comparisons, fields, peers
from dsl.checker.lists import too_long
from dsl.checker.literals import read_seconds, read_word, settle
from dsl.checker.making import arith, compare, constant, func, read
from dsl.checker.rules import (
    Draft,
    FilterDraft,
    RuleChecker,
    ScoreDraft,
    StatementDraft,
    reads_of,
    unless,
)
from dsl.checker.scope import Flex, Refused, Scope, Typed, describe
from dsl.checker.typer import Typer
from dsl.checker.undecided import Side, decided
from dsl.diagnostics import Severity
from dsl.schema import FIELDS
from dsl.types import BOOL, DURATION, NUMBER, SECONDS, Kind, Level

Clauses = dict[str, s.Clause]
_SCORES: Final = frozenset(name for name in FIELDS if name.startswith("score"))
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253
_PROTECTED: Final = ("kubernetes.io", "k8s.io")
_DIRECTIONS: Final = {"ascending": "asc", "descending": "desc", "listed": "listed"}
_CLOCK: Final = ("now", "time.", "cluster.")


class StatementChecker:
    """Checks statements whose right side is more than a condition or a value."""

    def __init__(self, scope: Scope, typer: Typer, rules: RuleChecker) -> None:
        self.scope = scope
        self.typer = typer
        self.rules = rules

    def check(self, node: s.Special, number: int) -> Draft:
        """Returns the statement as understood. Raises `Refused`."""
        clauses = self.clauses(node)
        left: ir.Expr | None = None
        refused: Refused | None = None
        try:
            if node.left is not None:
                left = self.typer.condition(node.left, "the left side of `->`")
        except Refused as stop:
            refused = stop
        draft = self._parts(node, number, left, clauses)
        if refused is not None:
            raise refused
        return draft

    def _parts(self, node: s.Special, number: int, left: ir.Expr | None, clauses: Clauses) -> Draft:
        match node.point:
            case "spread":
                return self._spread(node, number, left, clauses)
            case "sort":
                return self._sort(node, number)
            case "permit":
                return self._permit(node, number, left, clauses)
            case "bind":
                return self._bind(node, number, left, clauses)
            case _:
                return self._actions(node, number, left)

    # ---- shared parts

    def clauses(self, node: s.Special) -> Clauses:
        """Returns the clauses by name; refuses one that stands twice."""
        out: Clauses = {}
        seen: set[str] = set()
        for part in node.parts:
            several = part.name in ("annotate", "set_label", "event")
            if part.name in seen and not several:
                word = self.scope.text(part).split()[0]
                raise self.scope.refuse("P109", f"`{word}` is given twice", part.span)
            seen.add(part.name)
            if isinstance(part, s.Clause):
                out[part.name] = part
        return out

    def pod_guard(self, node: s.Special, left: ir.Expr | None) -> ir.Expr | None:
        """Returns the guard of a statement whose left side may look at the pod only."""
        if left is not None:
            self.rules.pod_only(left, f"the left side of `{node.keyword}` looks at the pod")
        return self.rules.split(left)[0]

    def expression(self, node: s.Expr | s.Template) -> s.Expr:
        """Returns an expression of a clause; a text never is one."""
        assert not isinstance(node, s.Template)
        return node

    def whole(self, clause: s.Clause, what: str, low: int, high: int) -> int:
        """Reads a whole number in a range."""
        value = self.rules.clause_number(clause.values[0], f"`{what}`")
        if value != int(value) or not low <= value <= high:
            message = f"`{what}` is a whole number from {low} to {high:,}"
            raise self.scope.refuse("P111", message, clause.span)
        return int(value)

    def seconds(self, node: s.Expr | s.Template, what: str) -> float:
        """Reads a fixed duration, which may be a parameter."""
        if not isinstance(node, s.Param):
            return read_seconds(self.scope, node, what)
        value = self.duration(self.typer.param(node))
        if not isinstance(value, ir.Const) or value.type != DURATION:
            message = f"`{what}` wants a duration, and `${node.name}` is {describe(value)}"
            help_ = f"declare it so:  param {node.name}: duration = 60s"
            raise self.scope.refuse("P206", message, node.span, help_)
        assert isinstance(value.value, float)
        return value.value

    def duration(self, typed: Typed) -> Typed:
        """Settles a constant as a duration if it is one: `5m`, but no bare number."""
        bare = isinstance(typed, Flex) and typed.sort != "milli"
        return typed if bare else settle(self.scope, typed, SECONDS)

    @contextmanager
    def knowing(self, results: frozenset[str], *, pods: bool = False) -> Iterator[None]:
        """Lets expressions read results, or a pod of a set."""
        typer = self.typer
        before = typer.results, typer.in_pods
        typer.results, typer.in_pods = results, pods
        try:
            yield
        finally:
            typer.results, typer.in_pods = before

    # ---- spread

    def _spread(
        self, node: s.Special, number: int, left: ir.Expr | None, clauses: Clauses
    ) -> Draft:
        scope = self.scope
        guard = self.pod_guard(node, left)
        over = peers.domain(self.typer, clauses["over"].values[0])
        skew = self.whole(clauses["skew"], "skew", 1, 1_000_000) if "skew" in clauses else 1
        by: tuple[ir.Expr, ir.Expr] | None = None
        if "peers_by" in clauses:
            written = self.expression(clauses["peers_by"].values[0])
            by = peers.member(self.typer, written, "peers by")
        if "hard" not in clauses:
            return self._soft_spread(node, number, guard, clauses, (over, skew, by))
        if "weight" in clauses:
            message = "a hard `spread` is a filter, and filters have no weight"
            raise scope.refuse("P209", message, clauses["weight"].span, "drop `weight`")
        here, least = (peers.count(over, by, node.span) for _ in range(2))
        eligible = read(node.span, BOOL, Level.NODE, "node.eligible")
        fewest = ir.NodeAggregate(
            span=node.span,
            type=NUMBER,
            level=Level.POD,
            function="min",
            over="nodes",
            value=least,
            where=eligible,
        )
        one = constant(node.span, 1.0, NUMBER)
        more = arith(node.span, NUMBER, ("+", "-"), (here, one, fewest))
        test = compare(node.span, more, "<=", constant(node.span, float(skew), NUMBER))
        core = ir.FilterCore(
            guard=guard,
            test=test,
            left=left,
            right=test,
            forbids=False,
            message=self._spread_message(clauses["over"], skew),
            status=None,
        )
        return FilterDraft(number, node, core, reads_of(guard, test))

    def _spread_message(self, over: s.Clause, skew: int) -> ir.Message:
        word = self.scope.text(over.values[0])
        return ir.Message(over.span, (f"more than {skew} apart over {word}",))

    def _soft_spread(
        self,
        node: s.Special,
        number: int,
        guard: ir.Expr | None,
        clauses: Clauses,
        what: tuple[str, int, tuple[ir.Expr, ir.Expr] | None],
    ) -> ScoreDraft:
        over, skew, by = what
        value: ir.Expr = peers.count(over, by, node.span)
        if "skew" in clauses:
            free = constant(node.span, float(skew - 1), NUMBER)
            above = arith(node.span, NUMBER, ("-",), (value, free))
            zero = constant(node.span, 0.0, NUMBER)
            value = func(node.span, NUMBER, "max", (zero, above))
        weight = self.rules.weight(clauses["weight"].values[0]) if "weight" in clauses else 1.0
        core = ir.ScoreCore(
            guard=self.rules.scored(guard),
            value=value,
            norm="default",
            reverse=True,
            missing=None,
            weight=weight,
        )
        return ScoreDraft(number, node, core, reads_of(core.guard, value))

    # ---- orders

    def keys(self, part: s.KeysClause) -> tuple[ir.SortKey, ...]:
        """Returns the keys of an order."""
        return tuple(self._key(one) for one in part.keys)

    def _upside_down(self, node: s.Key) -> None:
        """Warns of a queue with the lowest priority first, where nobody said so."""
        value = node.value
        if not isinstance(value, s.Field) or value.path != "pod.priority":
            return
        if node.direction != "ascending" or self.scope.text(node).endswith("asc"):
            return
        message, fix = "this puts the pods of the lowest priority first", "pod.priority desc"
        help_ = f"write  {fix}   or, if that is meant,  pod.priority asc"
        self.scope.report("P224", message, node.span, help_, fix=fix, severity=Severity.WARNING)

    def _key(self, node: s.Key) -> ir.SortKey:
        value = self.typer.plain(self.typer.expression(node.value))
        if value.type.kind in (Kind.LIST, Kind.PODS):
            message = f"an order wants values, and this is {describe(value)}"
            raise self.scope.refuse("P201", message, node.value.span)
        items: list[str | float] = []
        for item in node.items.items if node.items is not None else ():
            found = read_word(self.scope, self._word(item), value)
            comparisons.closed_set(self.scope, value, found)
            assert isinstance(found.value, str | float)
            items.append(found.value)
        return ir.SortKey(
            value=value,
            direction=_DIRECTIONS[node.direction],
            items=tuple(items),  # type: ignore[arg-type]  # all of one kind, that of the value
        )

    def _word(self, item: s.Expr) -> s.Word | s.Text | s.Percent:
        if isinstance(item, s.Param):
            return s.Text(item.span, fields.key_text(self.typer, item))
        if not isinstance(item, s.Word | s.Text | s.Percent):
            raise self.scope.refuse("P201", "a list holds fixed words here", item.span)
        return item

    def _sort(self, node: s.Special, number: int) -> StatementDraft:
        (part,) = node.parts
        assert isinstance(part, s.KeysClause)
        keys = self.keys(part)
        for key in keys:
            self._steady(key.value)
        self._upside_down(part.keys[0])
        core = ir.SortCore(keys=keys)
        return StatementDraft(number, node, core, reads_of(*(key.value for key in keys)))

    def _steady(self, root: ir.Expr) -> None:
        """Refuses what may change while a pod waits in its place of the queue."""
        self.rules.pod_only(root, "`sort` looks at the pod")
        for node in ir.walk(root):
            aggregate = isinstance(node, ir.PodAggregate | ir.Metric | ir.Pair)
            clock = isinstance(node, ir.Read) and node.field.startswith(_CLOCK)
            if aggregate or clock:
                text = self.scope.text(node)
                message = f"a key of the queue is taken once, and `{text}` changes while pods wait"
                help_ = "sort by fields of the pod:  pod.priority desc, pod.queued_at"
                raise self.scope.refuse("P202", message, node.span, help_)

    # ---- permit

    def _permit(
        self, node: s.Special, number: int, left: ir.Expr | None, clauses: Clauses
    ) -> StatementDraft:
        name = node.parts[0].name
        guard, rest = self.rules.split(left, closed=name != "allow")
        message = self.rules.message(clauses.get("message"))
        status = self.rules.status(clauses.get("status"))
        seconds, until, then = 0.0, None, "reject"
        if name in ("wait_until", "wait_then"):
            seconds = self.seconds(clauses[name].values[0], "wait")
            written = self.expression(clauses[name].values[1])
            until = self.typer.condition(written, "`until`")
            decided(self.scope, Side(node, written, "wait"), until)
        if name == "wait_then":
            if "wait_until" in clauses:
                what = "after a wait the pod is allowed or rejected"
                help_ = "write  wait 60s until CONDITION, then allow   or   then reject"
                raise self.scope.refuse("P209", what, node.span, help_)
            then = "allow" if "allow" in clauses else "reject"
        if left is not None and node.left is not None:
            decided(self.scope, Side(node, node.left, "left"), left)
        decision = "wait" if name in ("wait_until", "wait_then") else name
        longer = () if decision == "allow" else too_long(self.typer, guard, rest, until)
        until = None if until is None else unless(longer, until)
        core = ir.PermitCore(
            guard=guard,
            left=rest,
            decision=decision,
            seconds=seconds,
            until=until,
            then=then,
            message=message,
            status=status,
            longer=longer,
        )
        return StatementDraft(number, node, core, reads_of(guard, rest, until))

    # ---- bind, prebind, postbind

    def _bind(
        self, node: s.Special, number: int, left: ir.Expr | None, clauses: Clauses
    ) -> StatementDraft:
        guard = self.pod_guard(node, left)
        (part,) = clauses.values()
        name = ""
        if part.name == "bind_with":
            word = part.values[0]
            assert isinstance(word, s.Word)
            name = word.value
        core = ir.BindCore(guard=guard, kind=part.name.removeprefix("bind_"), name=name)
        return StatementDraft(number, node, core, reads_of(guard))

    def _actions(self, node: s.Special, number: int, left: ir.Expr | None) -> StatementDraft:
        guard, rest = self.rules.split(left)
        actions = []
        seen: set[tuple[str, str]] = set()
        for part in node.parts:
            assert isinstance(part, s.Clause)
            action = self._action(part)
            if action.kind != "event" and (action.kind, action.key) in seen:
                raise self.scope.refuse("P109", f"`{action.key}` is set twice", part.span)
            seen.add((action.kind, action.key))
            actions.append(action)
        core = ir.ActionCore(guard=guard, left=rest, actions=tuple(actions))
        values = [
            one
            for action in actions
            for one in (
                action.value,
                *(action.text.parts if action.text is not None else ()),
            )
            if one is not None and not isinstance(one, str)
        ]
        return StatementDraft(number, node, core, reads_of(guard, rest, *values))

    def _action(self, part: s.Clause) -> ir.Action:
        with self.knowing(_SCORES):
            if part.name == "event":
                return ir.Action(span=part.span, kind="event", text=self.rules.message(part))
            key_node = self.expression(part.values[0])
            key = fields.key_text(self.typer, key_node)
            self._writable(key, key_node)
            written = self.expression(part.values[1])
            value = self.typer.plain(self.typer.expression(written))
        if value.type.kind in (Kind.LIST, Kind.PODS):
            message = f"`{key}` wants one value, and this is {describe(value)}"
            raise self.scope.refuse("P201", message, value.span)
        kind = "label" if part.name == "set_label" else "annotate"
        return ir.Action(span=part.span, kind=kind, key=key, value=value)

    def _writable(self, key: str, node: s.Expr) -> None:
        prefix, slash, name = key.rpartition("/")
        if any(prefix == one or prefix.endswith(f".{one}") for one in _PROTECTED):
            message = f"`{key}` belongs to Kubernetes, and policies do not set its keys"
            help_ = f"use a domain of your own:  example.com/{name}"
            raise self.scope.refuse("P117", message, node.span, help_)
        good = bool(_NAME.fullmatch(name)) and len(name) <= _LONGEST_NAME
        if slash:
            good = good and bool(_PREFIX.fullmatch(prefix)) and len(prefix) <= _LONGEST_PREFIX
        if not good:
            message = f"`{key}` is not a key that Kubernetes takes"
            help_ = "write  example.com/name: letters, digits, `-`, `_` and `.`, at most 63 of them"
            raise self.scope.refuse("P117", message, node.span, help_)
