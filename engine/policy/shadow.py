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

from dsl.plan import ConditionRule, Plan, RuleBase, stop_by
from dsl.world import Subject
from engine.clock import Clock
from engine.display import plain
from engine.framework.decision import Placed
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind
from engine.framework.frameworks import Frameworks
from engine.framework.podclass import NOWHERE, steps_of
from engine.framework.runtime import Framework, best_tier
from engine.framework.snapshot import BoolColumn, IntColumn
from engine.policy.acting import place_of
from engine.policy.plugin import Asked, PolicyPlugin, Worlds, applying
from engine.policy.shares import Chosen, in_shadow
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
    plugin: PolicyPlugin
    concerns: Chosen
    tally: Tally = field(default_factory=Tally)
    told: str = ""
    faulty: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """What a policy would have done with one pod; a `sample` is of one that it would have moved.

    Without `rules` there was no time to look at the pod.
    """

    tally: Tally
    rules: Mapping[str, Sequence[RuleBase]] | None = None
    sample: str = ""
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class _Case:
    """One decision, as a policy in shadow sees it."""

    plan: Plan
    asked: Asked
    placed: Placed
    framework: Framework
    worlds: Worlds
    subject: Subject
    world: SnapshotWorld

    def holding(self) -> list[RuleBase]:
        """Who would keep the pod from being tried or bound."""
        bind = self.plan.binder(self.subject, self.world)
        dry = [bind] if bind is not None and bind.core.kind == "dry" else []
        return [*self._unmet(self.plan.gates), *dry]

    def _unmet(self, rules: Sequence[ConditionRule]) -> list[RuleBase]:
        return [one for one in rules if not one.holds(self.subject, self.world, -1)]

    def rejecting(self) -> list[RuleBase]:
        """Who rejects the node that was chosen."""
        rows = np.array([self.placed.decision.row], dtype=np.intp)
        filters = applying(self.plan.filters, self.asked.filters)
        reject = [rule for rule, own in filters if not rule.verdict(own, self.world, rows)[0]]
        return [*self._unmet(self.plan.prefilters), *reject]

    def after(self) -> list[tuple[str, RuleBase]]:
        """Who would stop the pod on its node, where it is counted already: `reject` or `wait`."""
        if not self.plan.reserves and not self.plan.permits:
            return []
        pod, row = self.asked.pod, self.placed.decision.row
        subject, world = self.worlds.asked(pod, self.asked.snapshot.overlay(row, add=(pod,)))
        found: list[tuple[str, RuleBase]] = []
        stop = stop_by(self.plan.reserves, subject, world, row)
        if stop is not None:
            found.append(("reject", stop.rule))
        said = self.plan.permitted(subject, world, row)
        if said.rule is not None and said.verdict != "allow":
            found.append((said.verdict, said.rule))
        return found

    def winner(self, *, rejects: bool) -> tuple[int, list[RuleBase]]:
        """The row that would have been chosen, -1 for none, and by whose word it is another one."""
        decision, snapshot = self.placed.decision, self.asked.snapshot
        if self.asked.stop is not None:
            return -1, []
        tiers = [(tier, tier.prepare(self.subject, self.world)) for tier in self.plan.tiers]
        weighs = any(own is not None for own in (*self.asked.scores, *(own for _, own in tiers)))
        promised = snapshot.nominations.node_of(decision.pod.uid) == decision.node
        if not rejects and (promised or not weighs):
            return decision.row, []
        keys, left = self._keys()
        if not len(left):
            return -1, []
        winner = int(left[int(keys.argmax())])
        if rejects or winner == decision.row:
            return winner, []
        return winner, list(self._preferring(winner, left))

    def _keys(self) -> tuple[IntColumn, Candidates]:
        """Sort keys of the candidates that the policy leaves, its score and tiers included."""
        plan, world = self.plan, self.world
        pod, snapshot, framework = self.asked.pod, self.asked.snapshot, self.framework
        known = framework.known(pod, snapshot)
        left = framework.candidates(known, pod, snapshot)
        for rule, own in applying(plan.filters, self.asked.filters):
            left = left[rule.verdict(own, world, left)]
        if not len(left):
            return np.empty(0, np.int64), left
        keys = framework.untiered(known, pod, snapshot, left)
        score = plan.score(self.asked.scores, world, left)
        if score is not None:
            keys = keys + steps_of(np.asarray(score) * plan.weight)
        best = best_tier(self._tiers(left))
        if best is not None:
            keys[~best] = NOWHERE
        return keys, left

    def _tiers(self, left: Candidates) -> Iterator[BoolColumn]:
        """Those of all, in the order in which they are asked where this policy is in force."""
        pod, snapshot, framework = self.asked.pod, self.asked.snapshot, self.framework
        policies = [one.plugin for one in framework.profile.plugins]
        later = {
            one.name
            for one in policies
            if isinstance(one, PolicyPlugin) and _place(one.plan) > _place(self.plan)
        }
        told = framework.tiers(pod, snapshot, left)
        yield from (mask for name, mask in told if name not in later)
        for tier in self.plan.tiers:
            parts = tier.prepare(self.subject, self.world)
            if parts is not None:
                yield tier.mask(parts, self.world, left)
        yield from (mask for name, mask in told if name in later)

    def _preferring(self, winner: int, left: Candidates) -> Iterator[RuleBase]:
        """The rules that put the winner before the node that was chosen."""
        row = self.placed.decision.row
        won, lost = np.searchsorted(left, [winner, row])
        if lost == len(left) or left[lost] != row:
            return  # it got its node on other grounds, with its gang
        for rule, own in applying(self.plan.scores, self.asked.scores):
            column = rule.finish(rule.column(own, self.world, left, left))
            if column is not None and column[won] > column[lost]:
                yield rule
        for tier in self.plan.tiers:
            parts = tier.prepare(self.subject, self.world)
            if parts is not None:
                mask = tier.mask(parts, self.world, left)
                if mask[won] and not mask[lost]:
                    yield tier


