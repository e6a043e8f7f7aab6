"""Statements about several pods, as understood, become what they come to for one pod.

`preempt:`, `gang:` and `quota:` as data of `dsl.collective`: who, in which order and at what cost;
nothing is searched for or decided. Each function takes the values of the statement's expressions,
from columns or, in a test, one by one from the reference.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dsl import collective, functions, ir, making
from dsl.lower import numbers
from dsl.lower.columns import Builder
from dsl.lower.frame import NO_ROWS, Frame, Run
from dsl.lower.kept import Memo
from dsl.lower.reads import ITS, ROWS
from dsl.plan import GangRule, PreemptRule, QuotaRule
from dsl.reads import reads_of
from dsl.reasons import filled
from dsl.reference import View, asked
from dsl.schema import OF_THE_QUEUE
from dsl.types import NUMBER, TIME, Kind, Level, is_missing
from dsl.world import Indices, Subject, World

#: A float, text or flag; NaN or None where it is missing.
Value = Any


class Values:
    """What a statement's expressions are for one pod on one snapshot; each is compiled once."""

    def __init__(self, builder: Builder, subject: Subject, world: World) -> None:
        self._builder = builder
        self.subject = subject
        self.world = world

    def _run(self, expr: ir.Expr) -> Run:
        return self._builder.build(expr, ITS if expr.level is Level.IT else ROWS)

    def one(self, expr: ir.Expr) -> Value:
        """Returns the value of an expression about the pod."""
        frame = Frame(self.world, NO_ROWS, subject=self.subject)
        return frame.ask(self._run(expr))

    def _of_pods(self, expr: ir.Expr, world: World) -> tuple[Indices, NDArray[Any]]:
        """Returns the used rows of a table, ascending, and a value for each."""
        frame = Frame(world, slice(0, world.nodes), subject=self.subject)
        rows = np.flatnonzero(world.pod_node >= 0)
        found = frame.ask(self._run(expr))
        if expr.level is Level.NODE:
            found = np.asarray(found)[world.pod_node[rows]]
        elif expr.level is not Level.IT and expr.type.kind is Kind.TEXT:
            found = -1 if found is None else world.dictionary.code(found)
        return rows, np.broadcast_to(found, rows.shape)

    def chosen(self, where: ir.Expr, table: str = "pods") -> tuple[int, ...]:
        """Returns the rows of the pods for which a condition holds, ascending."""
        rows, mask = self._of_pods(where, _table(self.world, table))
        return tuple(rows[mask].tolist())

    def ordered(self, rows: Sequence[int], keys: Sequence[ir.SortKey]) -> tuple[int, ...]:
        """Returns rows of the table `pods` in an order; equal ones stay as they are."""
        chosen = np.array(rows, np.intp)
        group = np.zeros(len(chosen), np.intp)
        groups = min(len(chosen), 1)
        for key in keys:
            if groups == len(chosen):
                break
            # Only what is still equal needs another key: names, say, are rarely looked at.
            equal = np.bincount(group)[group] > 1
            places = np.zeros(len(chosen), np.intp)
            places[equal] = self._placed(key, self.column(key.value, chosen[equal]))
            distinct, group = np.unique(
                group * (int(places.max()) + 1) + places, return_inverse=True
            )
            groups = len(distinct)
        return tuple(chosen[np.argsort(group, kind="stable")].tolist())

    def _placed(self, key: ir.SortKey, column: NDArray[Any]) -> Indices:
        """Returns where each value stands among the distinct ones."""
        values, back = np.unique(column, return_inverse=True)
        if key.direction != "listed" and key.value.type.kind is not Kind.TEXT:
            # Sorted already, the missing value last, which is where it stays.
            there = len(values) - int(np.isnan(values[-1:]).sum())
            turned = key.direction == "desc"
            return np.where(back < there, there - 1 - back, back) if turned else back
        if key.direction != "listed":
            return _by_text(values, self.world.dictionary.texts, key.direction)[back]
        kinds = [
            functions.place(one, key.direction, key.items)
            for one in _plain(values, key.value, self.world)
        ]
        rank = {place: number for number, place in enumerate(sorted(set(kinds)))}
        return np.array([rank[one] for one in kinds], np.intp)[back]

    def totals(
        self, key: ir.Expr, amounts: Sequence[ir.Expr], where: ir.Expr | None, table: str = "pods"
    ) -> dict[str | float, tuple[float, ...]]:
        """Returns the sums of amounts of the pods with an equal key, those without one left out."""
        world = _table(self.world, table)
        _, keys = self._of_pods(key, world)
        keep = (keys >= 0) if key.type.kind is Kind.TEXT else ~np.isnan(keys)
        if where is not None:
            keep &= self._of_pods(where, world)[1]
        values, back = np.unique(keys[keep], return_inverse=True)
        sums = [
            numbers.grouped("sum", back, self._of_pods(one, world)[1][keep], len(values)).tolist()
            for one in amounts
        ]
        names = _plain(values, key, world)
        return {name: tuple(row[at] for row in sums) for at, name in enumerate(names)}

    def column(self, expr: ir.Expr, rows: Indices) -> NDArray[Any]:
        """Returns the values of some rows of the table `pods`."""
        used, column = self._of_pods(expr, self.world)
        return column[np.searchsorted(used, rows)]

    def distinct(self, expr: ir.Expr, rows: Indices) -> tuple[list[Value], Indices]:
        """Returns the values that some rows of the table `pods` have, and which each has."""
        values, index = np.unique(self.column(expr, rows), return_inverse=True)
        return _plain(values, expr, self.world), index

    def rank(
        self, key: ir.SortKey, rows: Indices, results: Mapping[str, NDArray[Any]]
    ) -> NDArray[Any]:
        """Returns where a key puts each of some nodes whose outcomes would be `results`."""
        if key.value.level < Level.NODE:
            return np.zeros(len(rows), np.intp)
        # Each column of results has the length of the frame.
        frame = Frame(self.world, rows, subject=self.subject, results=cast("Any", results))
        return self._placed(key, np.atleast_1d(frame.ask(self._run(key.value))))


