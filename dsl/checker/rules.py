"""Rules: a condition or a value behind a keyword, as filters, scores, gates and tiers."""

from typing import Final

from msgspec import Struct

from dsl import ir
from dsl import syntax as s
from dsl.checker.aggregates import OF_NODE, sets_read
from dsl.checker.convert import help_for
from dsl.checker.lists import too_long
from dsl.checker.literals import read_number, settle
from dsl.checker.making import choice, constant, inverted, logical
from dsl.checker.scope import Flex, Refused, Scope, Typed, describe
from dsl.checker.typer import Typer
from dsl.checker.undecided import Side, decided, demanded
from dsl.diagnostics import Severity
from dsl.plan import DOMAINS
from dsl.quantities import to_float
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.types import NUMBER, PLAIN, Kind, Level

_MAX_WEIGHT: Final = 1_000_000.0
_STATUS: Final = {
    "unschedulable": "Unschedulable",
    "unresolvable": "UnschedulableAndUnresolvable",
}
_FULL: Final = 100.0
_CONDITIONS: Final = ("filter", "forbid", "gate", "prefilter", "reserve")
_TIME_FIELDS: Final = (
    "now", "time.hour", "time.minute", "time.weekday", "time.day", "time.month",
)  # fmt: skip


class Reads(Struct, frozen=True):
    """What a rule looks at."""

    fields: frozenset[str]
    row_local: bool
    pods: bool
    metrics: bool
    time: bool
    changes: bool


class FilterDraft(Struct, frozen=True):
    """A filter as understood, before it is lowered."""

    number: int
    written: s.Rule | s.Special
    core: ir.FilterCore
    reads: Reads

    @property
    def status(self) -> str:
        """What a rejection means for preemption."""
        if self.core.status is not None:
            return self.core.status
        return _STATUS["unschedulable" if self.reads.changes else "unresolvable"]


class ScoreDraft(Struct, frozen=True):
    """A score as understood, before it is lowered."""

    number: int
    written: s.Rule | s.Special
    core: ir.ScoreCore
    reads: Reads


StatementCore = (
    ir.TierCore
    | ir.SortCore
    | ir.PermitCore
    | ir.ActionCore
    | ir.BindCore
    | ir.PreemptCore
    | ir.GangCore
    | ir.QuotaCore
)


class StatementDraft(Struct, frozen=True):
    """Any other statement as understood."""

    number: int
    written: s.Rule | s.Special
    core: StatementCore
    reads: Reads

    @property
    def status(self) -> str:
        """What a rejection means for preemption."""
        given = getattr(self.core, "status", None)
        if isinstance(given, str):
            return given
        return _STATUS["unschedulable" if self.reads.changes else "unresolvable"]


Draft = FilterDraft | ScoreDraft | StatementDraft


def reads_of(*roots: ir.Expr | None) -> Reads:
    """Collects what expressions look at."""
    fields: set[str] = set()
    local, pods, metrics, changes, time = True, False, False, False, False
    for node in ir.walk(*(one for one in roots if one is not None)):
        match node:
            case ir.Read():
                fields.add(node.field)
                changes = changes or FIELDS[node.field].changes
                # What the whole cluster has, or a quota uses, changes with any node.
                local = local and not node.field.startswith(("cluster.", "it.quota."))
            case ir.KeyedRead():
                fields.add(node.field)
                changes = changes or FIELDS[node.field].changes
            case ir.Metric():
                fields |= _read_by(node)
                metrics = True
                time = time or node.age
            case ir.Pair():
                fields.add(f"metric:{node.name}")
                metrics = True
            case ir.NodeAggregate() | ir.Rank():
                fields.update(sets_read(node))
                local = False
            case ir.ContainerAggregate():
                fields.add("pod.containers")
            case ir.PodAggregate():
                fields.update(sets_read(node))
                pods = changes = True
                local = local and node.over == "node"
            case _:
                pass
    time = time or any(one in _TIME_FIELDS for one in fields)
    return Reads(frozenset(fields), local, pods, metrics, time, changes)


def _read_by(node: ir.Metric) -> set[str]:
    """Returns what a metric looks at: itself, and what says which of its values is a node's."""
    fields = {f"metric_age:{node.name}" if node.age else f"metric:{node.name}"}
    if node.source == "annotation":
        fields |= {"node.annotation", "now"}
    if node.of in DOMAINS:
        fields.add(f"node.{node.of}")
    return fields


