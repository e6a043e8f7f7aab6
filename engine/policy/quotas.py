"""A policy with `quota:` lines as a plugin: it rejects what would exceed them, before any node.

What a quota says of a class of pods is looked up in accounts (`accounts`) in every cycle; the class
is asked anew only when the answer changes. In questions about pods that leave (`Points.what_if`) a
quota that a pod exceeds is an amount, like those of a node (`Room.quota`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from hashlib import blake2b
from typing import Final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from dsl import ir
from dsl.collective import Amounts, Limits, QuotaUse
from dsl.making import mapped
from dsl.plan import Plan, QuotaRule
from engine.collective import quotas
from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
    Seen,
)
from engine.framework.interface import (
    ALL_PASS,
    Points,
    PreFilterResult,
    Room,
    Scope,
    State,
    Verdicts,
)
from engine.framework.snapshot import CodeColumn, IntColumn, PodColumns, Rows, Snapshot
from engine.framework.status import Code, Status
from engine.objects import Pod
from engine.plugins.default_preemption import is_evicted
from engine.plugins.hints import queue_if
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.policy.accounts import BY_NAMESPACE, Book, Key, Owner, namespace_of
from engine.policy.events import events_of_reads
from engine.policy.plugin import PolicyPlugin, own_promise, place_of, promises
from engine.policy.world import Worlds

_POD: Final = Resource.ASSIGNED_POD
_FREED: Final = Action.DELETE | Action.UPDATE_POD_SCALE_DOWN | Action.UPDATE_POD_LABEL


class Quota:
    """One `quota:` line of a policy over the accounts of a cluster."""

    def __init__(self, rule: QuotaRule, worlds: Worlds) -> None:
        core = rule.core
        self.rule = rule
        # Whose a pod is follows from a `let` and from parameters, too: of other ones nothing stays.
        whose = repr([_meaning(one) for one in (core.guard, core.by) if one is not None])
        digest = blake2b(whose.encode(), digest_size=16).hexdigest()
        self._name = f"{rule.source.name} {rule.id} {rule.text} {digest}"
        self._worlds = worlds
        own = Limits(dict(core.minimum), dict(core.maximum))
        self.follows = rule.owner_reads is not None
        by = core.by if core.guard is None else None
        self._by_namespace = isinstance(by, ir.Read) and by.field == "pod.namespace"
        self._book = Book(
            # What ElasticQuotas say is of an account of its own: it knows their namespaces alone.
            BY_NAMESPACE
            if self._by_namespace and not (core.minimum or core.maximum)
            else self._name,
            own if core.minimum or core.maximum else None,
            of_namespaces=any(one.startswith("namespace.") for one in rule.owner_reads or ()),
        )

    def owner(self, snapshot: Snapshot) -> Owner:
        """Tells whose quota a pod is of."""
        if self._by_namespace:
            return namespace_of
        worlds, rule = self._worlds, self.rule
        worlds.of(snapshot)

        def owner(pod: PodInfo) -> Key | None:
            # Accounts and columns keep this, and should not keep the snapshot they began with.
            return rule.owner(worlds.subject(pod, worlds.last.snapshot), worlds.last)

        return owner

    def prepare(self, snapshot: Snapshot) -> Iterator[None]:
        """Makes in steps what is read of all pods, where that follows from them."""
        if self.follows:
            yield from self._book.prepare(snapshot, self.owner(snapshot))
            pods = snapshot.pods
            yield from pods.prepare(lambda: (self._codes(pods, snapshot), evicted(snapshot)))

    def use(self, pod: PodInfo, snapshot: Snapshot) -> QuotaUse:
        """The quotas as the pod finds them."""
        sums = None
        if not self.follows:
            subject, world = self._worlds.asked_as_any(pod, snapshot)
            sums = partial(self.rule.used, subject, world)
        return self._book.use(pod, snapshot, self.owner(snapshot), sums)

    def says(self, use: QuotaUse) -> str | None:
        """Why the pod does not fit; None: it does."""
        return quotas.exceeded(use, elastic=self.rule.core.elastic)

    def gives(self, came: Seen, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Whether a pod that waits may take back what who came borrows, or replace it."""
        use = self.use(pod, snapshot)
        row = snapshot.pods.row(came.metadata.uid) if isinstance(came, Pod) else -1
        if use.key is None or row < 0:
            return False
        one, beyond = snapshot.pods.pod(row), bool(quotas.over_minimum_with_pod(use))
        key = self.owner(snapshot)(one)
        if key is None or key not in use.limits or beyond is not (key == use.key):
            return False
        if beyond:
            return one.priority < pod.priority
        return quotas.is_over_minimum(use.used.get(key, {}), use.limits[key], use.pool.minimum)

    def going(self, use: QuotaUse, snapshot: Snapshot) -> Mapping[Key, Amounts]:
        """What evicted pods that have not left yet use."""
        pods, (rows,) = snapshot.pods, np.nonzero(evicted(snapshot))
        owner, found = self.owner(snapshot), dict[Key, Amounts]()
        # Where owners follow from pods, those of one owner are summed up at once.
        codes = self._codes(pods, snapshot)[rows] if self.follows else np.arange(len(rows))
        names = {*use.pool.minimum, *use.limits[use.key].maximum} if use.key is not None else ()
        for code, at in zip(*np.unique(codes, return_index=True), strict=True):
            key = owner(pods.pod(int(rows[at])))
            if key is not None and key in use.limits:
                its = rows[codes == code]
                amounts = {name: int(pods.request(name)[its].sum()) for name in names}
                found[key] = _plus(found.get(key, {}), amounts, 1)
        return found

    def beside(self, use: QuotaUse, snapshot: Snapshot) -> QuotaUse:
        """The same, with what evicted pods leave for those that are promised a node: not twice."""
        if not (use.before or use.nominated):
            return use
        own, every = _sums(use, self.going(use, snapshot))
        return _moved(use, _spent(own, [use.before]), _spent(every, quotas.coming(use)), -1)

    def rooms(self, use: QuotaUse, short: str, snapshot: Snapshot) -> list[Room]:
        """What is exceeded once evicted pods are gone, as amounts that every node has left."""
        key, nodes = use.key, snapshot.nodes.size
        assert key is not None

        def room(name: str, owners: Collection[Key], limit: float, *used: Amounts) -> Room:
            taken = sum(int(one.get(name, 0)) for one in used)
            return Room(
                name,
                np.full(nodes, math.floor(limit), np.int64),
                np.full(nodes, taken, np.int64),
                int(use.asked.get(name, 0)),
                short,
                f"{self.rule.id} {len(owners)} {name}",
                self._held(name, owners, snapshot),
            )

        own, most = use.used.get(key, {}), use.limits[key].maximum
        found = [
            room(name, (key,), most[name], own, use.before) for name in quotas.over_maximum(use)
        ]
        if self.rule.core.elastic:
            pool = use.pool
            for name in quotas.over_all_minimums(use):
                owners = tuple(use.limits)
                found.append(room(name, owners, pool.minimum[name], pool.used, *quotas.coming(use)))
        return found

    def _held(self, name: str, owners: Collection[Key], snapshot: Snapshot) -> IntColumn:
        """(P,) what pods of some owners hold that are not going already."""
        pods, codes = snapshot.pods, self._codes(snapshot.pods, snapshot)
        wanted = [snapshot.dictionary.find(_text(one) or "") for one in owners]
        return pods.request(name) * (np.isin(codes, wanted) & ~evicted(snapshot))

    def _codes(self, pods: PodColumns, snapshot: Snapshot) -> CodeColumn:
        """(P,) whose quota each pod is of, if that follows from the pod."""
        owner = self.owner(snapshot)
        return pods.namespace_text(f"owner {self._name}", lambda pod: _text(owner(pod)))


