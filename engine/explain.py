"""Decisions in words: which line of which policy had what part in it."""

from __future__ import annotations

from engine.framework.decision import Placed
from engine.framework.runtime import Framework
from engine.policy.plugin import PolicyPlugin, RuleTrace


def rules_of(placed: Placed, framework: Framework) -> list[RuleTrace]:
    """What the policies' rules said of the chosen node, in order; empty if there is none.

    Must be called while the snapshot is the current one, that is, by an observer of the decision.
    """
    if placed.decision.node is None:
        return []
    decision, snapshot = placed.decision, placed.snapshot
    known = framework.known(decision.pod, snapshot)
    candidates = framework.candidates(known, decision.pod, snapshot)
    return [
        trace
        for weighted in framework.profile.plugins
        if isinstance(weighted.plugin, PolicyPlugin)
        for trace in weighted.plugin.traces(decision.pod, snapshot, decision.row, candidates)
    ]
