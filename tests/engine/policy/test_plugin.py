"""Policies in the cycle, through the real compiler: what they decide, say, read and wake."""

from __future__ import annotations

import numpy as np
import pytest

from dsl.schema import FIELDS
from engine.cycle import decide
from engine.explain.scores import rules_of
from engine.framework.decision import Placed
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.status import Code
from engine.policy.events import events_of_reads
from tests.builders import Cache, make_node, make_pod, scored
from tests.engine.policy.builders import NOW, Samples, chain, policies

FILTER = "filter: pod.name contains nginx -> node.label test=test\n"
SCORE = "score: 100 - bandwidth/max*100\n"
EVEN = {"a": 1.0, "b": 1.0, "c": 1.0}


def three_nodes():
    cache = Cache()
    for name, labels in (("a", {"test": "test"}), ("b", {}), ("c", {"test": "other"})):
        cache.add_node(make_node(name, labels=labels))
    return cache


class Cluster:
    """A cache, metrics and the chain of some policies."""

    def __init__(self, files, cache=None, **how):
        self.cache = three_nodes() if cache is None else cache
        self.framework = chain({"p.policy": files} if isinstance(files, str) else files, **how)
        self.samples = Samples(self.cache).serve(self.framework)
        self.now = NOW

    def snapshot(self):
        return self.cache.snapshot(self.now, self.samples.view(self.cache, self.now))

    def decide(self, pod):
        return decide(pod, self.snapshot(), self.framework)

    def given(self, pod):
        """What each plugin gave the chosen node; see `scored`."""
        snapshot = self.snapshot()
        return scored(decide(pod, snapshot, self.framework), snapshot, self.framework)[1]

    @property
    def policy(self):
        return policies(self.framework)[0]

    def passing(self, pod):
        """The nodes that the policy's filters let the pod on."""
        snapshot = self.snapshot()
        points = self.policy.points()
        nodes = [name for name in "abc" if self.cache.nodes.row(name) >= 0]
        asked = points.pre_filter(pod, snapshot)
        if asked.status.code is Code.SKIP:
            return nodes
        passed = points.filter(asked.state, pod, snapshot, slice(0, snapshot.nodes.size)).passed
        return [n for n in nodes if passed is None or passed[self.cache.nodes.row(n)]]

    def scores(self, pod=None):
        """What the policy gives the nodes a, b, c; None if it abstains."""
        snapshot, pod = self.snapshot(), pod or make_pod("p")
        points = self.policy.points()
        asked = points.pre_score(pod, snapshot)
        if asked.status.code is Code.SKIP:
            return None
        rows = np.array([self.cache.nodes.row(name) for name in "abc"])
        column = points.score(asked.state, pod, snapshot, rows)
        return None if column is None else column.tolist()

    def groups(self, pod):
        """(code, reason) -> nodes, of the policy's rejections."""
        snapshot = self.snapshot()
        state = self.policy.points().pre_filter(pod, snapshot).state
        verdicts = self.policy.points().filter(state, pod, snapshot, slice(0, snapshot.nodes.size))
        return {
            (status.code, *status.reasons): [self.cache.nodes.name(row) for row in positions]
            for status, positions in verdicts.groups()
        }


# ---- the two lines -------------------------------------------------------------------------------


def test_the_two_lines_filter_as_they_read():
    cluster = Cluster(FILTER)
    assert cluster.passing(make_pod("nginx-1")) == ["a"]
    assert cluster.passing(make_pod("redis")) == ["a", "b", "c"]
    decision = cluster.decide(make_pod("nginx-1"))
    assert decision.node == "a"
    assert decision.feasible == 1


@pytest.mark.parametrize(
    ("bandwidth", "scores"),
    [
        ((10, 40, 0), [75, 0, 100]),
        ((0, 0, 0), [100, 100, 100]),
        ((5, 5, 5), [0, 0, 0]),
        ((1, 3, 0), [66.666667, 0, 100]),
    ],
)
def test_the_two_lines_score_as_they_read(bandwidth, scores):
    cluster = Cluster(SCORE)
    cluster.samples.put("bandwidth", dict(zip("abc", bandwidth, strict=True)))
    assert cluster.scores() == scores


