"""Which values the snapshot alone decides, and when two expressions are equal.

Such columns need to be computed once a generation, whoever asks for them.
"""

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from dsl import ir
from dsl.reads import is_local
from dsl.schema import FIELDS
from dsl.types import Level

_DEAR: Final = 4
_WITHOUT_WORK: Final = (ir.Const, ir.Read, ir.Metric, ir.Named)
#: What never divides by zero, overflows or asks for the root of a negative number.
_QUIET: Final = (
    ir.Const, ir.Read, ir.Metric, ir.Named, ir.Compare, ir.TextTest, ir.Member, ir.Between,
    ir.Missing, ir.Coalesce, ir.Logical, ir.Not, ir.If,
)  # fmt: skip


class Facts(NamedTuple):
    """What is known of an expression.

    Attributes:
        shape: the same for equal expressions.
        lasting: whether nodes, pods and samples alone decide it: no pod to place, no clock.
        local: whether the value of a row is a matter of that row.
        heavy: whether it looks at all pods, or at the nodes of each domain.
        chosen: whether it depends on which nodes are candidates.
        samples: whether it reads metrics.
        work: how many operations it takes.
    """

    shape: bytes
    lasting: bool
    local: bool
    heavy: bool
    chosen: bool
    samples: bool
    work: int


class Known:
    """The facts of the expressions of one rule; each is looked at once."""

    def __init__(self) -> None:
        self._facts: dict[int, Facts] = {}

    def of(self, root: ir.Expr) -> Facts:
        """Returns the facts of an expression."""
        for node in ir.parts_first(root, self._facts):
            self._facts[id(node)] = self._look(node)
        return self._facts[id(root)]

    def _look(self, node: ir.Expr) -> Facts:
        parts = [self._facts[id(one)] for one in ir.children(node)]
        if isinstance(node, ir.Named):
            return parts[0]
        # What is known of the parts, fact by fact.
        each: list[tuple[Any, ...]] = list(zip(*parts, strict=True)) or [()] * len(Facts._fields)
        _, lasting, local, heavy, chosen, samples, work = each
        lasts = _lasts(node) and all(lasting)
        # A domain takes a pass over all nodes, which is dear as well.
        of_domains = isinstance(node, ir.NodeAggregate) and node.level is Level.NODE
        return Facts(
            # Nobody asks for the shape of what does not last.
            shape=self._shape(node) if lasts else b"",
            lasting=lasts,
            local=is_local(node) and all(local),
            heavy=isinstance(node, ir.PodAggregate) or of_domains or any(heavy),
            chosen=_is_chosen(node) or any(chosen),
            samples=isinstance(node, ir.Metric | ir.Pair) or any(samples),
            work=(type(node) not in _WITHOUT_WORK) + sum(work),
        )

    def _shape(self, node: ir.Expr) -> bytes:
        # The type follows from the rest, and a metric's name is the file's own business.
        hidden = "name" if isinstance(node, ir.Metric | ir.Pair) else ""
        names = type(node).__annotations__
        own = [self._part(getattr(node, name)) for name in names if name != hidden]
        text = f"{type(node).__name__} {int(node.level)} {own!r}"
        return blake2b(text.encode(), digest_size=16).digest()

    def _part(self, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(self._part(one) for one in value)
        return self._facts[id(value)].shape if isinstance(value, ir.Core) else value


def _lasts(node: ir.Expr) -> bool:
    """Whether a node reads nothing itself that is neither a row nor a sample."""
    match node:
        case ir.Read() | ir.KeyedRead():
            spec = FIELDS[node.field]
            otherwise = spec.of_clock or spec.of_pod or spec.unsteady or spec.of_outcome
            return spec.level is not Level.POD and not otherwise
        case ir.Metric():
            # The value of an annotation turns stale by the clock.
            steady = node.level is not Level.POD and not node.age
            return steady and node.source != "annotation"
        case ir.PodAggregate():
            return node.table == "pods"
        case ir.ContainerRead() | ir.ContainerAggregate():
            return False
        case _:
            return True


def _is_chosen(node: ir.Expr) -> bool:
    if isinstance(node, ir.NodeAggregate):
        return node.over == "candidates"
    return isinstance(node, ir.Rank)


def works(node: ir.Expr) -> bool:
    """Whether a value takes any computing, and is not only another one's column."""
    if isinstance(node, ir.Func):
        return node.name != "plain"
    return not isinstance(node, _WITHOUT_WORK)


def is_dear(facts: Facts) -> bool:
    """Whether a column is worth keeping although nobody else has it.

    A comparison of 5,000 numbers takes less than finding out that it is known.
    """
    return facts.heavy or facts.work >= _DEAR


def is_quiet(root: ir.Expr) -> bool:
    """Whether NumPy can have nothing to warn of."""
    return all(isinstance(one, _QUIET) for one in ir.walk(root))
