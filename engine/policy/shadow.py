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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from dsl.plan import ConditionRule, Plan, RuleBase, stop_by
from dsl.world import Subject
from engine.clock import Clock
from engine.framework.decision import Placed
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind
from engine.framework.keycolumn import NOWHERE, steps_of
from engine.framework.runtime import Framework, Frameworks, best_tier
from engine.framework.snapshot import BoolColumn, IntColumn
from engine.policy.bundle import identity
from engine.policy.findings import CANARY, SHADOW
from engine.policy.plugin import PolicyPlugin, applying, place_of
from engine.policy.world import Worlds
from engine.telemetry import SHADOW_OUTCOMES, Count, Telemetry
from engine.text.display import plain

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
            said.append(f"{self.left_out} pods not tried: its share of the time was used up")
        return f"of {self.pods} pods: " + ("; ".join(said) or "nothing would have been different")


def _by_rule(rules: Mapping[str, int]) -> str:
    most = sorted(rules.items(), key=lambda one: (-one[1], one[0]))
    shown = ", ".join(f"{times} by {place}" for place, times in most[:_SHOWN])
    return f" ({shown}{', ...' if len(most) > _SHOWN else ''})"


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


class _Case:
    """One decision, as a policy in shadow sees it."""

    def __init__(self, plugin: PolicyPlugin, placed: Placed, framework: Framework) -> None:
        self.plugin, self.plan, self.framework = plugin, plugin.plan, framework
        self.decision, self.snapshot = placed.decision, placed.snapshot
        self.pod = placed.decision.pod
        self.asked = plugin.ask(self.pod, self.snapshot)
        view = plugin.looks(self.pod, self.snapshot, -1)
        self.subject, self.world = view.subject, view.world
        tiers = [tier.prepare(self.subject, self.world) for tier in self.plan.tiers]
        self.tiers = applying(self.plan.tiers, tiers)

    def holding(self) -> list[RuleBase]:
        """Who would keep the pod from being tried or bound."""
        bind = self.plan.binder(self.subject, self.world)
        dry = [bind] if bind is not None and bind.core.kind == "dry" else []
        return [*self._unmet(self.plan.gates), *dry]

    def _unmet(self, rules: Sequence[ConditionRule]) -> list[RuleBase]:
        return [one for one in rules if not one.holds(self.subject, self.world, -1)]

    def rejecting(self) -> list[RuleBase]:
        """Who rejects the node that was chosen."""
        rows = np.array([self.decision.row], dtype=np.intp)
        filters = applying(self.plan.filters, self.asked.filters)
        reject = [rule for rule, own in filters if not rule.verdict(own, self.world, rows)[0]]
        return [*self._unmet(self.plan.prefilters), *reject]

    def after(self) -> list[tuple[str, RuleBase]]:
        """Who would stop the pod on its node, where it is counted already: `reject` or `wait`."""
        if not self.plan.reserves and not self.plan.permits:
            return []
        row = self.decision.row
        view = self.plugin.looks(self.pod, self.snapshot.overlay(row, add=(self.pod,)), row)
        stop = stop_by(self.plan.reserves, view.subject, view.world, row)
        found: list[tuple[str, RuleBase]] = [] if stop is None else [("reject", stop.rule)]
        said = self.plan.permitted(view.subject, view.world, row)
        if said.rule is not None and said.verdict != "allow":
            found.append((said.verdict, said.rule))
        return found

    def winner(self, *, rejects: bool) -> tuple[int, list[RuleBase]]:
        """The row that would have been chosen, -1 for none, and by whose word it is another one."""
        row = self.decision.row
        if self.asked.stop is not None:
            return -1, []
        weighs = self.tiers or any(own is not None for own in self.asked.scores)
        promised = self.snapshot.nominations.node_of(self.pod.uid) == self.decision.node
        if not rejects and (promised or not weighs):
            return row, []
        keys, left = self._keys()
        if not len(left):
            return -1, []
        winner = int(left[int(keys.argmax())])
        return winner, [] if rejects or winner == row else self._preferring(winner, left)

    def _keys(self) -> tuple[IntColumn, Candidates]:
        """Sort keys of the candidates that the policy leaves, its score and tiers included."""
        pod, snapshot, framework = self.pod, self.snapshot, self.framework
        known = framework.class_of(pod, snapshot)
        left = framework.candidates(known, pod, snapshot)
        for rule, own in applying(self.plan.filters, self.asked.filters):
            left = left[rule.verdict(own, self.world, left)]
        if not len(left):
            return np.empty(0, np.int64), left
        keys = framework.untiered(known, pod, snapshot, left)
        score = self.plan.score(self.asked.scores, self.world, left)
        if score is not None:
            keys = keys + steps_of(np.asarray(score) * self.plan.weight)
        best = best_tier(self._tiers(left))
        if best is not None:
            keys[~best] = NOWHERE
        return keys, left

    def _tiers(self, left: Candidates) -> Iterator[BoolColumn]:
        """Those of all, in the order in which they are asked where this policy is in force."""
        policies = [one.plugin for one in self.framework.profile.plugins]
        later = {
            one.name
            for one in policies
            if isinstance(one, PolicyPlugin) and turn_of(one.plan) > turn_of(self.plan)
        }
        told = self.framework.tiers(self.pod, self.snapshot, left)
        yield from (mask for name, mask in told if name not in later)
        yield from (tier.mask(own, self.world, left) for tier, own in self.tiers)
        yield from (mask for name, mask in told if name in later)

    def _preferring(self, winner: int, left: Candidates) -> list[RuleBase]:
        """The rules that put the winner before the node that was chosen."""
        won, lost = np.searchsorted(left, [winner, self.decision.row])
        if lost == len(left) or left[lost] != self.decision.row:
            return []  # it got its node on other grounds, with its gang
        scores = self.plugin.line_scores(self.pod, self.snapshot, left)
        masks = [(tier, tier.mask(own, self.world, left)) for tier, own in self.tiers]
        return [
            *(rule for rule, column in scores if column[won] > column[lost]),
            *(tier for tier, mask in masks if mask[won] and not mask[lost]),
        ]


