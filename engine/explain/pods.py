"""One pod explained: where it goes and why there, or why nowhere; and one node, by its pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.cycle import conclude
from engine.explain.misses import Miss, Misses, misses, stopped
from engine.explain.scores import Ranking, Scored, policies_of, ranking
from engine.framework.decision import Decision
from engine.framework.runtime import Framework, PluginError, Unfit
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo

_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision taken apart. `gate` is why the pod is not even tried, `ended` why no node was.

    `then` is what it would be told on the node that it was given, if it may not be bound at once.

    `misses` is None where it ended before the nodes, or a plugin failed. `versions` are those of
    the policies that say which they are, by name.
    """

    decision: Decision
    profile: str
    ranking: Ranking
    misses: Misses | None
    gate: str = ""
    ended: Miss | None = None
    then: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def pod(self) -> PodInfo:
        """The pod in question."""
        return self.decision.pod

    def scored(self, node: str) -> Scored | None:
        """What a node was given that can take the pod."""
        return next((one for one in self.ranking.nodes if one.node == node), None)


def explain(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> Explanation:
    """Decides about the pod, and takes that apart. The snapshot has to be the newest."""
    decision = conclude(pod, snapshot, framework)
    found = Explanation(decision, framework.profile.scheduler_name, Ranking(), None)
    plans = [one.plan for one in policies_of(framework)]
    found = replace(found, versions={one.name: one.version for one in plans if one.version})
    try:
        gate = framework.pre_enqueue(pod, snapshot)
        if not gate.ok:
            words = f"{gate.plugin}: {' '.join(gate.reasons)}"
            found = replace(found, gate=words, ended=stopped(pod, snapshot, framework))
        missed = misses(pod, snapshot, framework)
        found = replace(found, ranking=ranking(pod, snapshot, framework), misses=missed)
        return replace(found, then=_then(decision, snapshot, framework))
    except Unfit:
        return replace(found, ended=stopped(pod, snapshot, framework))
    except PluginError:
        return found  # the decision has the fault


def _then(decision: Decision, snapshot: Snapshot, framework: Framework) -> str:
    """Who would refuse the pod on its node, or let it wait there: it is counted there by then."""
    if decision.node is None:
        return ""
    pod = decision.pod
    clearance = framework.reserve(pod, snapshot.overlay(decision.row, add=(pod,)), decision.node)
    if not clearance.status.ok:
        return f"refused there: {' '.join(clearance.status.reasons)}"
    why = " ".join(word for one in clearance.held.values() for word in one.status.reasons)
    return why and f"made to wait there: {why}"


@dataclass(frozen=True, slots=True)
class Guest:
    """A pending pod and a node: `word` says whether it `comes`, `could` or `cannot`, as of now."""

    pod: PodInfo
    chosen: str | None
    word: str
    nearly: str


_WORDS: Final = ("comes", "could", "cannot")


def guests(
    node: str, pods: Iterable[PodInfo], snapshot: Snapshot, framework: Framework
) -> list[Guest]:
    """Which of the pods could come to a node, each asked as if it were the only one."""
    found = [_guest(node, explain(pod, snapshot, framework)) for pod in pods]
    return sorted(found, key=lambda one: _WORDS.index(one.word))


def _guest(node: str, told: Explanation) -> Guest:
    decision = told.decision
    nearly = told.gate or decision.message
    if told.misses is not None and not told.gate:
        missed = told.misses.at(told.misses.snapshot.nodes.row(node))
        nearly = "" if missed is None else missed.nearly
    word = "comes" if decision.node == node else "could"
    word = "cannot" if nearly or told.scored(node) is None else word
    return Guest(decision.pod, decision.node, word, nearly)


def votes(best: Scored, other: Scored) -> list[tuple[str, float]]:
    """Who made the difference between two nodes: points for the other one, the most against first.

    A policy's part is that of its lines.
    """
    there = dict(_points(other))
    found = [(name, round(there[name] - points, _DIGITS)) for name, points in _points(best)]
    return sorted([one for one in found if one[1]], key=lambda one: one[1])


def _points(node: Scored) -> Iterator[tuple[str, float]]:
    """What each plugin and each line gave, in points of the total."""
    for one in node.given:
        weights = sum(line.weight for line in one.lines)
        for line in one.lines if weights else ():
            yield line.place, line.score * line.weight / weights * one.weight
        if not weights:
            yield one.plugin, one.points


def differing(nodes: Sequence[Scored]) -> list[str]:
    """The plugins that do not give all of these nodes the same, in order."""
    return [
        name
        for at, name in enumerate([one.plugin for one in nodes[0].given])
        if len({one.given[at].score for one in nodes}) > 1
    ]
