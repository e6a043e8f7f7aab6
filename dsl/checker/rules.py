"""Rules: a condition or a value behind a keyword, as filters, scores, gates and tiers.

Where a metric may be missing and decides, a rule has a word on that (P231).
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from dsl import ir
from dsl import syntax as s
from dsl.checker.aggregates import OF_NODE, too_long
from dsl.checker.literals import read_number, read_seconds, settle
from dsl.checker.names import param
from dsl.checker.scope import Flex, Refused, Scope, Typed
from dsl.checker.typer import Typer
from dsl.making import choice, constant, inverted, logical
from dsl.quantities import to_float
from dsl.reads import Reads
from dsl.types import DURATION, NUMBER, PLAIN, SECONDS, Kind, Level

MAX_WEIGHT: Final = 1_000_000.0
#: No pod waits longer on its node, whatever a policy says.
MOST_SECONDS: Final = 24 * 3600.0
_STATUS: Final = {"unschedulable": "Unschedulable", "unresolvable": "UnschedulableAndUnresolvable"}
_FULL: Final = 100.0

#: What a statement is understood as, and the expressions in it.
Checked = tuple[ir.AnyCore, tuple[ir.Expr | None, ...]]
#: The parts of a statement by their names; the grammar says of what shape each is.
Parts = Mapping[str, Any]


class Draft(Struct, frozen=True):
    """A statement as understood, before it is lowered; `slot` is where it stands in a plan."""

    number: int
    written: s.Rule | s.Special
    slot: str
    core: ir.AnyCore
    reads: Reads

    @property
    def status(self) -> str:
        """What a rejection means for preemption."""
        given: str | None = getattr(self.core, "status", None)
        return given or _STATUS["unschedulable" if self.reads.changes else "unresolvable"]


class Rules(Typer, kw_only=True):
    """What the statements of one file share: the pods they are for, and how parts are read."""

    #: Each by itself: what holds for one of them must not loosen another.
    guards: list[ir.Expr] = field(default_factory=list)
    prescores: list[ir.Expr] = field(default_factory=list)
    norm: s.Clause | None = None

    # ---- sides

    def right(self, node: s.Rule) -> ir.Expr:
        """Returns a right side that is a condition."""
        return self.condition(node.right, f"the right side of `{node.keyword}`")

    def pod_guard(self, node: s.Rule | s.Special, left: ir.Expr | None) -> ir.Expr | None:
        """Returns the guard of a statement whose left side may look at the pod only."""
        what = f"the left side of `{node.keyword}` looks at the pod"
        self.pod_only(what, left, rule=node if isinstance(node, s.Rule) else None)
        return self.split(left)[0]

    def pod_only(
        self,
        what: str,
        *roots: ir.Expr | None,
        over_nodes: bool = False,
        rule: s.Rule | None = None,
    ) -> None:
        """Refuses what differs from node to node, and aggregates over nodes."""
        for root in roots:
            if root is not None and root.level > Level.POD:
                raise self._too_high(root, what, rule)
            for one in ir.walk(root) if root is not None and not over_nodes else ():
                if isinstance(one, ir.NodeAggregate):
                    message = f"{what}, and this aggregates over nodes"
                    raise self.refuse("P202", message, one)

    def _too_high(self, root: ir.Expr, what: str, rule: s.Rule | None) -> Refused:
        # What is asked of each pod of a set is no value of a node.
        own = (*OF_NODE, ir.NodeAggregate)
        met = (one for one in ir.walk(root) if isinstance(one, own) and one.level is Level.NODE)
        guilty = next(met, root)
        help_ = "fields of the pod and of its namespace fit here"
        if rule is not None and rule.left is not None:
            left, right = self.text(rule.left), self.text(rule.right)
            of_score = rule.point == "score"
            both = f"if {left} then {right} else 0" if of_score else f"{left} and {right}"
            help_ = f"write  {rule.keyword}: {both}"
        message = f"{what}, and `{self.text(guilty)}` differs from node to node"
        return self.refuse("P202", message, guilty, help_)

    def split(
        self, left: ir.Expr | None, *, closed: bool = False
    ) -> tuple[ir.Expr | None, ir.Expr | None]:
        """Parts a left side into what the pod alone decides and the rest.

        With `closed`, a part of it holds also where it goes through a list that has more items than
        are looked at: who writes a list does not get past a rule by its length.
        """
        pod = [*self.guards]
        node: list[ir.Expr] = []
        # What is asked of a list stays in one piece, so that it is known by it.
        of_list = left in self.bounded
        for one in (left,) if of_list and left is not None else ir.joined(left):
            (pod if one.level <= Level.POD and not ir.has(ir.NodeAggregate, one) else node).append(
                one
            )
        if closed and too_long(self, *self.guards, left):
            pod, node = (
                [_joined("or", (one, *too_long(self, one))) for one in parts]
                for parts in (pod, node)
            )
        elif not self.guards and not node:
            # As it is written, so that an explanation has a text for the whole.
            return left, None
        return _both(pod), _both(node)

    def scored(self, guard: ir.Expr | None) -> ir.Expr | None:
        """Returns the guard of a score: what the file's `prescore:` lines say comes with it."""
        return _both([one for one in (guard, *self.prescores) if one is not None])

    # ---- parts

    def status(self, parts: Parts) -> str | None:
        """Reads a `status`."""
        return _STATUS[parts["status"].values[0].value] if "status" in parts else None

    def message(self, parts: Parts, name: str = "message") -> ir.Message | None:
        """Checks a message and the expressions in it."""
        if name not in parts:
            return None
        template: s.Template = parts[name].values[0]
        written = self.source.slice(template.span)
        if written[:1] == "'" and "{" in written and '"' not in written and "\\" not in written:
            what = "single quotes take braces as they stand, so no value is put in"
            self.warn("P317", what, template, fix=f'"{written[1:-1]}"')
        texts = (one if isinstance(one, str) else self._hole(one) for one in template.parts)
        return ir.Message(template.span, tuple(texts))

    def _hole(self, node: s.Expr) -> ir.Expr:
        value = self.plain(self.expression(node))
        inner = ir.unnamed(value)
        # A quantity is told as it is written, with its unit.
        of_text = isinstance(inner, ir.Func) and inner.name == "quantity"
        return inner.args[0] if isinstance(inner, ir.Func) and of_text else value

    def weight(self, parts: Parts) -> float:
        """Reads the weight of a score."""
        return self.number(parts["weight"], "weight", 0, MAX_WEIGHT) if "weight" in parts else 1.0

    def number(
        self, part: s.Clause | s.Header, what: str, low: float, high: float, *, whole: bool = False
    ) -> float:
        """Reads a plain number of a clause, which may be a parameter."""
        node = part.values[0] if isinstance(part, s.Clause) else part.value
        typed = None if isinstance(node, s.Text) else self.fixed(node)
        if not isinstance(typed, Flex) or typed.exact is None:
            word = self.text(node)
            fix = f"${word}" if word in self.params else None
            raise self.refuse("P111", f"`{what}` wants a number", node, fix=fix)
        settle(self, typed, PLAIN)
        value = to_float(typed.exact)
        if not low <= value <= high or (whole and value != int(value)):
            kind = "whole number" if whole else "number"
            message = f"`{what}` is a {kind} from {low:,.0f} to {high:,.0f}"
            raise self.refuse("P111", message, part)
        return value

    def fixed(self, node: s.Node) -> Typed | None:
        """Reads a number of a clause, or that of a parameter; None if it is none."""
        if isinstance(node, s.Param):
            return param(self, node)
        return read_number(node.value, node.span) if isinstance(node, s.Word | s.Text) else None

    def whole(self, part: s.Clause | s.Header, what: str, low: int, high: int) -> int:
        """Reads a whole number of a clause."""
        return int(self.number(part, what, low, high, whole=True))

    def duration(self, node: s.Expr, what: str) -> ir.Expr:
        """Reads a duration of a clause, which may be an expression: `5m`, but no bare number."""
        if isinstance(node, s.Number | s.Word):
            seconds = read_seconds(self, node, what)
            if what == "wait" and seconds > MOST_SECONDS:
                help_ = "in a gate it may:  gate: CONDITION"
                self.warn("P317", "no pod waits longer than a day", node, help_)
            return constant(node.span, seconds, DURATION)
        typed = self.expression(node)
        if isinstance(typed, Flex) and typed.sort == "milli":
            typed = settle(self, typed, SECONDS)
        declare = f"declare it so:  {self.text(node).replace('$', 'param ')}: duration = 60s"
        helps = (declare,) if isinstance(node, s.Param) else ()
        return self.want(typed, "duration", f"`{what}`", "P206", helps)

    def seconds(self, node: s.Expr, what: str) -> float:
        """Reads a duration that is known."""
        value = self.duration(node, what)
        assert isinstance(value, ir.Const)
        assert isinstance(value.value, float)
        return value.value


