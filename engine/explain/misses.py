"""Why nodes cannot take a pod, rule by rule, and which of them are the nearest to taking it.

A cycle asks the second filter only about nodes that the first lets pass; here every filter is asked
about every node, so that a node that fails one rule is told from one that fails three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from dsl import ir, reasons, reference
from dsl.plan import ConditionRule, FilterRule, RuleBase
from dsl.reference import View, asked
from dsl.schema import request_unit
from dsl.types import Level, number_of, show
from engine.explain.scores import policies_of
from engine.framework.interface import Room
from engine.framework.profile import VIEW
from engine.framework.runtime import Framework
from engine.framework.snapshot import BoolColumn, Snapshot
from engine.framework.status import Code
from engine.framework.trials import Filtering, Trial
from engine.objects import Node as ApiNode
from engine.objects import NodeSelectorTerm, SelectorRequirement
from engine.plugins.taint_toleration import NO_EXECUTE, NO_SCHEDULE, tolerates
from engine.pods.podinfo import PodInfo
from engine.policy.plugin import PolicyPlugin

_LONGEST: Final = 200
"""Characters of a line, or of a value, that are shown."""


class Shown(msgspec.Struct, frozen=True):
    """A line of a policy with what decides it underlined, and the values of its parts."""

    place: str = msgspec.field(name="line")
    text: str
    marks: str
    values: dict[str, str]


class Miss(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason why a node does not take the pod.

    `short` is of which resource it lacks how much; `size` is all that it has, if that is too small.
    """

    plugin: str
    reason: str
    short: dict[str, str] = {}
    shown: Shown | None = msgspec.field(default=None, name="rule")
    size: str = ""

    @property
    def place(self) -> str:
        """File and line of the rule, or the plugin's name."""
        return self.plugin if self.shown is None else self.shown.place

    @property
    def lacks(self) -> str:
        """What would have to come, in words; empty if it is no amount."""
        all_of_it = f" (it has {self.size} in all)" if self.size else ""
        return "".join(f"{amount} more {what}{all_of_it}" for what, amount in self.short.items())


@dataclass(frozen=True, slots=True)
class Node:
    """A node that does not take the pod, and all that is in the way."""

    name: str
    misses: tuple[Miss, ...]

    @property
    def nearly(self) -> str:
        """It `would fit with 200m more cpu`, or `would fit but for net.policy:3: ...`."""
        short = [one.lacks for one in self.misses if one.short]
        rest = [f"{one.place}: {one.reason}" for one in self.misses if not one.short]
        lacks = " and ".join(short)
        if not rest:
            return f"would fit with {lacks}"
        return f"would fit but for {'; '.join([*rest, *([f'{lacks} needed'] if lacks else [])])}"

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        misses = msgspec.to_builtins(self.misses)
        return {"node": self.name, "nearly": self.nearly, "misses": misses}


@dataclass(frozen=True, slots=True)
class _Wall:
    """What one filter, or one line of a policy, says of all rows; `near` orders its rejections.

    `near` is 0..1 where evicting pods or a larger node could help, above that where it could not.
    """

    passed: BoolColumn
    near: NDArray[np.float64]
    tell: Callable[[int], Miss]


@dataclass(frozen=True, slots=True)
class Misses:
    """The nodes that do not take a pod, the nearest first; each is told when it is asked for."""

    snapshot: Snapshot
    rows: NDArray[np.intp]
    walls: Sequence[_Wall]

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, row: int) -> Node | None:
        """The node of a row; None: it takes the pod."""
        misses = tuple([wall.tell(row) for wall in self.walls if not wall.passed[row]])
        return Node(self.snapshot.nodes.name(row), misses) if misses else None

    def nearest(self, most: int, also: Sequence[str] = ()) -> list[Node]:
        """Those that are asked about, then of those that need least so many."""
        asked = map(self.snapshot.nodes.row, also)
        rows = dict.fromkeys([*asked, *self.rows[:most].tolist()])
        return [one for row in rows if row >= 0 and (one := self.at(row)) is not None]


