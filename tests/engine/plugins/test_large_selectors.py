"""What one pod's terms cost is bounded, whatever it asks for."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cache.pods import PodTable
from engine.cycle import decide
from engine.framework.classupdater import _Asking
from engine.framework.events import QueueingHint
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.framework.snapshot import NodeColumns
from engine.objects import Namespace, ObjectMeta, OwnerReference, from_builtins
from engine.objects.workloads import ReplicaSet
from engine.plugins import node_selector
from engine.plugins.node_affinity import NodeAffinityPlugin
from engine.plugins.node_resources_fit import MOST_UNKNOWN
from engine.plugins.node_selector import (
    MOST_REQUIREMENTS,
    eligibility_key,
    eligible,
)
from engine.plugins.pod_topology_spread import default_selector
from engine.plugins.taint_toleration import TaintToleration
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.pods.selectors import Requirement, Selector
from tests.builders import Cache, changed, default_plugins, make_node, make_pod

ROWS = slice(None)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def terms(*alternatives: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"matchExpressions": each} for each in alternatives]


def affine(*alternatives: list[dict[str, Any]]) -> PodInfo:
    required = {"nodeSelectorTerms": terms(*alternatives)}
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return make_pod("p", spec={"affinity": node})


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    for i in range(8):
        zone = {"zone": f"z{i % 3}"} if i % 4 else {}
        cache.add_node(make_node(f"n{i}", labels={"cores": str(i), **zone}))
    return cache


def test_of_thousands_of_resources_that_no_node_has_some_say_no(cache, monkeypatch) -> None:
    asked, real = set(), NodeColumns.allocatable
    monkeypatch.setattr(
        NodeColumns, "allocatable", lambda nodes, name: asked.add(name) or real(nodes, name)
    )
    framework = Framework(Profile("berth", default_plugins()))
    names = {f"example.com/r{number}": "1" for number in range(1_000)}
    pod = make_pod("p", spec={"containers": [{"resources": {"requests": names}}]})
    error = decide(pod, cache.snapshot(0.0), framework).fit_error
    assert error is not None
    assert "8 Insufficient example.com/r0" in error.message()
    assert len(asked) <= MOST_UNKNOWN + 8
    for number in range(2):  # what a node has is looked at, however much that is
        cache.add_node(make_node(f"n{number}", **dict(list(names.items())[number:])))
    assert decide(pod, cache.snapshot(0.0), framework).node == "n0"


def test_an_owner_that_selects_by_thousands_of_requirements_spreads_no_pods(cache) -> None:
    for count, spreads in ((MOST_REQUIREMENTS, True), (MOST_REQUIREMENTS + 1, False)):
        odd = [expression(f"k{number}", "DoesNotExist") for number in range(count)]
        meta = {"name": "rs", "namespace": "default"}
        owner = {"metadata": meta, "spec": {"selector": {"matchExpressions": odd}}}
        cache.set_object(from_builtins(ReplicaSet, owner))
        pod = make_pod("p").pod
        by = [OwnerReference("apps/v1", "ReplicaSet", "rs", controller=True)]
        own = make_pod_info(changed(pod, metadata={"owner_references": by}))
        selected = default_selector(own, cache.snapshot(0.0))
        assert selected.empty is not spreads


def test_terms_that_say_the_same_are_asked_once(cache: Cache, monkeypatch) -> None:
    asked = 0
    real = node_selector._meets

    def counted(*args):
        nonlocal asked
        asked += 1
        return real(*args)

    monkeypatch.setattr(node_selector, "_meets", counted)
    same = [[expression("cores", "Gt", "2"), expression("cores", "Lt", "4")] * 2] * 3_000
    flawed = [[expression("cores", "Gt", "x")]] * 3_000
    pod = affine(*same, *flawed, [expression("zone", "Exists")])
    plugin, snapshot = NodeAffinityPlugin().points(), cache.snapshot(0.0)
    for _ in range(2):
        assert plugin.pre_filter(pod, snapshot).status.ok
        passed = plugin.filter(None, pod, snapshot, ROWS).passed
        assert passed.tolist() == [False, True, True, True, False, True, True, True]
    assert asked <= 2 * 3
    assert len(plugin.class_key(pod, snapshot)) <= 1024


def test_a_pod_with_too_many_terms_is_told_so_and_costs_nothing(cache: Cache) -> None:
    many = [[expression("cores", "Gt", str(i)), expression("zone", "Exists")] for i in range(300)]
    pod, plugin = affine(*many), NodeAffinityPlugin().points()
    snapshot = cache.snapshot(0.0)
    status = plugin.pre_filter(pod, snapshot).status
    assert status.rejected
    assert status.reasons == ("more than 500 different requirements of node affinity",)
    (registered,) = plugin.events
    assert registered.hint(pod, None, make_node("new"), snapshot) is QueueingHint.SKIP
    assert not eligible(eligibility_key(pod), snapshot.nodes).any()
    weighted = [{"weight": 1, "preference": term} for term in terms(*many)]
    node = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    status = plugin.pre_score(make_pod("q", spec={"affinity": node}), snapshot).status
    assert status.reasons == ("more than 500 different requirements of node affinity",)


def test_thousands_of_tolerations_leave_little_behind(cache: Cache) -> None:
    cache.add_node(make_node("n1", taints=[{"key": "k40", "effect": "NoSchedule"}]))
    cache.add_node(make_node("n2", taints=[{"key": "no", "effect": "NoSchedule"}]))
    wanted = [{"key": f"k{i}", "operator": "Exists"} for i in range(5_000)]
    points, snapshot = TaintToleration().points(), cache.snapshot(0.0)
    pod = make_pod("p", spec={"tolerations": wanted})
    passed = points.filter(None, pod, snapshot, ROWS).passed
    assert passed.tolist() == [i != 2 for i in range(8)]
    assert len(points.class_key(pod, snapshot)) <= 32


def test_the_terms_of_a_pod_are_joined_once(cache: Cache, monkeypatch) -> None:
    hashed, count = [0], Requirement.__hash__

    def counted(own: Requirement) -> int:
        hashed[0] += 1
        return count(own)

    monkeypatch.setattr(Requirement, "__hash__", counted, raising=False)
    asked = [{"matchExpressions": [expression(f"k{i}", "In", "a", "b")]} for i in range(100)]
    near = [{"topologyKey": "zone", "labelSelector": one} for one in asked]
    spec = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near}}}
    framework = Framework(Profile("berth", default_plugins()))
    assert decide(make_pod("p", spec=spec), cache.snapshot(0.0), framework).node is None
    assert hashed[0] < 2000


def test_a_namespace_that_comes_is_looked_at_and_no_other_and_no_class_is_asked_anew(
    cache: Cache, monkeypatch
) -> None:
    looked: list[object] = []
    real, counted, fill = Selector.matches, PodTable.counted, _Asking.fill
    monkeypatch.setattr(Selector, "matches", lambda *of: (looked.append(of[1]), real(*of))[1])
    for i in range(50):
        cache.set_namespace(Namespace(ObjectMeta(name=f"ns-{i}", labels={"team": f"{i}"})))
    of_teams = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    labels = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
    far = [{**labels, "namespaceSelector": of_teams}]
    spec = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": far}}
    }
    framework = Framework(Profile("berth", default_plugins()))

    def comes(name: str, space: str) -> int:
        pod = make_pod(name, namespace=space, labels={"app": "x"}, spec=spec)
        decision = decide(pod, cache.snapshot(0.0), framework)
        cache.assume(pod, str(decision.node))
        return decision.feasible

    # Six nodes are in three zones.
    assert [comes("p", "ns-0"), comes("like-p", "ns-1")] == [8, 6]
    asked: list[object] = []
    monkeypatch.setattr(
        PodTable, "counted", lambda *of, **how: asked.append(of[1]) or counted(*of, **how)
    )
    monkeypatch.setattr(_Asking, "fill", lambda *of: asked.append(of) or fill(*of))
    cache.set_namespace(Namespace(ObjectMeta(name="one-more", labels={"team": "new"})))
    looked.clear()
    assert [comes("q", "one-more"), comes("like-q", "ns-2")] == [4, 2]
    assert asked == [("one-more",)]
    assert {"team": "3"} not in looked
