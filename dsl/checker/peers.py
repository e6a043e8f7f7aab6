"""`peers(T)` and `peers by X`: how many pods like this one a node's domain holds already.

Both become an aggregate over the pods of the domain; a node without the domain's key is missing.
"""

from typing import Any, Final, TypeGuard

from msgspec import structs

from dsl import ir
from dsl import syntax as s
from dsl.checker.making import choice, compare, constant, first_of, func, inverted, logical
from dsl.checker.making import missing as missing_of
from dsl.checker.making import read as read_of
from dsl.checker.scope import Flex, Refused, Scope, describe
from dsl.checker.typer import Typer
from dsl.diagnostics import Severity
from dsl.schema import FIELDS, OF_THE_QUEUE
from dsl.source import Span
from dsl.types import BOOL, MISSING, NUMBER, TEXT, Kind, Level

_NAMED: Final = ("node", "zone", "region", "rack")
#: What others call a topology.
_OTHERS: Final = {
    **dict.fromkeys(("host", "hostname", "hosts", "hostnames", "nodes"), "node"),
    **{f"{name}s": name for name in ("zone", "region", "rack")},
}


def domain(typer: Typer, node: s.Expr | s.Template) -> str:
    """Returns the domain that a topology names: `zone`, or `label:` and a key."""
    if isinstance(node, s.Param):
        value = typer.param(node)
        if isinstance(value, ir.Const) and isinstance(value.value, str):
            return value.value if value.value in _NAMED else f"label:{value.value}"
    if isinstance(node, s.Text) and node.value:
        if node.value in _NAMED or node.value in _OTHERS:
            meant = _OTHERS.get(node.value, node.value)
            # Nobody has a label `node`; a label `zone` there is in small clusters.
            typer.scope.report(
                "P317",
                f"in quotes `{node.value}` is the key of a label, and nodes without it have no"
                " domain",
                node.span,
                f"for the topology write  {meant}",
                fix=meant,
                severity=Severity.WARNING if meant == "node" else Severity.NOTE,
            )
        return f"label:{node.value}"
    name = node.name if isinstance(node, s.Name) else ""
    name = node.value if isinstance(node, s.Word) else name
    if name not in _NAMED:
        message = f"`{typer.scope.text(node)}` is no topology"
        help_ = 'write  node, zone, region, rack   or a label key in quotes: "example.com/row"'
        raise typer.scope.refuse("P209", message, node.span, help_, fix=_OTHERS.get(name))
    return name


def call(typer: Typer, node: s.Call) -> ir.Expr:
    """Returns what `peers(T)` means."""
    if len(node.args) != 1:
        message = "`peers` takes one topology"
        raise typer.scope.refuse("P209", message, node.span, "write  peers(zone)")
    return count(domain(typer, node.args[0]), None, node.span)


def count(over: str, by: tuple[ir.Expr, ir.Expr] | None, span: Span) -> ir.Expr:
    """Returns the number of peers in the node's domain.

    Args:
        over: the domain.
        by: what peers have in common, of the pod and of `it`; None for the workload.
        span: the text it comes from.
    """
    same = [_equal(by[1], by[0])] if by is not None else _of_one_workload(span)
    terminating = read_of(span, BOOL, Level.IT, "it.terminating")
    where = logical(
        span,
        "and",
        (
            _equal(_of_it("it.namespace", span), _of_pod("pod.namespace", span)),
            *same,
            inverted(span, terminating),
        ),
    )
    total = ir.PodAggregate(
        span=span, type=NUMBER, level=Level.NODE, function="count", over=over, value=None,
        where=where,
    )  # fmt: skip
    if over == "node":
        return total
    here = read_of(span, TEXT, Level.NODE, *domain_field(over))
    return choice(span, missing_of(span, here), constant(span, MISSING, NUMBER), total)


def _of_one_workload(span: Span) -> list[ir.Expr]:
    """Returns that two pods have a workload of the same name and kind.

    The kind is told by that of the owner: a Deployment's pods are a ReplicaSet's, others' are not.
    """
    name = _equal(_of_it("it.workload", span), _of_pod("pod.workload", span))
    no_kind = constant(span, "", TEXT)
    owners = _of_it("it.owner.kind", span), _of_pod("pod.owner.kind", span)
    return [name, _equal(*(first_of(span, (one, no_kind)) for one in owners))]


def domain_field(over: str) -> tuple[str, str | None]:
    """Returns the field, and its key, in which nodes of one domain are equal."""
    if over.startswith("label:"):
        return "node.label", over.removeprefix("label:")
    return f"node.{over}", None


