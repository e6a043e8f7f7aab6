"""The tree as understood: typed, units settled, names resolved, sugar gone. Data only.

Nodes compare by identity; a `let` is one shared `Named` node, so the tree is a graph without
cycles and every walk of it remembers what it has seen.
"""

from collections.abc import Callable, Container, Iterator
from operator import attrgetter
from types import UnionType
from typing import Any, Final, TypeGuard

from msgspec import Struct

from dsl.source import Span
from dsl.types import Kind, Level, Type


class Core(Struct, frozen=True, eq=False, kw_only=True, gc=False):
    """Any expression: its type, its level and the text it came from."""

    span: Span
    type: Type
    level: Level


class Const(Core, frozen=True):
    """A value known when the policy is compiled; numbers in base units; NaN or None = missing."""

    value: float | str | bool | tuple[float, ...] | tuple[str, ...] | None


class Read(Core, frozen=True):
    """A field of the cycle, the pod, the node or `it`.

    At the level of `it`, a field of the node is that of the node the pod is on.
    """

    field: str
    key: str | None = None


class KeyedRead(Core, frozen=True):
    """A field whose key is computed; amounts are plain numbers (cores, not milli-cores)."""

    field: str
    key: "Expr"


class ContainerRead(Core, frozen=True):
    """A field of a container, inside an aggregate over `pod.containers`."""

    field: str
    key: str | None = None


class Metric(Core, frozen=True):
    """A metric's last sample, or its age.

    `of` says whose it is: `node`, `zone`, `region` or `rack` (that of the node), `cluster`,
    `namespace`, `workload` or `pod` (the one to place, or at the level of `it` each of a set).
    `source` is that of `plan.MetricSpec`.
    """

    name: str
    id: str
    age: bool = False
    of: str = "node"
    source: str = "promql"


class Pair(Core, frozen=True):
    """The value of a metric of pairs for two texts."""

    name: str
    id: str
    left: "Expr"
    right: "Expr"


class Named(Core, frozen=True):
    """A use of a `let`; all uses share the body."""

    name: str
    body: "Expr"


class Arith(Core, frozen=True):
    """A chain of `+ -` or `* /`, from the left."""

    operators: tuple[str, ...]
    operands: "tuple[Expr, ...]"


class Func(Core, frozen=True):
    """A function; `min`, `max`, `sum`, `avg` and `median` here are element-wise."""

    name: str
    args: "tuple[Expr, ...]"


class Compare(Core, frozen=True):
    """`== < <=` ... between numbers, times, texts (`==` only) or Bools (`==` only)."""

    operator: str
    left: "Expr"
    right: "Expr"


class TextTest(Core, frozen=True):
    """`contains`, `starts with`, `ends with`, `like`, `matches`."""

    operator: str
    left: "Expr"
    right: "Expr"


class Member(Core, frozen=True):
    """Whether a value is in a list."""

    item: "Expr"
    items: "Expr"


class Missing(Core, frozen=True):
    """Whether a value is missing."""

    operand: "Expr"


class Coalesce(Core, frozen=True):
    """The first value that is not missing."""

    operands: "tuple[Expr, ...]"


class Logical(Core, frozen=True):
    """A chain of `and` or `or`."""

    operator: str
    operands: "tuple[Expr, ...]"


class Not(Core, frozen=True):
    """The negation of a Bool."""

    operand: "Expr"


class If(Core, frozen=True):
    """`then` where the condition holds, else `other`."""

    condition: "Expr"
    then: "Expr"
    other: "Expr"


class Aggregate(Core, frozen=True):
    """An aggregate of a value of those for which a condition holds.

    Of `count`, `any` and `all` there is a condition alone.
    """

    function: str
    value: "Expr | None"
    where: "Expr | None"


class NodeAggregate(Aggregate, frozen=True):
    """An aggregate of a node value over `candidates`, all `nodes` or those of a domain.

    In a filter all nodes are candidates. Of a domain, `zone`, `region`, `rack` or `label:KEY`,
    there is a value for each node.
    """

    over: str


class PodAggregate(Aggregate, frozen=True):
    """An aggregate of an `it` value over `node`, `zone`, `region`, `rack` or `cluster` pods.

    With `over` `label:KEY` the pods are those of all nodes with an equal label. `table` names the
    pods in question: `pods` (bound or assumed), `queue`, `nominated` or `finished`.
    """

    over: str
    table: str = "pods"


class ContainerAggregate(Aggregate, frozen=True):
    """An aggregate of a value of the containers of the pod to place."""