# ---- filters and tiers


def condition(rules: Rules, node: s.Rule, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks filters and what is asked before any node."""
    right = rules.right(node)
    message = rules.message(parts)
    if node.point in ("gate", "prefilter"):
        what, over_nodes = f"`{node.keyword}` is asked before any node", node.point == "prefilter"
        rules.pod_only(what, left, right, *holes(message), over_nodes=over_nodes)
    guard, rest = rules.split(left, closed=True)
    test = inverted(right.span, right) if node.point == "forbid" else right
    longer = too_long(rules, guard, rest, right)
    test = unless(longer, test)
    if rest is not None:
        test = logical(node.span, "or", (inverted(rest.span, rest), test))
    core = ir.FilterCore(
        guard=guard,
        test=test,
        left=left,
        right=right,
        forbids=node.point == "forbid",
        message=message,
        status=rules.status(parts),
        longer=longer,
    )
    if left is not None:
        # There a missing value lets the rule pass by; it does not reject.
        refuse_unsaid(rules, node, "left", left, right)
    refuse_unsaid(rules, node, node.point, right, left)
    if node.point != "gate":
        rules.demanded |= demanded(core)
    return core, (guard, test)


def tier(rules: Rules, node: s.Rule, left: ir.Expr | None, _parts: Parts) -> Checked:
    """Checks a `first:`."""
    core = ir.TierCore(guard=rules.pod_guard(node, left), test=rules.right(node))
    return core, (core.guard, core.test)


def holes(message: ir.Message | None) -> list[ir.Expr]:
    """Returns the expressions in a message."""
    parts = message.parts if message is not None else ()
    return [one for one in parts if not isinstance(one, str)]


# ---- scores


def score(rules: Rules, node: s.Rule, left: ir.Expr | None, parts: Parts) -> Checked:
    """Checks `score`, `prefer` and `avoid`."""
    kind = _plain_score if node.point == "score" else _preference
    value, norm, reverse = kind(rules, node, parts)
    missing = parts.get("missing_score")
    core = ir.ScoreCore(
        guard=rules.scored(rules.pod_guard(node, left)),
        value=value,
        norm=norm,
        reverse=reverse,
        missing=None if missing is None else rules.number(missing, "missing", 0, _FULL),
        weight=rules.weight(parts),
    )
    return core, (core.guard, value)


def _plain_score(rules: Rules, node: s.Rule, parts: Parts) -> tuple[ir.Expr, str, bool]:
    clause: s.Clause | None = parts.get("normalize", rules.norm)
    written = clause.values if clause is not None else (s.Word(node.span, "none"),)
    norm, *turned = [one.value for one in written if isinstance(one, s.Word)]
    typed, text = rules.expression(node.right), rules.text(node.right)
    helps = (f"write  prefer: {text}",) if typed.type.kind is Kind.BOOL else ()
    value = rules.want(typed, "number", "a score", "P205", helps)
    if norm == "none" and not (value.type.unit or PLAIN).is_plain:
        message = f"a score is a plain number from 0 to 100, and this is in {value.type.unit}"
        help_ = f"to rank the nodes by it write  {text} normalize minmax"
        raise rules.refuse("P205", message, node.right, help_)
    return value, norm, "reverse" in turned


def _preference(rules: Rules, node: s.Rule, parts: Parts) -> tuple[ir.Expr, str, bool]:
    scope, span, text = rules, node.right.span, rules.text(node.right)
    what, avoid = f"`{node.keyword}`", node.point == "avoid"
    if "normalize" in parts:
        message, help_ = f"{what} has a scale of its own", "drop `normalize`"
        raise scope.refuse("P209", message, parts["normalize"], help_)
    typed = rules.expression(node.right)
    if node.direction:
        if avoid:
            other = "most" if node.direction == "least" else "least"
            message = f"`avoid: {node.direction}` says no twice"
            help_ = f"write  prefer: {other} {text}"
            raise scope.refuse("P209", message, span, help_)
        value = rules.want(typed, "number or time", f"`{node.direction}`", "P205")
        return value, "minmax", node.direction == "least"
    most = not avoid
    if isinstance(typed, ir.NodeAggregate) and isinstance(node.right, s.Aggregate):
        # It is the same for all nodes: what it is of differs.
        most, text = (typed.function == "max") != avoid, rules.text(node.right.args[0])
    helps = (f"write  prefer: {'most' if most else 'least'} {text}",) * typed.type.is_number
    value = rules.want(typed, "condition", what, "P208", helps)
    if "missing_score" in parts:
        message = "a condition is never missing"
        raise scope.refuse("P209", message, parts["missing_score"])
    yes, no = (0.0, _FULL) if avoid else (_FULL, 0.0)
    return choice(span, value, *(constant(span, one, NUMBER) for one in (yes, no))), "none", False


# ---- conditions put together


def unless(longer: tuple[ir.Compare, ...], test: ir.Expr) -> ir.Expr:
    """A test that does not hold where a list has more items than are looked at."""
    return _joined("and", (*(inverted(test.span.nobody, one) for one in longer), test))


def _joined(operator: str, parts: tuple[ir.Expr, ...]) -> ir.Expr:
    return logical(parts[0].span.nobody, operator, parts)


def _both(parts: list[ir.Expr]) -> ir.Expr | None:
    return _joined("and", tuple(parts)) if parts else None


_SetAggregate = ir.NodeAggregate | ir.PodAggregate | ir.ContainerAggregate


def refuse_unsaid(
    scope: Scope, rule: s.Rule | s.Special, point: str, root: ir.Expr, *beside: ir.Expr | None
) -> None:
    """Refuses metrics that may be missing and decide without a word on that.

    `point` is that of the rule, `left` for the side before the arrow, or `wait`. Words on them in
    the parts `beside` count, too. Raises `Refused`.
    """
    asked = [one for one in ir.walk(root) if isinstance(one, ir.Metric | ir.Pair)]
    guarded: set[str] = set()
    for one in ir.walk(root, *beside) if asked else ():
        if isinstance(one, ir.Missing):
            guarded |= _metrics_in(one.operand)
        elif isinstance(one, ir.Coalesce):
            guarded.update(*map(_metrics_in, one.operands[:-1]))
    earlier = scope.demanded if point != "wait" else set()
    for read in asked:
        there = read.name in earlier and isinstance(read, ir.Metric)
        if read.name not in guarded and (not there or _is_of_a_set(root, read)):
            raise _refuse(scope, (rule, point), root, read)


def demanded(core: ir.FilterCore) -> set[str]:
    """Returns the metrics without which a rule rejects every pod of its file."""
    if core.left is not None:
        return set()
    parts = ir.joined(core.right, "or" if core.forbids else "and")
    if not core.forbids:
        parts = tuple(one.operand for one in parts if isinstance(one, ir.Not))
    tests = (one.operand for one in parts if isinstance(one, ir.Missing))
    return {one.name for one in tests if isinstance(one, ir.Metric)}


def _metrics_in(root: ir.Expr) -> set[str]:
    return {one.name for one in ir.walk(root) if isinstance(one, ir.Metric | ir.Pair)}


def _refuse(
    scope: Scope, at: tuple[s.Rule | s.Special, str], root: ir.Expr, read: ir.Metric | ir.Pair
) -> Refused:
    rule, point = at
    name = scope.text(read) if isinstance(read, ir.Pair) else read.name
    text, keyword = scope.text(root), rule.keyword
    inner = f"({text})" if isinstance(root, ir.Logical | ir.If) else text
    head = f"{keyword}: " * (isinstance(rule, s.Rule) and rule.left is None)
    false, true = {
        "filter": ("reject such nodes", "keep such nodes"),
        "forbid": ("keep such nodes", "reject such nodes"),
        "left": ("without data it does not apply", "it applies"),
    }.get(point, ("without data it is false", "it holds"))
    helps = [
        f"{false}:  {head}{name} is present and {inner}",
        f"{true}:  {head}{name} is missing or {inner}",
    ]
    if _is_of_a_set(root, read):
        helps = [f"write  {name} ?? 0   there, or  where {name} is present"]
    outcome = {"filter": ": the node would be rejected", "forbid": ": the node would be kept"}
    plain = isinstance(root, ir.Compare | ir.TextTest)
    where = "filter" if point in outcome else f"`{keyword}`"
    return scope.refuse(
        "P231",
        f"`{name}` may have no fresh sample, and this {where} does not say what happens then",
        read,
        *helps,
        label=f"without data this is false{outcome.get(point, '')}" * plain,
    )


def _is_of_a_set(root: ir.Expr, read: ir.Expr) -> bool:
    """Whether a value is read within an aggregate: of other nodes or pods than the one at hand."""
    sets = (one for one in ir.walk(root) if isinstance(one, _SetAggregate))
    return any(read is one for around in sets for one in ir.walk(around))