@dataclass(eq=False, kw_only=True)
class Shadow:
    """See the module. `placed` is an observer of decisions, and it works between cycles, too.

    `worlds` are those of the policies in force, `frameworks` what decides; `tell` takes what has
    become known of a policy, in a line, about once a minute.
    """

    worlds: Worlds
    frameworks: Callable[[], Framework | Frameworks | None]
    clock: Clock
    telemetry: Telemetry
    tell: Callable[[str], None]
    due: float | None = field(default=None, init=False)
    """When something is to be told (monotonic)."""

    def __post_init__(self) -> None:
        self._tried: dict[str, _Tried] = {}
        # Seconds that may be spent, and until when they are counted.
        self._left, self._at = MOST_SAVED, self.clock.monotonic()
        self._members: dict[str, Sequence[_Found]] = {}

    def use(self, plans: Sequence[Plan]) -> None:
        """These policies are there now; one that is as before goes on with its tally."""
        before, self._tried = self._tried, {}
        for plan in plans:
            concerns = in_shadow(plan)
            if concerns is None:
                continue
            known = before.get(plan.name)
            one = self._tried[plan.name] = _Tried(PolicyPlugin(plan, self.worlds), concerns)
            if known is not None and identity(known.plugin.plan) == identity(plan):
                one.tally, one.told = known.tally, known.told

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
        now, frameworks = self.clock.monotonic(), self.frameworks()
        if frameworks is None:
            return ()
        self._left, self._at = min(MOST_SAVED, self._left + SHARE * (now - self._at)), now
        suffices, pod = self._left > 0, placed.decision.pod
        found: list[_Found] = []
        for name, one in self._tried.items():
            try:
                if not one.concerns(self.worlds.subject(pod, placed.snapshot)):
                    continue  # a canary, and in force for this pod
                looked = _try(one, placed, frameworks.of(pod)) if suffices else _Found(one.tally)
                found.append(looked)
            except Exception:
                self.telemetry.add(Count.PLUGIN_ERRORS)
                if not one.faulty:
                    log.warning(
                        "shadow of %s fails, and abstains for that pod", name, exc_info=True
                    )
                one.faulty = True
        self._left -= self.clock.monotonic() - now
        return found

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


