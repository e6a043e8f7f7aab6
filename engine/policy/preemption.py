"""What policies do for a pod that fits nowhere: a PostFilter before the profile's own.

For a pod of an elastic quota that quota first takes back what it lent. Where that makes no room,
and for other pods, the first `preempt:` of all policies, in their order, whose left side holds is
tried; a `never` is the end before both, and so is a `dry run`: nobody goes for a pod that is not
bound. The search for victims is that of `engine.collective`.
Where no line has a say, the next PostFilter is asked.

Of two pods that could evict each other neither does: the one that runs stays, or they would take
turns for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from dsl import ir
from dsl.collective import Evictions, QuotaUse
from dsl.plan import Plan, PreemptRule, RuleBase
from dsl.reads import reads_of
from engine.collective.quotas import over_minimum_with_pod, reclaim, without_guaranteed
from engine.collective.search import Preemption, search
from engine.collective.victims import Kinds, without
from engine.framework.decision import PostFilterResult, Rejections
from engine.framework.effects import Evict
from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    HintFn,
    QueueingHint,
    Resource,
    Seen,
    never,
)
from engine.framework.interface import UNSHARED, Points, WhatIf
from engine.framework.runner import Unfit
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status, unresolvable, unschedulable
from engine.framework.trials import Trial
from engine.plugins import default_preemption
from engine.plugins.hints import queue_if
from engine.pods.podinfo import PodInfo
from engine.policy.events import Edits, events_of_reads, follows_others, of_pod_alone
from engine.policy.plugin import place_of
from engine.policy.quotas import Quota, evicted
from engine.policy.world import Worlds

NAME: Final = "PolicyPreemption"
_ON_NODES: Final = Resource.ASSIGNED_POD
_FREED: Final = ClusterEvent(_ON_NODES, Action.DELETE)
_CAME: Final = ClusterEvent(_ON_NODES, Action.ADD)
_OPENED: Final = (
    Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
)
_NODE: Final = ClusterEvent(Resource.NODE, Action.ADD | _OPENED)
#: Who comes before others while it is promised a node may be evicted for them once it has it.
_KEPT: Final = ClusterEvent(Resource.NOMINATION, Action.DELETE)
_OF_QUOTAS: Final = {ClusterEvent(Resource.ELASTIC_QUOTA, Action.ALL)}
_NOT_OURS: Final = PostFilterResult(unschedulable())
#: What rules may read of the pod, that pods which are alike in it are alike to them.
_ALIKE: Final = frozenset({"pod.priority", "pod.namespace"})
#: Victims that could evict the pod in turn, before the search is given up.
_MOST_MUTUAL: Final = 8
_MUTUAL: Final = (
    "Its victims could evict it in turn (with it.priority < pod.priority they could not)"
)


class Said(Struct, frozen=True, eq=False):
    """A rule that is tried for a pod, and who may go; None: nobody."""

    rule: RuleBase
    evictions: Evictions | None


class PolicyPreemption:
    """See the module."""

    name: Final = NAME

    def __init__(self, plans: Sequence[Plan], worlds: Worlds) -> None:
        self._rules = [rule for plan in plans for rule in plan.preempts]
        self._binders = [plan for plan in plans if plan.binds]
        quotas = [Quota(rule, worlds) for plan in plans for rule in plan.quotas]
        self._lending = next((one for one in quotas if one.rule.core.elastic), None)
        self._worlds = worlds
        self._kinds, self._budgets = Kinds(), default_preemption.Budgets()
        binds = [rule for plan in self._binders for rule in plan.binds]
        reads = frozenset().union(*(rule.reads for rule in (*self._rules, *binds)))
        own = {read for read in reads if read.startswith("pod.")}
        # A canary's share is one of pods, which no rule of it reads.
        whole = all(one.mode == "enforce" for one in self._binders)
        self._alike = whole and own <= _ALIKE
        # What pods do is what those wait for that rejected the pod, but for what is read of them.
        moved = events_of_reads(reads) - events_of_reads(frozenset())
        moved |= _OF_QUOTAS if self._lending else set()
        dropped = set() if follows_others(reads) else {_ON_NODES}
        self._moved = [one for one in sorted(moved, key=str) if one.resource not in dropped]
        guards = [one.core.guard for one in self._rules] + [one.core.guard for one in binds]
        alone = of_pod_alone(reads_of(*guards).fields)
        self._guards_move = self._lending is not None or not alone
        cores = [one.core for one in self._rules]
        # By such rules alone nobody goes who was promised a node before the pod.
        less = self._lending is None and all(map(_less_important, cores))
        self._kept = [] if less else [_KEPT]
        orders = [key.value for core in cores for key in core.order]
        looks = [*guards, *(core.where for core in cores), *orders]
        # Once quotas refuse a pod nobody asks its nodes, which may be what keeps it from evicting.
        self._quotas = quotas
        self._nodes = [_FREED, _NODE] if self._quotas else []
        self._edits = Edits(*looks, gpus=worlds.gpus).events(self._concerns)

    def points(self) -> Points:
        """What wakes the pod are the events of the plugins that rejected it, and of its rules."""
        return Points(
            events=(
                ClusterEventWithHint(_FREED, never),
                *(ClusterEventWithHint(event, self._concerns) for event in self._kept),
                *(ClusterEventWithHint(event, self._beside) for event in self._nodes),
                *(ClusterEventWithHint(event, self._hint_of(event)) for event in self._moved),
                *self._edits,
                *([] if self._lending is None else [ClusterEventWithHint(_CAME, self._lent)]),
            ),
            pre_enqueue=default_preemption.gate,
            post_filter=self._post_filter,
            post_filter_key=lambda pod: pod.namespace if self._alike else UNSHARED,
        )

    def decides(self, pod: PodInfo, snapshot: Snapshot) -> tuple[Said, ...]:
        """Who may be evicted for the pod, by which rule, in this order; none: no rule says."""
        subject, world = self._worlds.asked_as_any(pod, snapshot)
        bind = next(filter(None, (one.binder(subject, world) for one in self._binders)), None)
        if bind is not None and bind.core.kind == "dry":
            return (Said(bind, None),)
        rule, quota = self._rule_of(pod, snapshot), self._lending
        may_go = None if rule is None else rule.evictions(subject, world)
        said = () if rule is None else (Said(rule, may_go),)
        if quota is None or (rule is not None and may_go is None):
            return said
        use = _of_those_that_stay(quota, quota.use(pod, snapshot), snapshot)
        if rule is not None and use.key is None:
            return said
        claims = quota.rule.claims(subject, world, use)
        # The server does not show all of them yet.
        leaving = claims.leaving | evicted(snapshot)[claims.ordered]
        claims = structs.replace(claims, leaving=leaving)
        lent = Said(quota.rule, reclaim(use, claims))
        if rule is None or may_go is None:
            return (lent,)
        return lent, Said(rule, without_guaranteed(use, claims, may_go))

    def _lent(self, pod: PodInfo, _before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
        return queue_if(self._lending is not None and self._lending.gives(after, pod, snapshot))

    def _hint_of(self, event: ClusterEvent) -> HintFn | None:
        return None if event.resource is Resource.TARGET_POD else self._concerns

    def _rule_of(self, pod: PodInfo, snapshot: Snapshot) -> PreemptRule | None:
        subject, world = self._worlds.asked_as_any(pod, snapshot)
        return next((one for one in self._rules if one.prepare(subject, world) is not None), None)

    def _post_filter(
        self, pod: PodInfo, snapshot: Snapshot, rejections: Rejections, what_if: WhatIf
    ) -> PostFilterResult:
        found = self._found(pod, snapshot, rejections, what_if)
        waits = (self._moved or self._edits) and not found.nominated
        return replace(found, plugins=frozenset({NAME})) if waits else found

    def _concerns(
        self, pod: PodInfo, _before: Seen, _after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        """Whether a rule has a say about the pod, or may have by now."""
        return queue_if(self._guards_move or self._rule_of(pod, snapshot) is not None)

    def _beside(self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
        """The same for a pod that a quota refuses: others hear of nodes by who rejects them."""
        return queue_if(
            self._concerns(pod, before, after, snapshot) is QueueingHint.QUEUE
            and any(one.says(one.use(pod, snapshot)) for one in self._quotas)
        )

    def _found(
        self, pod: PodInfo, snapshot: Snapshot, rejections: Rejections, what_if: WhatIf
    ) -> PostFilterResult:
        said = self.decides(pod, snapshot)
        if not said:
            return _NOT_OURS
        place = ", ".join(place_of(one.rule) for one in said)
        tries = [(place_of(one.rule), one.evictions) for one in said if one.evictions is not None]
        why_not = default_preemption.ineligible(pod, snapshot, rejections)
        if why_not:
            return _ended(place, why_not)
        if not tries:
            ended = _ended(place, "this pod may evict nobody")
            # Nobody goes any more for what it is promised.
            promised = snapshot.nominations.node_of(pod.uid)
            return replace(ended, nominated="") if promised else ended
        try:
            trial = what_if(pod, snapshot)
        except Unfit as unfit:
            nodes = unfit.fit_error.nodes
            reasons = {unfit.fit_error.pre_filter_message: nodes}
            return _hopeless({place: default_preemption.hopeless_words(nodes, nodes, reasons)})
        row = snapshot.nodes.row(snapshot.nominations.node_of(pod.uid))
        if row >= 0 and len(_once_gone(np.array([row], np.intp), snapshot, trial)):
            return _ended(place, "waiting for its victims to be gone")
        rows = default_preemption.potential_rows(snapshot, rejections)
        # Where all nodes are refused for one reason (a quota), it may be enough to wait.
        there = rows[:0] if rejections.ended is None else _once_gone(rows, snapshot, trial)
        if len(there):
            place, evictions = tries[0]
            row = _least_promised(there, pod, snapshot)
            return _promise(pod, snapshot, Preemption(row), evictions, place)
        told: dict[str, str] = {}
        for place, evictions in tries:
            found = self.search(evictions, pod, snapshot, trial, rows)
            if found.row >= 0:
                return _promise(pod, snapshot, found, evictions, place)
            nodes = rejections.fit_error().nodes
            told[place] = default_preemption.hopeless_words(nodes, len(rows), found.reasons)
        return _hopeless(told)

    def search(
        self,
        evictions: Evictions,
        pod: PodInfo,
        snapshot: Snapshot,
        trial: Trial,
        rows: NDArray[np.intp],
    ) -> Preemption:
        """The cheapest victims, of which none could evict the pod in turn."""
        pods, spared = snapshot.pods, set[str]()
        if self._kinds.outgrow(pods):
            self._kinds = Kinds()
        for _ in range(_MOST_MUTUAL):
            if spared:
                left = [row for row in evictions.ordered if pods.pod(row).uid not in spared]
                evictions = structs.replace(evictions, ordered=tuple(left))
            found = search(
                evictions,
                snapshot,
                trial,
                rows=rows,
                budgets=self._budgets.of(snapshot),
                kinds=self._kinds,
            )
            mutual = {one.uid for one in found.victims if self._evicts(one, pod, snapshot, found)}
            if not mutual:
                break
            spared |= mutual
        else:
            found = Preemption()
        if found.row < 0 and spared:
            found = structs.replace(found, reasons={_MUTUAL: len(rows)})
        return found

    def _evicts(self, victim: PodInfo, pod: PodInfo, snapshot: Snapshot, found: Preemption) -> bool:
        """Whether the victim could evict the pod if that was where it is to be."""
        rule = self._rule_of(victim, snapshot)
        if rule is None or self._guaranteed(pod, victim, snapshot):
            return False
        there = snapshot.overlay(found.row, add=[pod])
        subject, world = self._worlds.asked_as_any(victim, there)
        evictions = rule.evictions(subject, world)
        return evictions is not None and there.pods.size - 1 in evictions.ordered

    def _guaranteed(self, pod: PodInfo, victim: PodInfo, snapshot: Snapshot) -> bool:
        """Whether the pod is within the minimum of its quota, and the victim of another one's."""
        if self._lending is None:
            return False
        use, key = self._lending.use(pod, snapshot), self._lending.use(victim, snapshot).key
        others = use.key is not None and key is not None and key != use.key
        return others and not over_minimum_with_pod(use)


