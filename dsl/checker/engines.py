"""`preempt:`, `gang:` and `quota:`: what the built-in engines over several pods are told."""

from typing import Final

from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.checker import fields, peers
from dsl.checker.aggregates import nothing_of_it
from dsl.checker.convert import help_for
from dsl.checker.literals import read_number, settle
from dsl.checker.making import arith, compare, constant, logical, read
from dsl.checker.resources import name_resource
from dsl.checker.rules import Draft, Reads, StatementDraft, reads_of
from dsl.checker.scope import Flex, describe
from dsl.checker.statements import Clauses, StatementChecker
from dsl.diagnostics import Severity
from dsl.schema import FIELDS, request_unit
from dsl.source import Span
from dsl.types import DURATION, NUMBER, Level, number_of

_VICTIMS: Final = frozenset(name for name in FIELDS if name.startswith("victims."))
_MOST_NODES: Final = 4
_MOST_VICTIMS: Final = 1000
_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
_ALL: Final = 100.0


class EngineChecker(StatementChecker):
    """Checks the statements that configure an engine."""

    def _parts(self, node: s.Special, number: int, left: ir.Expr | None, clauses: Clauses) -> Draft:
        guard = self.pod_guard(node, left)
        orders = {part.name: part for part in node.parts if isinstance(part, s.KeysClause)}
        match node.point:
            case "preempt":
                core: ir.PreemptCore | ir.GangCore | ir.QuotaCore
                core = self._preempt(guard, clauses, orders)
                keys = (*core.order, *core.pick)
                reads = reads_of(guard, core.where, *(key.value for key in keys))
            case "gang":
                core = self._gang(node, guard, clauses)
                reads = reads_of(guard, core.by, core.minimum, core.wait)
            case _:
                core = self._quota(node, guard, clauses, orders)
                reads = _quota_reads(guard, core)
        return StatementDraft(number, node, core, reads)

    # ---- preempt

    def _preempt(
        self,
        guard: ir.Expr | None,
        clauses: Clauses,
        orders: dict[str, s.KeysClause],
    ) -> ir.PreemptCore:
        if "never" in clauses:
            return ir.PreemptCore(guard=guard, never=True)
        victims = clauses["victims"]
        with self.knowing(frozenset(), pods=True):
            where: ir.Expr | None = None
            if victims.values:
                where = self.typer.condition(self.expression(victims.values[0]), "`where`")
                self._more_important(where)
                nothing_of_it(self.typer, "condition", where)
            order = self.keys(orders["victim_order"]) if "victim_order" in orders else ()
        with self.knowing(_VICTIMS):
            pick = self.keys(orders["pick"]) if "pick" in orders else ()
        limit = clauses.get("victim_limit")
        across = clauses.get("across")
        return ir.PreemptCore(
            guard=guard,
            never=False,
            where=_less_important(where, victims.span.start),
            order=order,
            pick=pick,
            limit=self.whole(limit, "limit", 1, _MOST_VICTIMS) if limit is not None else None,
            across=self.whole(across, "across", 1, _MOST_NODES) if across is not None else 1,
        )

    def _more_important(self, where: ir.Expr) -> None:
        """Warns of `where it.priority > pod.priority`, which evicts what is most important."""
        for one in where.operands if isinstance(where, ir.Logical) else (where,):
            if not isinstance(one, ir.Compare) or not one.operator.startswith((">", "<")):
                continue
            fields = [side.field for side in ir.children(one) if isinstance(side, ir.Read)]
            more = ["it.priority", "pod.priority"]
            if fields != (more if one.operator.startswith(">") else more[::-1]):
                continue
            better = f"it.priority <{one.operator[1:]} pod.priority"
            message = "this evicts pods that are more important than the pod they make room for"
            self.scope.report("P224", message, one.span, fix=better, severity=Severity.WARNING)

    # ---- gang

    def _gang(self, node: s.Special, guard: ir.Expr | None, clauses: Clauses) -> ir.GangCore:
        by, member = self._by(guard, clauses)
        minimum: ir.Expr | None = None
        if "gang_min" in clauses:
            minimum = self._number(clauses["gang_min"], "min")
            known = minimum.value if isinstance(minimum, ir.Const) else None
            if isinstance(known, float) and (known < 1 or known != int(known)):
                message = "a gang has a whole number of members from 1"
                raise self.scope.refuse("P111", message, minimum.span)
        elif not (isinstance(by, ir.Read) and (by.key == _GROUP_LABEL or by.field == "pod.group")):
            message = "this `gang` does not say how many members it needs"
            help_ = "end it with  min 4   or   min number(pod.annotation[KEY])"
            raise self.scope.refuse("P209", message, node.span, help_)
        backoff = clauses.get("gang_backoff")
        above = clauses.get("gang_reject")
        within = clauses.get("gang_within")
        return ir.GangCore(
            guard=guard,
            by=by,
            member=member,
            minimum=minimum,
            wait=self._wait(clauses["gang_wait"]) if "gang_wait" in clauses else None,
            backoff_seconds=self.seconds(backoff.values[0], "backoff") if backoff else 0.0,
            reject_above=self._share(above) if above is not None else None,
            within=peers.domain(self.typer, within.values[0]) if within is not None else None,
        )

    def _by(self, guard: ir.Expr | None, clauses: Clauses) -> tuple[ir.Expr, ir.Expr]:
        by, member = peers.member(self.typer, self.expression(clauses["by"].values[0]), "by")
        return by, peers.chosen(self.scope, guard, member)

    def _number(self, clause: s.Clause, what: str) -> ir.Expr:
        value = self.typer.plain(self.typer.expression(self.expression(clause.values[0])))
        if value.type != NUMBER:
            message = f"`{what}` wants a number, and this is {describe(value)}"
            helps = help_for(self.scope, value, "number")
            raise self.scope.refuse("P201", message, value.span, *helps)
        self.rules.pod_only(value, f"`{what}` looks at the pod")
        return value

    def _wait(self, clause: s.Clause) -> ir.Expr:
        node = self.expression(clause.values[0])
        if isinstance(node, s.Number | s.Param | s.Word):
            # A bare number is refused in the words of all durations.
            value = self.seconds(node, "wait")
            return ir.Const(span=node.span, type=DURATION, level=Level.CONST, value=value)
        typed = self.duration(self.typer.expression(node))
        if isinstance(typed, Flex) or typed.type != DURATION:
            message = f"`wait` wants a duration, and this is {describe(typed)}"
            helps = help_for(self.scope, typed, "seconds")
            raise self.scope.refuse("P206", message, node.span, *helps)
        self.rules.pod_only(typed, "`wait` looks at the pod")
        return typed

    def _share(self, clause: s.Clause) -> float:
        percent = clause.values[0]
        assert isinstance(percent, s.Percent | s.Word)
        text = percent.text if isinstance(percent, s.Percent) else percent.value
        share = float(text.removesuffix("%"))
        if share > _ALL:
            raise self.scope.refuse("P111", "a share is at most 100%", clause.span)
        return share / _ALL

    # ---- quota

    def _quota(
        self,
        node: s.Special,
        guard: ir.Expr | None,
        clauses: Clauses,
        orders: dict[str, s.KeysClause],
    ) -> ir.QuotaCore:
        by, member = self._by(guard, clauses)
        lists = {part.name: part for part in node.parts if isinstance(part, s.AmountsClause)}
        elastic = "quota_elastic" in clauses
        low = self._amounts(lists["quota_min"]) if "quota_min" in lists else {}
        high = self._amounts(lists["quota_max"]) if "quota_max" in lists else {}
        if not (elastic or low or high):
            what = "this `quota` limits nothing"
            help_ = "end it with  max cpu 10, memory 32Gi   or   elastic"
            raise self.scope.refuse("P209", what, node.span, help_)
        for key, (least, span) in low.items():
            if key in high and least > high[key][0]:
                raise self.scope.refuse("P111", f"the minimum of {key} is above its maximum", span)
        with self.knowing(frozenset(), pods=True):
            reclaim = self.keys(orders["quota_reclaim"]) if "quota_reclaim" in orders else ()
        message = self.rules.message(clauses.get("message"))
        for hole in message.parts if message is not None else ():
            if not isinstance(hole, str):
                self.rules.pod_only(hole, "a quota is asked before any node")
        return ir.QuotaCore(
            guard=guard,
            by=by,
            member=member,
            minimum=tuple((key, value) for key, (value, _) in low.items()),
            maximum=tuple((key, value) for key, (value, _) in high.items()),
            elastic=elastic,
            reclaim=reclaim,
            within=tuple(
                (key, _stays_within(key, value, (by, member), span))
                for key, (value, span) in high.items()
            ),
            message=message,
            status=self.rules.status(clauses.get("status")),
        )

    def _amounts(self, part: s.AmountsClause) -> dict[str, tuple[float, Span]]:
        out: dict[str, tuple[float, Span]] = {}
        for one in part.amounts:
            key = fields.key_text(self.typer, one.key)
            name_resource(self.scope, key, one.key.span)
            if key in out:
                raise self.scope.refuse("P109", f"`{key}` is given twice", one.span)
            out[key] = self._amount(key, one.value), one.span
        return out

    def _amount(self, key: str, node: s.Literal) -> float:
        unit = request_unit(key)
        typed = self.typer.param(node) if isinstance(node, s.Param) else None
        if isinstance(node, s.Word | s.Text):
            typed = read_number(node.value, node.span)
        value = settle(self.scope, typed, unit) if typed is not None else None
        amount = value.value if isinstance(value, ir.Const) and value.type.unit == unit else None
        # A parameter that is a text has no unit either.
        if not isinstance(amount, float) or not amount >= 0:
            message = f"`{self.scope.text(node)}` is no amount of {key}"
            example = {"cpu": "10", "memory": "32Gi"}.get(key, "4")
            help_ = f"write for example  {key} {example}"
            raise self.scope.refuse("P111", message, node.span, help_)
        return amount