class RuleChecker:
    """Checks single rules of one file."""

    def __init__(
        self,
        scope: Scope,
        typer: Typer,
        guards: tuple[ir.Expr, ...],
        norm: s.Clause | None,
        prescores: tuple[ir.Expr, ...] = (),
    ) -> None:
        self._scope = scope
        self._typer = typer
        self._guards = guards
        self._norm = norm
        self._prescores = prescores

    def check(self, node: s.Rule, number: int) -> Draft:
        """Returns the rule as understood. Raises `Refused`."""
        clauses = self._clauses(node)
        refused: Refused | None = None
        left: ir.Expr | None = None
        try:
            if node.left is not None:
                left = self._typer.condition(node.left, "the left side of `->`")
        except Refused as stop:
            refused = stop
        draft: Draft
        if node.point in _CONDITIONS:
            draft = self._filter(node, number, left, clauses)
        elif node.point == "first":
            draft = self._tier(node, number, left)
        else:
            draft = self._score(node, number, left, clauses)
        if refused is not None:
            raise refused
        return draft

    def _clauses(self, node: s.Rule) -> dict[str, s.Clause]:
        out: dict[str, s.Clause] = {}
        for clause in node.clauses:
            if clause.name in out:
                word = clause.name.partition("_")[0]
                raise self._scope.refuse("P109", f"`{word}` is given twice", clause.span)
            out[clause.name] = clause
        return out

    # ---- filters

    def _filter(
        self, node: s.Rule, number: int, left: ir.Expr | None, clauses: dict[str, s.Clause]
    ) -> FilterDraft:
        right = self._typer.condition(node.right, f"the right side of `{node.keyword}`")
        message = self.message(clauses.get("message"))
        status = self.status(clauses.get("status"))
        if node.point in ("gate", "prefilter"):
            self._before_nodes(node, [left, right], message)
        guards, rest = self.split(left, closed=True)
        test = inverted(right.span, right) if node.point == "forbid" else right
        longer = too_long(self._typer, guards, rest, right)
        test = unless(longer, test)
        if rest is not None:
            test = logical(node.span, "or", (inverted(rest.span, rest), test))
        core = ir.FilterCore(
            guard=guards,
            test=test,
            left=left,
            right=right,
            forbids=node.point == "forbid",
            message=message,
            status=status,
            longer=longer,
        )
        if left is not None and node.left is not None:
            # There a missing value lets the rule pass by; it does not reject.
            decided(self._scope, Side(node, node.left, "left"), left, right)
        decided(self._scope, Side(node, node.right, node.point), right, left)
        if node.point != "gate":
            self._scope.demanded |= demanded(core)
        return FilterDraft(number, node, core, reads_of(guards, test))

    def _before_nodes(
        self, node: s.Rule, conditions: list[ir.Expr | None], message: ir.Message | None
    ) -> None:
        """Refuses what a gate cannot know."""
        what, over_nodes = f"`{node.keyword}` is asked before any node", node.point == "prefilter"
        for part in conditions:
            if part is not None:
                self.pod_only(part, what, over_nodes=over_nodes)
        for hole in message.parts if message is not None else ():
            if not isinstance(hole, str):
                self.pod_only(hole, what, over_nodes=over_nodes)

    def _tier(self, node: s.Rule, number: int, left: ir.Expr | None) -> StatementDraft:
        test = self._typer.condition(node.right, "the right side of `first`")
        if left is not None:
            self.pod_only(left, "the left side of `first` looks at the pod")
        core = ir.TierCore(guard=self.split(left)[0], test=test)
        return StatementDraft(number, node, core, reads_of(core.guard, test))

    def prescore(self, node: s.Rule) -> ir.Expr:
        """Returns the condition of a `prescore:`, on which all scores of the file depend."""
        test = self._typer.condition(node.right, f"`{node.keyword}`")
        self.pod_only(test, f"`{node.keyword}` looks at the pod")
        return test

    def scored(self, guard: ir.Expr | None) -> ir.Expr | None:
        """Returns the guard of a score: what the file's `prescore:` lines say comes with it."""
        return _both([one for one in (guard, *self._prescores) if one is not None])

    def pod_only(self, root: ir.Expr, what: str, *, over_nodes: bool = False) -> None:
        """Refuses what differs from node to node, and aggregates over nodes."""
        if root.level > Level.POD:
            raise self.too_high(root, Level.POD, what)
        for node in () if over_nodes else ir.walk(root):
            if isinstance(node, ir.NodeAggregate):
                message = f"{what}, and this aggregates over nodes"
                raise self._scope.refuse("P202", message, node.span)

    def split(
        self, left: ir.Expr | None, *, closed: bool = False
    ) -> tuple[ir.Expr | None, ir.Expr | None]:
        """Parts a left side into what the pod alone decides and the rest.

        With `closed`, a part of it holds also where it goes through a list that has more items than
        are looked at: who writes a list does not get past a rule by its length.
        """
        pod = [*self._guards]
        node: list[ir.Expr] = []
        for one in _conjuncts(left, self._typer):
            (pod if one.level <= Level.POD and not _over_nodes(one) else node).append(one)
        if closed and too_long(self._typer, *self._guards, left):
            pod = [_or_longer(self._typer, one) for one in pod]
            node = [_or_longer(self._typer, one) for one in node]
        elif not self._guards and not node:
            # As it is written, so that an explanation has a text for the whole.
            return left, None
        return _both(pod), _both(node)

    def status(self, clause: s.Clause | None) -> str | None:
        """Reads a `status`."""
        if clause is None:
            return None
        word = clause.values[0]
        assert isinstance(word, s.Word)
        return _STATUS[word.value]

    def message(self, clause: s.Clause | None) -> ir.Message | None:
        """Checks a message and the expressions in it."""
        if clause is None:
            return None
        template = clause.values[0]
        assert isinstance(template, s.Template)
        _raw_braces(self._scope, template)
        parts: list[str | ir.Expr] = []
        for one in template.parts:
            parts.append(one if isinstance(one, str) else self._hole(one))
        return ir.Message(template.span, tuple(parts))

    def _hole(self, node: s.Expr) -> ir.Expr:
        value = self._typer.plain(self._typer.expression(node))
        inner = value
        while isinstance(inner, ir.Named):
            inner = inner.body
        # A quantity is told as it is written, with its unit.
        of_text = isinstance(inner, ir.Func) and inner.name == "quantity"
        return inner.args[0] if isinstance(inner, ir.Func) and of_text else value

    # ---- scores

    def _score(
        self, node: s.Rule, number: int, left: ir.Expr | None, clauses: dict[str, s.Clause]
    ) -> ScoreDraft:
        typed = self._typer.expression(node.right)
        if node.point == "score":
            value, norm, reverse = self._plain_score(node, typed, clauses)
        else:
            value, norm, reverse = self._preference(node, typed, clauses)
        if left is not None:
            if left.level > Level.POD:
                what = f"the left side of `{node.keyword}` looks at the pod"
                raise self.too_high(left, Level.POD, what, node)
            if _over_nodes(left):
                message = f"the left side of `{node.keyword}` may not aggregate over nodes"
                raise self._scope.refuse("P202", message, left.span)
        missing = None
        if "missing_score" in clauses:
            missing = self._percent_points(clauses["missing_score"])
        weight = self.weight(clauses["weight"].values[0]) if "weight" in clauses else 1.0
        core = ir.ScoreCore(
            guard=self.scored(_both([one for one in (*self._guards, left) if one is not None])),
            value=value,
            norm=norm,
            reverse=reverse,
            missing=missing,
            weight=weight,
        )
        return ScoreDraft(number, node, core, reads_of(core.guard, value))

    def _plain_score(
        self, node: s.Rule, typed: Typed, clauses: dict[str, s.Clause]
    ) -> tuple[ir.Expr, str, bool]:
        clause = clauses.get("normalize", self._norm)
        norm, reverse = "none", False
        if clause is not None:
            words = [one.value for one in clause.values if isinstance(one, s.Word)]
            norm, reverse = words[0], "reverse" in words[1:]
        value = self._typer.plain(typed)
        if not value.type.is_number:
            message = f"a score is a number, and this is {describe(value)}"
            helps = help_for(self._scope, value, "number")
            if value.type.kind is Kind.BOOL:
                helps = (f"write  prefer: {self._scope.text(node.right)}",)
            raise self._scope.refuse("P205", message, node.right.span, *helps)
        if norm == "none" and not (value.type.unit or PLAIN).is_plain:
            message = f"a score is a plain number from 0 to 100, and this is in {value.type.unit}"
            help_ = (
                f"to rank the nodes by it write  {self._scope.text(node.right)} normalize minmax"
            )
            raise self._scope.refuse("P205", message, node.right.span, help_)
        return value, norm, reverse

    def _preference(
        self, node: s.Rule, typed: Typed, clauses: dict[str, s.Clause]
    ) -> tuple[ir.Expr, str, bool]:
        scope = self._scope
        if "normalize" in clauses:
            message, help_ = f"`{node.keyword}` has a scale of its own", "drop `normalize`"
            raise scope.refuse("P209", message, clauses["normalize"].span, help_)
        value = self._typer.plain(typed)
        text = scope.text(node.right)
        if node.direction:
            if node.point == "avoid":
                other = "most" if node.direction == "least" else "least"
                help_ = f"write  prefer: {other} {text}"
                message = f"`avoid: {node.direction}` says no twice"
                raise scope.refuse("P209", message, node.right.span, help_)
            if not value.type.is_number and value.type.kind is not Kind.TIME:
                message = f"`{node.direction}` wants a number, and this is {describe(value)}"
                helps = help_for(scope, value, "number")
                raise scope.refuse("P205", message, node.right.span, *helps)
            return value, "minmax", node.direction == "least"
        if value.type.kind is not Kind.BOOL:
            message = f"`{node.keyword}` wants a condition, and this is {describe(value)}"
            least = "least" if node.point == "avoid" else "most"
            help_ = f"write  prefer: {least} {text}"
            helps = (help_,) if value.type.is_number else help_for(scope, value, "condition")
            raise scope.refuse("P208", message, node.right.span, *helps)
        if "missing_score" in clauses:
            message = "a condition is never missing"
            raise scope.refuse("P209", message, clauses["missing_score"].span)
        yes, no = (_FULL, 0.0) if node.point == "prefer" else (0.0, _FULL)
        ends = [constant(node.right.span, one, NUMBER) for one in (yes, no)]
        return choice(node.right.span, value, *ends), "none", False

    def weight(self, node: s.Expr | s.Template) -> float:
        """Reads a weight: a number from 0 to 1,000,000."""
        value = self.clause_number(node, "`weight`")
        if not 0 <= value <= _MAX_WEIGHT:
            message = f"a weight is a number from 0 to {_MAX_WEIGHT:,.0f}"
            raise self._scope.refuse("P111", message, node.span)
        return value

    def _percent_points(self, clause: s.Clause) -> float:
        value = self.clause_number(clause.values[0], "`missing`")
        if not 0 <= value <= _FULL:
            raise self._scope.refuse("P111", "a score is from 0 to 100", clause.span)
        return value

    def clause_number(self, node: s.Expr | s.Template, what: str) -> float:
        """Reads a plain number of a clause, which may be a parameter."""
        typed: Typed | None = None
        if isinstance(node, s.Param):
            typed = self._typer.param(node)
        elif isinstance(node, s.Word):
            typed = read_number(node.value, node.span)
        if not isinstance(typed, Flex) or typed.exact is None:
            word = self._scope.text(node)
            known = word in self._scope.params
            message, fix = f"{what} wants a number", f"${word}" if known else None
            raise self._scope.refuse("P111", message, node.span, fix=fix)
        settle(self._scope, typed, PLAIN)
        return to_float(typed.exact)

    def too_high(
        self, root: ir.Expr, most: Level, what: str, rule: s.Rule | None = None
    ) -> Refused:
        """Refuses an expression that reads more than its place allows."""
        # What is asked of each pod of a set is no value of a node.
        of_node = (
            one
            for one in ir.walk(root)
            if isinstance(one, (*OF_NODE, ir.NodeAggregate)) and most < one.level <= Level.NODE
        )
        guilty = next(of_node, root)
        help_ = "fields of the pod and of its namespace fit here"
        if rule is not None and rule.left is not None:
            left, right = self._scope.text(rule.left), self._scope.text(rule.right)
            help_ = f"write  {rule.keyword}: {left} and {right}"
            if rule.point == "score":
                help_ = f"write  score: if {left} then {right} else 0"
        message = f"{what}, and `{self._scope.text(guilty)}` differs from node to node"
        return self._scope.refuse("P202", message, guilty.span, help_)


