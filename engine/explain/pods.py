"""One pod explained: where it goes and why there, or why nowhere; and one node, by its pods.

In words for people, and as values for programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec import to_builtins

from engine.cycle import conclude
from engine.explain.misses import Miss, Misses, Node, misses, stopped
from engine.explain.scores import Ranking, Scored, policies_of, ranking
from engine.framework.decision import Decision
from engine.framework.runtime import Framework, PluginError, Unfit
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo
from engine.text.display import few

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


# ---- in words
_COLUMNS: Final = 4
"""Nodes side by side in the table of scores."""
_VALUES: Final = 12


# ---- a pod --------------------------------------------------------------------------------------


def lines_of(told: Explanation, most: int, also: Sequence[str] = ()) -> Iterator[str]:
    """What is said of a pod; `also` are nodes that somebody asks about, `most` of others."""
    decision, pod = told.decision, told.pod
    by = [f"profile {told.profile}", *([f"bundle {decision.bundle}"] if decision.bundle else [])]
    by += [f"{name} {version}" for name, version in told.versions.items()]
    yield f"{pod.key}: {decision.node or 'no node'} ({', '.join(by)})"
    if told.gate:
        yield f"It is not tried yet: {told.gate}."
    if told.then:
        yield f"It would be {told.then}."
    if told.ended is not None:
        yield from _miss(told.ended, "")
    if decision.node is None:
        yield decision.message
        rescue = decision.rescue
        if rescue is not None and rescue.nominated:
            names = ", ".join(one.pod.key for one in rescue.evictions)
            yield f"It is promised {rescue.nominated}, from which {names} would be evicted."
    else:
        yield from _scores(told, also)
    yield from _nodes(told, most, also)


def _scores(told: Explanation, also: Sequence[str]) -> Iterator[str]:
    nodes, feasible = told.ranking.nodes, told.ranking.feasible
    chosen = told.decision.node or ""
    yield ""
    if feasible == 1:
        yield f"{chosen} is the only node that can take it, of {told.decision.evaluated}."
        return
    best = told.scored(chosen)
    if best is None:
        return
    ties = told.ranking.ties
    equal = f"; {ties} are equally good, and the tie is broken by name" if ties > 1 else ""
    word = "is the best" if best.total >= nodes[0].total else "was promised to it, one"
    of = f"{feasible} nodes that can take it, of {told.decision.evaluated}"
    yield f"{chosen} {word} of {of}{equal}."
    others = _others(told.ranking, best, also)
    if others:
        yield from _table([best, *others])
        yield ""
        for one in others:
            yield _compared(best, one)


def _others(found: Ranking, best: Scored, also: Sequence[str]) -> list[Scored]:
    asked = [one for one in found.nodes if one.node in also and one is not best]
    rest = [one for one in found.nodes if one is not best and one not in asked]
    return [*asked, *rest][: max(_COLUMNS - 1, len(asked))]


def _table(nodes: Sequence[Scored]) -> Iterator[str]:
    """Plugins and lines down, nodes across."""
    rows: list[tuple[str, list[str], str]] = [("", [one.node for one in nodes], "")]
    names = differing(nodes)
    same = [
        f"{one.plugin} x{one.weight:g} {one.score:g}"
        for one in nodes[0].given
        if one.plugin not in names and one.score
    ]
    if same:
        yield f"  the same on all of these: {', '.join(same)}"
    if not names:
        return
    for at, given in enumerate(nodes[0].given):
        if given.plugin not in names:
            continue
        scores = [f"{one.given[at].score:g}" for one in nodes]
        rows.append((f"{given.plugin} x{given.weight:g}", scores, ""))
        for line_at, line in enumerate(given.lines):
            each = [f"{one.given[at].lines[line_at].score:g}" for one in nodes]
            rows.append((f"  {line.place}", each, line.text))
    rows.append(("total", [f"{one.total:g}" for one in nodes], ""))
    wide = max(len(name) for name, _, _ in rows)
    across = [max(len(cells[at]) for _, cells, _ in rows) for at in range(len(nodes))]
    for name, cells, text in rows:
        shown = "  ".join(cell.rjust(width) for cell, width in zip(cells, across, strict=True))
        yield f"  {name:<{wide}}  {shown}  {text}".rstrip()


def _compared(best: Scored, other: Scored) -> str:
    """Who spoke for the best of two nodes, and who was outvoted."""
    parts = votes(best, other)
    if not parts:
        return f"{other.node} has the same scores."
    behind = best.total - other.total
    head = f"{behind:g} less" if behind > 0 else "as much" if behind == 0 else f"{-behind:g} more"
    against = [f"{name} {points:+g}" for name, points in parts if points < 0]
    outvoted = [f"{name} {points:+g}" for name, points in reversed(parts) if points > 0]
    said = f"{other.node} scores {head}: {', '.join(against)}"
    if not outvoted:
        return f"{said}."
    verb = "speaks" if len(outvoted) == 1 else "speak"
    ends = "" if behind <= 0 else f" and {'is' if len(outvoted) == 1 else 'are'} outvoted"
    return f"{said}; {', '.join(outvoted)} {verb} for it{ends}."


def _nodes(told: Explanation, most: int, also: Sequence[str]) -> Iterator[str]:
    if told.misses is None or not len(told.misses):
        return
    nodes, count = told.misses.nearest(most, also), len(told.misses)
    yield ""
    cannot = "1 node cannot" if count == 1 else f"{count} nodes cannot"
    yield f"{cannot} take it" + (":" if count == 1 else ", the nearest first:")
    groups: dict[str, list[Node]] = {}  # those of which the same is said
    for one in nodes:
        groups.setdefault(repr(one.misses), []).append(one)
    for group in groups.values():
        yield f"  {few([one.name for one in group])} {group[0].nearly}"
        for miss in group[0].misses:
            yield from _miss(miss, "      ")
    if count > len(nodes):
        yield f"  and {count - len(nodes)} more"


def _miss(miss: Miss, indent: str) -> Iterator[str]:
    if miss.shown is None:
        return
    shown = miss.shown
    yield f"{indent}{shown.place}  {shown.text}"
    indent += " " * (len(shown.place) + 2)
    yield f"{indent}{shown.marks}"
    rows = list(shown.values.items())[:_VALUES]
    width = max((len(words) for words, _ in rows), default=0)
    for words, value in rows:
        yield f"{indent}{words:<{width}}  {value}"


def object_of(told: Explanation, most: int, also: Sequence[str] = ()) -> dict[str, Any]:
    """The same for JSON; what there is nothing to say of is left out."""
    decision, rescue, misses = told.decision, told.decision.rescue, told.misses
    best = told.scored(decision.node or "")
    others = [] if best is None else _others(told.ranking, best, also)
    promised = None if rescue is None or not rescue.nominated else rescue
    found = {
        "message": None if decision.node else decision.message,
        "gate": told.gate or None,
        "then": told.then or None,
        "ended": told.ended,
        "nominated": promised and promised.nominated,
        "evicts": promised and [one.pod.key for one in promised.evictions],
        "ties": best and told.ranking.ties,
        "best": best and [best, *others],
        "votes": best and {one.node: dict(votes(best, one)) for one in others},
        "rejected": None if misses is None else len(misses),
        "nearest": None if misses is None else [m.as_object() for m in misses.nearest(most, also)],
    }
    return {
        "pod": told.pod.key,
        "profile": told.profile,
        "bundle": decision.bundle,
        "versions": dict(told.versions),
        "node": decision.node,
        "nodes": decision.evaluated,
        "feasible": told.ranking.feasible,
        **{name: to_builtins(one) for name, one in found.items() if one is not None},
    }


# ---- a node -------------------------------------------------------------------------------------


def lines_of_node(node: str, found: Sequence[Guest]) -> Iterator[str]:
    """What is said of the pending pods that could come to a node."""
    can = sum(one.word != "cannot" for one in found)
    comes = sum(one.word == "comes" for one in found)
    if not found:
        yield f"{node}: no pod is pending"
        return
    pods = "1 pending pod" if len(found) == 1 else f"{len(found)} pending pods"
    yield f"{node}: {can} of {pods} could come here, {comes} would be placed here now"
    width = max(len(one.pod.key) for one in found)
    for one in found:
        yield f"  {one.pod.key:<{width}}  {_said_of(one)}"


def _said_of(guest: Guest) -> str:
    if guest.word == "cannot":
        return f"cannot: {guest.nearly}" if guest.nearly.startswith("0/") else guest.nearly
    if guest.word == "comes":
        return "would be placed here"
    return f"could, and goes to {guest.chosen}" if guest.chosen else "could come"


def object_of_node(node: str, found: Sequence[Guest]) -> dict[str, Any]:
    """The same for JSON."""
    pods = []
    for one in found:
        told: dict[str, Any] = {"pod": one.pod.key, "verdict": one.word, "node": one.chosen}
        if one.nearly:
            told["nearly"] = one.nearly
        pods.append(told)
    return {"node": node, "pods": pods}