def _try(one: _Tried, placed: Placed, framework: Framework) -> _Found:
    case = _Case(one.plugin, placed, framework)
    held, rejected = case.holding(), case.rejecting()
    winner, moved = case.winner(rejects=bool(rejected))
    for verdict, rule in case.after():
        (held if verdict == "wait" else rejected).append(rule)
    rules, sample = {"held": held, "rejected": rejected}, ""
    name, row = placed.snapshot.nodes.name, placed.decision.row
    if winner != row:
        rules["moved"] = moved
        there = f" on {name(winner)} instead of" if winner >= 0 else ", which is on"
        sample = f", such as {case.pod.key}{there} {name(row)}"
    return _Found(one.tally, rules, sample, elsewhere=winner not in (row, -1))


# ---- `mode: canary P%`: a policy in force for a stable share of the pods, in shadow for the others
#
# The share is taken of workloads, so that all pods of one are treated alike; a pod without a
# workload is one by itself. A greater share holds all that a smaller one did, and each policy has
# its own.
_ALL: Final = 100.0
_BYTES: Final = 8
_RANGE: Final = 256.0**_BYTES
_ONE_BY_ONE: Final = ("gates", "prefilters", "filters", "scores", "tiers", "reserves", "permits",
                      "prebinds", "binds", "postbinds")  # fmt: skip
#: How a rule is asked -> what it comes to for pods that it is not about.
_WITHOUT: Final[Mapping[str, object]] = MappingProxyType(
    {"prepare": None, "holds": True, "applies": False, "effects": ()}
)
Chosen = Callable[[Subject], bool]


def in_force(plan: Plan) -> Plan | None:
    """The policy as it decides; None if it has no say. A canary has one about its share."""
    chosen = _share(plan)
    if chosen is None:
        return plan if plan.mode == "enforce" else None
    rules = {name: [_rule_for(one, chosen) for one in getattr(plan, name)] for name in _ONE_BY_ONE}
    return replace(plan, **{name: tuple(some) for name, some in rules.items()})


def enforced(plans: Iterable[Plan]) -> list[Plan]:
    """The policies as they decide, in the order in which they are asked."""
    return sorted(filter(None, map(in_force, plans)), key=turn_of)


def turn_of(plan: Plan) -> tuple[int, str]:
    """By what policies are ordered."""
    return plan.order, plan.name


def in_shadow(plan: Plan) -> Chosen | None:
    """For which pods the policy is tried without an effect; None if for none."""
    member = _share(plan)
    if member is not None:
        return lambda subject: not member(subject)
    return (lambda _: True) if plan.mode == SHADOW else None


def _share(plan: Plan) -> Chosen | None:
    """For which pods a canary is in force; None if the policy is none."""
    word, _, percent = plan.mode.partition(" ")
    if word != CANARY:
        return None
    most = float(percent.removesuffix("%")) / _ALL * _RANGE

    def member(subject: Subject) -> bool:
        workload = subject.text("pod.workload", None)
        fields = ("pod.uid",) if workload is None else ("pod.namespace", "pod.workload")
        who = (subject.text(field, None) or "" for field in fields)
        digest = blake2b("\0".join((plan.name, *who)).encode(), digest_size=_BYTES).digest()
        return int.from_bytes(digest) < most

    return member


def _rule_for(rule: RuleBase, chosen: Chosen) -> RuleBase:
    def only(ask: Callable[..., object], without: object) -> Callable[..., object]:
        return lambda subject, *where: ask(subject, *where) if chosen(subject) else without

    asked = [(name, getattr(rule, name, None), without) for name, without in _WITHOUT.items()]
    return replace(rule, **{name: only(ask, without) for name, ask, without in asked if ask})
