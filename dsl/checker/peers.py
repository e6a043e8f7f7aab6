"""`peers(T)` and `peers by X`: how many pods like this one a node's domain holds already.

Both become an aggregate over the pods of the domain; a node without the domain's key is missing.
"""

from typing import Final

from msgspec import structs

from dsl import ir, making
from dsl import syntax as s
from dsl.checker.names import param
from dsl.checker.scope import Flex, Refused, Scope, Typed
from dsl.checker.typer import Typer
from dsl.nearest import called
from dsl.plan import OF_NODES
from dsl.schema import FIELDS, OF_THE_QUEUE
from dsl.source import Span
from dsl.types import NUMBER, TEXT, Level

#: What others call a topology.
_OTHERS: Final = called(
    {"node": "host hostname nodes", "zone": "zones", "region": "regions", "rack": "racks"}
)


def domain(typer: Typer, node: s.Expr) -> str:
    """Returns the domain that a topology names: `zone`, or `label:` and a key."""
    if isinstance(node, s.Param):
        value = param(typer, node)
        if isinstance(value, ir.Const) and isinstance(value.value, str):
            return value.value if value.value in OF_NODES else f"label:{value.value}"
    if isinstance(node, s.Text) and node.value:
        if node.value in OF_NODES:
            what = f"in quotes this is the label `{node.value}`, and not the {node.value} of a node"
            typer.warn("P317", what, node, fix=node.value)
        return f"label:{node.value}"
    name: str = node.name if isinstance(node, s.Name) else getattr(node, "value", "")
    if name not in OF_NODES:
        message = f"`{typer.text(node)}` is no topology"
        help_ = 'write  node, zone, region, rack   or a label key in quotes: "example.com/row"'
        raise typer.refuse("P209", message, node, help_, fix=_OTHERS.get(name))
    return name


def count(over: str, by: tuple[ir.Expr, ir.Expr] | None, span: Span) -> ir.Expr:
    """Returns the number of peers in the node's domain.

    Args:
        over: the domain.
        by: what peers have in common, of the pod and of `it`; None for the workload.
        span: the text it comes from.
    """
    no_kind = making.constant(span, "", TEXT)
    namespace, workload, kind = (
        [making.read(span, f"{owner}.{one}") for owner in ("it", "pod")]
        for one in ("namespace", "workload", "owner.kind")
    )
    # Two workloads of one name are told apart by the kind of their owners: a Deployment's pods are
    # a ReplicaSet's, others' are not.
    kinds = [making.first_of(span, (one, no_kind)) for one in kind]
    same = [workload, kinds] if by is None else [by[::-1]]
    equal = [making.compare(right.span, left, "==", right) for left, right in (namespace, *same)]
    where = making.logical(
        span, "and", (*equal, making.inverted(span, making.read(span, "it.terminating")))
    )
    parts = {"function": "count", "over": over, "value": None, "where": where}
    total = making.made(ir.PodAggregate, span, NUMBER, Level.NODE, **parts)
    if over == "node":
        return total
    of_label, _, key = over.partition(":")
    field = ("node.label", key) if key else (f"node.{of_label}", None)
    here = making.read(span, *field)
    return making.choice(span, making.missing(span, here), making.nothing(span, NUMBER), total)


def member(
    typer: Typer, written: s.Expr, what: str, guard: ir.Expr | None = None
) -> tuple[ir.Expr, ir.Expr]:
    """Checks a `by`; returns it asked of the pod, and of a pod of a set that the guard is about."""
    wants, helps = "text or number", ("write for example  by pod.label[app]",)
    with typer.inside(structs.replace(typer.place, groups=True)):
        typed = typer.expression(written)
    if isinstance(written, s.Text):
        message = "this text is the same for all pods, so all are in one group"
        typer.warn("P317", message, written, *helps)
    if isinstance(typed, Flex):
        raise _no_member(typer, typed, what)
    by = typer.want(typed, wants, f"`{what}`", helps=helps)
    return by, _chosen(typer, guard, _lifted(typer, by, what))


def _chosen(scope: Scope, guard: ir.Expr | None, member: ir.Expr) -> ir.Expr:
    """Returns what pods of a set have in common, missing for those that the left side leaves out.

    What it asks otherwise than of fields that every pod has (the time, lists) leaves nobody out.
    """
    asked = [one for one in ir.joined(guard) if _is_of_every_pod(one)]
    if not asked:
        return member
    span = member.span
    whole = making.logical(span, "and", [_lifted(scope, one, "the left side") for one in asked])
    return making.choice(span, whole, member, making.nothing(span, member.type))


def _is_of_every_pod(root: ir.Expr) -> bool:
    met = ir.walk(root)
    reads = [one for one in met if isinstance(one, ir.Read)]
    return bool(reads) and not any(
        isinstance(one, _NOT_LIFTED) or (isinstance(one, ir.Read) and _field_of_it(one) is None)
        for one in met
    )


def _field_of_it(node: ir.Read) -> str | None:
    owner, _, name = node.field.partition(".")
    field = f"it.{name}" if owner == "pod" else f"it.{node.field}"
    field = "it.namespace" if field == "it.namespace.name" else field
    # What only the queue knows of a pod is gone once it has a node.
    known = field in FIELDS and field not in OF_THE_QUEUE
    return field if owner in ("pod", "namespace") and known else None


#: What is no value of a pod of a set, or not yet known to be the same for one.
_NOT_LIFTED: Final = (
    ir.KeyedRead | ir.ContainerRead | ir.Metric | ir.Pair | ir.Aggregate | ir.Item | ir.Rank
)


def _lifted(scope: Scope, node: ir.Expr, what: str) -> ir.Expr:
    """Returns an expression of the pod as one of `it`: each `pod.x` becomes `it.x`."""
    node = ir.unnamed(node)
    if isinstance(node, ir.Const):
        return node
    field = _field_of_it(node) if isinstance(node, ir.Read) else None
    if field is not None:
        return structs.replace(node, field=field, level=Level.IT)
    if isinstance(node, ir.Read | _NOT_LIFTED):
        raise _no_member(scope, node, what)
    parts = making.mapped(node, lambda one: _lifted(scope, one, what))
    return making.made(type(node), node.span, node.type, **parts)


def _no_member(scope: Scope, node: Typed, what: str) -> Refused:
    what_not = f"`{scope.text(node)}` is not a value of every pod"
    message = f"`{what}` is asked of other pods too, and {what_not}"
    return scope.refuse("P202", message, node, "use a field of the pod: pod.label[KEY]")