def _less_important(core: ir.PreemptCore) -> bool:
    own = ["it.priority", "pod.priority"]
    return core.where is None or any(
        isinstance(one, ir.Compare)
        and one.operator == "<"
        and [getattr(each, "field", "") for each in ir.children(one)] == own
        for one in ir.joined(core.where)
    )


def preempts(plan: Plan) -> bool:
    """Whether a policy says whom a pod may evict, be it nobody as the pod is not bound."""
    dry = any(one.core.kind == "dry" for one in plan.binds)
    return bool(plan.preempts) or dry or any(one.core.elastic for one in plan.quotas)


def _of_those_that_stay(quota: Quota, use: QuotaUse, snapshot: Snapshot) -> QuotaUse:
    """The same without what others' pods use that go with their node: no claim shows those."""
    pods, leaving = snapshot.pods, snapshot.nominations.leaving
    lost = [pods.pod(row) for row in np.flatnonzero(pods.node < 0).tolist()]
    going = [one for one in lost if one.terminating or one.uid in leaving]
    if not going:
        return use
    owner, used = quota.owner(snapshot), dict(use.used)
    for one in going:
        theirs = owner(one)
        if theirs is not None and theirs != use.key:
            own = used[theirs]
            used[theirs] = {name: own[name] - one.requests.get(name, 0) for name in own}
    return structs.replace(use, used=used)


