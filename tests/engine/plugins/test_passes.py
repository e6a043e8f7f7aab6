"""Every plugin answers the same about all rows, some rows and one row, before and after changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.framework.interface import Plugin, Points, PreFilterResult, PreScoreResult
from engine.framework.snapshot import Rows, Snapshot
from engine.framework.status import Code
from engine.objects import Node
from engine.plugins.registry import make_plugin
from engine.pods.podinfo import PodInfo
from tests.builders import Cache, default_plugins
from tests.effort import examples
from tests.engine.plugins.builders import make_cache, make_node, make_pod

CPU = st.sampled_from(["0", "1m", "100m", "333m", "1", "1500m", "3", "16"])
MEMORY = st.sampled_from(["0", "1", "128Mi", "1Gi", "1G", "7Gi", "1Ei", "3Ei"])
LABELS = st.dictionaries(
    st.sampled_from(["zone", "disk", "gen"]),
    st.sampled_from(["a", "b", "1", "2", "9007199254740993", "-5"]),
)
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["k", "l"]),
            "value": st.sampled_from(["", "v"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        }
    ),
    max_size=2,
)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["k", "l", ""]),
            "operator": st.sampled_from(["Exists", "Equal", "Gt"]),
            "value": st.sampled_from(["", "v"]),
            "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule"]),
        },
    ),
    max_size=2,
)
EXPRESSIONS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["zone", "disk", "gen", "bad key"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        "values": st.lists(st.sampled_from(["a", "b", "1", "9007199254740992"]), max_size=2),
    }
)
TERMS = st.fixed_dictionaries({"matchExpressions": st.lists(EXPRESSIONS, max_size=2)})


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    allocatable = {"cpu": draw(CPU), "memory": draw(MEMORY), "pods": draw(st.sampled_from("019"))}
    if draw(st.booleans()):
        allocatable["example.com/gpu"] = draw(st.sampled_from("012"))
    if draw(st.integers(0, 5)) == 0:
        del allocatable["cpu"]
    cordoned = draw(st.booleans())
    return make_node(name, allocatable, draw(LABELS), draw(TAINTS), cordoned)


@st.composite
def pods(draw: st.DrawFn, name: str) -> PodInfo:
    requests: dict[str, Any] = {"cpu": draw(CPU), "memory": draw(MEMORY)}
    if draw(st.booleans()):
        requests["example.com/gpu"] = draw(st.sampled_from("01"))
    required = {"nodeSelectorTerms": draw(st.lists(TERMS, max_size=2))}
    preferred = [{"weight": 7, "preference": term} for term in draw(st.lists(TERMS, max_size=2))]
    node_affinity = {}
    if draw(st.booleans()):
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
    if draw(st.booleans()):
        node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return make_pod(
        name,
        requests,
        tolerations=draw(TOLERATIONS),
        nodeSelector=draw(st.one_of(st.just({}), LABELS)),
        affinity={"nodeAffinity": node_affinity},
        nodeName=draw(st.sampled_from(["", "", "", "n1", "gone"])),
    )


def verdicts(points: Points, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> list[object]:
    """Of each row None or its status."""
    asked = np.arange(snapshot.nodes.size)[rows]
    result = PreFilterResult() if points.pre_filter is None else points.pre_filter(pod, snapshot)
    answers: list[object] = [None] * len(asked)
    if result.status.code is Code.SKIP or points.filter is None or not result.rejects:
        return answers
    found = points.filter(result.state, pod, snapshot, rows)
    for status, positions in found.groups():
        for position in positions:
            assert answers[position] is None
            answers[position] = status
    passed = np.ones(len(asked), dtype=np.bool_) if found.passed is None else found.passed
    assert [answer is None for answer in answers] == passed.tolist()
    return answers


def raw(points: Points, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> list[float]:
    asked = PreScoreResult() if points.pre_score is None else points.pre_score(pod, snapshot)
    if not asked.status.ok or points.score is None:
        return []
    scores = points.score(asked.state, pod, snapshot, rows)
    assert scores is not None
    assert scores.dtype == np.float64
    return scores.tolist()


def agree(plugin: Plugin, pod: PodInfo, snapshot: Snapshot) -> None:
    size = snapshot.nodes.size
    everyone, rows = slice(0, size), list(range(size))
    some = [row for row in rows for _ in range(9)]  # more than a handful
    points = plugin.points()
    for ask in (verdicts, raw):
        full = ask(points, pod, snapshot, everyone)
        many = ask(points, pod, snapshot, np.array(some, dtype=np.intp))
        ones = [a for row in rows for a in ask(points, pod, snapshot, np.array([row]))]
        assert many[::9] == full
        assert ones == full


STRATEGIES: tuple[Mapping[str, Any], ...] = (
    {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}, {"name": "memory"}]},
    {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu"}, {"name": "example.com/gpu", "weight": 2}],
        "requestedToCapacityRatio": {
            "shape": [{"utilization": 20, "score": 9}, {"utilization": 90, "score": 0}]
        },
    },
)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_all_rows_and_single_rows_get_the_same_answer(data: st.DataObject) -> None:
    plugins: list[Any] = [weighted.plugin for weighted in default_plugins()]
    for strategy in STRATEGIES:
        plugins.append(make_plugin("NodeResourcesFit", {"scoringStrategy": strategy}))
    three = [{"name": name} for name in ("cpu", "memory", "example.com/gpu")]
    plugins.append(make_plugin("NodeResourcesBalancedAllocation", {"resources": three}))
    cache = make_cache(*[data.draw(nodes(f"n{i}")) for i in range(data.draw(st.integers(1, 5)))])
    pod = data.draw(pods("new"))
    for step in range(3):
        snapshot = cache.snapshot(0.0)
        for plugin in plugins:
            agree(plugin, pod, snapshot)
        change(data, cache, step)


def change(data: st.DataObject, cache: Cache, step: int) -> None:
    name = f"n{data.draw(st.integers(0, 6))}"
    match data.draw(st.sampled_from(["bind", "node", "remove"])):
        case "bind":
            cache.add_pod(data.draw(pods(f"p{step}")), name)
        case "node":
            cache.add_node(data.draw(nodes(name)))
        case _:
            cache.remove_node(name)


@pytest.mark.parametrize("weighted", default_plugins(), ids=lambda w: w.plugin.name)
def test_equal_pods_have_equal_class_keys_in_every_process(weighted: Any) -> None:
    cache = make_cache(make_node("n1"))
    spec: dict[str, Any] = {
        "requests": {"cpu": "1"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "nodeSelector": {"a": "b", "c": "d"},
        "affinity": {"nodeAffinity": {}},
    }
    other = {**spec, "nodeSelector": {"c": "d", "a": "b"}}
    keys = [
        weighted.plugin.points().class_key(make_pod("x", **s), cache.snapshot(0.0))
        for s in (spec, other)
    ]
    assert keys[0] == keys[1]
    assert hash(keys[0]) == hash(keys[1])
    assert " object at 0x" not in repr(keys[0])
