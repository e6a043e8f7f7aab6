"""Policies that are tried on live traffic and change nothing: what they would have done, counted.

After each decision that found a node, each policy in shadow is asked about the node and, where it
has filters, scores or tiers, about the other candidates: would it have rejected the node, would
another one have won, would the pod have been held? Every policy is judged alone, beside those that
are in force. A fifth of the time goes into that at most; pods that it does not suffice for are left
out, counted and told.

    decided ─▶ tried ─▶ tally by rule ── each minute, if it has changed ─▶ told: log, Event

Its cost is that of the policy's own filters and scores on the candidates, and one pass over their
sort keys.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl.plan import Plan, RuleBase
from dsl.world import Parts, Subject
from engine.clock import Clock
from engine.display import plain
from engine.framework.decision import Placed
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind
from engine.framework.frameworks import Frameworks
from engine.framework.podclass import NOWHERE, steps_of
from engine.framework.runtime import Framework
from engine.framework.snapshot import IntColumn, Snapshot
from engine.framework.trials import nominated_node
from engine.policy.acting import place_of
from engine.policy.plugin import Worlds
from engine.policy.shares import in_shadow
from engine.policy.world import SnapshotWorld
from engine.telemetry import SHADOW_OUTCOMES, Count, Telemetry

log = logging.getLogger(__name__)

SHARE: Final = 0.2
"""Of the time, so much may go into shadow."""
MOST_SAVED: Final = 0.05
"""Seconds of work that a quiet time saves up."""
FIRST_SECONDS: Final = 5.0
EVERY_SECONDS: Final = 60.0
_SHOWN: Final = 6
_MOST_MEMBERS: Final = 10_000
"""Members of gangs whose binding is waited for; those that go before it are forgotten so."""
_OUTCOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rejected": "would have rejected the node",
        "moved": "would have preferred another",
        "held": "would have held the pod",
    }
)

Candidates = NDArray[np.intp]


@dataclass(slots=True)
class Tally:
    """What one policy would have done, by its rules, since it came into shadow.

    `pods` were looked at, `left_out` were not, for want of time. `rules` say by `FILE:LINE` who
    rejected the node that the pod got, `moved` it to another one by score or tier, or `held` it.
    `elsewhere` would have had another node, `nowhere` none.
    """

    pods: int = 0
    left_out: int = 0
    nowhere: int = 0
    elsewhere: int = 0
    rules: Mapping[str, Counter[str]] = field(
        default_factory=lambda: {outcome: Counter() for outcome in _OUTCOMES}
    )
    sample: str = ""

    def __str__(self) -> str:
        said = [
            f"{what}{_by_rule(self.rules[outcome])}"
            for outcome, what in _OUTCOMES.items()
            if self.rules[outcome]
        ]
        if self.elsewhere or self.nowhere:
            said.append(f"{self.elsewhere} pods elsewhere, {self.nowhere} nowhere{self.sample}")
        if self.left_out:
            said.append(f"{self.left_out} pods not looked at: its share of the time is spent")
        return f"of {self.pods} pods: " + ("; ".join(said) or "nothing would have been otherwise")


def _by_rule(rules: Mapping[str, int]) -> str:
    most = sorted(rules.items(), key=lambda one: (-one[1], one[0]))
    shown = ", ".join(f"{place} {times}" for place, times in most[:_SHOWN])
    return f" ({shown}{', ...' if len(most) > _SHOWN else ''})"


class _Budget:
    """A share of the time that goes by, some of it saved up."""

    def __init__(self, now: float) -> None:
        self._left = MOST_SAVED
        self._at = now

    def suffices(self, now: float) -> bool:
        self._left = min(MOST_SAVED, self._left + SHARE * (now - self._at))
        self._at = now
        return self._left > 0

    def spend(self, seconds: float) -> None:
        self._left -= seconds


@dataclass(slots=True)
class _Tried:
    plan: Plan
    tally: Tally = field(default_factory=Tally)
    told: str = ""
    faulty: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """What a policy would have done with one pod; a `sample` is of one that it would have moved."""

    tried: _Tried
    rules: Mapping[str, Sequence[RuleBase]]
    sample: str = ""
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class _Case:
    """One decision, as a policy in shadow sees it."""

    placed: Placed
    framework: Framework
    subject: Subject
    world: SnapshotWorld
    row: int

    @property
    def snapshot(self) -> Snapshot:
        return self.placed.snapshot


class Shadow:
    """See the module. `placed` is an observer of decisions, and it works between cycles, too."""

    def __init__(
        self,
        *,
        worlds: Worlds,
        rulers: Callable[[], Framework | Frameworks | None],
        clock: Clock,
        telemetry: Telemetry,
        tell: Callable[[str], None],
    ) -> None:
        """No policy is in shadow.

        Args:
            worlds: those of the policies in force.
            rulers: what decides.
            clock: bounds the cost.
            telemetry: counts, by rule.
            tell: takes what has become known of a policy, in a line, about once a minute.
        """
        self._worlds = worlds
        self._rulers = rulers
        self._clock = clock
        self._telemetry = telemetry
        self._tell = tell
        self._tried: dict[str, _Tried] = {}
        self._budget = _Budget(clock.monotonic())
        self._tell_at: float | None = None
        self._members: dict[str, Sequence[_Found] | None] = {}

    def use(self, plans: Sequence[Plan]) -> None:
        """These policies are there now; one that is as before goes on with its tally."""
        before, self._tried = self._tried, {}
        for plan in plans:
            tried = in_shadow(plan)
            if tried is None:
                continue
            known = before.get(plan.name)
            self._tried[plan.name] = _Tried(tried)
            if known is not None and _identity(known.plan) == _identity(plan):
                self._tried[plan.name].tally, self._tried[plan.name].told = known.tally, known.told

    def tallies(self) -> Mapping[str, Tally]:
        """What is known by now, by policy."""
        return {name: one.tally for name, one in self._tried.items()}

    # ---- told between cycles: see `scheduler.Background`

    @property
    def due(self) -> float | None:
        """When something is to be told (monotonic)."""
        return self._tell_at

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - a few lines at most
        """Tells what has changed since the last time."""
        now = self._clock.monotonic()
        if self._tell_at is None or now < self._tell_at:
            return False
        self._tell_at = None
        for name, one in self._tried.items():
            said = str(one.tally)
            if one.tally.pods and said != one.told:
                one.told = said
                self._tell(plain(f"shadow of {name}: {said}"))
        return False

    # ---- a decision

    def placed(self, placed: Placed) -> None:
        """Tries the policies on a pod that got a node, as long as there is time for it.

        A member of a gang may lose it again with the others, so it counts once it is bound.
        """
        if not self._tried or placed.decision.node is None:
            return
        found = self._found(placed)
        if not placed.as_member:
            self._enter(found)
            return
        if len(self._members) >= _MOST_MEMBERS:
            del self._members[next(iter(self._members))]
        self._members[placed.decision.pod.uid] = found

    def ended(self, effect: Bind, outcome: BindOutcome, _why: str) -> None:
        """An observer of bindings."""
        uid = effect.pod.uid
        if uid in self._members and outcome is BindOutcome.BOUND:
            self._enter(self._members.pop(uid))

    def _enter(self, found: Sequence[_Found] | None) -> None:
        """Counts a pod: what was found, None if it was not looked at."""
        if self._tell_at is None:
            first = not any(one.told for one in self._tried.values())
            wait = FIRST_SECONDS if first else EVERY_SECONDS
            self._tell_at = self._clock.monotonic() + wait
        if found is None:
            self._telemetry.add(Count.SHADOW_LEFT_OUT)
            for one in self._tried.values():
                one.tally.left_out += 1
            return
        self._telemetry.add(Count.SHADOW_PODS)
        for what in found:
            self._count(what)

    def _found(self, placed: Placed) -> Sequence[_Found] | None:
        now = self._clock.monotonic()
        if not self._budget.suffices(now):
            return None
        case, found = self._case(placed), []
        for name, one in self._tried.items() if case is not None else ():
            assert case is not None
            try:
                found.append(self._try(one, case))
            except Exception:
                self._telemetry.add(Count.PLUGIN_ERRORS)
                if not one.faulty:
                    log.warning(
                        "shadow of %s fails, and abstains where it does", name, exc_info=True
                    )
                one.faulty = True
        self._budget.spend(self._clock.monotonic() - now)
        return found

    def _case(self, placed: Placed) -> _Case | None:
        rulers = self._rulers()
        if rulers is None:
            return None
        pod, snapshot = placed.decision.pod, placed.snapshot
        return _Case(
            placed,
            rulers.of(pod),
            *self._worlds.asked(pod, snapshot),
            placed.decision.row,
        )

    def _try(self, one: _Tried, case: _Case) -> _Found:
        held = list(_holding(one.plan, case))
        rejected = list(_rejecting(one.plan, case))
        after = self._after(one.plan, case)
        held += [rule for verdict, rule in after if verdict == "wait"]
        winner, moved = _winner(one.plan, case, rejects=bool(rejected))
        rejected += [rule for verdict, rule in after if verdict == "reject"]
        name, pod = case.snapshot.nodes.name, case.placed.decision.pod
        rules = {"held": held, "rejected": rejected}
        if winner == case.row:
            return _Found(one, rules)
        rules["moved"] = moved
        if winner < 0:
            return _Found(one, rules, f", such as {pod.key}, which is on {name(case.row)}")
        sample = f", such as {pod.key} on {name(winner)} instead of {name(case.row)}"
        return _Found(one, rules, sample, elsewhere=True)

    def _count(self, found: _Found) -> None:
        tally = found.tried.tally
        tally.pods += 1
        for outcome, rules in found.rules.items():
            for rule in rules:
                tally.rules[outcome][place_of(rule)] += 1
                self._telemetry.count(SHADOW_OUTCOMES, outcome, rule.source.name, str(rule.line))
        if found.sample:
            tally.elsewhere += found.elsewhere
            tally.nowhere += not found.elsewhere
            tally.sample = found.sample

    def _after(self, plan: Plan, case: _Case) -> list[tuple[str, RuleBase]]:
        """Who would stop the pod on its node, where it is counted already: `reject` or `wait`."""
        if not plan.reserves and not plan.permits:
            return []
        pod, row = case.placed.decision.pod, case.row
        there = case.snapshot.overlay(row, add=(pod,))
        subject, world = self._worlds.asked(pod, there)
        found: list[tuple[str, RuleBase]] = []
        stop = plan.reserved(subject, world, row)
        if stop is not None:
            found.append(("reject", stop.rule))
        said = plan.permitted(subject, world, row)
        if said.rule is not None and said.verdict != "allow":
            found.append((said.verdict, said.rule))
        return found


def _identity(plan: Plan) -> tuple[object, ...]:
    return plan.source.text, plan.variant, plan.mode


def _holding(plan: Plan, case: _Case) -> Iterator[RuleBase]:
    """Who would keep the pod from being tried or bound."""
    for gate in plan.gates:
        if not gate.holds(case.subject, case.world, -1):
            yield gate
    bind = plan.binder(case.subject, case.world)
    if bind is not None and bind.core.kind == "dry":
        yield bind


def _rejecting(plan: Plan, case: _Case) -> Iterator[RuleBase]:
    """Who rejects the node that was chosen."""
    for before in plan.prefilters:
        if not before.holds(case.subject, case.world, -1):
            yield before
    rows = np.array([case.row], dtype=np.intp)
    for rule in plan.filters:
        parts = rule.prepare(case.subject, case.world)
        if parts is not None and not rule.verdict(parts, case.world, rows)[0]:
            yield rule


def _winner(plan: Plan, case: _Case, *, rejects: bool) -> tuple[int, list[RuleBase]]:
    """The row that would have been chosen, -1 for none, and by whose word it is another one."""
    subject, world = case.subject, case.world
    if plan.stopped(subject, world) is not None:
        return -1, []
    scores = [rule.prepare(subject, world) for rule in plan.scores]
    weighs = any(own is not None for own in scores) or any(
        tier.prepare(subject, world) is not None for tier in plan.tiers
    )
    pod, snapshot = case.placed.decision.pod, case.snapshot
    promised = nominated_node(pod, snapshot) == case.placed.decision.node
    if not rejects and (promised or not weighs):
        return case.row, []
    keys, left = _keys(plan, case, scores)
    if not len(left):
        return -1, []
    winner = int(left[int(keys.argmax())])
    if rejects or winner == case.row:
        return winner, []
    return winner, list(_preferring(plan, scores, case, (winner, left)))


def _keys(plan: Plan, case: _Case, scores: Sequence[Parts | None]) -> tuple[IntColumn, Candidates]:
    """Sort keys of the candidates that the policy leaves, its score and tiers included."""
    pod, snapshot, framework = case.placed.decision.pod, case.snapshot, case.framework
    known = framework.known(pod, snapshot)
    left = framework.candidates(known, pod, snapshot)
    for rule in plan.filters:
        own = rule.prepare(case.subject, case.world)
        if own is not None:
            left = left[rule.verdict(own, case.world, left)]
    if not len(left):
        return np.empty(0, np.int64), left
    keys = framework.keys(known, pod, snapshot, left)
    score = plan.score(scores, case.world, left)
    if score is not None:
        keys = keys + steps_of(np.asarray(score) * plan.weight)
    best = plan.preferred(case.subject, case.world, left)
    if best is not None and (best & (keys >= 0)).any():
        keys[~best] = NOWHERE
    return keys, left


def _preferring(
    plan: Plan, scores: Sequence[Parts | None], case: _Case, won: tuple[int, Candidates]
) -> Iterator[RuleBase]:
    """The rules that put the winner before the node that was chosen."""
    winner, left = won
    both = np.searchsorted(left, [winner, case.row])
    if both[1] == len(left) or left[both[1]] != case.row:
        return  # it got its node on other grounds, with its gang
    for rule, own in zip(plan.scores, scores, strict=True):
        if own is not None:
            column = rule.finish(rule.column(own, case.world, left, left))
            if column is not None and column[both[0]] > column[both[1]]:
                yield rule
    for tier in plan.tiers:
        parts = tier.prepare(case.subject, case.world)
        if parts is not None:
            mask = tier.mask(parts, case.world, left)
            if mask[both[0]] and not mask[both[1]]:
                yield tier
