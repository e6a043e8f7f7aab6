"""What the author of a single namespace may say: statements and costs in, diagnostics out.

A tenant's rules are for the pods of its namespace; the checker sees to that. Here is what would
reach further all the same, or be more than its share.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from dsl import syntax as s
from dsl.analysis import FileFacts, Size, cost
from dsl.diagnostics import Diagnostic
from dsl.plan import Plan, UseLine
from dsl.quantities import exact_decimal
from dsl.source import SourceFile

LEAST_ORDER: Final = 100
#: Points that are about pods of others, and why.
_SHARED: Final = {
    "sort": "all pods share one queue, and with it its order",
    "preempt": "whom to evict concerns pods of other namespaces",
    "quota": "how much a namespace may use is said by who runs the scheduler",
    "bind": "who binds pods is said by who runs the scheduler",
}
#: Sources of metrics that cost others something, or show what is theirs.
_ASKED: Final = {
    "promql": "whoever runs the scheduler makes the query a metric by its configuration",
    "object": "objects are read with the rights of the scheduler",
}


class Tenant(Struct, frozen=True):
    """Whose rules they are, and how much they may be.

    Attributes:
        namespace: its pods are those that the rules are for.
        policies: how many policies it may have.
        cost: units that all of them may take for one pod; see `dsl.analysis.cost`.
    """

    namespace: str
    policies: int = 10
    cost: float = 500_000.0

    def own(self, name: str) -> str:
        """How a policy of the tenant's is called among those of others."""
        return f"{self.namespace}/{name}"


def refused(
    source: SourceFile, statements: Sequence[s.Statement], used: UseLine | None = None
) -> Iterator[Diagnostic]:
    """Yields what a tenant may not say; of a policy that it uses, at the line that does."""
    for node in statements:
        match node:
            case s.Rule(point=point) | s.Special(point=point) if point in _SHARED:
                what, why = f"`{node.keyword}:`", _SHARED[point]
            case s.MetricDecl(source=of) if (kind := of.removeprefix("from_")) in _ASKED:
                what, why = f"a metric from `{kind}`", _ASKED[kind]
            case s.Header(name="order", value=s.Word(value=text)) if (
                number := exact_decimal(text)
            ) is not None and number < LEAST_ORDER:
                what, why = f"an order below {LEAST_ORDER}", "those come before everybody's"
            case _:
                continue
        by = "" if used is None else f"`use {used.name}`: "
        at = (source, node.span) if used is None else used.place
        message = f"{by}{what} is not for the policies of a namespace"
        yield Diagnostic("P121", message, *at, helps=(why,))


def too_many(tenant: Tenant, plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    """Yields the first policy beyond those that a tenant may have."""
    for plan in plans[tenant.policies : tenant.policies + 1]:
        message = f"a namespace may have {tenant.policies} policies, and these are {len(plans)}"
        yield Diagnostic("P122", message, *plan.place, helps=("put rules together in one policy",))


def too_dear(tenant: Tenant, facts: Sequence[FileFacts], size: Size) -> Iterator[Diagnostic]:
    """Yields the dearest policy of a tenant whose policies together cost too much."""
    found = [(*cost(one, size), one) for one in facts if one.mode != "off"]
    total = sum(units for units, _, _ in found)
    if total <= tenant.cost:
        return
    units, dearest, one = max(found, key=lambda each: each[0])
    assert dearest is not None, "what has no rule costs nothing"
    yield Diagnostic(
        "P322",
        f"the policies of this namespace may take {total:,.0f} units for one pod, and"
        f" {tenant.cost:,.0f} are its share",
        *(dearest.rule.word if one.used is None else one.used.place),
        helps=("look at fewer pods or nodes, and at fewer things of each",),
        notes=(
            f"{units:,.0f} of them are of this policy, with {size.nodes:,} nodes and"
            f" {size.pods:,} pods",
        ),
    )
