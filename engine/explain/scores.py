"""Who gave which node how much, by plugin and by line, and what rules said of the chosen node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.decision import Placed
from engine.framework.interface import Scores
from engine.framework.keycolumn import TIE_BITS
from engine.framework.runtime import Candidates, Framework, PluginError
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo
from engine.policy.plugin import PolicyPlugin, place_of


class Line(msgspec.Struct, frozen=True):
    """What one line of a policy gave a node, 0..100, of which its weight is the share."""

    place: str = msgspec.field(name="line")
    text: str
    score: float
    weight: float


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one plugin gave a node: as it scored, 0..100, and the weight of that in the total."""

    plugin: str
    raw: float
    score: float
    weight: float
    lines: tuple[Line, ...] = ()

    @property
    def points(self) -> float:
        """Its part of the total."""
        return self.score * self.weight


class Scored(msgspec.Struct, frozen=True):
    """A node that can take the pod, and what each plugin gave it."""

    node: str
    total: float
    given: tuple[Given, ...] = msgspec.field(name="scores")


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best nodes, the best first; `ties` of all feasible ones have the best total."""

    nodes: tuple[Scored, ...] = ()
    feasible: int = 0
    ties: int = 0


def ranking(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, most: int | None = None
) -> Ranking:
    """The nodes that can take the pod, as a cycle orders them; `most` of them at most.

    The snapshot has to be the newest. O(N) for each plugin.

    Raises:
        Unfit: no node fits, known before the nodes were asked.
        PluginError: a plugin raised.
    """
    candidates = framework.candidates(framework.class_of(pod, snapshot), pod, snapshot)
    return among(pod, snapshot, framework, candidates, most) if len(candidates) else Ranking()


def among(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    candidates: Candidates,
    most: int | None = None,
) -> Ranking:
    """`ranking` of some rows that can take the pod, at least one, ascending."""
    known = framework.class_of(pod, snapshot)
    keys = framework.keys(known, pod, snapshot, candidates)
    order = np.argsort(-keys)[:most]
    steps = keys >> TIE_BITS
    answers = framework.scores(pod, snapshot, candidates)
    lines = _lines(pod, snapshot, framework, candidates)
    nodes = []
    for at in order.tolist():
        given = tuple(
            [
                Given(name, float(raw[at]), float(normal[at]), weight, _at(lines.get(name, ()), at))
                for name, weight, raw, normal in answers
            ]
        )
        total = sum([one.points for one in given])
        nodes.append(Scored(snapshot.nodes.name(int(candidates[at])), total, given))
    ties = int(np.count_nonzero(steps == steps[order[0]]))
    return Ranking(tuple(nodes), len(candidates), ties)


_Column = tuple[str, str, float, Scores | NDArray[np.float64]]


def _lines(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, candidates: Candidates
) -> dict[str, list[_Column]]:
    """By policy: place, text, weight and scores of each line that has a say."""
    return {
        policy.name: [
            (place_of(rule), rule.text, rule.weight, column)
            for rule, column in policy.line_scores(pod, snapshot, candidates)
        ]
        for policy in policies_of(framework)
    }


def _at(lines: Sequence[_Column], at: int) -> tuple[Line, ...]:
    return tuple([Line(place, text, float(of[at]), weight) for place, text, weight, of in lines])


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
    known = framework.class_of(decision.pod, snapshot)
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
