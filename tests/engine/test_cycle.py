"""The cycle: what the memo remembers never changes a decision, and ties fall the same way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cycle import decide, feasible
from engine.framework.interface import (
    ALL_PASS,
    Normalization,
    Points,
    PreFilterResult,
    PreScoreResult,
    Verdicts,
)
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.framework.status import Code, unresolvable, unschedulable
from tests.builders import Cache, default_plugins, make_node, make_pod, scored
from tests.effort import examples

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def cluster(count=5, **how):
    cache = Cache()
    for index in range(count):
        cache.add_node(make_node(f"n{index}", **how))
    return cache


def test_ties_fall_by_the_class_and_the_seed_not_by_row_order():
    forward, backward = Cache(), Cache()
    names = [f"n{index}" for index in range(20)]
    for name in names:
        forward.add_node(make_node(name))
    for name in reversed(names):
        backward.add_node(make_node(name))
    chosen = set()
    for seed in range(12):
        profile = Profile("berth", default_plugins(), seed)
        decisions = [
            decide(make_pod("p"), cache.snapshot(0.0), Framework(profile))
            for cache in (forward, backward)
        ]
        assert decisions[0].feasible == 20
        assert decisions[0].node == decisions[1].node
        chosen.add(decisions[0].node)
    assert len(chosen) > 3, "the seed moves the choice"


def test_a_pod_for_one_node_as_of_a_daemon_set_is_decided_about_without_keys():
    cache = cluster(2, cpu="1")
    cache.add_node(make_node("t", taints=[{"key": "a", "value": "", "effect": "NoSchedule"}]))
    cache.add_node(make_node("c", unschedulable=True))
    cache.add_node(make_node("promised", cpu="1"))
    cache.nominate(make_pod("sooner", cpu="1", priority=1), "promised")
    for label in "ab":
        apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {}}}
        spec = {"affinity": {"podAntiAffinity": {REQUIRED: [apart]}}}
        node = make_node(label, labels={"kubernetes.io/hostname": label})
        cache.add_node(node)
        if label == "a":
            cache.add_pod(make_pod("alone", spec=spec), label)
    framework = Framework(Profile("berth", default_plugins()))
    placed = {}
    for nodes in (["n0"], ["n1"], ["t"], ["c"], ["promised"], ["a"], ["b"], ["gone"], ["t", "b"]):
        fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in nodes]
        terms = {"nodeSelectorTerms": [{"matchFields": [one]} for one in fields]}
        spec = {"affinity": {"nodeAffinity": {REQUIRED: terms}}}
        pod = make_pod("d", cpu="2" if nodes == ["n1"] else "500m", spec=spec)
        snapshot = cache.snapshot(0.0)
        known = framework.class_of(pod, snapshot, whole=False)
        assert (known.keys.column.size == 0) is (len(nodes) == 1 and nodes != ["gone"])
        decision = decide(pod, snapshot, framework)
        asked = feasible(pod, snapshot, framework)  # with keys for all rows
        assert ([decision.node] if decision.node else []) == asked
        assert decision.feasible == len(asked)
        placed["+".join(nodes)] = decision.node
    assert placed == {
        "n0": "n0", "n1": None, "t": None, "c": None, "promised": None, "a": None, "b": "b",
        "gone": None, "t+b": "b",
    }  # fmt: skip


def test_an_empty_cluster_is_said_to_be_empty():
    decision = decide(
        make_pod("p"), Cache().snapshot(0.0), Framework(Profile("berth", default_plugins()))
    )
    assert decision.node is None
    assert decision.fit_error is not None
    assert decision.fit_error.nodes == 0


def test_reasons_are_counted_by_the_first_plugin_that_rejects():
    cache = cluster(2, cpu="1")
    cache.add_node(make_node("t", taints=[{"key": "a", "value": "", "effect": "NoSchedule"}]))
    cache.add_node(make_node("c", unschedulable=True))
    decision = decide(
        make_pod("p", cpu="2"), cache.snapshot(0.0), Framework(Profile("berth", default_plugins()))
    )
    assert decision.fit_error is not None
    assert decision.fit_error.message() == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s),"
        " 1 node(s) were unschedulable, 2 Insufficient cpu."
    )
    assert decision.fit_error.plugins == {
        "NodeUnschedulable",
        "TaintToleration",
        "NodeResourcesFit",
    }


DEVICES = [f"example.com/d{number:02}" for number in range(40)]


def asking(devices):
    requests = dict.fromkeys(devices, "1")
    return {"containers": [{"name": "main", "resources": {"requests": requests}}]}


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sets(st.sampled_from(DEVICES)), st.booleans()), min_size=1))
def test_a_node_is_told_each_shortage_and_whether_it_could_ever_have_room(nodes):
    cache = Cache()
    for number, (short, never) in enumerate(nodes):
        there = {device: "0" if never and device in short else "1" for device in DEVICES}
        cache.add_node(make_node(f"n{number}", **there))
        if not never:
            cache.add_pod(make_pod(f"held{number}", spec=asking(short)), f"n{number}")
    framework = Framework(Profile("berth", default_plugins()))
    found = framework.rejections(make_pod("p", spec=asking(DEVICES)), cache.snapshot(0.0))
    told = {row: one.status for one in found.each for row in one.rows.tolist()}
    assert told == {
        number: (unresolvable if never else unschedulable)(
            *[f"Insufficient {device}" for device in sorted(short)]
        )
        for number, (short, never) in enumerate(nodes)
        if short
    }


class Faulty:
    """A plugin that can be told what to do at each point."""

    def __init__(self, name="Faulty", **answers):
        self.name = name
        self.answers = answers
        self.asked = []

    def points(self):
        return Points(
            class_key=self.class_key,
            pre_filter=self.pre_filter,
            filter=self.filter,
            pre_score=self.pre_score,
            score=self.score,
            normalize=self.normalize,
        )

    def class_key(self, pod, snapshot):
        return self._answer("class_key", pod.name)

    def version(self, snapshot):
        return self._answer("version", 0)

    def _answer(self, point, otherwise):
        answer = self.answers.get(point, otherwise)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pre_filter(self, pod, snapshot):
        return self._answer("pre_filter", PreFilterResult(version=self.version))

    def filter(self, state, pod, snapshot, rows):
        self.asked.append(rows)
        return self._answer("filter", ALL_PASS)

    def pre_score(self, pod, snapshot):
        how = Normalization.CUSTOM if "normalize" in self.answers else Normalization.NONE
        return self._answer("pre_score", PreScoreResult(normalization=how))

    def score(self, state, pod, snapshot, rows):
        return self._answer("score", np.arange(200.0)[rows] % 5)

    def normalize(self, state, scores):
        return self._answer("normalize", scores)


def with_plugin(plugin, faults=None):
    profile = Profile("berth", (*default_plugins(), Weighted(plugin, 1000.0)))
    return Framework(profile, on_fault=None if faults is None else faults.append)


@pytest.mark.parametrize(
    "point", ["class_key", "version", "pre_filter", "filter", "pre_score", "score", "normalize"]
)
def test_a_plugin_that_raises_fails_the_pod_and_not_the_scheduler(point):
    faults = []
    framework = with_plugin(Faulty(**{point: ZeroDivisionError("oops")}), faults)
    decision = decide(make_pod("p"), cluster().snapshot(0.0), framework)
    assert decision.node is None
    assert decision.error is not None
    assert decision.error.code is Code.ERROR
    assert decision.error.plugin == "Faulty"
    assert "ZeroDivisionError: oops" in decision.error.reasons[0]
    assert len(faults) == 1


def test_a_pre_filter_may_leave_few_nodes_and_only_they_are_asked():
    only = Faulty("Only", pre_filter=PreFilterResult(rows=np.array([3])))
    later = Faulty("Later")
    profile = Profile("berth", (*default_plugins(), Weighted(only), Weighted(later)))
    decision = decide(make_pod("p"), cluster().snapshot(0.0), Framework(profile))
    assert decision.node == "n3"
    assert [rows.tolist() for rows in later.asked] == [[3]]


def test_a_pre_filter_may_end_the_cycle():
    plugin = Faulty(pre_filter=PreFilterResult(unschedulable("not today")))
    decision = decide(make_pod("p"), cluster().snapshot(0.0), with_plugin(plugin))
    assert decision.fit_error is not None
    assert decision.fit_error.message() == "0/5 nodes are available: not today."
    assert decision.fit_error.plugins == {"Faulty"}


def test_only_changed_rows_are_asked_again():
    plugin = Faulty(filter=Verdicts(None, tuple))
    framework = with_plugin(plugin)
    cache = cluster(200)
    plugin.answers["score"] = None
    pod = make_pod("p")
    decide(pod, cache.snapshot(0.0), framework)
    cache.add_pod(make_pod("other", cpu="1", node="n7"), "n7")
    decide(pod, cache.snapshot(0.0), framework)
    assert plugin.asked[0] == slice(0, 200)
    assert plugin.asked[1].tolist() == [cache.nodes.row("n7")]


def test_a_node_that_frees_up_is_seen_even_if_its_raw_score_was_never_among_the_feasible():
    """The worst node by a normalised score was full when that score was normalised."""
    cache, framework = Cache(), Framework(Profile("berth", default_plugins()))
    taints = [{"key": key, "value": "", "effect": "PreferNoSchedule"} for key in "abcdefgh"]
    cache.add_node(make_node("worst", cpu="2", taints=taints))
    cache.add_node(make_node("better", cpu="2", taints=taints[:1]))
    cache.add_pod(make_pod("there", cpu="2", node="worst"), "worst")
    known = [decide(make_pod("p", cpu="1"), cache.snapshot(0.0), framework).feasible]
    cache.remove_pod(make_pod("there").uid)
    known.append(decide(make_pod("p", cpu="1"), cache.snapshot(0.0), framework).feasible)
    assert known == [1, 2]


def test_a_plugin_that_abstains_has_no_say():
    framework, snapshot = with_plugin(Faulty(score=None)), cluster().snapshot(0.0)
    decision = decide(make_pod("p"), snapshot, framework)
    assert decision.node is not None
    assert "Faulty" not in scored(decision, snapshot, framework)[1]


def test_exactly_one_plugin_sorts_the_queue():
    with pytest.raises(ValueError, match="exactly one plugin that sorts the queue; got none"):
        Framework(Profile("berth", ()))