@dataclass(eq=False, kw_only=True)
class Shadow:
    """See the module. `placed` is an observer of decisions, and it works between cycles, too.

    `worlds` are those of the policies in force, `rulers` gives what decides; `tell` takes what has
    become known of a policy, in a line, about once a minute.
    """

    worlds: Worlds
    rulers: Callable[[], Framework | Frameworks | None]
    clock: Clock
    telemetry: Telemetry
    tell: Callable[[str], None]
    due: float | None = field(default=None, init=False)
    """When something is to be told (monotonic)."""

    def __post_init__(self) -> None:
        self._tried: dict[str, _Tried] = {}
        self._budget = _Budget(self.clock.monotonic())
        self._members: dict[str, Sequence[_Found]] = {}

    def use(self, plans: Sequence[Plan]) -> None:
        """These policies are there now; one that is as before goes on with its tally."""
        before, self._tried = self._tried, {}
        for plan in plans:
            concerns = in_shadow(plan)
            if concerns is None:
                continue
            known = before.get(plan.name)
            self._tried[plan.name] = _Tried(PolicyPlugin(plan, self.worlds), concerns)
            if known is not None and _identity(known.plugin.plan) == _identity(plan):
                self._tried[plan.name].tally, self._tried[plan.name].told = known.tally, known.told

    def tallies(self) -> Mapping[str, Tally]:
        """What is known by now, by policy."""
        return {name: one.tally for name, one in self._tried.items()}

    # ---- told between cycles: see `scheduler.Background`

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - a few lines at most
        """Tells what has changed since the last time."""
        now = self.clock.monotonic()
        if self.due is None or now < self.due:
            return False
        self.due = None
        for name, one in self._tried.items():
            said = str(one.tally)
            if one.tally.pods and said != one.told:
                one.told = said
                self.tell(plain(f"shadow of {name}: {said}"))
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

    def _enter(self, found: Sequence[_Found]) -> None:
        """Counts a pod."""
        if self.due is None:
            first = not any(one.told for one in self._tried.values())
            wait = FIRST_SECONDS if first else EVERY_SECONDS
            self.due = self.clock.monotonic() + wait
        for count in {Count.SHADOW_PODS if one.rules else Count.SHADOW_LEFT_OUT for one in found}:
            self.telemetry.add(count)
        for what in found:
            self._count(what)

    def _found(self, placed: Placed) -> Sequence[_Found]:
        now = self.clock.monotonic()
        suffices = self._budget.suffices(now)
        rulers = self.rulers()
        found: list[_Found] = []
        for name, one in self._tried.items() if rulers is not None else ():
            assert rulers is not None
            pod, snapshot = placed.decision.pod, placed.snapshot
            try:
                if not one.concerns(self.worlds.subject(pod, snapshot)):
                    continue  # a canary, and in force for this pod
                looked = self._try(one, placed, rulers.of(pod)) if suffices else _Found(one.tally)
                found.append(looked)
            except Exception:
                self.telemetry.add(Count.PLUGIN_ERRORS)
                if not one.faulty:
                    log.warning(
                        "shadow of %s fails, and abstains where it does", name, exc_info=True
                    )
                one.faulty = True
        self._budget.spend(self.clock.monotonic() - now)
        return found

    def _try(self, one: _Tried, placed: Placed, framework: Framework) -> _Found:
        pod, snapshot, row = placed.decision.pod, placed.snapshot, placed.decision.row
        asked = one.plugin.ask(pod, snapshot)
        seen = self.worlds.asked(pod, snapshot)
        case = _Case(one.plugin.plan, asked, placed, framework, self.worlds, *seen)
        held, rejected, after = case.holding(), case.rejecting(), case.after()
        winner, moved = case.winner(rejects=bool(rejected))
        rules: dict[str, Sequence[RuleBase]] = {
            "held": [*held, *(rule for verdict, rule in after if verdict == "wait")],
            "rejected": [*rejected, *(rule for verdict, rule in after if verdict == "reject")],
        }
        name, sample = snapshot.nodes.name, ""
        if winner != row:
            rules["moved"] = moved
            there = f" on {name(winner)} instead of" if winner >= 0 else ", which is on"
            sample = f", such as {pod.key}{there} {name(row)}"
        return _Found(one.tally, rules, sample, elsewhere=winner not in (row, -1))

    def _count(self, found: _Found) -> None:
        tally = found.tally
        if found.rules is None:
            tally.left_out += 1
            return
        tally.pods += 1
        for outcome, rules in found.rules.items():
            for rule in rules:
                tally.rules[outcome][place_of(rule)] += 1
                self.telemetry.count(SHADOW_OUTCOMES, outcome, rule.source.name, str(rule.line))
        if found.sample:
            tally.elsewhere += found.elsewhere
            tally.nowhere += not found.elsewhere
            tally.sample = found.sample


def _place(plan: Plan) -> tuple[int, str]:
    return plan.order, plan.name


def _identity(plan: Plan) -> tuple[object, ...]:
    return plan.source.text, plan.variant, plan.mode