def _of_it(field: str, span: Span) -> ir.Read:
    return read_of(span, TEXT, Level.IT, field)


def _of_pod(field: str, span: Span) -> ir.Read:
    return read_of(span, TEXT, Level.POD, field)


def _equal(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return compare(right.span, left, "==", right)


def member(typer: Typer, written: s.Expr, what: str) -> tuple[ir.Expr, ir.Expr]:
    """Checks a `by`, and returns it asked of the pod and of a pod of a set."""
    scope = typer.scope
    by = typer.expression(written)
    if isinstance(by, Flex) or by.type.kind not in (Kind.TEXT, Kind.NUMBER):
        message = f"`{what}` wants a text or a number of the pod, and this is {describe(by)}"
        raise scope.refuse("P201", message, written.span, "write for example  by pod.label[app]")
    return by, lifted(scope, by, what)


def chosen(scope: Scope, guard: ir.Expr | None, member: ir.Expr) -> ir.Expr:
    """Returns what pods of a set have in common, missing for those that the left side leaves out.

    What it asks otherwise than of fields that every pod has (the time, lists) leaves nobody out.
    """
    conjuncts = guard.operands if _is_and(guard) else () if guard is None else (guard,)
    asked = [one for one in conjuncts if _is_of_every_pod(one)]
    if not asked:
        return member
    parts = tuple([lifted(scope, one, "the left side") for one in asked])
    span = member.span
    whole = ir.Logical(span=span, type=BOOL, level=Level.IT, operator="and", operands=parts)
    nothing: ir.Expr = constant(span, MISSING, NUMBER)
    if member.type.kind is Kind.TEXT:
        # A text that is missing: what stands before a separator that is not there.
        nothing = func(span, TEXT, "before", (constant(span, "", TEXT), constant(span, "-", TEXT)))
    return ir.If(
        span=span, type=member.type, level=Level.IT, condition=whole, then=member, other=nothing
    )


def _is_and(node: ir.Expr | None) -> TypeGuard[ir.Logical]:
    return isinstance(node, ir.Logical) and node.operator == "and"


def _is_of_every_pod(root: ir.Expr) -> bool:
    met = ir.walk(root)
    known = (*_LIFTED, ir.Const, ir.Named)
    reads = [one for one in met if isinstance(one, ir.Read)]
    return (
        bool(reads)
        and all(_field_of_it(one) is not None for one in reads)
        and all(isinstance(one, (*known, ir.Read)) for one in met)
    )


def _field_of_it(node: ir.Read) -> str | None:
    owner, _, name = node.field.partition(".")
    field = f"it.{name}" if owner == "pod" else f"it.{node.field}"
    field = "it.namespace" if field == "it.namespace.name" else field
    # What only the queue knows of a pod is gone once it has a node.
    known = field in FIELDS and field not in OF_THE_QUEUE
    return field if owner in ("pod", "namespace") and known else None


#: What is asked of a pod of a set as it is of the pod, part by part.
_LIFTED: Final = (
    ir.Func,
    ir.Coalesce,
    ir.If,
    ir.Arith,
    ir.Negate,
    ir.Compare,
    ir.TextTest,
    ir.Member,
    ir.Between,
    ir.Missing,
    ir.Logical,
    ir.Not,
)


def lifted(scope: Scope, node: ir.Expr, what: str) -> ir.Expr:
    """Returns an expression of the pod as one of `it`: each `pod.x` becomes `it.x`."""
    if isinstance(node, ir.Const):
        return node
    if isinstance(node, ir.Named):
        return lifted(scope, node.body, what)
    if isinstance(node, ir.Read):
        field = _field_of_it(node)
        if field is not None:
            return structs.replace(node, field=field, level=Level.IT)
    if not isinstance(node, _LIFTED):
        raise _no_member(scope, node, what)
    parts = {id(one): lifted(scope, one, what) for one in ir.children(node)}
    changed: dict[str, Any] = {}
    for name in type(node).__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, tuple):
            changed[name] = tuple([parts.get(id(one), one) for one in value])
        elif id(value) in parts:
            changed[name] = parts[id(value)]
    level = max((one.level for one in parts.values()), default=Level.CONST)
    return structs.replace(node, level=level, **changed)


def _no_member(scope: Scope, node: ir.Expr, what: str) -> Refused:
    what_not = f"`{scope.text(node)}` is not a value of every pod"
    message = f"`{what}` is asked of other pods too, and {what_not}"
    return scope.refuse("P202", message, node.span, "use a field of the pod: pod.label[KEY]")
