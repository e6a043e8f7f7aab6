"""A filter that joins what it asks of the pod to what it asks of the node by `and`.

Warns only, and only where the rule cannot mean what it says: all other pods would fit nowhere.
"""

from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Scope
from dsl.diagnostics import Fix, Severity
from dsl.types import Level

#: What tells one pod from another; how much it asks for is compared with nodes as well.
_WHICH_POD: Final = frozenset(
    {
        "pod.name",
        "pod.namespace",
        "pod.label",
        "pod.annotation",
        "pod.workload",
        "pod.owner.kind",
        "pod.owner.name",
        "pod.image",
        "pod.images",
        "pod.priority_class",
        "pod.runtime_class",
        "pod.service_account",
        "pod.qos",
        "namespace.name",
        "namespace.label",
        "namespace.annotation",
    }
)


def without_arrow(scope: Scope, rule: s.Rule, right: ir.Expr) -> None:
    """Warns of `filter: pod.label a=b and node.label c=d`: all other pods would fit nowhere."""
    written = rule.right
    if rule.point != "filter" or rule.left is not None or not isinstance(written, s.Logical):
        return
    if not isinstance(right, ir.Logical) or right.operator != "and":
        return
    if len(right.operands) != len(written.operands):
        return
    of_pod = [one for one in right.operands if _picks_pods(one)]
    others = [one for one in right.operands if one not in of_pod]
    if not of_pod or not any(one.level is Level.NODE for one in others):
        return
    if _reads(*of_pod) & _reads(*others):
        # `pod.label[a] is present and node.label[a] == pod.label[a]` demands both of each pod.
        return
    parts = {
        ours: [
            f"({text})" if isinstance(node, s.Logical | s.If) else text
            for node, one in zip(written.operands, right.operands, strict=True)
            for text in [scope.text(node)]
            if (one in of_pod) == ours
        ]
        for ours in (True, False)
    }
    pods, nodes = " and ".join(parts[True]), " and ".join(parts[False])
    before, _ = scope.source.beside(written.span)
    scope.report(
        "P227",
        f"`{scope.text(of_pod[0])}` is asked of the pod alone: other pods fit on no node",
        of_pod[0].span,
        f"to ask the nodes only for such pods write  {rule.keyword}: {pods} -> {nodes}",
        f"if no other pod may run, write two rules:  prefilter: {pods}   and"
        f"   {rule.keyword}: {nodes}",
        fix=Fix(written.span, f"{pods} -> {nodes}") if before == ":" else None,
        severity=Severity.WARNING,
    )


def _picks_pods(node: ir.Expr) -> bool:
    """Whether this is a plain test of which pod it is, and no test of what it is not."""
    while isinstance(node, ir.Named):
        node = node.body
    if not isinstance(node, ir.Compare | ir.TextTest | ir.Member) or node.level is not Level.POD:
        return False
    below = [one for one in ir.walk(node) if one is not node]
    if not all(isinstance(one, ir.Read | ir.Const) for one in below):
        return False
    fields = {one.field for one in below if isinstance(one, ir.Read)}
    return bool(fields) and fields <= _WHICH_POD


def _reads(*nodes: ir.Expr) -> set[tuple[str, str | None]]:
    return {(one.field, one.key) for one in ir.walk(*nodes) if isinstance(one, ir.Read)}