def _once_gone(rows: NDArray[np.intp], snapshot: Snapshot, trial: Trial) -> NDArray[np.intp]:
    """Those of some nodes that take the pod once those are gone that were evicted already."""
    going = np.flatnonzero(evicted(snapshot) & (snapshot.pods.node >= 0))
    if not len(going) or not len(rows):
        return rows[:0]
    return rows[without(trial, int(rows[0]), snapshot.pods, going).passes(rows)]


def _least_promised(rows: NDArray[np.intp], pod: PodInfo, snapshot: Snapshot) -> int:
    """Of some nodes one to which the fewest pods are nominated; which of them is the pod's own."""
    promised = np.zeros(snapshot.nodes.size, np.int64)
    for node, pods in snapshot.nominations.each():
        if (row := snapshot.nodes.row(node)) >= 0:
            promised[row] = len(pods)
    turn = hashlib.blake2b(pod.uid.encode(), digest_size=8).digest()
    ties = snapshot.nodes.tie_keys[rows] ^ np.uint64(int.from_bytes(turn))
    return int(rows[np.lexsort((ties, promised[rows]))[0]])


def _promise(
    pod: PodInfo, snapshot: Snapshot, found: Preemption, evictions: Evictions, place: str
) -> PostFilterResult:
    node = snapshot.nodes.name(found.row)
    count = len(found.victims)
    victims = f"evicting {count} victim{'s' if count != 1 else ''}"
    then = victims if count else "waiting for evicted pods to be gone"
    words = f"{pod.pod.spec.scheduler_name}: preempting to accommodate {pod.key} ({place})"
    return PostFilterResult(
        Status.SUCCESS,
        nominated=node,
        evictions=tuple([Evict(one, pod, words) for one in found.victims]),
        clears=tuple(snapshot.nominations.behind(pod, node)),
        message=f"preemption ({place}): node {node} is promised, {then}",
        violations=found.violations,
        ranks=evictions.ranks,
    )


def _hopeless(told: Mapping[str, str]) -> PostFilterResult:
    """What each of the rules that were tried came to, by its place."""
    message = " ".join(f"preemption ({place}): {words}" for place, words in told.items())
    return PostFilterResult(unresolvable(" ".join(told.values())), nominated="", message=message)


def _ended(place: str, words: str) -> PostFilterResult:
    words = f"preemption ({place}): {words}"
    return PostFilterResult(unresolvable(words), message=words)