def _meaning(part: ir.Core) -> object:
    """Equal for what means the same, wherever it stands."""
    return type(part).__name__, mapped(part, _meaning)


def _text(key: Key | None) -> str | None:
    return key if key is None or isinstance(key, str) else repr(key)


def _moved(use: QuotaUse, own: Amounts, every: Amounts, sign: int) -> QuotaUse:
    """What a pod finds once so much came (1) or left (-1) of its own quota, and of all together."""
    key = use.key
    if key is None:
        return use
    pool = structs.replace(use.pool, used=_plus(use.pool.used, every, sign))
    used = {**use.used, key: _plus(use.used.get(key, {}), own, sign)}
    return structs.replace(use, used=used, pool=pool)


def _sums(use: QuotaUse, going: Mapping[Key, Amounts]) -> tuple[Amounts, Amounts]:
    """What of it is of the pod's own quota, and all of it."""
    own: Amounts = {} if use.key is None else going.get(use.key, {})
    return own, reduce(lambda one, more: _plus(one, more, 1), going.values(), {})


def _spent(going: Amounts, promised: Sequence[Amounts]) -> Amounts:
    return {name: min(going[name], sum(one.get(name, 0) for one in promised)) for name in going}


def evicted(snapshot: Snapshot) -> NDArray[np.bool_]:
    """(P,) the pods that were evicted, or are being."""
    found = snapshot.pods.flag("evicted", lambda one: is_evicted(one.pod)).copy()
    rows = [snapshot.pods.row(uid) for uid in snapshot.nominations.leaving]
    found[[row for row in rows if row >= 0]] = True
    return found