def test_the_least_busy_node_wins_and_nginx_stays_where_it_may():
    cluster = Cluster(FILTER + SCORE)
    cluster.samples.put("bandwidth", {"a": 10.0, "b": 40.0, "c": 0.0})
    assert cluster.decide(make_pod("redis")).node == "c"
    assert cluster.decide(make_pod("nginx")).node == "a"


def test_the_maximum_is_that_of_the_nodes_that_are_left():
    cluster = Cluster("filter: not node.label test=other\n" + SCORE)
    cluster.samples.put("bandwidth", {"a": 10.0, "b": 40.0, "c": 400.0})
    assert cluster.given(make_pod("p"))["p"][0] == 75


def test_a_node_without_a_sample_gets_nothing_and_without_any_the_policy_abstains():
    cluster = Cluster(SCORE)
    assert cluster.scores() is None
    assert "p" not in cluster.given(make_pod("p"))
    cluster.samples.put("bandwidth", {"a": 10.0, "b": 40.0})
    assert cluster.scores() == [75, 0, 0]


# ---- several policies ----------------------------------------------------------------------------


def test_policies_come_after_the_plugins_by_order_and_name():
    files = {
        "b.policy": "score: 1\n",
        "a.policy": "score: 1\n",
        "last.policy": "order: 200\nscore: 1\n",
        "first.policy": "order: -5\nscore: 1\n",
    }
    framework = chain(files)
    assert [plugin.name for plugin in policies(framework)] == ["first", "a", "b", "last"]
    names = [weighted.plugin.name for weighted in framework.profile.plugins]
    assert names[-4:] == ["first", "a", "b", "last"]


def test_filters_are_anded_and_the_first_that_rejects_is_named():
    files = {
        "a.policy": "filter: node.label test=test\n",
        "b.policy": "order: 1\nfilter: node.name is b\n",
    }
    decision = Cluster(files).decide(make_pod("p"))
    assert decision.node is None
    assert decision.fit_error.plugins == {"a", "b"}
    assert decision.fit_error.message() == (
        "0/3 nodes are available: 1 node.label test=test is false: test is <none> (a.policy:1), "
        "2 such as a: node.name is b is false: node.name is a (b.policy:2)."
    )


def test_weights_count():
    files = {
        "likes-a.policy": "weight: 3\nprefer: node.name is a\n",
        "likes-b.policy": "weight: 2\nprefer: node.name is b\n",
    }
    assert Cluster(files).decide(make_pod("p")).node == "a"
    heavier = {"policies": {"overrides": {"likes-b": {"weight": 9}}}}
    cluster = Cluster(files, **heavier)
    assert cluster.decide(make_pod("p")).node == "b"
    assert cluster.given(make_pod("p"))["likes-b"][2] == 9


def test_a_policy_that_is_off_has_no_say():
    files = {"p.policy": FILTER, "q.policy": "mode: off\nfilter: node.name is nowhere\n"}
    assert [plugin.name for plugin in policies(chain(files))] == ["p"]
    off = {"policies": {"overrides": {"p": {"mode": "off"}}}}
    assert policies(chain(files, **off)) == []
    on = {"policies": {"overrides": {"q": {"mode": "enforce"}}}}
    assert Cluster(files, **on).decide(make_pod("x")).node is None


def test_applies_to_limits_every_rule_of_the_file():
    text = "applies to: pod.namespace is prod\nfilter: node.name is a\nscore: 100\n"
    cluster = Cluster(text)
    assert cluster.passing(make_pod("p", namespace="prod")) == ["a"]
    assert cluster.passing(make_pod("p")) == ["a", "b", "c"]
    assert cluster.scores(make_pod("p", namespace="prod")) == [100, 100, 100]
    assert cluster.scores() is None


def test_rules_of_one_policy_are_averaged_by_weight():
    text = "prefer: node.name is a weight 3\nprefer: node.name is b\n"
    assert Cluster(text).scores() == [75, 25, 0]