class Item(Core, frozen=True):
    """What `it` alone means in an aggregate over the items of a list."""


class ItemAggregate(Aggregate, frozen=True):
    """An aggregate of a value of the first `most` items of a list, each an `Item` in turn."""

    items: "Expr"
    most: int


class Rank(Core, frozen=True):
    """The share of the other candidates that have less."""

    value: "Expr"


Expr = (
    Const | Read | KeyedRead | ContainerRead | Metric | Pair | Named | Arith | Func
    | Compare | TextTest | Member | Missing | Coalesce | Logical | Not | If
    | Aggregate | Item | Rank
)  # fmt: skip
#: Aggregates of a condition alone.
TESTS: Final = ("count", "any", "all")


# Passes ask for the parts of a node some ten times: a look-up is a fifth of a match.
_CHILDREN: Final[dict[type, Callable[[Any], tuple[Expr, ...]] | None]] = {
    **dict.fromkeys((Const, Read, ContainerRead, Metric, Item)),
    **dict.fromkeys((Missing, Not), lambda node: (node.operand,)),
    **dict.fromkeys((Arith, Coalesce, Logical), attrgetter("operands")),
    **dict.fromkeys((Compare, TextTest, Pair), attrgetter("left", "right")),
    **dict.fromkeys(
        (NodeAggregate, PodAggregate, ContainerAggregate),
        lambda node: tuple([one for one in (node.value, node.where) if one is not None]),
    ),
    ItemAggregate: lambda node: tuple(
        [one for one in (node.items, node.value, node.where) if one is not None]
    ),
    KeyedRead: lambda node: (node.key,),
    Rank: lambda node: (node.value,),
    Named: lambda node: (node.body,),
    Func: attrgetter("args"),
    Member: attrgetter("item", "items"),
    If: attrgetter("condition", "then", "other"),
}


def children(node: Expr) -> tuple[Expr, ...]:
    """Returns the direct parts of a node."""
    parts = _CHILDREN[type(node)]
    return () if parts is None else parts(node)


def walk(*roots: Expr | None) -> list[Expr]:
    """Returns every node below the roots, of which some may be None, once. Linear in the graph."""
    seen: set[Expr] = set()
    out: list[Expr] = []
    stack = [one for one in reversed(roots) if one is not None]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            out.append(node)
            parts = _CHILDREN[type(node)]
            if parts is not None:
                stack.extend(parts(node)[::-1])
    return out


def has(kinds: type | UnionType | tuple[type, ...], *roots: Expr | None) -> bool:
    """Whether a node of some kinds is below the roots."""
    return any(isinstance(one, kinds) for one in walk(*roots))


def unnamed(node: Expr) -> Expr:
    """Returns what stands behind the names of lets."""
    while isinstance(node, Named):
        node = node.body
    return node


def with_data(node: Expr) -> Expr:
    """Returns what is meant where there is data: behind lets and before `??`."""
    while isinstance(node, Named | Coalesce):
        node = node.body if isinstance(node, Named) else node.operands[0]
    return node


def split_of(node: Expr) -> Func | None:
    """Returns the `split` that makes a list, None for other lists."""
    node = unnamed(node)
    return node if isinstance(node, Func) and node.name == "split" else None


def list_below(longer: Compare) -> Expr:
    """Returns the list of which a comparison says that it has too many items."""
    items = longer.left
    while items.type.kind is not Kind.LIST:
        (items,) = children(items)
    return items


def is_across(node: Expr) -> TypeGuard[Pair]:
    """Whether a value is that of a pair of the node and a pod of a set.

    Such a pair may stand over pods of other nodes: it is looked up for each node and each distinct
    text of the pods.
    """
    ends = {Level.NODE, Level.IT}
    return isinstance(node, Pair) and {node.left.level, node.right.level} == ends


def joined(node: Expr | None, operator: str = "and") -> tuple[Expr, ...]:
    """Returns the conditions that one is put together of; none of None."""
    if isinstance(node, Logical) and node.operator == operator:
        return node.operands
    return () if node is None else (node,)


def parts_first(root: Expr, known: Container[Expr]) -> Iterator[Expr]:
    """Yields the nodes below a root that are not known, parts before what they are part of.

    Whoever asks makes each known. Linear in the graph, however deep it is.
    """
    stack = [root]
    while stack:
        node = stack.pop()
        if node not in known:
            parts = _CHILDREN[type(node)]
            todo = parts and [one for one in parts(node) if one not in known]
            if not todo:
                yield node
            else:
                stack += (node, *todo)


