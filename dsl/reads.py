"""What expressions read: fields of the table, metrics, and the sets that aggregates run over."""

from typing import Final

from msgspec import Struct

from dsl import ir
from dsl.schema import FIELDS, NODE_SETS, POD_SETS
from dsl.types import Level

#: The fields of sets by their domain and what they hold of it.
_SETS: Final = {place: name for name, place in POD_SETS.items()} | {
    (over, "nodes"): name for name, over in NODE_SETS.items()
}
#: Others read what their parts do.
_READING: Final = (ir.Read, ir.KeyedRead, ir.Metric, ir.Pair, ir.Aggregate, ir.Rank)


class Reads(Struct, frozen=True):
    """What a rule looks at.

    Attributes:
        fields: schema names, `metric:NAME` and `metric_age:NAME`.
        row_local: whether a node's value depends on that node and the pod only.
        metrics: whether it reads any.
        time: whether it reads the clock.
        changes: whether evicting pods could change it.
    """

    fields: frozenset[str]
    row_local: bool
    metrics: bool
    time: bool
    changes: bool


def reads_of(*roots: ir.Expr | None) -> Reads:
    """Collects what expressions look at."""
    met = [one for one in ir.walk(*roots) if isinstance(one, _READING)]
    fields = frozenset([name for node in met for name in fields_of(node)])
    specs = [FIELDS[one] for one in fields if one in FIELDS]
    pods = any(isinstance(one, ir.PodAggregate) for one in met)
    plain = (FIELDS[one.field] for one in met if isinstance(one, ir.Read | ir.KeyedRead))
    return Reads(
        fields,
        row_local=all(map(is_local, met)),
        metrics=any(isinstance(one, ir.Metric | ir.Pair) for one in met),
        time=any(one.of_clock for one in specs)
        or any(isinstance(one, ir.Metric) and one.age for one in met),
        changes=pods or any(one.changes for one in plain),
    )


def is_local(node: ir.Expr) -> bool:
    """Whether a node reads nothing itself that another row changes."""
    match node:
        case ir.Read() | ir.KeyedRead():
            # What the whole cluster has, or a quota uses, changes with any node.
            spec = FIELDS[node.field]
            of_cluster = spec.level is Level.CYCLE and not spec.of_clock
            return not of_cluster and not (spec.level is Level.IT and spec.unsteady)
        case ir.PodAggregate():
            return node.over == "node"
        case _:
            return not isinstance(node, ir.NodeAggregate | ir.Rank)


def fields_of(node: ir.Expr) -> tuple[str, ...]:
    """Returns what a node reads itself: schema names, `metric:NAME` and `metric_age:NAME`."""
    match node:
        case ir.Read() | ir.KeyedRead():
            return (node.field,)
        case ir.Metric():
            own = f"metric_age:{node.name}" if node.age else f"metric:{node.name}"
            stale = ("node.annotation", "now") if node.source == "annotation" else ()
            domain = f"node.{node.of}"
            # Of a domain: what says which of its values is a node's.
            return (own, *stale, *((domain,) if f"{node.of}.nodes" in NODE_SETS else ()))
        case ir.Pair():
            return (f"metric:{node.name}",)
        case ir.ContainerAggregate():
            return ("pod.containers",)
        case ir.PodAggregate():
            return _set(node.over, node.table)
        case ir.NodeAggregate(level=Level.NODE):
            return _set(node.over, "nodes")
        case _:
            # All nodes and the candidates have no field.
            return ()


def _set(over: str, table: str) -> tuple[str, ...]:
    """Returns the fields of a set, and of what makes its domains."""
    domain = f"node.{over.partition(':')[0]}"
    named = _SETS.get((over, table))
    if named is None:
        return ("cluster.pods", domain) if table == "pods" else (domain,)
    return (named, domain) if table == "nodes" else (named,)