def test_a_rule_that_does_not_apply_is_left_out_of_the_mean():
    text = "prefer: pod.name is x -> node.name is a weight 3\nprefer: node.name is b\n"
    assert Cluster(text).scores() == [0, 100, 0]
    assert Cluster(text).scores(make_pod("x")) == [75, 25, 0]


# ---- what rejected pods are told -----------------------------------------------------------------


def test_rows_stand_under_the_first_rule_that_rejects_them():
    text = (
        "filter: not node.label test=other\n"
        'require: node.cpu.free >= pod.cpu + 3\n  message "{node.name} has {node.cpu.free} left"\n'
    )
    groups = Cluster(text).groups(make_pod("p", cpu="2"))
    assert [(key[0], nodes) for key, nodes in groups.items()] == [
        (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ["c"]),
        (Code.UNSCHEDULABLE, ["a", "b"]),
    ]
    reasons = [key[1] for key in groups]
    assert reasons[0].endswith("(p.policy:1)")
    assert reasons[1] == "such as a: a has 4 left (p.policy:2)"


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("filter: node.label x=y", Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        ("filter: node.cpu.allocatable > 100", Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        ("filter: time.hour in 0..3", Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        ("filter: (bandwidth ?? 9) < 1", Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
        ("filter: node.cpu.free > 100", Code.UNSCHEDULABLE),
        ("filter: count(node.pods) > 5", Code.UNSCHEDULABLE),
        ("filter: node.pods.free > 1000", Code.UNSCHEDULABLE),
        ("filter: node.label x=y status unschedulable", Code.UNSCHEDULABLE),
        ("filter: node.cpu.free > 100 status unresolvable", Code.UNSCHEDULABLE_AND_UNRESOLVABLE),
    ],
)
def test_the_status_follows_from_what_the_rule_reads_unless_it_says(rule, code):
    (key,) = Cluster(rule + "\n").groups(make_pod("p"))
    assert key[0] is code


def test_nodes_are_counted_by_rule_with_one_sample():
    cluster = Cluster('filter: node.name is x\n  message "{node.name} is no x"\n')
    decision = cluster.decide(make_pod("p"))
    assert decision.fit_error.message() == (
        "0/3 nodes are available: 3 such as a: a is no x (p.policy:1)."
    )
    assert decision.fit_error.plugins == {"p"}


HOT = "filter: (load ?? 0) < 5"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        # The first and the last are alike, those between are not.
        (f"{HOT}", "such as a: (load ?? 0) < 5 is false: load is 9"),
        (f'{HOT} message "{{load}} is hot"', "such as a: 9 is hot"),
        (f'{HOT} message "it is hot"', "it is hot"),
        (f'{HOT} message "{{node.cpu.capacity}} is hot"', "4 is hot"),
        # Another part of the rule is what decides.
        ("filter: node.label k=v and (load ?? 0) < 5", "node.label k=v is false: k is <none>"),
        ("filter: (load ?? 0) != 7 and (load ?? 0) < 5",
         "such as a: (load ?? 0) < 5 is false: load is 9"),
        ("let hot = (load ?? 0) > 5\nforbid: node.label k=v or hot",
         "such as a: (load ?? 0) > 5 is true"),
        ('filter: pod.image in node.images', "such as a: pod.image in node.images is false"),
    ],
)  # fmt: skip
def test_what_is_true_of_some_nodes_only_is_said_of_one(rule, said):
    cluster = Cluster(rule + "\n")
    cluster.samples.put("load", {"a": 9.0, "b": 7.0, "c": 9.0})
    (told,) = [text for (_, text), nodes in cluster.groups(make_pod("p")).items() if "a" in nodes]
    assert told.startswith(said), told


def test_a_number_that_begins_a_message_does_not_run_into_the_count():
    decision = Cluster('filter: node.name is x message "80 W are free"\n').decide(make_pod("p"))
    told = decision.fit_error.message()
    assert told == "0/3 nodes are available: 3 nodes: 80 W are free (p.policy:1)."


def test_empty_rows_are_neither_counted_nor_sampled():
    cluster = Cluster('filter: node.name is x\n  message "not {node.name}"\n')
    cluster.cache.remove_node("a")
    assert cluster.groups(make_pod("p")) == {
        (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "such as b: not b (p.policy:1)"): ["b", "c"]
    }