def _plus(amounts: Amounts, more: Amounts, sign: int) -> Amounts:
    names = {*amounts, *more}
    return {name: amounts.get(name, 0) + sign * more.get(name, 0) for name in names}


class QuotaPlugin(PolicyPlugin):
    """See the module. The state of its filter is the policy's own and the quotas exceeded."""

    def __init__(self, plan: Plan, worlds: Worlds) -> None:
        super().__init__(plan, worlds)
        self.quotas = [Quota(rule, worlds) for rule in plan.quotas]
        self._plain = not plan.filters and not plan.prefilters
        self._follow = all(one.follows for one in self.quotas)
        self._elastic = any(one.rule.core.elastic for one in self.quotas)

    def _all_points(self) -> Points:
        """Those of the policy's rules, and what quotas add."""
        base = super()._all_points()
        freed = ClusterEventWithHint(ClusterEvent(_POD, _FREED), self._hint)
        objects = ClusterEventWithHint(ClusterEvent(Resource.ELASTIC_QUOTA, Action.ALL))
        amounts = self._plain and self._follow
        return replace(
            base,
            events=(*base.events, freed, objects, *self._events_of_owners()),
            class_key=self._class_key,
            key_version=promises,
            key_volatile=base.key_volatile or not self._follow,
            pre_filter=self._pre_filter,
            filter=self._filter,
            with_pod=self._with_pod,
            what_if=self._what_if,
            counts_pods=True,
            rooms=self._rooms if amounts else None,
            warm=self._warm,
        )

    def _warm(self, snapshot: Snapshot) -> Iterator[None]:
        for one in self.quotas:
            yield from one.prepare(snapshot)
        yield from super()._warm(snapshot)

    def _events_of_owners(self) -> Sequence[ClusterEventWithHint]:
        """What else says whose quota a pod is of, and whose there are: fields, others, the time."""
        reads = frozenset[str]()
        for one in self.quotas:
            own = one.rule.owner_reads
            reads |= one.rule.reads if own is None else own
        events = events_of_reads(reads) - events_of_reads(frozenset())
        found = [ClusterEventWithHint(event) for event in sorted(events, key=str)]
        if "pod.annotation" in reads:  # that of a pod on a node has no event of its own
            found.append(ClusterEventWithHint(ClusterEvent(_POD, Action.UPDATE_OTHER), self._moved))
        if self._elastic:
            found.append(ClusterEventWithHint(ClusterEvent(_POD, Action.ADD), self._grown))
            ended = ClusterEvent(Resource.NOMINATION, Action.DELETE)
            found.append(ClusterEventWithHint(ended, self._given_up))
        return found

    # ---- whether a pod fits

    def _exceeded(self, pod: PodInfo, snapshot: Snapshot) -> list[tuple[Quota, QuotaUse, str]]:
        """The quotas that the pod exceeds, and why."""
        found = []
        for one in self.quotas:
            use = one.use(pod, snapshot)
            why = one.says(use)
            if why is not None and one.says(one.beside(use, snapshot)) is not None:
                found.append((one, use, why))
        return found

    def _class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """Also whose quota the pod is of, what it asks for, and who comes before it there."""
        base = super()._class_key(pod, snapshot)
        owners = tuple([one.owner(snapshot)(pod) for one in self.quotas])
        asked = tuple(sorted(pod.requests.items()))
        return base, owners, asked, pod.priority, own_promise(pod, snapshot)

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        base = super()._pre_filter(pod, snapshot)
        if base.status.code not in (Code.SUCCESS, Code.SKIP):
            return base
        for quota, _, why in self._exceeded(pod, snapshot):
            return PreFilterResult(self._status(quota, why, pod, snapshot))
        rules = base.version

        def version(now: Snapshot) -> Hashable:
            fits = not self._exceeded(pod, now)
            return fits if rules is None else (fits, rules(now))

        if base.status.code is Code.SKIP:
            return PreFilterResult(Status.SKIP, version=version)
        return structs.replace(base, state=(base.state, ()), version=version)

    def _status(self, quota: Quota, why: str, pod: PodInfo, snapshot: Snapshot) -> Status:
        rule = quota.rule
        subject, world = self._worlds.asked_as_any(pod, snapshot)
        text = rule.message(subject, world)
        return Status(Code(rule.status), (f"{why if text is None else text} ({place_of(rule)})",))

    # ---- whether it would fit without some pods

    def _once_gone(self, pod: PodInfo, snapshot: Snapshot) -> list[tuple[Quota, QuotaUse, str]]:
        """The quotas that the pod exceeds, as they are once evicted pods are gone, and why."""
        return [
            (one, _moved(use, *_sums(use, one.going(use, snapshot)), -1), why)
            for one, use, why in self._exceeded(pod, snapshot)
        ]

    def _what_if(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        base = super()._what_if(pod, snapshot)
        moved = tuple([(one, use) for one, use, _ in self._once_gone(pod, snapshot)])
        skips = base.status.code is Code.SKIP
        if not moved:
            return base if skips else structs.replace(base, state=(base.state, ()))
        return PreFilterResult(state=(None if skips else base.state, moved), scope=Scope.ALL)

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        own, moved = state
        for quota, use in moved:
            why = quota.says(use)
            if why is not None:
                none = np.zeros(len(np.arange(snapshot.nodes.size)[rows]), np.bool_)
                return Verdicts.uniform(none, self._status(quota, why, pod, snapshot))
        return ALL_PASS if own is None else super()._filter(own, pod, snapshot, rows)

    def _with_pod(
        self,
        state: State,
        pod: PodInfo,
        snapshot: Snapshot,
        row: int,  # noqa: ARG002 - a quota is the same on all nodes
        sign: int,
    ) -> State:
        own, moved = state
        # What promised pods will use counts already, and what evicted ones use no longer.
        leaves = is_evicted(pod.pod) or pod.uid in snapshot.nominations.leaving
        if not moved or leaves or snapshot.nominations.node_of(pod.uid):
            return state
        found = []
        for one, use in moved:
            key = one.owner(snapshot)(pod)
            every = pod.requests if key is not None and key in use.limits else {}
            found.append((one, _moved(use, every if key == use.key else {}, every, sign)))
        return own, tuple(found)

    def _rooms(self, pod: PodInfo, snapshot: Snapshot) -> Sequence[Room]:
        each = self._once_gone(pod, snapshot)
        return [room for one, use, why in each for room in one.rooms(use, why, snapshot)]

    # ---- what wakes it

    def _hint(self, pod: PodInfo, before: Seen, _after: Seen, snapshot: Snapshot) -> QueueingHint:
        """Use falls: of the pod's own quota, or of any if quotas lend each other."""
        if self._elastic or not isinstance(before, Pod):
            return QueueingHint.QUEUE
        try:
            gone = make_pod_info(before)
        except ValueError:  # what it asked for cannot be read, and counted as far as it can
            return QueueingHint.QUEUE
        owners = (one.owner(snapshot) for one in self.quotas)
        same = any(owner(gone) == owner(pod) for owner in owners)
        return QueueingHint.QUEUE if same else QueueingHint.SKIP

    def _grown(self, pod: PodInfo, _before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
        """Whoever has a first pod lends what the line guarantees to each; others may borrow."""
        given = any(one.gives(after, pod, snapshot) for one in self.quotas)
        return queue_if(given or not self._exceeded(pod, snapshot))

    def _given_up(
        self, pod: PodInfo, before: Seen, _after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        """A nomination counts for pods of other quotas, more important ones, too, until it ends."""
        return queue_if(before is not None and not self._exceeded(pod, snapshot))

    def _moved(self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
        """A pod on a node is no longer of the quota that it was of."""
        if not isinstance(before, Pod) or not isinstance(after, Pod):
            return QueueingHint.QUEUE
        if before.metadata.annotations == after.metadata.annotations:
            return QueueingHint.SKIP
        return self._hint(pod, before, after, snapshot)


def plugin_of(plan: Plan, worlds: Worlds) -> PolicyPlugin:
    """A policy as a plugin, the one in force if there is; what it does not say costs nothing."""
    known = worlds.plugins.get(plan.name)
    if isinstance(known, PolicyPlugin) and known.plan is plan:
        return known
    return QuotaPlugin(plan, worlds) if plan.quotas else PolicyPlugin(plan, worlds)
