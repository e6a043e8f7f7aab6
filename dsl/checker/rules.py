"""Rules: a condition or a value behind a keyword, as filters, scores, gates and tiers."""

import re
from typing import Final

from msgspec import Struct

from dsl import ir
from dsl import syntax as s
from dsl.checker.aggregates import OF_NODE, sets_read
from dsl.checker.expressions import Typer, level_of
from dsl.checker.guards import without_arrow
from dsl.checker.hints import raw_braces
from dsl.checker.lists import too_long
from dsl.checker.literals import constant, read_number, settle
from dsl.checker.scales import flat_score, odd_score
from dsl.checker.scope import Flex, Refused, Scope, Typed, describe
from dsl.checker.texts import of_text
from dsl.checker.undecided import Side, decided, demanded
from dsl.functions import to_float
from dsl.plan import DOMAINS
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.types import BOOL, NUMBER, PLAIN, Kind, Level

_MAX_WEIGHT: Final = 1_000_000.0
_STATUS: Final = {
    "unschedulable": "Unschedulable",
    "unresolvable": "UnschedulableAndUnresolvable",
}
_FULL: Final = 100.0
_NAMES: Final = re.compile(r"[a-z_][\w.]*")
_WEIGHED: Final = re.compile(r"(?m)^(?:score|prefer|avoid|weight|normalize)[ \t]*:")
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
                # What the whole cluster has changes with any node.
                local = local and not node.field.startswith("cluster.")
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


def _quoted(scope: Scope, value: ir.Const) -> str:
    """Returns what to do with a constant as a score: a value in quotes is none."""
    names = _NAMES.findall(str(value.value))
    if isinstance(value.value, str) and any(one in FIELDS or one in scope.names() for one in names):
        return f"a value has no quotes around it: write  score: {value.value}"
    return "write for example  score: if node.ready then 100 else 0"


