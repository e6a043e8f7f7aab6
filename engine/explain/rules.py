"""What each rule of the policies said of the chosen node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from engine.framework.decision import Placed
from engine.framework.runtime import Framework, PluginError
from engine.policy.plugin import PolicyPlugin


def policies_of(framework: Framework) -> Iterator[PolicyPlugin]:
    """The policies among the plugins, in order."""
    for weighted in framework.profile.plugins:
        if isinstance(weighted.plugin, PolicyPlugin):
            yield weighted.plugin


def rules_of(placed: Placed, framework: Framework) -> list[str]:
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
        for policy in policies_of(framework)
        for trace in policy.traces(decision.pod, snapshot, decision.row, candidates)
    ]


def noted(placed: Placed, framework: Framework) -> None:
    """Puts that into the decision, for the log line of its binding. As `rules_of`."""
    with suppress(PluginError):  # told by the framework
        placed.decision.why = "; ".join(rules_of(placed, framework))
