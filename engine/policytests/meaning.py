"""What policies say of one test's cluster, by the reference: rule by rule, one node at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsl import reference, words
from dsl.collective import Evictions, Gang
from dsl.plan import (
    Effect,
    GangRule,
    PermitRule,
    Plan,
    QuotaRule,
    RuleBase,
    ScoreRule,
)
from dsl.policytest import CannotJudgeError, Rejection
from dsl.several import ByReference as Meant
from dsl.several import rules
from engine.collective import quotas
from engine.framework.interface import Points
from engine.framework.runtime import Candidates
from engine.policytests.answers import UNTOLD, ByColumns, place_of, word_of
from engine.policytests.policies import Used
from engine.policytests.world import SceneSubject, SceneWorld


class ByReference(ByColumns):
    """The meaning of each rule; plugins of the tree have their columns only."""

    def _rejected_by(
        self, used: Used, points: Points, left: Mapping[str, int]
    ) -> dict[str, Rejection]:
        plan = used.plan
        if plan is None:
            return super()._rejected_by(used, points, left)
        stopped = self._stopped(used)
        if stopped is not None:
            return dict.fromkeys(left, stopped)
        said = {}
        for name, row in left.items():
            for rule in plan.filters:
                if not reference.passes(rule.core, self.world, self.subject, row):
                    if self.rehearsed:
                        said[name] = UNTOLD
                        break
                    view = reference.View(self.world, self.subject, row)
                    text = words.message(rule.core, rule.source.text, reference.asked(view))
                    said[name] = Rejection(text, word_of(rule.status), place_of(rule))
                    break
        return said

    def _stopped(self, used: Used) -> Rejection | None:
        if used.plan is None:
            return None
        view = reference.View(self.world, self.subject, -1)
        for rule in used.plan.prefilters:
            if not reference.passes(rule.core, self.world, self.subject, -1):
                text = words.message(rule.core, rule.source.text, reference.asked(view))
                return Rejection(text, word_of(rule.status), place_of(rule))
        values = Meant(self.subject, self.world)
        for quota in used.plan.quotas:
            parts = rules.QuotaParts(quota.core)
            use = rules.quota_use(parts, values, self.scene.beside.quotas)
            said = quotas.exceeded(use, elastic=quota.core.elastic)
            if said is not None:
                said = rules.quota_message(quota.core, view) or said
                return Rejection(said, word_of(quota.status), place_of(quota))
        return None

    def _gang_in(self, subject: SceneSubject, world: SceneWorld) -> tuple[GangRule, Gang] | None:
        for plan in self.plans:
            for rule in plan.gangs:
                gang = rules.gang(rules.GangParts(rule.core), Meant(subject, world))
                if gang is not None:
                    return rule, gang
        return None

    # ---- scores

    def _columns(self, rows: Candidates) -> Iterator[tuple[float, list[float] | None]]:
        by_columns = list(super()._columns(rows))
        scoring = [one for one in self.used if one.plugin.points().score is not None]
        for used, (weight, column) in zip(scoring, by_columns, strict=True):
            if used.plan is None:
                yield weight, column
                continue
            parts = [
                (rule.weight, reference.scores(rule.core, self.world, self.subject, rows.tolist()))
                for rule in used.plan.scores
            ]
            yield weight, reference.policy_score(parts)

    def _preferred(self, plan: Plan, rows: Candidates) -> Sequence[bool] | None:
        best: list[bool] | None = None
        for rule in plan.tiers:
            mask = reference.prefers(rule.core, self.world, self.subject, rows.tolist())
            if mask is None:
                continue
            both = mask if best is None else [a and b for a, b in zip(best, mask, strict=True)]
            best = both if any(both) else best
        return best

    # ---- the queue

    def _sort_key(self, subject: SceneSubject) -> tuple[Any, ...] | None:
        sorts = [rule for plan in self.plans for rule in plan.sorts]
        return reference.sort_key(sorts[0].core, self.world, subject) if sorts else None

    def _held(self, plan: Plan, subject: SceneSubject) -> str | None:
        for rule in plan.gates:
            if not reference.passes(rule.core, self.world, subject, -1):
                view = reference.View(self.world, subject, -1)
                return words.message(rule.core, rule.source.text, reference.asked(view))
        return None

    def applies(self, rule: RuleBase) -> bool:
        """See `ByColumns.applies`."""
        values = Meant(self.subject, self.world)
        if isinstance(rule, GangRule):
            return rules.gang(rules.GangParts(rule.core), values) is not None
        if isinstance(rule, QuotaRule):
            parts = rules.QuotaParts(rule.core)
            return rules.quota_use(parts, values, self.scene.beside.quotas).key is not None
        if isinstance(rule, PermitRule) and rule.core.left is not None:
            return self._applies_at_node(rule)
        if isinstance(rule, ScoreRule):
            rows = self._candidates().tolist()
            return reference.scores(rule.core, self.world, self.subject, rows) is not None
        core: Any = getattr(rule, "core", None)
        guard = getattr(core, "guard", None)
        return reference.applies(guard, self.world, self.subject)

    def _applies_at_node(self, rule: PermitRule) -> bool:
        try:
            with self.placed() as (world, subject, row):
                view = reference.View(world, subject, row)
                return reference.at_node(rule.core.guard, rule.core.left, view)
        except CannotJudgeError:
            return reference.applies(rule.core.guard, self.world, self.subject)

    # ---- the chosen node

    def _reserved(
        self, plan: Plan, subject: SceneSubject, world: SceneWorld, row: int
    ) -> str | None:
        for rule in plan.reserves:
            if not reference.passes(rule.core, world, subject, row):
                view = reference.View(world, subject, row)
                return words.message(rule.core, rule.source.text, reference.asked(view))
        return None

    def _permitted(
        self, plan: Plan, subject: SceneSubject, world: SceneWorld, row: int
    ) -> tuple[str, str]:
        view = reference.View(world, subject, row)
        for rule in plan.permits:
            core = rule.core
            if not reference.at_node(core.guard, core.left, view):
                continue
            verdict = core.decision
            if verdict == "wait":
                if reference.at_node(core.until, None, view):
                    verdict = "allow"
                elif self.scene.waited >= core.seconds:
                    verdict = core.then
            if verdict == "allow":
                return verdict, ""
            message = (
                rule.text
                if core.message is None
                else words.filled(core.message, reference.asked(view))
            )
            return verdict, message
        return "allow", ""

    def _done(
        self,
        plan: Plan,
        subject: SceneSubject,
        world: SceneWorld,
        row: int,
        results: Mapping[str, float],
    ) -> Sequence[Effect]:
        view = reference.View(world, subject, row, results=results)
        return [
            effect
            for rule in (*plan.prebinds, *plan.postbinds)
            for effect in reference.effects(rule.core, view)
        ]

    # ---- preemption

    def evictions(self) -> Evictions | None:
        """See `ByColumns.evictions`."""
        values = Meant(self.subject, self.world)
        for plan in self.plans:
            for rule in plan.preempts:
                if reference.applies(rule.core.guard, self.world, self.subject):
                    return rules.evictions(rule.core, values)
        for quota in (one for plan in self.plans for one in plan.quotas if one.core.elastic):
            parts = rules.QuotaParts(quota.core)
            use = rules.quota_use(parts, values, self.scene.beside.quotas)
            return quotas.reclaim(use, rules.claims(parts, values, use))
        return None