def _quota_reads(guard: ir.Expr | None, core: ir.QuotaCore) -> Reads:
    """Returns what a quota looks at: whatever its amounts are, the pods that use them."""
    tests = (test for _, test in core.within)
    reads = reads_of(guard, core.by, *tests, *(key.value for key in core.reclaim))
    used = reads.fields | {"cluster.pods", "it.request"}
    return replace(reads, fields=used, row_local=False, pods=True, changes=True)


def _stays_within(key: str, most: float, by: tuple[ir.Expr, ir.Expr], span: Span) -> ir.Expr:
    """Returns the condition that use and request of a resource stay within an amount."""
    kind = number_of(request_unit(key))
    asked = read(span, kind, Level.POD, "pod.request", key)
    used = ir.PodAggregate(
        span=span,
        type=kind,
        level=Level.POD,
        function="sum",
        over="cluster",
        value=read(span, kind, Level.IT, "it.request", key),
        where=compare(span, by[1], "==", by[0]),
    )
    total = arith(span, kind, ("+",), (used, asked))
    return compare(span, total, "<=", constant(span, most, kind))


def _less_important(where: ir.Expr | None, start: int) -> ir.Expr:
    """Returns who may be evicted: only less important pods, unless `where` speaks of priority."""
    # Nobody wrote it: no text may stand for it where values are told.
    span = Span(start, start)
    if where is not None and any(
        isinstance(one, ir.Read) and one.field == "it.priority" for one in ir.walk(where)
    ):
        return where
    theirs = read(span, NUMBER, Level.IT, "it.priority")
    lower = compare(span, theirs, "<", read(span, NUMBER, Level.POD, "pod.priority"))
    return logical(span, "and", (lower, *([] if where is None else [where])))