# ---- what wakes them -----------------------------------------------------------------------------


def names(events):
    return {str(event) for event in events}


@pytest.mark.parametrize(
    ("read", "happened"),
    [
        ("node.label", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)),
        ("node.zone", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)),
        ("zone.pods", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)),
        ("zone.pods", ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)),
        ("rack.pods", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)),
        ("rack.pods", ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)),
        ("node.annotation", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ANNOTATION)),
        ("node.taint", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)),
        ("node.unschedulable", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)),
        ("node.unschedulable", ClusterEvent(Resource.NODE, Action.UPDATE_OTHER)),
        ("node.ready", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_CONDITION)),
        ("node.condition", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_CONDITION)),
        ("node.kernel", ClusterEvent(Resource.NODE, Action.UPDATE_OTHER)),
        ("node.kubelet_version", ClusterEvent(Resource.NODE, Action.UPDATE_OTHER)),
        ("node.os_image", ClusterEvent(Resource.NODE, Action.UPDATE_OTHER)),
        ("node.container_runtime", ClusterEvent(Resource.NODE, Action.UPDATE_OTHER)),
        ("it.restarts", ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_OTHER)),
        ("time.day", ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)),
        ("node.cpu.allocatable", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)),
        ("node.cpu.capacity", ClusterEvent(Resource.NODE, Action.UPDATE_OTHER)),
        ("node.cpu.free", ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)),
        ("node.cpu.free", ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)),
        ("node.resource.requested", ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)),
        ("node.pods", ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)),
        ("it.label", ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)),
        ("pod.label", ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)),
        ("cluster.nodes", ClusterEvent(Resource.NODE, Action.DELETE)),
        ("cluster.cpu.free", ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)),
        ("namespace.label", ClusterEvent(Resource.NAMESPACE, Action.UPDATE_OTHER)),
        ("metric:bandwidth", ClusterEvent(Resource.SIGNAL, Action.UPDATE_OTHER)),
        ("metric:bandwidth", ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)),
        ("metric_age:bandwidth", ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)),
        ("time.hour", ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)),
        ("now", ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)),
    ],
)
def test_what_a_rule_reads_says_what_wakes_its_pods(read, happened):
    registered = events_of_reads(frozenset({read}))
    assert any(event.matches(happened) for event in registered)
    assert any(event.matches(ClusterEvent(Resource.NODE, Action.ADD)) for event in registered)


OUTCOMES = [name for name in FIELDS if name.startswith("victims.")]
#: Fields that never change while their object is there, and outcomes of a cycle.
FIXED = ("node.name", "node.created", "score", "score.total", *OUTCOMES)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_that_may_change_wakes(name):
    awoken = names(events_of_reads(frozenset({name}))) - {"Node/Add"}
    assert bool(awoken) != (name in FIXED)


def test_a_rule_about_names_hears_of_new_nodes_only():
    assert names(events_of_reads(frozenset({"node.name"}))) == {"Node/Add"}


def test_rules_over_several_nodes_hear_of_nodes_that_go():
    gone = ClusterEvent(Resource.NODE, Action.DELETE)

    def hears(text):
        events = Cluster(text).policy.points().events
        return any(registered.event.matches(gone) for registered in events)

    assert hears("filter: node.cpu.free == max(node.cpu.free)\n")
    assert hears("filter: count(zone.pods) < 5\n")
    assert not hears("filter: node.cpu.free > 1\n")


def test_who_knows_when_its_rules_turn_is_not_asked_each_minute():
    minute = ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)

    def hears(text):
        return any(one.event.matches(minute) for one in Cluster(text).policy.points().events)

    assert not hears("filter: now - pod.created > 90s\n")
    assert not hears("gate: now - pod.created > 90s\n")
    assert hears("filter: now - pod.created > 90s and time.hour > 3\n")
    assert hears("filter: round((now - pod.created)/1min) > 90\n")
    assert hears("filter: now - pod.created > 90s\nfilter: time.hour > 3\n")
    assert hears("filter: now - pod.created > 90s and (metric_age(load) ?? 1s) < 1min\n")


