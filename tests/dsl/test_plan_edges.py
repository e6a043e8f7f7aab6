"""What a plan answers where nothing applies, and what it is when the file does not say."""

import numpy as np
import pytest
from msgspec.structs import replace

from dsl import reference
from dsl.plan import Permission, effects_of, stop_by
from tests.dsl.bothways import effects as effects_meant
from tests.dsl.bothways import plan_of
from tests.dsl.worlds import FakePod, FakeWorld

NODES = [{"node.name": "a", "node.zone": "z1"}, {"node.name": "b"}]
POD = {"pod.name": "p", "pod.namespace": "default", "pod.uid": "u", "pod.gpu": 1.0}


@pytest.mark.parametrize("text", ["score: 1", "preempt: pod.label a=b -> victims"])
def test_nobody_is_evicted_where_no_preempt_line_applies(text):
    plans, asked = [plan_of(text), plan_of(f"{text}\npreempt: victims")], FakePod.of(POD)
    found = [one.preemption(asked, FakeWorld(NODES)) for one in plans]
    assert found == [None, plans[1].preempts[-1]]


@pytest.mark.parametrize("text", ["score: 1", "permit: pod.label a=b -> reject"])
def test_a_pod_that_no_permit_line_is_about_is_allowed(text):
    found = plan_of(text).permitted(FakePod.of(POD), FakeWorld(NODES), 0)
    assert found == Permission("allow", rule=None, seconds=0.0, status="", message="")


def test_only_a_pod_that_is_held_or_sent_away_is_told_why():
    plan = plan_of(
        'permit: wait 1m until node.zone is present, then reject message "on {node.name}"'
    )
    world, pod = FakeWorld(NODES), FakePod.of(POD)
    first = plan.permitted(pod, world, 0)
    assert (first.verdict, first.message) == ("allow", "")
    assert plan.permitted(pod, world, 1).message == "on b"
    last = plan.permitted(pod, world, 1, waited=60.0)
    assert (last.verdict, last.message, last.seconds) == ("reject", "on b", 60.0)


def test_messages_are_silent_about_numbers_that_are_none():
    """A warning is an error here."""
    words = '"{1 / node.gpu.free} of {log2(node.gpu.free)}"'
    plan = plan_of(f"forbid: node.gpu.free < 1 message {words}\npostbind: event {words}")
    world, pod = FakeWorld([{"node.gpu.free": 0.0}]), FakePod.of(POD)
    assert plan.filters[0].message(pod, world, 0) == "<none> of <none>"
    assert effects_of(plan.postbinds, pod, world, 0, {})[0].text == "<none> of <none>"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("score.total", "93.5"),
        ("score[a] * 2", "24.5"),
        ("max(score[a] over nodes)", "12.25"),
        ("count(nodes where score.total > 90)", "2"),
        ("count(node.pods where it.priority > score[a])", "1"),
        ("count(node.nominated where it.priority > score[a])", "2"),
        ("count(node.finished where it.priority > score[a]) + score[a]", "13.25"),
        ("(if rtt(node.zone, a) is missing then score.total else 1) * 2", "187"),
    ],
)
def test_what_a_node_was_given_is_known_wherever_it_is_asked_for(value, expected):
    text = f'metric rtt = promql "g" by src, dst\nlet a = "x"\npostbind: event "{{{value}}}"'
    plan = plan_of(text)
    pods = [{"on": 0, "it.priority": 13.0}, {"on": 0, "it.priority": 12.0}]
    tables = {"nominated": [pods[0], pods[0]], "finished": pods}
    world, pod = FakeWorld(NODES, pods, tables=tables), FakePod.of(POD)
    results = {"score.total": 93.5, "score[a]": 12.25}
    effects = effects_of(plan.postbinds, pod, world, 0, results)
    assert [one.text for one in effects] == [expected]
    view = reference.View(world, pod, 0, results=results)
    assert effects_meant(plan.postbinds[0].core, view) == effects


def test_what_a_file_does_not_say_of_itself():
    plan = plan_of("filter: node.ready")
    assert (plan.name, plan.variant) == ("p", "")
    assert (plan.mode, plan.order, plan.weight) == ("enforce", 100, 1.0)
    assert plan.metrics == ()


def test_tiers_narrow_each_other_and_prefer_none_among_no_candidates():
    plan = plan_of("first: pod.gpu > 1 -> true\nfirst: node.zone is z1\nfirst: node.name is b")
    assert plan.preferred(FakePod.of(POD), FakeWorld(NODES), np.arange(2)).tolist() == [True, False]
    assert plan.preferred(FakePod.of(POD), FakeWorld(NODES), np.array([], np.intp)) is None


@pytest.mark.parametrize(
    ("text", "slot"), [("gate: true", "gates"), ("prefilter: true", "prefilters")]
)
def test_before_a_node_is_chosen_rules_are_asked_about_row_minus_one(text, slot):
    seen = []

    def holds(_subject, _world, row):
        seen.append(row)
        return False

    def message(_subject, _world, row):
        seen.append(row)
        return "no"

    plan = plan_of(text)
    rule = replace(getattr(plan, slot)[0], holds=holds, message=message)
    plan = replace(plan, **{slot: (rule,)})
    rules = getattr(plan, slot)
    assert stop_by(rules, FakePod.of(POD), FakeWorld(NODES)).message == "no"
    assert seen == [-1, -1]
