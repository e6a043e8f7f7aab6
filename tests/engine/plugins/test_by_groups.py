"""Spread and affinity: by groups, by rows and without what was kept before, always the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.cache import podsets
from engine.cycle import decide
from engine.framework import groupedchoice
from engine.framework.interface import Verdicts
from engine.framework.profile import Profile
from engine.framework.runtime import Framework, Unfit
from engine.framework.status import Status
from engine.objects import Namespace, from_builtins
from engine.objects.workloads import Service
from engine.plugins import groups
from engine.plugins.registry import make_plugin
from engine.pods.podinfo import PodInfo, make_pod_info
from tests.builders import Cache, default_plugins, make_node, make_pod, pod_object
from tests.effort import examples

LEADERS = groupedchoice.LEADERS
FEW_DOMAINS, NODES_A_DOMAIN = groups.FEW_DOMAINS, groups.NODES_A_DOMAIN
NODES = [f"n{i}" for i in range(6)]
PODS = [f"p{i}" for i in range(8)]
OTHERS = ["NodeAffinity", "TaintToleration", "NodeResourcesFit"]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
keys = st.sampled_from([HOST, ZONE, "rack"])
labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from("xy"), max_size=2)
selectors = st.one_of(
    st.none(),
    st.builds(lambda some: {"matchLabels": some}, labels),
    st.just({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
)
constraints = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 2),
        "topologyKey": keys,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": selectors,
    },
    optional={
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Ignore", "Honor"]),
        "nodeTaintsPolicy": st.sampled_from(["Ignore", "Honor"]),
        "matchLabelKeys": st.just(["app"]),
    },
)
terms = st.fixed_dictionaries(
    {"topologyKey": keys, "labelSelector": selectors},
    optional={
        "namespaces": st.just(["other"]),
        "namespaceSelector": st.sampled_from([{}, {"matchLabels": {"env": "prod"}}]),
    },
)
weighted = st.fixed_dictionaries({"weight": st.integers(1, 100), "podAffinityTerm": terms})
sides = st.fixed_dictionaries(
    {}, optional={REQUIRED: st.lists(terms, max_size=2), PREFERRED: st.lists(weighted, max_size=2)}
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "topologySpreadConstraints": st.lists(constraints, max_size=3),
        "affinity": st.fixed_dictionaries(
            {}, optional={"podAffinity": sides, "podAntiAffinity": sides}
        ),
        "nodeSelector": st.just({"rack": "x"}),
    },
)
pods = st.fixed_dictionaries(
    {"labels": labels, "namespace": st.sampled_from(["default", "other"]), "spec": specs}
)


class GroupsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        spread, affinity = make_plugin("PodTopologySpread"), make_plugin("InterPodAffinity")
        self.points: dict[str, Any] = {"Spread": spread.points(), "Affinity": affinity.points()}
        self.assumed = 0
        self.bound: dict[str, PodInfo] = {}
        self.waiting = [make_pod("w", labels={"app": "x"})]

    @initialize(
        sparse=st.booleans(),
        leaders=st.sampled_from([1, 2, LEADERS]),
        off=st.sets(st.sampled_from(OTHERS)),
    )
    def groups_are_few_or_many(self, sparse, leaders, off):
        """Of domains or of counts; what others reject may be left out."""
        groups.FEW_DOMAINS = 0 if sparse else FEW_DOMAINS
        groups.NODES_A_DOMAIN = 1_000 if sparse else NODES_A_DOMAIN
        groupedchoice.LEADERS = leaders
        plugins = tuple(one for one in default_plugins() if one.plugin.name not in off)
        self.framework = Framework(Profile("p", plugins), on_fault=fail)

    def teardown(self):
        self.groups_are_few_or_many(False, LEADERS, ())

    @rule(
        name=st.sampled_from(NODES),
        rack=st.sampled_from(["x", "y", None]),
        zone=st.sampled_from(["a", "b", "", None]),
        host=st.sampled_from([None, "shared", "own", "own", "own"]),
        tainted=st.booleans(),
    )
    def node_comes(self, name, rack, zone, host, tainted):
        given = {"rack": rack, ZONE: zone, HOST: name if host == "own" else host}
        found = {key: value for key, value in given.items() if value is not None}
        taints = [{"key": "k", "effect": "PreferNoSchedule"}] if tainted else []
        self.cache.add_node(make_node(name, labels=found, taints=taints, pods="5"))

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name):
        self.cache.remove_node(name)

    @rule(name=st.sampled_from(PODS), node=st.sampled_from(NODES), how=pods, going=st.booleans())
    def pod_is_bound(self, name, node, how, going):
        deleted = "2026-01-01T00:00:00Z" if going else None
        pod = make_pod(name, uid=name, node=node, deleted=deleted, **how)
        self.cache.add_pod(pod, node)
        self.bound[name] = pod

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name):
        self.cache.remove_pod(name)
        self.bound.pop(name, None)

    @rule(env=st.sampled_from(["prod", "test"]), name=st.sampled_from(["default", "other"]))
    def namespace_changes(self, env, name):
        value = {"metadata": {"name": name, "labels": {"env": env}}}
        self.cache.set_namespace(from_builtins(Namespace, value))

    @rule(selector=labels)
    def service_changes(self, selector):
        value = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": selector}}
        self.cache.set_object(from_builtins(Service, value))

    @rule(how=pods)
    def pod_waits(self, how):
        self.waiting = [make_pod("w", **how), *self.waiting[:3]]

    @rule(at=st.integers(0, 3))
    def pod_is_assumed(self, at):
        pod = self.waiting[at % len(self.waiting)]
        decision = decide(pod, self.cache.snapshot(0.0), self.framework)
        if decision.node is not None:
            self.assumed += 1
            name = f"a{self.assumed}"
            value = pod_object(
                name, uid=name, namespace=pod.namespace, labels=pod.pod.metadata.labels
            )
            self.cache.assume(make_pod_info(value), decision.node)
            self.bound[name] = make_pod_info(value)

    @invariant()
    def groups_say_what_rows_say(self):
        snapshot = self.cache.snapshot(0.0)
        for pod in self.waiting:
            decision = decide(pod, snapshot, self.framework)
            fresh = Framework(self.framework.profile, on_fault=fail, memo_bytes=0)
            try:
                known = fresh.class_of(pod, snapshot)
            except Unfit:
                assert decision.fit_error is not None
                continue
            candidates = fresh.candidates(known, pod, snapshot)
            assert decision.feasible == len(candidates)
            if not len(candidates):
                assert decision.fit_error is not None
                continue
            best = fresh.keys(known, pod, snapshot, candidates)
            assert decision.row == candidates[best.argmax()]
            if len(candidates) > 1:
                scores = fresh.scores(pod, snapshot, candidates)
                totals = sum(normal * weight for _, weight, _, normal in scores)
                assert decision.total == totals[best.argmax()] == totals.max()

    @invariant()
    def a_pod_taken_off_counts_as_if_it_were_not_there(self):
        snapshot = self.cache.snapshot(0.0)
        everywhere = slice(0, snapshot.nodes.size)
        for gone in list(self.bound.values())[:2]:
            row = snapshot.nodes.row(self.cache.node_of(gone.uid) or "")
            if row < 0 or gone.terminating:
                continue
            without = self.copy(gone).snapshot(0.0)
            for plugin, pod in itertools.product(("Spread", "Affinity"), self.waiting):
                points = self.points[plugin]
                state = points.pre_filter(pod, snapshot).state
                if state is None or counts_everything(plugin, state):
                    continue
                less = state.with_pod(gone, snapshot, row, -1)
                asked = points.pre_filter(pod, without)
                want = Verdicts(None, tuple)
                if asked.status.ok:
                    want = points.filter(asked.state, pod, without, everywhere)
                got = points.filter(less, pod, snapshot, everywhere)
                assert reasons(got, snapshot) == reasons(want, without)
                back = less.with_pod(gone, snapshot, row, 1)
                again = points.filter(back, pod, snapshot, everywhere)
                same = points.filter(state, pod, snapshot, everywhere)
                assert reasons(again, snapshot) == reasons(same, snapshot)

    def copy(self, gone: PodInfo) -> Cache:
        """The cluster without one pod, in rows of the same order."""
        cache, nodes = Cache(), self.cache.nodes
        for row in range(nodes.size):
            there = bool(nodes.present[row])
            cache.add_node(nodes.node(row) if there else make_node(f"gone{row}"))
        for row in np.flatnonzero(~nodes.present).tolist():
            cache.remove_node(f"gone{row}")
        for namespace in self.cache.namespaces.values():
            cache.set_namespace(namespace)
        for pod in self.bound.values():
            node = self.cache.node_of(pod.uid)
            if pod is not gone and node is not None:
                cache.add_pod(pod, node)
        return cache


def counts_everything(plugin: str, state: Any) -> bool:
    """An empty selector counts no pod there is, but kube-scheduler takes off those that go."""
    return plugin == "Spread" and any(c.selector.empty for c in state._spread.hard)


def reasons(verdicts: Verdicts, snapshot: Any) -> dict[str, Status]:
    return {
        snapshot.nodes.name(int(position)): status
        for status, positions in verdicts.groups()
        for position in positions
        if snapshot.nodes.present[position]
    }


def fail(fault: Exception) -> None:
    raise AssertionError("a plugin raised") from fault


GroupsMachine.TestCase.settings = settings(stateful_step_count=20, max_examples=examples(40))
TestGroups = GroupsMachine.TestCase


def test_a_soft_spread_weighs_by_how_many_domains_there_are_however_many():
    """More than are worth a group each: what counts is how many of them have feasible nodes."""
    cache = Cache()
    for number in range(150):
        rack, zone = f"r{number // 2}", "abc"[number % 3]
        cache.add_node(make_node(f"n{number}", labels={"rack": rack, ZONE: zone}))
        if number % 7:
            pod = make_pod(f"p{number}", uid=f"p{number}", labels={"app": "x"})
            cache.add_pod(pod, f"n{number * number % 150}")
    soft = {"whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "x"}}}
    each = [{"maxSkew": 1, "topologyKey": key, **soft} for key in ("rack", ZONE)]
    near = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": near}]}}
    spec = {"topologySpreadConstraints": each, "affinity": affinity}
    profile, everywhere = Profile("p", default_plugins()), np.arange(150)
    kept, fresh = (Framework(profile, on_fault=fail), Framework(profile, memo_bytes=0))
    for number in range(30):
        pod = make_pod(f"w{number}", cpu="500m", labels={"app": "x"}, spec=spec)
        snapshot = cache.snapshot(0.0)
        decision = decide(pod, snapshot, kept)
        scores = fresh.scores(pod, snapshot, everywhere)
        totals = sum(normal * weight for _, weight, _, normal in scores)
        assert (decision.total, totals[decision.row]) == (totals.max(), totals.max())
        cache.assume(pod, decision.node)


def test_what_classes_share_is_noticed_by_each_of_them():
    cache = Cache()
    cache.add_node(make_node("a", labels={"rack": "x"}))
    cache.add_node(make_node("b", labels={"rack": "x"}, memory="4Gi"))
    framework = Framework(Profile("p", default_plugins()), on_fault=fail)
    spec = {"nodeSelector": {"rack": "x"}}
    classes = [make_pod(f"p{i}", cpu=f"{i}", spec=spec) for i in range(3)]

    def chosen() -> list[str | None]:
        return [decide(pod, cache.snapshot(0.0), framework).node for pod in classes]

    assert chosen() == ["a", "a", "a"]
    taints = [{"key": "k", "effect": "PreferNoSchedule"}]
    cache.add_node(make_node("a", labels={"rack": "x"}, taints=taints))
    assert chosen() == ["b", "b", "b"], "all nodes had the same taints until now"
    cache.add_node(make_node("b", labels={"rack": "y"}, memory="4Gi"))
    assert chosen() == ["a", "a", "a"], "all nodes had matched until now"


def test_a_node_that_does_not_count_may_still_lose_its_domain():
    """Its verdict follows its own labels, though no skew does."""
    cache = Cache()
    cache.add_node(make_node("a", labels={ZONE: "1", "rack": "x"}))
    cache.add_node(make_node("b", labels={ZONE: "2"}))
    but = ("NodeAffinity", "TaintToleration")
    alone = tuple(one for one in default_plugins() if one.plugin.name not in but)
    framework = Framework(Profile("p", alone), on_fault=fail)
    hard = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spec = {"nodeSelector": {"rack": "x"}, "topologySpreadConstraints": [hard]}
    pod = make_pod("p", spec=spec)
    assert decide(pod, cache.snapshot(0.0), framework).feasible == 2
    cache.add_node(make_node("b"))
    assert decide(pod, cache.snapshot(0.0), framework).feasible == 1


def test_counts_that_are_no_longer_kept_are_noticed_however_many_they_are(monkeypatch):
    monkeypatch.setattr(podsets, "MOST_SETS", 4)
    cache = Cache()
    for number in range(2):
        name = f"n{number}"
        cache.add_node(make_node(name, labels=dict.fromkeys("abcd", name)))
    framework = Framework(Profile("p", default_plugins()), on_fault=fail)

    def asked(apps: str) -> int:
        """How many nodes a pod may use whose apps are each spread by a label of its own."""
        hard = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        each = [(app, {"matchLabels": {"app": app}}) for app in apps]
        spread = [{**hard, "topologyKey": min(app, "d"), "labelSelector": of} for app, of in each]
        spec = {"topologySpreadConstraints": spread}
        pod = make_pod(f"p-{apps}", labels={"app": apps[-1]}, spec=spec)
        return decide(pod, cache.snapshot(0.0), framework).feasible

    assert asked("abcd") == 2
    for apps in "axyz":  # of four that were counted only that of `a` still is
        asked(apps)
    cache.add_pod(make_pod("there", labels={"app": "d"}), "n0")
    assert asked("abcd") == 1
