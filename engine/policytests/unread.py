"""Attributes that a test file gives and nobody reads, each told once.

Looks at what rules read, not at what they make of it; knows no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dsl import ir
from dsl.analysis.facts import roots
from dsl.diagnostics import Diagnostic, Severity
from dsl.nearest import closest
from dsl.plan import Plan
from dsl.policytest import Given, Suite
from engine.policy.findings import rules_of
from engine.policytests.policies import Used

CODE: Final = "P705"
#: What says which object it is, or where it stands: no rule has to read that.
_ALWAYS: Final = frozenset({
    "name", "namespace", "uid", "count", "from", "metric", "chosen", "waited", "bound", "phase",
})  # fmt: skip
#: Attributes that make more of an object than the field of their name.
_ALSO: Final = {
    **dict.fromkeys(("cpu", "memory"), ("qos", "resource", "request", "limit")),
    **dict.fromkeys(("storage", "gpu"), ("resource", "request", "limit")),
    "images": ("image",),
    "image": ("images",),
    **dict.fromkeys(("owner_kind", "owner_name"), ("owner", "workload", "previous_node")),
    "workload": ("owner", "previous_node"),
    **dict.fromkeys(("unschedulable", "tolerates_all"), ("eligible",)),
    "finished_at": ("finished",),
    "nominated_node": ("nominated",),
    "terminating": ("group",),
}
_LEAVE_IT: Final = "leave it out, or let the plugin that reads it take part, as in  use defaults"
#: Without a `sort:` the queue goes by these.
_QUEUE: Final = ("priority", "queued_at")


def unread_attributes(suite: Suite, used: Used) -> Iterator[Diagnostic]:
    """Attributes that make no difference to any rule, where rules are all that is asked.

    Plugins of the tree, gangs, quotas and preemption look at amounts, ages and more of their own.
    """
    plans = used.plans
    if used.plugins or any(one.gangs or one.quotas or one.preempts for one in plans):
        return
    fields = {read.replace(".", "_") for plan in plans for one in rules_of(plan)
              for read in one.reads}  # fmt: skip
    if not any(plan.sorts for plan in plans):
        fields.update(_QUEUE)
    keys = _keys_read(plans)
    once: dict[tuple[str, str, str], Given] = {}
    for given in suite.given:
        once.setdefault((given.kind, given.name, given.key), given)
    for (kind, name, key), given in once.items():
        if key:
            # One beside those that are read is there to be left alone, unless it is one misspelt.
            read = keys.get(name, ())
            near = None if key in read or "" in read else closest(key, [*read])
            what, help_, is_read = f"{name} {key}", f"did you mean `{near}`?", near is None
        else:
            words = (name, *_ALSO.get(name, ()))
            what, help_ = name, _LEAVE_IT
            is_read = name in _ALWAYS or any(word in field for word in words for field in fields)
        if not is_read:
            message = f"nothing in this file reads `{what}` of a {kind}"
            yield Diagnostic(CODE, message, suite.source, given.span, Severity.WARNING,
                             helps=(help_,))  # fmt: skip


def _keys_read(plans: Sequence[Plan]) -> dict[str, set[str]]:
    """Last word of a field -> the keys that rules read of it; "" for one that is worked out."""
    found: dict[str, set[str]] = {}
    for rule in [one for plan in plans for one in rules_of(plan)]:
        core = getattr(rule, "core", None)
        for node in () if core is None else ir.walk(*roots(core)):
            if isinstance(node, ir.Read) and node.key is not None:
                found.setdefault(node.field.rpartition(".")[2], set()).add(node.key)
            elif isinstance(node, ir.KeyedRead):
                found.setdefault(node.field.rpartition(".")[2], set()).add("")
    return found