class Message(Struct, frozen=True, eq=False):
    """A message: texts and typed expressions in order."""

    span: Span
    parts: tuple[str | Expr, ...]


class Statement(Struct, frozen=True, eq=False, kw_only=True):
    """What a statement means, for pods where `guard` holds; None: for all."""

    guard: Expr | None = None


class FilterCore(Statement, frozen=True):
    """A filter: for pods where `guard` holds, a node passes iff `test` holds.

    `left` and `right` are the two sides as written (for explanations); `forbids` says that the
    node is rejected where `right` holds. Where one of `longer` holds, a list has more items than
    are looked at, and `test` does not hold.
    """

    test: Expr
    left: Expr | None
    right: Expr
    forbids: bool = False
    message: Message | None = None
    status: str | None = None
    longer: tuple[Compare, ...] = ()


class ScoreCore(Statement, frozen=True):
    """A score: for pods where `guard` holds, `value` normalised.

    `missing` is the final score of a node without a value, None for the rule's "0, or abstain".
    """

    value: Expr
    norm: str
    reverse: bool
    missing: float | None
    weight: float


class TierCore(Statement, frozen=True):
    """A `first:` line: for pods where `guard` holds, nodes where `test` holds come first."""

    test: Expr


class SortKey(Struct, frozen=True, eq=False):
    """One key of an order.

    `direction` is `asc`, `desc` or `listed`; then `items` come first, in their order.
    """

    value: Expr
    direction: str = "asc"
    items: tuple[str, ...] | tuple[float, ...] = ()


class SortCore(Statement, frozen=True):
    """The keys of the queue, as written; the hidden last keys are not among them."""

    keys: tuple[SortKey, ...]


class PermitCore(Statement, frozen=True):
    """A `permit:` line.

    `decision` is `allow`, `reject` or `wait`: then for `seconds` until `until` holds, and `then`
    (`allow` or `reject`) is what happens after that. Where one of `longer` holds, a list has more
    items than are looked at; then a line that could reject applies, and nothing has become true.
    """

    left: Expr | None
    decision: str
    seconds: float = 0.0
    until: Expr | None = None
    then: str = "reject"
    message: Message | None = None
    status: str | None = None
    longer: tuple[Compare, ...] = ()


class Action(Struct, frozen=True, eq=False):
    """One action: `annotate` or `label` with a key and a value, `event` with its text."""

    span: Span
    kind: str
    key: str = ""
    value: Expr | None = None
    text: Message | None = None


class ActionCore(Statement, frozen=True):
    """A `prebind:` or `postbind:` line: what is done where `guard` and `left` hold."""

    left: Expr | None
    actions: tuple[Action, ...]


class BindCore(Statement, frozen=True):
    """A `bind:` line: `kind` is `default`, `with` (somebody called `name`) or `dry`."""

    kind: str
    name: str = ""


class PreemptCore(Statement, frozen=True):
    """A `preempt:` line: who may be evicted, in what order, and how to choose among nodes.

    Pods for which `where` holds may be evicted; the first in `order` goes first. `pick` ranks the
    nodes by what would be evicted there; empty means the order of Kubernetes.
    """

    never: bool
    where: Expr | None = None
    order: tuple[SortKey, ...] = ()
    pick: tuple[SortKey, ...] = ()
    limit: int | None = None
    across: int = 1


class GangCore(Statement, frozen=True):
    """A `gang:` line: pods of one namespace with an equal `by` start together or not at all.

    `member` is `by` asked of a pod of a set. `minimum` None: what the group says.
    """

    by: Expr
    member: Expr
    minimum: Expr | None
    wait: Expr | None
    backoff_seconds: float
    reject_above: float | None
    within: str | None


class QuotaCore(Statement, frozen=True):
    """A `quota:` line: pods with an equal `by` share amounts of resources, in base units.

    `member` is `by` asked of a pod of a set. `within` says of each resource that the pods there
    are and this one stay within the maximum.
    """

    by: Expr
    member: Expr
    minimum: tuple[tuple[str, float], ...]
    maximum: tuple[tuple[str, float], ...]
    elastic: bool
    reclaim: tuple[SortKey, ...]
    within: tuple[tuple[str, Expr], ...]
    message: Message | None
    status: str | None


#: What any statement with an extension point means.
AnyCore = (
    FilterCore | ScoreCore | TierCore | SortCore | PermitCore | ActionCore | BindCore | PreemptCore
    | GangCore | QuotaCore
)  # fmt: skip