def _by_text(codes: NDArray[Any], texts: Sequence[str], direction: str) -> Indices:
    """Returns where each of some distinct texts stands among them, a missing one last."""
    there = np.flatnonzero(codes >= 0)
    order = np.argsort(np.array([texts[code] for code in codes[there].tolist()] or [""]))
    places = np.full(len(codes), len(there), np.intp)
    if len(there):
        places[there[order if direction == "asc" else order[::-1]]] = np.arange(len(there))
    return places


def _plain(column: NDArray[Any], expr: ir.Expr, world: World) -> list[Value]:
    """Returns the values behind a column: texts for codes."""
    if expr.type.kind is not Kind.TEXT:
        values: list[Value] = column.tolist()
        return values
    texts = world.dictionary.texts
    return [None if code < 0 else texts[code] for code in column.tolist()]


def _table(world: World, table: str) -> World:
    return world if table == "pods" else world.pod_table(table)


_OF_THE_QUEUE: Final = {one.replace("it.", "pod.") for one in OF_THE_QUEUE}
#: How long members of a gang wait for each other where the policy does not say.
WAIT_SECONDS: Final = 60.0
_T = TypeVar("_T")
Limited = Mapping[collective.Key, collective.Limits]
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
_COUNT: Final = _read("victims.count")
_ALL: Final = _of_victims(_COUNT, "*", making.constant(making.NOWHERE, _A_VICTIM, NUMBER))
#: Source: kubernetes preemption.go, pickOneNodeForPreemption.
PICK: Final = (
    ir.SortKey(value=_read("victims.pdb_violations")),
    ir.SortKey(value=_read("victims.max_priority")),
    ir.SortKey(value=_of_victims(_read("victims.sum_priority"), "+", _ALL)),
    ir.SortKey(value=_COUNT),
    _late("victims.latest_start"),
)
_NODE_NAME: Final = (ir.SortKey(value=_read("node.name")),)


def _answer(builder: Builder, function: Callable[..., _T], of: object) -> Callable[..., _T]:
    """Returns a function of what a statement says and of values, as one of a pod and a snapshot."""
    return lambda subject, world, *more: function(of, Values(builder, subject, world), *more)


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
    return PreemptRule(**base, core=core, evictions=_answer(Builder(memo), evictions, core))


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
    builder = Builder(memo)
    return GangRule(
        **base,
        core=core,
        key=_answer(builder, owner_of, core),
        terms=_answer(builder, gang_terms, core),
        mates=_answer(builder, lambda where, values: values.chosen(where), pending(core)),
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
    builder = Builder(memo)

    def message(subject: Subject, world: World) -> str | None:
        ask = asked(View(world, subject, -1))
        return None if core.message is None else filled(core.message, ask)

    return QuotaRule(
        **base,
        core=core,
        status=status,
        use=_answer(builder, quota_use, core),
        message=message,
        claims=_answer(builder, claims, core),
        owner=_answer(builder, owner_of, core),
        used=_answer(builder, _sums, core),
        owner_reads=_read_of_pod(core.guard, core.by),
    )


def _read_of_pod(*exprs: ir.Expr | None) -> frozenset[str] | None:
    """Returns the fields of the pod that expressions read; None: they read more than a pod."""
    fields = reads_of(*exprs).fields
    own = all(name.startswith(("pod.", "namespace.")) for name in fields)
    return fields if own and not fields & _OF_THE_QUEUE else None