class RuleChecker:
    """Checks single rules of one file."""

    def __init__(
        self,
        scope: Scope,
        typer: Typer,
        guard: ir.Expr | None,
        norm: s.Clause | None,
        prescores: tuple[ir.Expr, ...] = (),
    ) -> None:
        self._scope = scope
        self._typer = typer
        self._guard = guard
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
        test = right
        if node.point == "forbid":
            test = ir.Not(span=right.span, type=BOOL, level=right.level, operand=right)
        longer = too_long(self._typer, guards, rest, right)
        test = unless(longer, test)
        if rest is not None:
            apart = ir.Not(span=rest.span, type=BOOL, level=rest.level, operand=rest)
            test = ir.Logical(
                span=node.span,
                type=BOOL,
                level=level_of((apart, test)),
                operator="or",
                operands=(apart, test),
            )
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
        without_arrow(self._scope, node, right)
        if node.point != "gate":
            self._scope.demanded |= demanded(core)
        return FilterDraft(number, node, core, reads_of(guards, test))

    def _before_nodes(
        self, node: s.Rule, conditions: list[ir.Expr | None], message: ir.Message | None
    ) -> None:
        """Refuses what a gate cannot know."""
        what, over_nodes = f"`{node.keyword}` is asked before any node", node.point == "prefilter"
        sides = [self._scope.text(one) for one in (node.left, node.right) if one is not None]
        hint = f"nodes are asked by  filter: {' -> '.join(sides)}"
        aside = f"write  prefilter: {' -> '.join(sides)}"
        for part in conditions:
            if part is not None:
                self.pod_only(part, what, over_nodes=over_nodes, hint=hint, aside=aside)
        for hole in message.parts if message is not None else ():
            if not isinstance(hole, str):
                hint = "leave it out of the message"
                self.pod_only(hole, what, over_nodes=over_nodes, hint=hint)

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

    def pod_only(
        self, root: ir.Expr, what: str, *, over_nodes: bool = False, hint: str = "", aside: str = ""
    ) -> None:
        """Refuses what differs from node to node, and aggregates over nodes."""
        if root.level > Level.POD:
            raise self.too_high(root, Level.POD, what, hint=hint)
        if over_nodes:
            return
        for node in ir.walk(root):
            if isinstance(node, ir.NodeAggregate):
                raise self._scope.refuse(
                    "P202",
                    f"{what}, and this aggregates over nodes",
                    node.span,
                    *([aside] if aside else []),
                )

    def split(
        self, left: ir.Expr | None, *, closed: bool = False
    ) -> tuple[ir.Expr | None, ir.Expr | None]:
        """Parts a left side into what the pod alone decides and the rest.

        With `closed`, a part of it holds also where it goes through a list that has more items than
        are looked at: who writes a list does not get past a rule by its length.
        """
        pod = [self._guard] if self._guard is not None else []
        node: list[ir.Expr] = []
        for one in _conjuncts(left, self._typer):
            (pod if one.level <= Level.POD and not _over_nodes(one) else node).append(one)
        if closed and too_long(self._typer, self._guard, left):
            pod = [_or_longer(self._typer, one) for one in pod]
            node = [_or_longer(self._typer, one) for one in node]
        elif self._guard is None and not node:
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
        raw_braces(self._scope, template.span)
        parts: list[str | ir.Expr] = []
        for one in template.parts:
            parts.append(one if isinstance(one, str) else self._hole(one))
        return ir.Message(template.span, tuple(parts))

    def _hole(self, node: s.Expr) -> ir.Expr:
        return self._typer.plain(self._typer.expression(node))

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
                raise self.too_high(
                    left, Level.POD, f"the left side of `{node.keyword}` looks at the pod", node
                )
            if _over_nodes(left):
                raise self._scope.refuse(
                    "P202",
                    f"the left side of `{node.keyword}` may not aggregate over nodes",
                    left.span,
                )
        missing = None
        if "missing_score" in clauses:
            missing = self._percent_points(clauses["missing_score"])
        weight = self.weight(clauses["weight"].values[0]) if "weight" in clauses else 1.0
        core = ir.ScoreCore(
            guard=self.scored(_both([one for one in (self._guard, left) if one is not None])),
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
            text = self._scope.text(node.right)
            hint = {
                Kind.BOOL: f"write  prefer: {text}",
                Kind.TEXT: of_text(value, text),
                Kind.TIME: f"for the newest write  prefer: most {text}",
                Kind.LIST: f"write  score: len({text})",
            }.get(value.type.kind)
            if isinstance(value, ir.Const):
                hint = _quoted(self._scope, value)
            raise self._scope.refuse(
                "P205",
                f"a score is a number, and this is {describe(value)}",
                node.right.span,
                *([hint] if hint else []),
            )
        if norm == "none" and not (value.type.unit or PLAIN).is_plain:
            text = self._scope.text(node.right)
            hints = [f"to rank the nodes by it write  score: {text} normalize minmax"]
            if value.level is not Level.NODE:
                hints = ["it is the same for all nodes: compare it with something of the node"]
            raise self._scope.refuse(
                "P205",
                f"a score is a plain number from 0 to 100, and this is {_in_unit(value)}",
                node.right.span,
                *hints,
                *_as_share(value, text),
            )
        if norm == "none":
            odd_score(self._scope, value, node.right)
            flat_score(
                self._scope, value, node.right.span, weighted="weight" in clauses or self._weighed()
            )
        return value, norm, reverse

    def _weighed(self) -> bool:
        """Whether a score has its scale by others, or by the weight of the policy."""
        return len(_WEIGHED.findall(self._scope.source.text)) > 1

    def _preference(
        self, node: s.Rule, typed: Typed, clauses: dict[str, s.Clause]
    ) -> tuple[ir.Expr, str, bool]:
        scope = self._scope
        if "normalize" in clauses:
            raise scope.refuse(
                "P209",
                f"`{node.keyword}` has a scale of its own",
                clauses["normalize"].span,
                "drop `normalize`, or write a `score:`",
            )
        value = self._typer.plain(typed)
        text = scope.text(node.right)
        if node.direction:
            if node.point == "avoid":
                other = "most" if node.direction == "least" else "least"
                raise scope.refuse(
                    "P209",
                    f"`avoid: {node.direction}` says no twice",
                    node.right.span,
                    f"write  prefer: {other} {text}",
                )
            if not value.type.is_number and value.type.kind is not Kind.TIME:
                raise scope.refuse(
                    "P205",
                    f"`{node.direction}` wants a number, and this is {describe(value)}",
                    node.right.span,
                    *_as_preference(scope, node.direction, value, text),
                )
            return value, "minmax", node.direction == "least"
        if value.type.kind is not Kind.BOOL:
            number = value.type.is_number
            raise scope.refuse(
                "P208",
                f"`{node.keyword}` wants a condition, and this is {describe(value)}",
                node.right.span,
                (
                    f"write  prefer: least {text}"
                    if node.point == "avoid"
                    else f"write  prefer: most {text}   or   prefer: least {text}"
                )
                if number
                else f"write  {node.keyword}: {text} is VALUE",
            )
        if "missing_score" in clauses:
            raise scope.refuse(
                "P209", "a condition is never missing", clauses["missing_score"].span
            )
        yes, no = (_FULL, 0.0) if node.point == "prefer" else (0.0, _FULL)
        choice = ir.If(
            span=node.right.span,
            type=NUMBER,
            level=value.level,
            condition=value,
            then=constant(node.right.span, yes, NUMBER),
            other=constant(node.right.span, no, NUMBER),
        )
        return choice, "none", False

    def weight(self, node: s.Expr | s.Template) -> float:
        """Reads a weight: a number from 0 to 1,000,000."""
        value = self.clause_number(node, "`weight`")
        if not 0 <= value <= _MAX_WEIGHT:
            raise self._scope.refuse(
                "P111", f"a weight is a number from 0 to {_MAX_WEIGHT:,.0f}", node.span
            )
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
            help_ = (
                f"did you mean the parameter `${word}`?"
                if word in self._scope.params
                else f"write for example  {what.strip('`')} {0 if what == '`missing`' else 2}"
            )
            fix = f"${word}" if word in self._scope.params else None
            raise self._scope.refuse("P111", f"{what} wants a number", node.span, help_, fix=fix)
        settle(self._scope, typed, PLAIN)
        return to_float(typed.exact)

    def too_high(
        self, root: ir.Expr, most: Level, what: str, rule: s.Rule | None = None, hint: str = ""
    ) -> Refused:
        """Refuses an expression that reads more than its place allows."""
        # What is asked of each pod of a set is no value of a node.
        of_node = (
            one
            for one in ir.walk(root)
            if isinstance(one, (*OF_NODE, ir.NodeAggregate)) and most < one.level <= Level.NODE
        )
        guilty = next(of_node, root)
        hints = [hint] if hint else []
        if not hints and rule is None and most is Level.POD:
            hints.append("fields of the pod and of its namespace fit here")
        if rule is not None and rule.left is not None:
            left, right = self._scope.text(rule.left), self._scope.text(rule.right)
            if rule.point == "score":
                hints.append(f"write  score: if {left} then {right} else 0")
            elif not rule.direction:
                hints.append(f"write  {rule.keyword}: {left} and {right}")
        return self._scope.refuse(
            "P202",
            f"{what}, and `{self._scope.text(guilty)}` differs from node to node",
            guilty.span,
            *hints,
        )


def _as_preference(scope: Scope, direction: str, value: ir.Expr, text: str) -> tuple[str, ...]:
    """Returns what may be meant by `prefer: least node.ready` and `most node.label[rank]`."""
    if isinstance(value, ir.Compare) and value.left.type.is_number:
        of = scope.text(value.left)
        return (f"write  prefer: {direction} {of}   or   prefer: {text}",)
    if value.type.kind is Kind.BOOL:
        return (f"write  {'avoid' if direction == 'least' else 'prefer'}: {text}",)
    if isinstance(value, ir.Read) and FIELDS[value.field].keyed:
        return (f"write  prefer: {direction} number({text})",)
    if value.type.kind is Kind.TEXT:
        return (
            f"to choose one write  {'avoid' if direction == 'least' else 'prefer'}:"
            f" {text} is VALUE",
        )
    return ()


def _in_unit(value: ir.Expr) -> str:
    unit = str(value.type.unit)
    return unit if unit.startswith("a plain number") else f"in {unit}"


def _as_share(value: ir.Expr, text: str) -> tuple[str, ...]:
    """Returns how an amount of the node becomes a share of the node."""
    if not isinstance(value, ir.Read) or not value.field.startswith("node."):
        return ()
    of, _, part = value.field.rpartition(".")
    whole = f"{of}.allocatable"
    if part not in ("free", "requested") or whole not in FIELDS:
        return ()
    return (f"for its share of the node write  score: {text} / {whole} * 100",)


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
    fits = [ir.Not(span=nobody, type=BOOL, level=one.level, operand=one) for one in longer]
    return _joined("and", (*fits, test)) if fits else test


def _joined(operator: str, parts: tuple[ir.Expr, ...]) -> ir.Expr:
    start = parts[0].span.start
    return ir.Logical(
        # Nobody wrote it: no text of a part may stand for the whole.
        span=Span(start, start),
        type=BOOL,
        level=level_of(parts),
        operator=operator,
        operands=parts,
    )


def _both(parts: list[ir.Expr]) -> ir.Expr | None:
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return _joined("and", tuple(parts))


def _over_nodes(root: ir.Expr) -> bool:
    return any(isinstance(one, ir.NodeAggregate) for one in ir.walk(root))
