"""Members of a gang are tried together: enough of them get nodes in one go, or none keeps one.

A gang's turn comes with whichever member is popped. Nobody else is decided about while one of them
has a node by it, and nothing is written before it ends:

    popped ─┬─ too few members, resting ──▶ parked, nobody else is touched
            └─ all that wait are taken out of the queue
                 └─▶ each gets a node, as any pod does ─┬─ enough ──▶ bound, all of them
                          ▲                             │
                          └── promised ◀── a plan where ┤ too few
                              they fit together         ├─ so few are missing that the gang waits
                                                        │       ──▶ held in permit, for a time
                                                        └─ else ──▶ all given back: it failed

With `within`, the plan comes first. Plans and searches for victims are made in slices (`gangplan`).
While the first plan is made no member has a node, and other pods are decided about between its
slices; if the members' own cycles find it outdated then, or nodes went, a second one is made with
nobody else decided about. Where a younger gang holds nodes that would do, it gives way. A
gang that has started takes more members as any pods.

Source: scheduler-plugins pkg/coscheduling (meaning), which tries members one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.basis import Basis
from engine.choice import Chosen, Refused
from engine.clusterevents import POD_FREED, on_node
from engine.collective.packing import NOWHERE, Found, Packing, Steps
from engine.evictions import Evictions
from engine.failures import Failures
from engine.framework.decision import Decision
from engine.framework.gang import Membership
from engine.framework.runtime import PluginError
from engine.framework.snapshot import Snapshot
from engine.gangplan import (
    MOST_DOMAINS,
    Absent,
    OutdatedError,
    Rehearsal,
    Together,
    Unpromised,
    domain_of_affinity,
    emptiest,
    in_slices,
    plan,
)
from engine.gangs.holds import Hold, Holds, Turn, rank_of
from engine.gangs.rescue import MOST_ASKED, Domain, Rescue, Rescuers
from engine.notices import said
from engine.placement import Placement
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod, SchedulingQueue, SubQueue
from engine.text.display import but_digits, few

_FEW: Final = 16
"""Members that are told each number anew."""
_ABSENT: Final = (SubQueue.GATED, SubQueue.IN_FLIGHT, SubQueue.WAITING)


@dataclass(eq=False)
class Gangs:
    """The gangs of one scheduler: one that is being tried, and those of which members are held."""

    basis: Basis
    placement: Placement
    failures: Failures
    evictions: Evictions
    queue: SchedulingQueue

    def __post_init__(self) -> None:
        self._cache = self.basis.cache
        self._clock = self.basis.clock
        self._waiting_pods = self.placement.waiting_pods
        self._turn: Turn | None = None
        self._steps: Steps[None] | None = None
        self._answers = 0  # of the queue's, those before a member had a node
        self._next: QueuedPod | None = None
        self.shares = False
        """Whether others may be decided about before the next step."""
        self.holds = Holds(self.basis, self.placement, self.queue)
        """Gangs of which members wait for others."""

    # ---- whose turn it is

    @property
    def busy(self) -> bool:
        """Whether a gang is being tried."""
        return self._steps is not None

    def next(self) -> QueuedPod | None:
        """A member of another gang that was popped meanwhile: its turn is now."""
        queued, self._next = self._next, None
        if queued is None or queued.pod.uid in self.queue:
            return queued
        self.queue.done(queued.pod.uid)  # it went while it waited for its turn
        return None

    def begin(self, queued: QueuedPod) -> bool:
        """The pod was popped; False: it is to be scheduled like any other."""
        pod = queued.pod
        snapshot = self.basis.snapshot()
        try:
            found = self.basis.framework_of(pod).gang(pod, snapshot)
        except PluginError as fault:
            decision = Decision(pod, snapshot.generation, "", 0, error=fault.status)
            self.placement.refuse(Refused(queued, decision))
            return True
        if found is None:
            return False
        if self.busy:
            self._next, self.shares = queued, False
            return True
        plugin, gang = found
        turn = self._turn_of(queued, plugin, gang, snapshot)
        why = self._why_not(turn, snapshot.now)
        if why is not None:
            # Who is told of a group that is not there is told of it when it comes, too.
            unknown = gang.minimum != gang.minimum
            nominated = None if self._has_enough(turn) else self._claims_nothing(turn, why)
            self.failures.reject(queued, why, frozenset({plugin}), nominated, alone=unknown)
            if not snapshot.now < gang.rests_until:  # what they know of the attempt says more
                self._tell_others(turn, why)
            return True
        if turn.reserved >= gang.minimum and gang.domain is None:
            return False
        for one in turn.members[1:]:
            self.queue.take(one.pod.uid)
        taken = [one for one in turn.members if one.where is SubQueue.IN_FLIGHT]
        turn.members = sorted(taken, key=lambda one: one.sort_key)
        nodes, ranks = self._cache.nominations.nodes, self._cache.nominations.ranks
        uids = [one.pod.uid for one in turn.members]
        turn.promised = {uid: (nodes[uid], ranks[uid]) for uid in uids if uid in nodes}
        self._turn, self._steps = turn, self._attempt(turn)
        return True

    def step(self) -> None:
        """One member more."""
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration:
            self._turn, self._steps, self.shares = None, None, False

    def new_rules(self) -> None:
        """A gang that is being tried is tried again by the new ones."""
        self.holds.new_rules()
        turn, steps = self._turn, self._steps
        self._turn, self._steps, self.shares = None, None, False
        if turn is not None and steps is not None:
            steps.close()
            self._give_back(turn)
            for one in turn.members:
                self.queue.activate([one.pod.uid])
                self.queue.requeue_rejected(one, frozenset({turn.plugin}))

    def _turn_of(
        self, queued: QueuedPod, plugin: str, gang: Membership, snapshot: Snapshot
    ) -> Turn:
        mates = tuple(gang.mates())
        pods = [snapshot.pods.pod(row) for row in mates]
        others = [
            one
            for one in self.queue.kin(gang.key)
            if one is not queued and not _is_absent(one) and not one.pod.terminating
        ]
        return Turn(
            plugin=plugin,
            gang=gang,
            members=[queued, *others],
            rank=rank_of(gang, [one.pod for one in (queued, *others)]),
            mates=frozenset(one.uid for one in pods),
            reserved=len(mates),
            bound=frozenset(one.uid for one in pods if self._waiting_pods.get(one.uid) is None),
        )

    def _why_not(self, turn: Turn, now: float) -> str | None:
        gang = turn.gang
        size = turn.reserved + len(turn.members)
        why = gang.why_stopped(size, resting=now < gang.rests_until)
        if why is not None and size < gang.minimum:
            gated = [one.pod for one in self.queue.kin(gang.key) if one.where is SubQueue.GATED]
            going = {one.name for one in gated if self._cache.nominations.is_evicting(one.uid)}
            held = {one.name for one in gated} - going
            why += f"; {few(sorted(held))} held by a gate" if held else ""
            why += f"; {few(sorted(going))} waiting for its victims to be gone" if going else ""
            failed = {one.pod.name for one in self.queue.kin(turn.gang.key) if one.errors}
            why += f"; {few(sorted(failed))} waiting after an error" if failed else ""
        return None if why is None else f"{why} ({gang.place})"

    def _has_enough(self, turn: Turn) -> bool:
        """Whether it could start once gates let its members in, and it has rested.

        Whom a gate holds for long is promised nothing any more, and the others wait for nobody.
        """
        kin, promised = self.queue.kin(turn.gang.key), self._cache.nominations.nodes
        soon = (one for one in kin if one.where is not SubQueue.GATED or one.pod.uid in promised)
        there = {one.pod.uid for one in soon} - turn.mates
        return turn.gang.why_stopped(turn.reserved + len(there), resting=False) is None

    def _claims_nothing(self, turn: Turn, why: str) -> str | None:
        """Nothing is promised to members that wait for more of them; what the first is told."""
        first, *others = [self._cache.withdraw(one.pod.uid) for one in turn.members]
        for queued, broken in zip(turn.members[1:], others, strict=True):
            if broken:
                self.queue.nomination_sent(queued.pod.uid, "")
                self.failures.notices.report(queued.pod, "Unschedulable", why, "")
        return "" if first else None

    def _tell_others(self, turn: Turn, why: str) -> None:
        """Members that wait, too, are told what the one was told whose turn it was.

        Of many only those that know of another reason: the number of members that there are
        changes with each that comes, and each told is an Event.
        """
        others = [one.pod for one in turn.members[1:] if one.where is not SubQueue.ACTIVE]
        same = str if len(others) <= _FEW else but_digits
        for pod in others:
            if same(said(pod)) != same(why):
                self.failures.notices.report(pod, "Unschedulable", why)

    # ---- one attempt

    def _attempt(self, turn: Turn) -> Steps[None]:
        yield from self._by_itself(turn, shares=True)
        if not turn.started:
            self._give_back(turn)
            yield from self._instead_of_younger(turn)
        if not turn.started:
            if (yield from self._rescued(turn)):
                return
            self._give_back(turn)
            # As many as get a node, though that is not enough.
            if turn.gang.tolerance and turn.gang.domain is None:
                yield from self._place(turn, None)
            elif turn.gang.tolerance:
                found = yield from self._plan(turn)
                if found is not None:
                    yield from self._place_as(turn, found)
        self._end(turn)

    def _by_itself(self, turn: Turn, *, shares: bool) -> Steps[None]:
        """Members go where each likes best, or else where a plan has them, if enough do.

        Where others were decided about meanwhile, the second plan is made without them. What a plan
        does not know (volumes, permits) may refuse them in one domain and not in another.
        """
        if turn.gang.domain is None:
            yield from self._place(turn, None)
            turn.most = max(turn.most, turn.reserved + len(turn.chosen))
        refusing, most = set[str](), 1 + MOST_ASKED // len(turn.members)
        for alone in (not shares, *[True] * min(MOST_DOMAINS, most)):
            if turn.started:
                break
            self._give_back(turn)
            self.shares = not alone and self._next is None
            found = yield from self._plan(turn, refusing)
            self.shares = False
            if found is not None and len(found) < turn.wanted:
                break
            if found is not None:
                yield from self._place_as(turn, found)
            if alone and (found is None or turn.gang.domain is None):
                break
            refusing |= set(found.values()) if alone and found else set()

    def _place(self, turn: Turn, nodes: Mapping[str, str] | None) -> Steps[None]:
        """Each member gets a node, by a cycle of its own; with `nodes`, that one and no other.

        Who got none is asked again once another one has a node, which he may need beside him.
        """
        for uid in () if nodes is None else turn.promised:
            self._cache.withdraw(uid)  # the plan is beside no promises of theirs
        members = {one.pod.uid: one for one in turn.members}
        order, again = list(members if nodes is None else nodes), list[str]()
        for uid in order:  # it grows; that of a plan does not
            queued = members[uid]
            yield
            if not self._waits(queued):
                continue
            if nodes is not None:
                self._cache.nominate(queued.pod, nodes[uid])
            found = self.placement.choose_member(queued)
            self._cache.withdraw(uid)
            if isinstance(found, Chosen) and nodes is not None and found.node != nodes[uid]:
                self.placement.give_back(found, tell_beside=None)
                continue
            if isinstance(found, Chosen):
                found.was_nominated = turn.promised.get(uid, ("",))[0] == found.node
                if not turn.chosen:
                    self._answers = self.queue.answers
                turn.chosen.append(found)
                turn.refused.pop(uid, None)
                order += again
                again.clear()
            else:
                turn.refused[uid] = found
                again += [uid] if nodes is None else []
        self._forget_gone(turn)

    def _forget_gone(self, turn: Turn) -> None:
        """Between two steps a member may have gone, or its node, or a wait for others has ended."""
        there = []
        for one in turn.chosen:
            if not self._cache.is_assumed(one.queued.pod.uid):
                one.undo()
            elif self._is_there(one.node):
                there.append(one)
            else:
                self.placement.give_back(one, tell_beside=None)
        turn.chosen = there
        turn.reserved = sum(self._is_there(self._cache.node_of(uid)) for uid in turn.mates)

    def _is_there(self, node: str | None) -> bool:
        return node is not None and self._cache.nodes.row(node) >= 0

    def _place_as(self, turn: Turn, nodes: Mapping[str, str]) -> Steps[None]:
        yield from self._place(turn, nodes)
        # A plan knows of room, and not of what is reserved, nor of what permits say.
        fit = len(turn.chosen) + sum(one.status is not None for one in turn.refused.values())
        turn.most = max(turn.most, turn.reserved + fit)

    def _plan(self, turn: Turn, refusing: Collection[str] = ()) -> Steps[Mapping[str, str] | None]:
        """UID -> node where they fit, or too few, in no domain of `refusing`; None: nodes went."""
        pods = [one.pod for one in turn.members if self._waits(one)]
        if not pods:  # they all went between two steps
            return {}
        found = Packing()
        try:
            for domains in self._each_domains(pods, refusing):
                now = yield from self._planned(turn, pods, domains)
                turn.cut_short |= now.cut_short
                found = max(found, now, key=lambda one: (one.enough, len(one.rows)))
                if found.enough:
                    break
        except PluginError:
            return {}
        except OutdatedError:
            return None
        if not found.enough:
            turn.most = max(turn.most, turn.reserved + len(found.rows))
        name = self._cache.nodes.name
        return {pods[member].uid: name(row) for member, row in found.rows.items()}

    def _planned(self, turn: Turn, pods: Sequence[PodInfo], domains: Together) -> Steps[Packing]:
        snapshot, of, fullest = self.basis.snapshot, self.basis.framework_of, turn.gang.fullest
        rehearsal = Rehearsal(pods, self._cache, snapshot, of)
        steps = plan(pods, turn.wanted, snapshot, rehearsal, of, domains, fullest=fullest)
        return (yield from self._in_slices(steps, Unpromised(self._cache, pods), rehearsal))

    def _in_slices(
        self, steps: Steps[Found], *thought: AbstractContextManager[None]
    ) -> Steps[Found]:
        """See `in_slices`: as long as the nodes that there are now are in their rows still."""
        before = self._cache.nodes.name_codes().copy()
        there = before >= 0

        def holds() -> bool:
            names = self._cache.nodes.name_codes()[: len(before)]
            return len(names) == len(before) and bool((names == before)[there].all())

        return (yield from in_slices(steps, self._clock, *thought, holds=holds))

    def _domains(self, pods: Sequence[PodInfo], refusing: Collection[str] = ()) -> Together:
        """As they are now: nodes may have come since the gang's turn began."""
        snapshot = self.basis.snapshot()
        found = self.basis.framework_of(pods[0]).gang(pods[0], snapshot) if pods else None
        if found is None or found[1].domain is None:
            return None
        column = found[1].domain
        column = np.where(np.isin(column, column[self._rows(refusing)]), NOWHERE, column)
        return column, snapshot.pods.node[list(found[1].mates())].tolist()

    def _each_domains(
        self, pods: Sequence[PodInfo], refusing: Collection[str] = ()
    ) -> Iterator[Together]:
        """Where members may be together: without `within` anywhere, or else beside each other.

        The first of them may get a node in a domain too small for those that have to be beside it.
        """
        domains = self._domains(pods, refusing)
        yield domains
        if domains is None:
            beside = domain_of_affinity(pods, self.basis.snapshot())
            if beside is not None:
                yield beside, None

    def _rows(self, nodes: Collection[str]) -> list[int]:
        return [row for node in nodes if (row := self._cache.nodes.row(node)) >= 0]

    def _instead_of_younger(self, turn: Turn) -> Steps[None]:
        """Takes the nodes of younger gangs that only hold them, if the gang can start with them."""
        absent = Absent(self._cache)
        taken: list[Hold] = []
        for hold in self.holds.younger(turn):
            taken.append(hold)
            with absent:
                for uid in hold.uids:
                    absent.send(uid)
            steps = self._by_itself(turn, shares=False)
            yield from in_slices(steps, self._clock, absent)
            if turn.started:
                break
            self._give_back(turn)
        for hold in taken if turn.started else ():
            pods = [one for uid in hold.uids if (one := self._waiting_pods.get(uid)) is not None]
            self.holds.end(
                hold, f"{hold.gang.title} gives way to {turn.gang.title}, which is older"
            )
            for one in pods:  # the gang may not have taken all of it
                self.queue.move(POD_FREED, on_node(one.pod.pod, one.node))

    def _rescued(self, turn: Turn) -> Steps[bool]:
        """Evicts pods if that lets the gang start; it is tried again as they go."""
        members = [one for one in turn.members if self._waits(one)]
        if not members:
            return False
        rescuers = Rescuers(self.basis, self.placement, self._waits, turn, members)
        try:
            found = yield from self._emptied(turn, rescuers)
        except (PluginError, OutdatedError):
            return False
        turn.keeps_promises = rescuers.only_wait and not found.found
        if not found.found or not all(self._waits(queued) for queued, _ in found.found):
            return False
        names = sorted({result.nominated or "" for _, result in found.found})
        words = f"{turn.gang.title}: preempts on {few(names)} ({turn.gang.place})"
        for queued, result in found.found:
            self.evictions.evict(queued.pod, result)
        nominated = {queued.pod.uid: result.nominated for queued, result in found.found}
        for pod, node in found.there:  # or others take it before the victims are gone
            self._cache.nominate(pod, node)
            nominated[pod.uid] = node
        plugins = self._plugins(turn)
        for queued in turn.members:
            uid = queued.pod.uid
            if uid not in nominated:
                self._promise_again(turn, queued)
            if self._waits(queued):
                self.failures.reject(queued, words, plugins, nominated.get(uid))
            else:
                self.queue.done(uid)
        return True

    def _emptied(self, turn: Turn, rescuers: Rescuers) -> Steps[Rescue]:
        """Who is to be evicted, from one domain; where victims are going already, from that one."""
        pods, found = [one.pod for one in rescuers.members], Rescue()
        for domains in self._each_domains(pods):
            each: Sequence[Domain] = [None]
            if domains is not None:
                column, homes = domains
                known = [*(homes or ()), *self._rows([node for node, _ in turn.promised.values()])]
                snapshot, of = self.basis.snapshot, self.basis.framework_of
                steps = emptiest(pods, snapshot, of, column, known)
                each = yield from self._in_slices(steps, Unpromised(self._cache, pods))
            found = yield from self._in_slices(rescuers.rescue(each), rescuers.absent)
            if found.found:
                break
        return found

    # ---- how it ends

    def _end(self, turn: Turn) -> None:
        if turn.started:
            for one in turn.chosen:
                self.placement.go(one)
            self.holds.started(turn.gang)
            self._refuse_others(turn, "")
        elif turn.may_wait and (turn.chosen or turn.gang.key in self.holds):
            self._hold(turn)
        else:
            self._fail(turn)

    def _hold(self, turn: Turn) -> None:
        placed, words = turn.placed, turn.gang.why_waiting(turn.reserved + len(turn.chosen))
        left = [one.pod.name for one in turn.members if one.pod.uid not in placed]
        words += f"; {few(sorted(left))} missing" if left else ""
        self._break_promises(turn)
        self.holds.hold(turn, f"{words} ({turn.gang.place})")
        self._refuse_others(turn, words)

    def _refuse_others(self, turn: Turn, words: str) -> None:
        """Those without a node are queued again, for what each was told."""
        placed = turn.placed
        for queued in turn.members:
            uid = queued.pod.uid
            if uid in placed:
                continue
            self._promise_again(turn, queued)
            if not words:
                # A turn of its own says whether a promise stands, and makes room for it.
                self.queue.activate([uid])
            if not self._waits(queued):
                self.queue.done(uid)
            elif uid in turn.refused and not words:
                self.placement.refuse(turn.refused[uid])
            else:
                one = turn.refused.get(uid)
                said = words or f"{turn.gang.title}: no room for this pod beside the others"
                message = said if one is None else f"{said}. {one.why}"
                nominated = "" if uid in turn.broken else None
                self.failures.reject(queued, message, self._plugins(turn), nominated)

    def _fail(self, turn: Turn) -> None:
        gang = turn.gang
        self._give_back(turn)
        words = gang.why_unfit(turn.most)
        if turn.refused:
            named = few(sorted(one.queued.pod.name for one in turn.refused.values()))
            fits = turn.most >= gang.minimum
            words += f"; {named} refused" if fits else f"; no room for {named}"
        if turn.cut_short:
            words += "; not all combinations were tried, there are too many"
        if turn.keeps_promises:
            names = few(sorted({node for node, _ in turn.promised.values()}))
            words += f"; evicted pods have to be gone from {names} first"
        self._break_promises(turn)
        if turn.reserved < gang.minimum:
            self.holds.failed(gang)
        else:
            words = f"{gang.title}: no room for more members in its {gang.within}"
        words += f" ({gang.place})"
        if turn.emptied > turn.most:
            words += f". If others were evicted, {turn.emptied} would fit, but not {turn.stuck}"
        self._refuse_others(turn, words)

    def _break_promises(self, turn: Turn) -> None:
        """It claims no node any longer, but where victims are going."""
        if not turn.keeps_promises:
            for uid in turn.promised:
                self._cache.withdraw(uid)
            turn.broken = frozenset(turn.promised)
            turn.promised.clear()

    def _plugins(self, turn: Turn) -> frozenset[str]:
        """Whose events may help a gang that does not fit: of all who had no way for any member.

        Where a plan did, by what all of them say, that is nobody in particular.
        """
        rejecting = [one.plugins for one in turn.refused.values()]
        if turn.gang.domain is not None:
            filters = self.basis.framework_of(turn.members[0].pod).filters
            rejecting.append(frozenset([name for name, _ in filters]))
        return frozenset({turn.plugin}).union(turn.rescuers, *rejecting)

    def _give_back(self, turn: Turn) -> None:
        """Nobody keeps a node. Who was asked meanwhile has seen the room taken, and is told.

        Nobody else, nor a member: gangs that do not fit would be tried for ever.
        """
        members = {one.pod.uid for one in turn.members}
        seen = members if self.queue.answers != self._answers else None
        for one in reversed(turn.chosen):
            self.placement.give_back(one, tell_beside=seen)
        turn.chosen.clear()
        for queued in turn.members:
            self._promise_again(turn, queued)

    def _promise_again(self, turn: Turn, queued: QueuedPod) -> None:
        promised = turn.promised.get(queued.pod.uid)
        if promised is not None:
            self._cache.nominate(queued.pod, *promised)

    def _waits(self, queued: QueuedPod) -> bool:
        """False: it is gone, or bound by somebody else."""
        uid = queued.pod.uid
        return uid in self.queue and self._cache.node_of(uid) is None


def _is_absent(queued: QueuedPod) -> bool:
    """Whether no other member's turn is its turn, too: what failed would fail again at once."""
    failed = queued.where is SubQueue.BACKOFF and queued.errors
    return bool(failed) or queued.was_dry_run or queued.where in _ABSENT
