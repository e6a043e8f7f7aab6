"""What single plugins say, where the recorded suites do not show it best."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from engine.cycle import decide
from engine.framework.defaults import DEFAULT_WEIGHTS
from engine.framework.events import QueueingHint, Resource
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.framework.status import Code, Status
from engine.objects import Node
from engine.plugins.no_nodes import PrioritySort, SchedulingGates
from engine.plugins.node_affinity import NodeAffinityPlugin
from engine.plugins.node_facts import NodeName
from engine.plugins.node_resources_fit import NodeResourcesFit
from engine.plugins.registry import make_plugin
from engine.plugins.taint_toleration import NodeUnschedulable, TaintToleration
from tests.builders import default_plugins
from tests.engine.plugins.builders import make_cache, make_node, make_pod

ALL = slice(0, 99)


def test_the_default_profile_is_complete_in_order_and_weight() -> None:
    plugins = default_plugins()
    assert [w.plugin.name for w in plugins] == list(DEFAULT_WEIGHTS)
    weights = {w.plugin.name: w.weight for w in plugins}
    assert (weights["TaintToleration"], weights["NodeAffinity"]) == (3, 2)


def test_plugins_that_do_not_matter_cost_nothing() -> None:
    snapshot = make_cache(make_node("a"), make_node("b")).snapshot(0.0)
    pod = make_pod(requests={"cpu": "1"})
    assert not NodeName().points().pre_filter(pod, snapshot).rejects
    for plugin in (NodeUnschedulable(), TaintToleration()):
        assert plugin.points().pre_filter(pod, snapshot).shared is not None
    affinity = NodeAffinityPlugin().points()
    assert affinity.pre_filter(pod, snapshot).status is Status.SKIP
    assert affinity.pre_score(pod, snapshot).status is Status.SKIP


def test_a_pod_with_resource_claims_waits_and_is_told_why() -> None:
    pod = make_pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    profile = Profile("berth", default_plugins())
    snapshot = make_cache(make_node("a")).snapshot(0.0)
    decision = decide(pod, snapshot, Framework(profile))
    assert decision.fit_error is not None
    assert decision.fit_error.plugins == {"DynamicResources"}
    assert "no plugin DynamicResources" in decision.fit_error.message()
    assert decide(make_pod(), snapshot, Framework(profile)).node == "a"


def test_higher_priority_first_then_who_came_first() -> None:
    sort, none = PrioritySort().points(), make_cache().snapshot(0.0)
    low, high = make_pod("low"), make_pod("high", priority=5)
    keys = [sort.sort_key(*one, none) for one in ((low, 1.0), (high, 3.0), (high, 2.0))]
    assert sorted(keys) == [keys[2], keys[1], keys[0]]


def test_gates_are_named() -> None:
    pod = make_pod(schedulingGates=[{"name": "a"}, {"name": "b/c"}])
    ask, none = SchedulingGates().points().pre_enqueue, make_cache().snapshot(0.0)
    status = ask(pod, none)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("waiting for scheduling gates: [a b/c]",)
    assert ask(make_pod(), none) is Status.SUCCESS


def test_new_taints_are_judged_when_they_come() -> None:
    plugin, pod = TaintToleration(), make_pod()
    cache = make_cache(make_node("a"))
    assert plugin.points().filter(None, pod, cache.snapshot(0.0), ALL).passed.all()
    for i in range(10):
        taint = {"key": f"k{i}", "effect": "NoSchedule" if i % 2 else "PreferNoSchedule"}
        cache.add_node(make_node(f"n{i}", taints=[taint]))
    passed = plugin.points().filter(None, pod, cache.snapshot(0.0), ALL).passed
    assert passed is not None
    assert passed.tolist() == [True] + [True, False] * 5


def test_numbers_of_labels_compare_in_64_bits() -> None:
    labels = ["9007199254740992", "9007199254740993", "9007199254740994", "-7", "x", "1" * 30]
    cache = make_cache(*[make_node(f"n{i}", labels={"v": v}) for i, v in enumerate(labels)])
    for operator, expected in (("Gt", [2]), ("Lt", [0, 3])):
        term = {"matchExpressions": [{"key": "v", "operator": operator, "values": [labels[1]]}]}
        required = {"nodeSelectorTerms": [term]}
        pod = make_pod(
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        )
        passed = NodeAffinityPlugin().points().filter(None, pod, cache.snapshot(0.0), ALL).passed
        assert passed is not None
        assert np.flatnonzero(passed).tolist() == expected


def test_a_preference_that_cannot_be_parsed_is_an_error() -> None:
    term = {"matchExpressions": [{"key": "v", "operator": "Gt", "values": ["-5"]}]}
    preferred = [{"weight": 1, "preference": term}]
    pod = make_pod(
        affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    )
    found = NodeAffinityPlugin().points().pre_score(pod, make_cache().snapshot(0.0))
    assert found.status.code is Code.ERROR


TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b c"}}}
ASKED = {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}
CONSTRAINT = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **TERM}


@pytest.mark.parametrize(
    ("selector", "wrong"),
    [
        ({"matchLabels": {"a": "b c"}}, "'b c' is not a label value"),
        ({"matchExpressions": [{"key": "a b", "operator": "Exists"}]}, "'a b' is not a label key"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Is"}]},
            "'Is' is not a valid label selector operator",
        ),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "In needs a value"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            "Exists takes no value",
        ),
    ],
)
def test_a_selector_that_cannot_be_parsed_is_told_to_its_pod_alone(
    selector: dict[str, Any], wrong: str
) -> None:
    term = {"topologyKey": "zone", "labelSelector": selector}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    liked = [{"weight": 1, "podAffinityTerm": term}]
    constraint = {"maxSkew": 1, **term}
    spread = f"running {{}} plugin 'PodTopologySpread': {wrong}"
    cache = make_cache(make_node("a"), make_node("b"))
    framework = Framework(Profile("berth", default_plugins()))
    for spec, said in (
        ({"affinity": {"podAffinity": required}}, f"parsing pod: requiredAffinityTerms: {wrong}."),
        (
            {"affinity": {"podAntiAffinity": required}},
            f"parsing pod: requiredAntiAffinityTerms: {wrong}.",
        ),
        (
            {
                "affinity": {
                    "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": liked}
                }
            },
            f"parsing pod: preferredAffinityTerms: {wrong}.",
        ),
        (
            {"topologySpreadConstraints": [{**constraint, "whenUnsatisfiable": "DoNotSchedule"}]},
            spread.format("PreFilter"),
        ),
        (
            {"topologySpreadConstraints": [{**constraint, "whenUnsatisfiable": "ScheduleAnyway"}]},
            spread.format("PreScore"),
        ),
    ):
        decision = decide(make_pod(**spec), cache.snapshot(0.0), framework)
        assert decision.message.removeprefix("0/2 nodes are available: ") == said
        pod = make_pod("there", nodeName="a", **spec)
        cache.add_pod(pod, "a")
        assert decide(make_pod(), cache.snapshot(0.0), framework).node is not None
        cache.remove_pod(pod.uid)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("InterPodAffinity", {"affinity": {"podAffinity": ASKED}}),
        ("PodTopologySpread", {"topologySpreadConstraints": [CONSTRAINT]}),
    ],
)
def test_whatever_happens_wakes_a_pod_whose_selector_cannot_be_parsed(
    name: str, spec: dict[str, Any]
) -> None:
    pod, snapshot = make_pod(**spec), make_cache(make_node("a")).snapshot(0.0)
    seen = {Resource.NODE: make_node("a"), Resource.ASSIGNED_POD: make_pod("b", nodeName="a").pod}
    seen[Resource.TARGET_POD] = pod.pod
    for one in [one for one in make_plugin(name).points().events if not one.ours]:
        there = seen[one.event.resource]
        assert one.hint is not None
        assert one.hint(pod, there, there, snapshot) is QueueingHint.QUEUE
        assert one.hint(pod, there, None, snapshot) is QueueingHint.QUEUE


def test_many_resources_are_told_apart() -> None:
    names = [f"example.com/r{i:02}" for i in range(70)]
    pod = make_pod(requests=dict.fromkeys(names, "1"))
    half = {"pods": "9", **dict.fromkeys(names[::2], "1")}
    snapshot = make_cache(make_node("a"), make_node("b", half)).snapshot(0.0)
    groups = list(NodeResourcesFit().points().filter(None, pod, snapshot, ALL).groups())
    assert sorted((len(s.reasons), p.tolist()) for s, p in groups) == [(35, [1]), (70, [0])]


def test_capacities_beyond_64_bits_are_an_error_and_no_crash() -> None:
    snapshot = make_cache(
        make_node("a", {"cpu": "1", "memory": "3Ei", "pods": "9"}), make_node("b")
    ).snapshot(0.0)
    plugin: Any = make_plugin(
        "NodeResourcesFit",
        {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "memory"}]}},
    )
    pod = make_pod()
    scores = plugin.points().score(None, pod, snapshot, ALL)
    assert scores.min() < 0
    profile = Profile("berth", (Weighted(PrioritySort()), Weighted(plugin)))
    decision = decide(pod, snapshot, Framework(profile))
    assert decision.error is not None
    assert "too large" in decision.error.reasons[0]


def spread(*constraints: Any) -> dict[str, Any]:
    return {"defaultingType": "List", "defaultConstraints": list(constraints)}


def constraint(**fields: Any) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **fields}


def strategy(**fields: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": "LeastAllocated", **fields}}


def ratio(*shape: tuple[int, int]) -> dict[str, Any]:
    points = [dict(zip(("utilization", "score"), one, strict=True)) for one in shape]
    return strategy(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": points})


FIT, BALANCED, SPREAD = "NodeResourcesFit", "NodeResourcesBalancedAllocation", "PodTopologySpread"
AFFINITY, PREEMPTION, BINDING = "InterPodAffinity", "DefaultPreemption", "VolumeBinding"


UNKNOWN = {"key": "a", "operator": "Is"}
ADDED = {"nodeSelectorTerms": [{"matchExpressions": [UNKNOWN]}]}


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("Nope", {}, "no plugin is named 'Nope'"),
        ("NodeName", {"x": 1}, "takes no arguments"),
        (
            "NodeAffinity",
            {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ADDED}},
            "matchExpressions[0]: 'Is' is not a valid label selector operator",
        ),
        (FIT, {"unknown": 1}, "unknown"),
        (FIT, strategy(type="Best"), "'Best' is not LeastAllocated, MostAllocated or"),
        (FIT, strategy(resources=[{"name": "cpu", "weight": 101}]), "weight of cpu: 101 is not in"),
        (
            FIT,
            strategy(requestedToCapacityRatio={"shape": []}),
            "only for the strategy of that name",
        ),
        (FIT, strategy(type="RequestedToCapacityRatio"), "the strategy of that name needs it"),
        (FIT, ratio(), "shape: at least one point must be specified"),
        (FIT, ratio((101, 1)), "shape: utilization 101 is not in 0..100"),
        (FIT, ratio((0, 11)), "shape: score 11 is not in 0..10"),
        (FIT, ratio((0, 0), (0, 10)), "must be sorted in increasing order"),
        (BALANCED, {"resources": [{"name": "cpu", "weight": 2}]}, "resources[0].weight: 2 is not"),
        (BALANCED, {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "a name is listed twice"),
        (SPREAD, {"defaultingType": "Lists"}, "defaultingType: 'Lists' is not System or List"),
        (SPREAD, {"defaultConstraints": [constraint()]}, "only with defaultingType List"),
        (SPREAD, spread(constraint(maxSkew=0)), "defaultConstraints[0].maxSkew: must be above 0"),
        (SPREAD, spread(constraint(topologyKey="a b")), "topologyKey: 'a b' is not a label key"),
        (SPREAD, spread(constraint(whenUnsatisfiable="No")), "must be DoNotSchedule or Schedule"),
        (SPREAD, spread(constraint(labelSelector={})), "labelSelector: is worked out for each pod"),
        (SPREAD, spread(constraint(), constraint()), "[1]: repeats another one's topologyKey"),
        (AFFINITY, {"hardPodAffinityWeight": 101}, "not in valid range [0, 100]"),
        (PREEMPTION, {"minCandidateNodesPercentage": 101}, "not in valid range [0, 100]"),
        (PREEMPTION, {"minCandidateNodesAbsolute": -1}, "not in valid range [0, inf)"),
        (
            PREEMPTION,
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            "cannot be zero at the same time as minCandidateNodesAbsolute",
        ),
        (BINDING, {"bindTimeoutSeconds": -1}, "bindTimeoutSeconds"),
    ],
)
def test_arguments_that_are_not_valid_are_refused(
    name: str, args: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_plugin(name, args)


def hint(plugin: Any, number: int, pod: Any, before: Node | None, after: Node | None) -> str:
    snapshot = make_cache().snapshot(0.0)
    answer = plugin.points().events[number].hint(pod, before, after, snapshot)
    assert isinstance(answer, QueueingHint)
    return answer.value


def test_a_node_wakes_a_pod_only_if_it_grew_enough() -> None:
    plugin, pod = NodeResourcesFit(), make_pod(requests={"cpu": "2"})
    small = make_node("a", {"cpu": "1", "memory": "1Gi", "pods": "9"})
    big = make_node("a", {"cpu": "4", "memory": "1Gi", "pods": "9"})
    memory = make_node("a", {"cpu": "4", "memory": "2Gi", "pods": "9"})
    assert hint(plugin, 1, pod, None, small) == "Skip"
    assert hint(plugin, 1, pod, None, big) == "Queue"
    assert hint(plugin, 1, pod, small, big) == "Queue"
    assert hint(plugin, 1, pod, big, memory) == "Skip"
    broken = make_node("a", {"cpu": "lots"})
    assert hint(plugin, 1, pod, None, broken) == "Queue"
