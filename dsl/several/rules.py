"""Statements about several pods, as understood, become what they come to for one pod.

Each function takes the values of the statement's expressions, from columns or from the reference.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeVar

import numpy as np

from dsl import collective, ir, making
from dsl.lower.frame import Memo
from dsl.plan import GangRule, PreemptRule, QuotaRule
from dsl.reads import reads_of
from dsl.reference import View, asked
from dsl.schema import OF_THE_QUEUE
from dsl.several.values import Columns, Values
from dsl.types import NUMBER, TIME, is_missing
from dsl.words import filled
from dsl.world import Subject, World

_OF_THE_QUEUE: Final = {one.replace("it.", "pod.") for one in OF_THE_QUEUE}
#: How long members of a gang wait for each other where the policy does not say.
WAIT_SECONDS: Final = 60.0
_T = TypeVar("_T")
Limited = Mapping[str | float, collective.Limits]
#: Later than any start: a pod that did not start yet is the youngest.
_LATE: Final = 1e18
#: What one victim weighs more than the priority of any, in the sum that Kubernetes makes.
_A_VICTIM: Final = float(1 << 31)


_read: Final = cache(partial(making.read, making.NOWHERE))
_compare: Final = partial(making.compare, making.NOWHERE)
_not: Final = partial(making.inverted, making.NOWHERE)


def _both(*parts: ir.Expr) -> ir.Expr:
    return making.logical(making.NOWHERE, "and", parts)


def _like_own(field: str) -> ir.Compare:
    return _compare(_read(f"it.{field}"), "==", _read(f"pod.{field}"))


def _late(field: str) -> ir.SortKey:
    late = making.constant(making.NOWHERE, _LATE, TIME)
    return ir.SortKey(value=making.first_of(making.NOWHERE, (_read(field), late)), direction="desc")


def _of_victims(left: ir.Expr, sign: str, right: ir.Expr) -> ir.Expr:
    return making.arith(making.NOWHERE, NUMBER, (sign,), (left, right))


_OTHERS: Final = _not(_like_own("uid"))
_PRIORITY: Final = _read("it.priority")
_OWN_PRIORITY: Final = _read("pod.priority")
#: A member of a gang that is being deleted is one no more.
_LEAVING: Final = _read("it.terminating")
_LESS: Final = _compare(_PRIORITY, "<", _OWN_PRIORITY)
#: Pods that a pod of a quota comes behind.
_BEFORE: Final = _both(_compare(_OWN_PRIORITY, "<=", _PRIORITY), _OTHERS)
#: Least important first, of those who started last; then by name, never by row.
_BY_NAME: Final = tuple(ir.SortKey(value=_read(one)) for one in ("it.namespace", "it.name"))
ORDER: Final = (ir.SortKey(value=_PRIORITY), _late("it.started_at"))
_VICTIMS: Final = {
    name: _read(f"victims.{name}")
    for name in ("pdb_violations", "max_priority", "sum_priority", "count")
}
_WEIGHT: Final = making.constant(making.NOWHERE, _A_VICTIM, NUMBER)
#: Source: kubernetes preemption.go, pickOneNodeForPreemption.
PICK: Final = (
    ir.SortKey(value=_VICTIMS["pdb_violations"]),
    ir.SortKey(value=_VICTIMS["max_priority"]),
    ir.SortKey(
        value=_of_victims(
            _VICTIMS["sum_priority"], "+", _of_victims(_VICTIMS["count"], "*", _WEIGHT)
        )
    ),
    ir.SortKey(value=_VICTIMS["count"]),
    _late("victims.latest_start"),
)
_NODE_NAME: Final = (ir.SortKey(value=_read("node.name")),)


def _answer(columns: Columns, function: Callable[..., _T], of: object) -> Callable[..., _T]:
    """Returns a function of what a statement says and of values, as one of a pod and a snapshot."""
    return lambda subject, world, *more: function(of, columns.of(subject, world), *more)


# ---- preempt


def evictions(core: ir.PreemptCore, values: Values) -> collective.Evictions | None:
    """Returns who may be evicted for the pod; None for `never`."""
    if core.never or core.where is None:
        return None
    ordered = values.ordered(values.chosen(core.where), (*(core.order or ORDER), *_BY_NAME))
    return collective.Evictions(
        ordered=ordered,
        ranks=_ranks(core.pick or PICK, values),
        limit=core.limit,
        across=core.across,
    )


def _ranks(keys: tuple[ir.SortKey, ...], values: Values) -> tuple[collective.Rank, ...]:
    return tuple(partial(values.rank, key) for key in (*keys, *_NODE_NAME))


def preempt_rule(base: dict[str, Any], core: ir.PreemptCore, memo: Memo) -> PreemptRule:
    """Compiles a `preempt:`."""
    return PreemptRule(**base, core=core, evictions=_answer(Columns(memo), evictions, core))


# ---- gang


def pending(core: ir.GangCore) -> ir.Expr:
    """Returns what says of a pod whether it is another member of the gang."""
    same = _compare(core.member, "==", core.by)
    return _both(_like_own("namespace"), same, _not(_LEAVING), _OTHERS)


def gang_terms(core: ir.GangCore, values: Values) -> collective.GangTerms | None:
    """Returns what the gang of the pod asks for; None: it is in none."""
    key, subject = owner_of(core, values), values.subject
    if key is None:
        return None
    minimum = values.one(core.minimum) if core.minimum is not None else (
        subject.number("group.min_member", None)
    )  # fmt: skip
    # What the group's object says beats the policy.
    wait: Any = subject.number("group.schedule_timeout", None)
    if is_missing(wait) and core.wait is not None:
        wait = values.one(core.wait)
    return collective.GangTerms(
        key=key,
        minimum=float(minimum),
        wait_seconds=WAIT_SECONDS if is_missing(wait) else float(wait),
        backoff_seconds=core.backoff_seconds,
        tolerance=core.reject_above or 0.0,
        within=core.within,
    )


def gang_rule(base: dict[str, Any], core: ir.GangCore, memo: Memo) -> GangRule:
    """Compiles a `gang:`."""
    columns = Columns(memo)
    return GangRule(
        **base,
        core=core,
        key=_answer(columns, owner_of, core),
        terms=_answer(columns, gang_terms, core),
        mates=_answer(columns, lambda where, values: values.chosen(where), pending(core)),
    )


# ---- quota


def _sums(
    core: ir.QuotaCore,
    values: Values,
    resources: Sequence[str],
    where: ir.Expr | None = None,
    table: str = "pods",
) -> dict[str | float, collective.Amounts]:
    """Returns what pods ask for, by their key: in order, so that rows decide nothing."""
    amounts = [_read("it.request", name) for name in resources]
    found = values.totals(core.member, amounts, where, table)
    each = sorted(found.items(), key=lambda one: repr(one[0]))
    return {key: dict(zip(resources, row, strict=True)) for key, row in each}


def owner_of(core: ir.QuotaCore | ir.GangCore, values: Values) -> str | float | None:
    """Returns whose quota a pod is of, or of which gang; None: of none."""
    key: str | float = values.one(core.by)
    if is_missing(key) or (core.guard is not None and not values.one(core.guard)):
        return None
    return key


def quota_use(core: ir.QuotaCore, values: Values, objects: Limited) -> collective.QuotaUse:
    """Returns the quotas as the pod finds them.

    `objects` are those that the cluster has, by namespace; lists of the policy itself count before.
    """
    key = owner_of(core, values)
    explicit = collective.Limits(dict(core.minimum), dict(core.maximum))
    resources = sorted(
        {name for one in (explicit, *objects.values()) for part in (one.minimum, one.maximum)
         for name in part}
    )  # fmt: skip
    # The pod itself is in the table once it has a node; what it asks for is counted apart.
    used = _sums(core, values, resources, _OTHERS)
    limits = objects
    if core.minimum or core.maximum:
        limits = dict.fromkeys([*used, *([] if key is None else [key])], explicit)
    used = {one: amounts for one, amounts in used.items() if one in limits}
    asked = {name: float(values.one(_read("pod.request", name))) for name in resources}
    own: collective.Amounts = {}
    others: dict[str | float, collective.Amounts] = {}
    if core.elastic:
        # What pods nominated to nodes will take.
        before = _sums(core, values, resources, _BEFORE, "nominated")
        own = {} if key is None else before.get(key, {})
        others = _sums(core, values, resources, _OTHERS, "nominated")
    return collective.QuotaUse(
        key=key if key in limits else None,
        limits=limits,
        used=used,
        pool=collective.pool_of(limits, used),
        asked=asked,
        before=own,
        nominated={one: sums for one, sums in others.items() if one != key and one in limits},
    )


def claims(core: ir.QuotaCore, values: Values, use: collective.QuotaUse) -> collective.Claims:
    """Returns the pods that an elastic quota may look at to make room for the pod."""
    ordered = values.ordered(values.chosen(_OTHERS), (*(core.reclaim or ORDER), *_BY_NAME))
    rows = np.array(ordered, np.intp)
    keys, key = values.distinct(core.member, rows)
    return collective.Claims(
        ordered=rows,
        nodes=values.world.pod_node[rows].astype(np.intp),
        keys=tuple(None if is_missing(one) else one for one in keys),
        key=key,
        less=values.column(_LESS, rows),
        leaving=values.column(_LEAVING, rows),
        amounts={name: values.column(_read("it.request", name), rows) for name in use.pool.minimum},
        ranks=_ranks(PICK, values),
    )


def quota_rule(base: dict[str, Any], core: ir.QuotaCore, status: str, memo: Memo) -> QuotaRule:
    """Compiles a `quota:`."""
    columns = Columns(memo)

    def message(subject: Subject, world: World) -> str | None:
        ask = asked(View(world, subject, -1))
        return None if core.message is None else filled(core.message, ask)

    return QuotaRule(
        **base,
        core=core,
        status=status,
        use=_answer(columns, quota_use, core),
        message=message,
        claims=_answer(columns, claims, core),
        owner=_answer(columns, owner_of, core),
        used=_answer(columns, _sums, core),
        owner_reads=_read_of_pod(core.guard, core.by),
    )


def _read_of_pod(*exprs: ir.Expr | None) -> frozenset[str] | None:
    """Returns the fields of the pod that expressions read; None: they read more than a pod."""
    fields = reads_of(*exprs).fields
    own = all(name.startswith(("pod.", "namespace.")) for name in fields)
    return fields if own and not fields & _OF_THE_QUEUE else None