def misses(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> Misses:
    """Asks every filter about every node that the profile sees.

    Raises:
        Unfit: a PreFilter rejects the pod whatever the nodes are.
        PluginError: a plugin raised.
    """
    trial = framework.trial(pod, snapshot)
    policies = {one.name: one for one in policies_of(framework)}
    seen = snapshot.nodes.present
    walls: list[_Wall] = []
    by_filter = ~seen
    for filtering in trial.filters:
        policy = policies.get(filtering.name)
        if filtering.name == VIEW:
            passed = trial.ask(filtering, snapshot, np.arange(snapshot.nodes.size)).passed
            seen = seen if passed is None else seen & passed
        elif policy is not None:
            walls += _lines(policy, pod, snapshot)
        elif filtering.points.rooms is not None:
            rooms = filtering.points.rooms(pod, snapshot)
            walls += [_amount(filtering.name, room) for room in rooms]
        else:
            walls.append(_other(trial, filtering, seen))
            if filtering.name in trial.allowed_by:
                by_filter |= ~walls[-1].passed
    if trial.allowed is not None:
        walls.append(_left_out(trial, by_filter))
    promised = _promised(trial, walls, seen)
    walls += [] if promised is None else [promised]
    return Misses(snapshot, _ordered(walls, seen), walls)


def _ordered(walls: Sequence[_Wall], seen: BoolColumn) -> NDArray[np.intp]:
    """The rows that are rejected: by how many, then by how far, then as they are."""
    many = np.zeros(len(seen))
    far = np.zeros(len(seen))
    for wall in walls:
        many += ~wall.passed
        far += np.where(wall.passed, 0.0, wall.near)
    rows = np.flatnonzero(seen & (many > 0))
    found: NDArray[np.intp] = rows[np.lexsort((rows, far[rows], many[rows]))]
    return found


# ---- lines of policies --------------------------------------------------------------------------

_RULE: Final = 0.75
_NEVER: Final = 2.0


def _lines(policy: PolicyPlugin, pod: PodInfo, snapshot: Snapshot) -> Iterator[_Wall]:
    for rule, passed in policy.masks(pod, snapshot):

        def tell(row: int, rule: FilterRule = rule) -> Miss:
            view = policy.looks(pod, snapshot, row)
            return Miss(
                policy.name, rule.message(view.subject, view.world, row), shown=_shown(rule, view)
            )

        never = rule.status == Code.UNSCHEDULABLE_AND_UNRESOLVABLE.value
        yield _Wall(passed, np.full(len(passed), _NEVER if never else _RULE), tell)


def stopped(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> Miss | None:
    """The line of a policy that stops the pod before any node is asked."""
    for policy in policies_of(framework):
        stop = policy.stop(pod, snapshot)
        if stop is not None and isinstance(stop.rule, ConditionRule):
            shown = _shown(stop.rule, policy.looks(pod, snapshot, -1))
            return Miss(policy.name, stop.message, shown=shown)
    return None


def _shown(rule: FilterRule | ConditionRule, view: View) -> Shown:
    core, source = rule.core, rule.source
    part = reasons.decisive(core, asked(view))
    span = part.span
    number, column = source.position(span.start)
    line = source.line(number)
    end = min(len(line), column - 1 + max(1, span.end - span.start), _LONGEST)
    marks = " " * (column - 1) + "^" * max(1, end - column + 1)
    # The first is the part itself, of which all has been said.
    tried = values([part], rule, view)[1:]
    return Shown(f"{source.name}:{rule.line}", line[:_LONGEST], marks, dict(tried))


# ---- plugins ------------------------------------------------------------------------------------


def _amount(plugin: str, room: Room) -> _Wall:
    short = room.need - (room.limit - room.used)
    share = short / np.maximum(room.limit, 1)
    never = room.need > room.limit
    kind = number_of(request_unit(room.resource))

    def tell(row: int) -> Miss:
        amount = show(float(short[row]), kind)
        resource = room.resource or ("pods' room" if short[row] > 1 else "pod's room")
        size = show(float(room.limit[row]), kind) if never[row] else ""
        return Miss(plugin, room.short, {resource: amount}, size=size)

    near = np.where(never, _NEVER + share, np.minimum(share, _RULE / 2))
    return _Wall(short <= 0, near, tell)


def _other(trial: Trial, filtering: Filtering, seen: BoolColumn) -> _Wall:
    """A plugin's own words: asked once for all rows, told for each group."""
    rows = np.flatnonzero(seen)
    passed = np.ones(len(seen), dtype=np.bool_)
    near = np.full(len(seen), _RULE)
    reasons: dict[int, str] = {}
    for status, positions in trial.ask(filtering, trial.snapshot, rows).groups():
        out = rows[positions]
        passed[out] = False
        if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            near[out] = _NEVER
        reasons |= dict.fromkeys(out.tolist(), ", ".join(status.reasons))

    def tell(row: int) -> Miss:
        tells = _TELLING.get(filtering.name)
        more = ", ".join(tells(trial.pod, trial.snapshot.nodes.node(row)) if tells else ())
        return Miss(filtering.name, f"{reasons[row]} ({more})" if more else reasons[row])

    return _Wall(passed, near, tell)


def _left_out(trial: Trial, by_filter: BoolColumn) -> _Wall:
    """Nodes that a PreFilter has left out, but for those that its filter rejects, too."""
    assert trial.allowed is not None
    by = " ".join(sorted(trial.allowed_by))
    miss = Miss(by, "the pod is limited to other nodes by name")
    return _Wall(trial.allowed | by_filter, np.full(len(by_filter), _NEVER), lambda _: miss)


def _promised(trial: Trial, walls: Sequence[_Wall], seen: BoolColumn) -> _Wall | None:
    """Where it would fit, were the room not promised to pods that come before it."""
    fits = seen.copy()
    for wall in walls:
        fits &= wall.passed
    rows = trial.left_to_nominated(fits)
    if not rows:
        return None
    passed = np.ones(len(seen), dtype=np.bool_)
    passed[rows] = False
    miss = Miss("nominated pods", "the room is promised to pods that are nominated to the node")
    return _Wall(passed, np.full(len(seen), _RULE), lambda _: miss)


# ---- what kube-scheduler's reasons leave out: which taint, which label ---------------------------


def _taints(pod: PodInfo, node: ApiNode) -> Iterator[str]:
    there = pod.pod.spec.tolerations or ()
    for one in node.spec.taints or ():
        if one.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerates(there, one):
            value = f"={one.value}" if one.value else ""
            yield f"taint {one.key}{value}:{one.effect}"


def _labels(pod: PodInfo, node: ApiNode) -> Iterator[str]:
    labels = node.metadata.labels or {}
    for key, wanted in sorted((pod.pod.spec.node_selector or {}).items()):
        if labels.get(key) != wanted:
            yield f"label {key} is {labels.get(key, '<none>')}, the pod wants {wanted}"
    affinity = pod.pod.spec.affinity
    required = affinity.node_affinity if affinity is not None else None
    terms = required.required_during_scheduling_ignored_during_execution if required else None
    for term in terms.node_selector_terms or () if terms is not None else ():
        yield f"the pod wants {_wanted(term)}"
        for key in sorted({one.key for one in term.match_expressions or ()}):
            yield f"{key} is {labels.get(key, '<none>')}"


def _wanted(term: NodeSelectorTerm) -> str:
    each = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return " and ".join(map(_requirement, each)) or "nothing that is"


def _requirement(one: SelectorRequirement) -> str:
    values = ", ".join(one.values or ())
    return f"{one.key} {one.operator} [{values}]" if values else f"{one.key} {one.operator}"


_TELLING: Final = {"TaintToleration": _taints, "NodeAffinity": _labels}


# ---- the parts of conditions and numbers with their values, for explanations and failed tests
# No line may say of a text what is not so: what is asked of many items has a line for each of them.
_MOST_VALUES: Final = 24
#: Of the items of which a part says the same, so many are shown.
_MOST_ALIKE: Final = 3
_WIDEST: Final = 44

Row = tuple[str, str]


def table(roots: Sequence[ir.Expr], rule: RuleBase, view: reference.View) -> Iterator[str]:
    """The lines of a rule's parts, each with its value for this pod and node."""
    rows = values(roots, rule, view)
    width = min(max((len(words) for words, _ in rows), default=0), _WIDEST)
    for words, value in rows[:_MOST_VALUES]:
        clipped = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."
        yield f"    {words:<{width}}  {clipped}"
    if len(rows) > _MOST_VALUES:
        yield "    ..."


def values(roots: Sequence[ir.Expr], rule: RuleBase, view: reference.View) -> list[Row]:
    """A rule's parts, the whole before them, each with its value for this pod and node."""
    return [row for group in _groups(roots, rule.source.text, view) for row in _few(group)]


def condition_of(value: ir.Expr) -> ir.Expr:
    """The condition of a `prefer:` or `avoid:`, which stands where the points do."""
    stands_for_it = isinstance(value, ir.If) and value.span == value.condition.span
    return value.condition if stands_for_it and isinstance(value, ir.If) else value


def _few(group: list[Row]) -> Iterator[Row]:
    """Some items of each value: which one differs is seen however many are alike."""
    shown: Counter[str] = Counter()
    for words, value in dict.fromkeys(group):
        shown[value] += 1
        if shown[value] <= _MOST_ALIKE:
            yield words, value


def _groups(roots: Sequence[ir.Expr], text: str, view: reference.View) -> list[list[Row]]:
    """Each part that has a value here, the whole before its parts, each text once."""
    seen: set[str] = set()
    of_items: dict[str, list[Row]] = {}
    out: list[list[Row]] = []
    for node, items in _visible(roots, view):
        words = " ".join(text[node.span.start : node.span.end].split())
        if items is not None:
            if words not in of_items:
                of_items[words] = []
                out.append(of_items[words])
            of_items[words].extend(
                (f"{words}, {name}", show(reference.evaluate(node, one), node.type))
                for name, one in items
            )
            continue
        if (not words or words in seen) and isinstance(node, ir.Read):
            words = node.field if node.key is None else f"{node.field}[{node.key}]"
        if words and words not in seen:
            seen.add(words)
            out.append([(words, show(reference.evaluate(node, view), node.type))])
    return out


#: What a part is asked of where that are several: how each is called, and its view.
_Each = list[tuple[str, reference.View]]
_Around = ir.ContainerAggregate | ir.ItemAggregate


def _visible(
    roots: Sequence[ir.Expr], view: reference.View
) -> Iterator[tuple[ir.Expr, _Each | None]]:
    """The parts that can be asked here; says of which containers or items, None where of none."""
    met: set[int] = set()
    stack: list[tuple[ir.Expr, bool, _Around | None]]
    stack = [(root, False, None) for root in reversed(roots)]
    while stack:
        node, in_pods, around = stack.pop()
        if id(node) in met:
            continue
        met.add(id(node))
        other_pod = node.level is Level.IT and (in_pods or view.pod < 0)
        no_node = node.level is Level.NODE and view.row < 0
        if not (isinstance(node, ir.Const | ir.Item) or other_pod or no_node):
            yield node, _each(node, around, view)
        in_pods = in_pods or isinstance(node, ir.PodAggregate)
        inner = node if isinstance(node, _Around) else around
        stack.extend((one, in_pods, inner) for one in reversed(ir.children(node)))


def _each(node: ir.Expr, around: _Around | None, view: reference.View) -> _Each | None:
    """The containers or items that a part is asked of; None if it is asked once."""
    reads = {type(one) for one in ir.walk(node)} if around is not None else set()
    if isinstance(around, ir.ContainerAggregate) and ir.ContainerRead in reads:
        subject = view.subject
        return [
            (f"of {subject.container_text(place, 'name')}", replace(view, container=place))
            for place in range(subject.containers)
        ]
    if not isinstance(around, ir.ItemAggregate) or ir.Item not in reads:
        return None
    kind = next(one.type for one in ir.walk(around) if isinstance(one, ir.Item))
    items = reference.evaluate(around.items, view) or ()
    return [(f"it is {show(one, kind)}", replace(view, item=one)) for one in items[: around.most]]