def _raw_braces(scope: Scope, template: s.Template) -> None:
    """Warns of `'usage {load}'`: single quotes take braces as they stand."""
    written = scope.source.slice(template.span)
    if written[:1] == "'" and "{" in written and '"' not in written and "\\" not in written:
        message = "single quotes take braces as they stand, so no value is put in"
        better = f'"{written[1:-1]}"'
        scope.report("P317", message, template.span, fix=better, severity=Severity.WARNING)


def _conjuncts(left: ir.Expr | None, typer: Typer) -> tuple[ir.Expr, ...]:
    if left is None:
        return ()
    # What is asked of a list stays in one piece, so that it is known by it.
    of_list = id(left) in typer.bounded
    if isinstance(left, ir.Logical) and left.operator == "and" and not of_list:
        return left.operands
    return (left,)


def _or_longer(typer: Typer, part: ir.Expr) -> ir.Expr:
    longer = too_long(typer, part)
    return _joined("or", (part, *longer)) if longer else part


def unless(longer: tuple[ir.Compare, ...], test: ir.Expr) -> ir.Expr:
    """A test that does not hold where a list has more items than are looked at."""
    nobody = Span(test.span.start, test.span.start)
    fits = [inverted(nobody, one) for one in longer]
    return _joined("and", (*fits, test)) if fits else test


def _joined(operator: str, parts: tuple[ir.Expr, ...]) -> ir.Expr:
    # Nobody wrote it: no text of a part may stand for the whole.
    nobody = Span(parts[0].span.start, parts[0].span.start)
    return logical(nobody, operator, parts)


def _both(parts: list[ir.Expr]) -> ir.Expr | None:
    return _joined("and", tuple(parts)) if parts else None


def _over_nodes(root: ir.Expr) -> bool:
    return any(isinstance(one, ir.NodeAggregate) for one in ir.walk(root))
