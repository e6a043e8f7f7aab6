"""Whatever a plugin of another package answers about a pod fails that pod, and the loop goes on."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import replace

import numpy as np
import pytest

from engine.framework.decision import PostFilterResult
from engine.framework.effects import AssumeObject, Await, Emit, Patch
from engine.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource
from engine.framework.gang import Membership
from engine.framework.interface import (
    BindResult,
    Normalization,
    PermitResult,
    Points,
    PreBindResult,
    PreFilterResult,
    PreScoreResult,
    ReserveResult,
    Verdicts,
)
from engine.framework.profile import Profile, Weighted
from engine.framework.status import Code, Status, unschedulable
from engine.plugins.out_of_tree import Loaded, checked, notes
from tests.builders import changed, default_plugins, make_node
from tests.engine.policy.builders import chain
from tests.engine.test_scheduler import World

EVENT = Emit("Pod", "default", "p", "", "Normal", "Said", "Saying", "words")
PATCH = Patch("Pod", "default", "p", {})
WAIT = Status(Code.WAIT, ("not yet",))
NODES = ClusterEvent(Resource.NODE, Action.ALL)
GANG = Membership(
    key="g",
    namespace="default",
    name="g",
    title="gang g",
    minimum=1.0,
    lacks="",
    shortage=str,
    wait_seconds=0.0,
    rests_until=math.nan,
    tolerance=0.0,
    since=math.nan,
    place="here",
    domain=None,
    within="",
    fullest=False,
    mates=tuple,
)


class Theirs:
    name = "Theirs"


def is_p(pod):
    return pod.name == "p"


def world(in_tree=None, **points):
    theirs = Loaded(Theirs(), "Theirs", checked(Points(**points)))
    in_tree = [*(in_tree or default_plugins()), Weighted(theirs)]
    return World(rules=chain({}, in_tree=in_tree), nodes=("n1", "n2"))


def of_p(found, otherwise):
    """What a point answers about pods named p; it is raised if it is an exception."""

    def answer(pod, *rest):
        if not is_p(pod):
            return otherwise
        if isinstance(found, type) and issubclass(found, BaseException):
            raise found
        return found

    return answer


def by_name(pod, _):
    return pod.name


def ones(_state, _pod, snapshot, rows):
    return snapshot.nodes.present[rows] * 1.0


def rejects(groups):
    none = Verdicts(np.zeros(2, np.bool_), groups)
    return lambda _, pod, *rest: none if is_p(pod) else Verdicts(None, tuple)


def waits(check=lambda _: WAIT, kinds=frozenset(), seconds=1.0):
    return {"pre_bind": (Await("x", check, kinds, seconds),)}


class SpeechlessError(Exception):
    def __str__(self):
        raise TypeError


RAISES = (ZeroDivisionError, SystemExit, KeyError, SpeechlessError)
STATUSES = ({"status": "no"}, {"status": Status("x")}, {"status": Status(Code.ERROR, "ab")})
NOT_HERE = [{"status": Status(code)} for code in (Code.ERROR, Code.WAIT, Code.SKIP)]
RESERVES = (
    *STATUSES,
    *NOT_HERE,
    {"effects": (1,)},
    {"effects": (PATCH,)},
    {"effects": [EVENT, None]},
    {"effects": EVENT},
    {"effects": (AssumeObject("Pod", "x", 5),)},
    {"effects": (AssumeObject("Nowhere", "x", make_node("n")),)},
    {"pre_bind": (PATCH, "x")},
    {"pre_bind": (Patch("Pod", "default", "p", 5),)},
    {"pre_bind": (Emit("Pod", "default", "p", "", "Normal", "Said", "Saying", 5),)},
    waits(None),
    waits(lambda _: 5),
    waits(lambda _: Status("x")),
    waits(lambda _: 1 / 0),
    waits(kinds=5),
    waits(seconds=math.nan),
    waits(seconds=10**400),
    waits(seconds=-1.0),
)
PERMITS = (
    *STATUSES,
    {"timeout_seconds": math.nan},
    {"timeout_seconds": "1s"},
    {"timeout_seconds": 10**400},
    {"timeout_seconds": None},
    {"wakes": NODES},
    {"wakes": (5,)},
    {"wakes": None},
    {"others": []},
    {"others": {"uid": None}},
    {"others": {5: Status.SUCCESS}},
)
PRE_BINDS = (
    *STATUSES,
    *NOT_HERE,
    {"annotations": {"a": 5}},
    {"annotations": None},
    {"labels": {5: "a"}},
    {"labels": [("a", "b")]},
    {"effects": (5,)},
    {"effects": None},
    {"events": (PATCH,)},
    {"events": ("words",)},
)
PRE_FILTERS = (
    *STATUSES,
    {"rows": np.array([5])},
    {"rows": np.array([-1])},
    {"rows": np.array([0.0])},
    {"rows": [0]},
    {"names": "n1", "rows": np.array([0])},
    {"scope": "row"},
    {"causes": "labels"},
    {"version": 5},
    {"version": lambda _: []},
    {"version": lambda _: 1 / 0},
    {"shared": []},
)
GANGS = (
    {"key": []},
    {"minimum": "2"},
    {"minimum": None},
    {"wait_seconds": math.nan},
    {"domain": np.zeros(1, np.int32)},
    {"domain": ["a", "b"]},
    {"mates": ()},
    {"mates": lambda: [99]},
    {"mates": lambda: ["a"]},
    {"mates": lambda: [[0, 0], [0, 0]]},
    {"mates": lambda: np.zeros(2, np.bool_)},
    {"mates": lambda: [0.9]},
    {"mates": lambda: 1 / 0},
    {"title": None},
)
GROUPS = (
    lambda: None,
    lambda: [5],
    lambda: [(None, np.array([0]))],
    lambda: [(unschedulable("no"), [0])],
    lambda: [(unschedulable("no"), np.array([99]))],
    lambda: [(unschedulable("no"), np.array([-1]))],
    lambda: [(unschedulable(5), np.array([0, 1]))],
    lambda: [(Status.SUCCESS, np.array([0, 1]))],
    lambda: 1 / 0,
    list,
)
NORMALIZES = (
    lambda *_: None,
    lambda _, scores: scores[:1],
    lambda _, scores: scores.astype(str),
    lambda _, scores: scores * np.nan,
    lambda _, scores: scores - 5,
    lambda _, scores: 1 / 0,
    None,
)
TIERS = ([np.ones(1, np.bool_)], [np.ones(2)], [[True, True]], [None], 5)
SKIPS, SKIPS_SCORE = PreFilterResult(Status.SKIP), PreScoreResult(Status.SKIP)
CUSTOM = PreScoreResult(normalization=Normalization.CUSTOM)
FILTERS = {"filter": lambda *_: Verdicts(None, tuple)}
SCORES = {"score": ones, "class_key": by_name}
CASES = [
    *[("reserve", ReserveResult(**one), ReserveResult(), {}) for one in RESERVES],
    *[("permit", PermitResult(**{"status": WAIT, **one}), PermitResult(), {}) for one in PERMITS],
    *[("pre_bind", PreBindResult(**one), PreBindResult(), {}) for one in PRE_BINDS],
    *[("bind", found, None, {}) for found in (BindResult(by=5), BindResult(by="Nobody"), 5)],
    ("binder", [5], (), {"bind": of_p(BindResult(by="Theirs"), None)}),
    *[("post_bind", found, (), {}) for found in ([5], {EVENT}, EVENT)],
    *[("pre_filter", PreFilterResult(**one), SKIPS, FILTERS) for one in PRE_FILTERS],
    *[("pre_score", PreScoreResult(**one), SKIPS_SCORE, SCORES) for one in STATUSES],
    ("pre_score", PreScoreResult(normalization="max"), SKIPS_SCORE, SCORES),
    *[("pre_score", CUSTOM, SKIPS_SCORE, {**SCORES, "normalize": one}) for one in NORMALIZES],
    *[
        ("acts_on", True, True, {"filter": rejects(groups), "class_key": by_name})
        for groups in GROUPS
    ],
    *[("tiers", found, [], {}) for found in TIERS],
    *[("gang", replace(GANG, **one), None, {"kin": of_p("g", None)}) for one in GANGS],
    ("gang", True, None, {"kin": of_p("g", None)}),
    *[
        (point, found, fine, more)
        for point, fine, more in (
            ("reserve", ReserveResult(), {}),
            ("permit", PermitResult(), {}),
            ("pre_bind", PreBindResult(), {}),
            ("bind", None, {}),
            ("post_bind", (), {}),
            ("class_key", None, {"score": lambda *_: None}),
            ("pre_filter", SKIPS, {}),
            ("gang", None, {"kin": of_p("g", None)}),
        )
        for found in (*RAISES, {"no": "such answer"})
    ],
]


def told(made, name="p"):
    return [(reason, why) for who, reason, why in made.edge.conditions if who == name and reason]


@pytest.mark.parametrize(
    ("point", "found", "otherwise", "more"),
    [pytest.param(*one, id=f"{number} {one[0]}") for number, one in enumerate(CASES)],
)
async def test_an_answer_that_cannot_be_used_fails_the_pod_alone(point, found, otherwise, more):
    made = world(**{point: of_p(found, otherwise), **more})
    made.comes()
    await made.turn()
    await made.turn(after=2.0)
    made.comes("other")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["other"]
    words = (
        "no plugin of the profile binds pods as Nobody" if "Nobody" in str(found) else "'Theirs'"
    )
    assert told(made)
    assert all(reason == "SchedulerError" and words in why for reason, why in told(made))


async def test_a_gang_whose_lack_cannot_be_told_waits_even_if_the_exception_has_no_words():
    gang = replace(GANG, shortage=lambda: next(iter(())))
    made = world(gang=of_p(gang, None), kin=of_p("g", None))
    made.comes()
    await made.turn()
    assert made.edge.binds == []
    assert "StopIteration" in told(made)[0][1]


@pytest.mark.parametrize(
    "found",
    [
        *RAISES,
        5,
        PostFilterResult("no"),
        PostFilterResult(Status.SUCCESS, nominated=5),
        PostFilterResult(Status.SUCCESS, evictions=(5,)),
        PostFilterResult(Status.SUCCESS, clears=("uid",)),
        PostFilterResult(unschedulable(), plugins=frozenset({5})),
        PostFilterResult(unschedulable(), message=5),
    ],
)
async def test_a_post_filter_that_fails_is_told_beside_why_no_node_fits(found):
    made = world(post_filter=of_p(found, PostFilterResult(unschedulable())))
    made.comes(cpu="100")
    made.comes("other")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["other"]
    ((reason, why),) = told(made)
    assert reason == "Unschedulable"
    assert "Insufficient cpu" in why
    assert "running PostFilter plugin 'Theirs': " in why


async def test_answers_keep_no_rules_alive_that_are_gone():
    none = np.array([])
    rejected = Verdicts(None, lambda: [(unschedulable("no"), none)])
    points = Points(
        pre_filter=lambda *_: PreFilterResult(),
        filter=lambda *_: rejected,
        pre_score=lambda *_: PreScoreResult(),
        score=ones,
    )
    theirs = Weighted(Loaded(Theirs(), "Theirs", checked(points)))
    made, rules = World(nodes=("n1", "n2")), chain({}, in_tree=[*default_plugins(), theirs])
    before = weakref.ref(rules)
    made.scheduler.use(rules, None)
    del rules
    gc.disable()
    try:
        made.comes()
        made.comes("large", cpu="100")
        await made.turn()
        assert [name for name, _ in made.edge.binds] == ["p"]
        assert {reason for reason, _ in told(made, "large")} == {"Unschedulable"}
        made.scheduler.use(chain({}), None)
        await made.turn()
        assert before() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("found", [ZeroDivisionError, SystemExit, (math.nan,), ([],), 5, None])
async def test_a_pod_without_a_place_in_the_queue_is_the_last(found):
    in_tree = [one for one in default_plugins() if one.plugin.name != "PrioritySort"]
    made = world(in_tree=in_tree, sort_key=of_p(found, (0, 0.0)))
    made.scheduler.leads = False
    for name in ("a", "p", "b"):
        made.comes(name)
    made.scheduler.leads = True
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["a", "b", "p"]


@pytest.mark.parametrize("found", [ZeroDivisionError, SystemExit, [], math.nan])
async def test_a_pod_whose_kin_cannot_be_told_is_in_no_gang(found):
    made = world(kin=of_p(found, None), gang=lambda *_: None)
    made.comes()
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["p"]


@pytest.mark.parametrize("found", [ZeroDivisionError, SystemExit, 5, None, Status("x")])
async def test_a_gate_that_fails_holds_the_pod(found):
    made = world(pre_enqueue=of_p(found, Status.SUCCESS))
    made.comes()
    made.comes("other")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["other"]
    ((reason, why),) = told(made)
    assert reason == "SchedulingGated"
    assert "running PreEnqueue plugin 'Theirs': " in why


@pytest.mark.parametrize("found", [math.nan, "soon", -math.inf, 0.0, 10**400, ZeroDivisionError])
async def test_who_asks_to_be_asked_again_at_once_leaves_the_loop_its_rest(found):
    asked = []

    def gate(pod, _):
        asked.append(pod.name)
        return unschedulable("closed")

    made = world(pre_enqueue=gate, recheck_at=of_p(found, math.inf))
    made.comes()
    for _ in range(10):
        await made.turn(after=0.01)
    assert asked == ["p"]
    await made.turn(after=2.0)
    assert asked == ["p"] + ["p"] * (found in (-math.inf, 0.0))


@pytest.mark.parametrize("hint", [lambda *_: 1 / 0, lambda *_: None, lambda *_: [], lambda: 0])
async def test_a_hint_that_fails_means_try_again(hint):
    made = world(
        events=(ClusterEventWithHint(NODES, hint),),
        filter=lambda _, pod, snapshot, rows: Verdicts.uniform(
            snapshot.nodes.flag("open", lambda node: node.metadata.name == "n3")[rows],
            unschedulable("closed"),
        ),
    )
    made.comes()
    await made.turn()
    assert made.edge.binds == []
    made.clock.advance(11.0)
    made.add([make_node("n3", cpu="2")])
    await made.turn()
    assert made.edge.binds == [("p", "n3")]


async def test_a_plugin_is_not_asked_about_pods_that_it_does_not_act_on():
    made = world(
        acts_on=is_p,
        reserve=lambda *_: ReserveResult(effects=(EVENT,)),
        permit=lambda *_: PermitResult(WAIT, 60.0),
    )
    another = Loaded(Theirs(), "Another", checked(Points(reserve=lambda *_: ReserveResult())))
    made.scheduler.use(
        chain({}, in_tree=[*made.framework.profile.plugins, Weighted(another)]), None
    )
    made.comes()
    made.comes("other")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["other"]
    assert [reason for reason, _ in told(made)] == ["WaitingOnPermit"]


# ---- what is called when an object changes -------------------------------------------------------


async def test_a_column_whose_function_raises_for_a_node_that_changed_fails_who_asks_for_it():
    def watts(node):
        return float((node.metadata.annotations or {}).get("watts", "0"))

    made = world(score=lambda _, pod, snapshot, rows: snapshot.nodes.number("w", watts)[rows])
    made.comes("a")
    await made.turn()
    plain = make_node("n1", cpu="2")
    right, wrong = (
        changed(plain, metadata={"annotations": {"watts": one}}) for one in ("7", "n/a")
    )
    made.handlers.nodes.on_update(plain, wrong)
    made.comes("p")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["a"]
    assert told(made) == [
        (
            "SchedulerError",
            "running Score plugin 'Theirs': ValueError: could not convert string to float: 'n/a'",
        )
    ]
    made.handlers.nodes.on_update(wrong, right)
    await made.turn(after=2.0)
    assert made.edge.binds[1:] == [("p", "n1")]


async def test_a_column_whose_function_raises_for_a_pod_that_changed_fails_who_asks_for_it():
    def weight(pod):
        return float((pod.pod.metadata.annotations or {}).get("weight", "0"))

    def score(_, pod, snapshot, rows):
        assert len(snapshot.pods.number("w", weight)) == snapshot.pods.size
        return snapshot.nodes.present[rows] * 1.0

    made = world(score=score)
    first = made.comes("a")
    await made.turn()
    made.bound(first, "n1")
    wrong = made.edits(changed(first, spec={"node_name": "n1"}), metadata={"annotations": HEAVY})
    made.comes("p")
    await made.turn()
    ((reason, why),) = told(made)
    assert reason == "SchedulerError"
    assert why.startswith("running Score plugin 'Theirs': ValueError: ")
    made.edits(wrong, metadata={"annotations": {}})
    await made.turn(after=2.0)
    assert [name for name, _ in made.edge.binds] == ["a", "p"]


HEAVY = {"weight": "heavy"}


# ---- what wakes ----------------------------------------------------------------------------------


async def test_what_a_plugin_without_events_rejects_is_tried_again_after_any_event():
    open_ = []

    def gate(*_):
        return PreFilterResult() if open_ else PreFilterResult(unschedulable("closed"))

    made = world(pre_filter=gate)
    made.comes()
    await made.turn()
    assert made.edge.binds == []
    open_.append("now")
    made.clock.advance(11.0)
    made.add([make_node("n3", cpu="2", labels={"far": "away"})])
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["p"]


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ({"permit": lambda *_: PermitResult()}, True),
        ({"permit": lambda *_: PermitResult(), "events": (ClusterEventWithHint(NODES),)}, False),
        ({"pre_enqueue": lambda *_: Status.SUCCESS, "recheck_at": lambda *_: 0.0}, False),
        ({"score": ones}, False),
    ],
)
def test_a_plugin_without_events_is_named_at_start(points, says):
    theirs = Loaded(Theirs(), "Theirs", checked(Points(**points)))
    found = [*notes([Profile("berth", (Weighted(theirs),))])]
    assert [one.split(":")[:2] for one in found] == (
        [["profile berth", " plugin 'Theirs' names no events"]] if says else []
    )