def test_scores_wake_nobody():
    assert Cluster(SCORE).policy.points().events == ()


# ---- what is remembered --------------------------------------------------------------------------


def test_new_samples_count_at_once_and_equal_pods_share_what_is_known():
    cluster = Cluster(SCORE)
    cluster.samples.put("bandwidth", {"a": 1.0, "b": 9.0, "c": 9.0})
    assert cluster.decide(make_pod("p")).node == "a"
    cluster.samples.put("bandwidth", {"a": 9.0, "b": 9.0, "c": 1.0})
    assert cluster.decide(make_pod("q")).node == "c"


def test_pods_that_no_rule_tells_apart_share_a_class_whatever_is_missing():
    policy = Cluster("filter: pod.created is missing or now - pod.created > 1m\n").policy
    snapshot = three_nodes().snapshot(NOW)
    keys = {policy.points().class_key(make_pod(name), snapshot) for name in ("one", "two")}
    assert len(keys) == 1


@pytest.mark.parametrize(
    "asked", ["resource[(pod.label[app])].free > 1", "label[(pod.label[app])] is missing"]
)
def test_a_key_that_a_pod_says_is_all_that_is_asked_of_the_pod(asked):
    cluster = Cluster(f"filter: node.{asked}\n")
    spec = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}
    one, two = (make_pod(x, labels={"app": "cpu", "x": x}, spec=spec) for x in "pq")
    assert cluster.decide(one).node == cluster.decide(two).node
    of = cluster.policy.points().class_key
    assert of(one, cluster.snapshot()) == of(two, cluster.snapshot())


# ---- in words ------------------------------------------------------------------------------------


def told(cluster, pod):
    snapshot = cluster.snapshot()
    decision = decide(pod, snapshot, cluster.framework)
    return [str(trace) for trace in rules_of(Placed(decision, snapshot, 0.0), cluster.framework)]


def test_each_rule_tells_its_part_of_a_decision():
    cluster = Cluster({"one.policy": FILTER, "two.policy": SCORE})
    cluster.samples.put("bandwidth", {"a": 10.0, "b": 40.0, "c": 0.0}, at=NOW - 7)
    assert told(cluster, make_pod("redis")) == ["two.policy:1 score: 100 of 100, bandwidth 7 s old"]
    # The maximum is that of the nodes that every filter left, in another file or not.
    assert told(cluster, make_pod("nginx")) == [
        "one.policy:1 filter: 1 of 3 nodes pass",
        "two.policy:1 score: 0 of 100, bandwidth 7 s old",
    ]


def test_what_did_not_decide_is_not_told():
    cluster = Cluster(SCORE)
    assert told(cluster, make_pod("p")) == []
    assert told(cluster, make_pod("p", cpu="100")) == []


# ---- the nodes of a domain -----------------------------------------------------------------------


def test_a_zone_changes_with_the_labels_of_its_nodes():
    changed = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
    for of in ("zone.nodes", "nodes_in('a')"):
        events = Cluster(f"filter: count({of}) < 5\n").policy.points().events
        assert any(registered.event.matches(changed) for registered in events)
        assert any(str(registered.event) == "Node/Delete" for registered in events)


def test_a_node_is_told_of_by_the_others_of_its_zone():
    """Verdicts of rows that did not change follow from rows that did."""
    cluster = Cluster("filter: count(zone.nodes where not node.unschedulable) >= 2\n", Cache())
    for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2")):
        labels = {"topology.kubernetes.io/zone": zone}
        cluster.cache.add_node(make_node(name, labels=labels))
    pod = make_pod("p")
    assert cluster.decide(pod).feasible == 2
    labels = {"topology.kubernetes.io/zone": "z2"}
    cluster.cache.add_node(make_node("a", labels=labels))
    assert [cluster.decide(pod).node for _ in range(4)].count("b") == 0
    assert cluster.passing(pod) == ["a", "c"]
    cluster.cache.remove_node("c")
    assert cluster.decide(pod).node is None
