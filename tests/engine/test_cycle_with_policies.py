"""What is remembered never changes a decision, whatever plugins and policies read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cycle import decide
from engine.objects import Namespace, from_builtins
from tests.builders import Cache, make_node, make_pod, scored
from tests.effort import examples
from tests.engine.policy.builders import NOW, Samples, chain

ALONE = (
    "filter: pod.name contains nginx -> node.label test=test\nscore: 100 - bandwidth/max*100\n",
    "filter: bandwidth is missing or bandwidth < 80\n"
    "score: pod.cpu >= 1 -> bandwidth normalize minmax\nscore: 50\n",
    "filter: bandwidth is present and metric_age(bandwidth) < 60s\n"
    "score: node.cpu.free normalize minmax\n",
    "filter: count(node.pods where it.cpu >= 1) < 2\nscore: count(zone.pods) normalize minmax\n",
    "score: metric_age(bandwidth) normalize minmax\n",
    'filter: pod.cpu < 1 and bandwidth is missing message "no {pod.name}"\n',
)
TOGETHER = {
    "labels.policy": "filter: pod.label tier=web -> node.label zone=z1 or node.label zone=z2\n",
    "amounts.policy": (
        "prefer: least node.cpu.requested\n"
        "filter: pod.cpu > 0.5 -> node.cpu.free - pod.cpu >= 500m\n"
        "filter: pod.name like *9 -> node.pods.free == max(node.pods.free)\n"
    ),
    "pods.policy": (
        "filter: pod.label tier=web -> count(node.pods where it.label tier=web) < 2\n"
        "filter: count(zone.pods where it.priority > pod.priority) < 3\n"
        "avoid: any(node.pods where it.label tier=web)\n"
    ),
    "tenants.policy": (
        "filter: pod.label tier=night -> not any(node.pods where it.namespace.label night=no)\n"
        "prefer: count(zone.pods where it.namespace.label[night] == namespace.label[night]) > 1\n"
    ),
    "jobs.policy": (
        "filter: pod.label tier=web -> distinct(it.label[tier] over node.pods) <= 2\n"
        "prefer: least distinct(it.name over zone.pods where it.label[tier] == pod.label[tier])\n"
    ),
    "zones.policy": (
        "filter: pod.label tier=web -> count(zone.nodes where node.cpu.free >= 1) > 0\n"
        "filter: max(count(node.pods) over zone.nodes) <= pod.priority + 3\n"
        "prefer: most sum(node.cpu.free over nodes_in('zone'))\n"
    ),
    "metrics.policy": (
        "score: 100 - bandwidth/max*100 weight 2\n"
        "filter: (load ?? 0) < 8\n"
        "prefer: pod.label tier=web -> least load\n"
    ),
    "time.policy": (
        "filter: pod.label tier=night -> time.minute in 0..30\n"
        "filter: node.created is missing or now - node.created > 1m\n"
        "filter: pod.label tier=fresh -> (metric_age(load) ?? 10m) < 2m\n"
        "prefer: time.minute in 10..40 -> node.label zone=z2\n"
    ),
    "cluster.policy": (
        "filter: pod.label tier=web -> cluster.cpu.free > 2\n"
        "filter: pod.label tier=night -> namespace.label night=yes\n"
    ),
}
NAMES = ("nginx", "redis")
TAINTS = (
    *([],) * 6,
    [{"key": "a", "value": "b", "effect": "NoSchedule"}],
    [{"key": "c", "value": "", "effect": "PreferNoSchedule"}],
    [{"key": key, "value": "", "effect": "PreferNoSchedule"} for key in "cd"],
)
TOLERATIONS = ([], [{"key": "a", "operator": "Exists"}])
SELECTORS = (None, None, None, None, {"zone": "z0"}, {"zone": "z9"})
"""Most nodes and pods are such that they may meet."""

nodes = st.tuples(
    st.just("node"),
    st.integers(0, 5),
    st.sampled_from(["1", "2", "4"]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(TAINTS),
    st.sampled_from([False, False, False, False, True]),
)
kinds = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from(["100m", "600m", "1", "3"]),
    st.sampled_from(["web", "night", "fresh", "none"]),
    st.integers(0, 1),
    st.sampled_from(TOLERATIONS),
    st.sampled_from(SELECTORS),
)
pods = st.tuples(st.sampled_from(["schedule", "schedule", "ask"]), st.integers(0, 2))
"""Of some kind. Of those that are only asked about, as one that is held, nothing is left."""
others = st.one_of(
    st.tuples(st.just("node gone"), st.integers(0, 5)),
    st.tuples(st.just("pod gone"), st.integers(0, 25)),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 60, 900])),
    st.tuples(
        st.just("samples"),
        st.sampled_from(["bandwidth", "load"]),
        st.dictionaries(st.integers(0, 5), st.sampled_from([0.0, 1.0, 9.0, 30.0, 90.0])),
    ),
    st.tuples(st.just("namespace"), st.sampled_from(["yes", "no"])),
)


def node(index, cpu, zone, labelled, taints, cordoned):
    labels = {"zone": f"z{zone}", "topology.kubernetes.io/zone": f"z{zone}"}
    labels |= {"test": "test"} if labelled else {}
    how = {"labels": labels, "taints": taints, "unschedulable": cordoned}
    return make_node(f"n{index}", cpu=cpu, pods="6", **how)


def pod_of(number, name, cpu, tier, priority, tolerations, selector):
    spec = {"tolerations": tolerations, "nodeSelector": selector}
    how = {"labels": {"tier": tier}, "priority": priority, "spec": spec}
    return make_pod(f"{name}-{number}", cpu=cpu, **how)


def run(happenings, of, files, memo_bytes):
    cache, now = Cache(), NOW
    framework = chain(files, memo_bytes=memo_bytes)
    samples = Samples(cache).serve(framework)
    decisions = []
    for number, happening in enumerate(happenings):
        match happening:
            case ("node", *how):
                cache.add_node(node(*how))
            case ("node gone", index):
                cache.remove_node(f"n{index}")
            case ("pod gone", index):
                cache.remove_pod(f"uid-default-nginx-{index}")
                cache.remove_pod(f"uid-default-redis-{index}")
            case ("wait", seconds):
                now += seconds
            case ("samples", metric, values):
                samples.put(metric, {f"n{index}": one for index, one in values.items()}, at=now)
            case ("namespace", night):
                meta = {"name": "default", "labels": {"night": night}}
                cache.set_namespace(from_builtins(Namespace, {"metadata": meta}))
            case ("schedule" | "ask" as what, kind):
                pod = pod_of(number, *of[kind % len(of)])
                snapshot = cache.snapshot(now, samples.view(cache, now))
                decision = decide(pod, snapshot, framework)
                decisions.append(
                    (
                        decision.node,
                        decision.feasible,
                        decision.total,
                        scored(decision, snapshot, framework),
                        decision.fit_error and decision.fit_error.plugins,
                        decision.fit_error and decision.fit_error.message(),
                        decision.error,
                    )
                )
                if decision.node and what == "schedule":
                    cache.assume(pod, decision.node)
    return decisions


@pytest.mark.parametrize("files", [{}, TOGETHER, *[{"p.policy": text} for text in ALONE]])
def test_what_is_remembered_never_changes_a_decision(files):
    @settings(max_examples=examples(45), deadline=None)
    @given(
        st.lists(nodes, min_size=2, max_size=5),
        st.lists(kinds, min_size=1, max_size=3),
        st.lists(st.tuples(nodes | others, st.lists(pods, min_size=1, max_size=4)), max_size=12),
    )
    def remembered(there, of, steps):
        happenings = [*there, *(one for first, then in steps for one in (first, *then))]
        found = run(happenings, of, files, 1 << 20)
        assert found == run(happenings, of, files, 0)
        assert all(each[-1] is None for each in found), "no rule may fail"

    remembered()


TWO = [("node", index, "4", 0, False, [], False) for index in range(2)]
POD = ("schedule", 0)
REDIS = [("redis", "100m", "none", 0, [], None)]


def test_an_age_grows_without_new_samples():
    happenings = [*TWO, ("samples", "bandwidth", {0: 1.0, 1: 2.0}), POD, ("wait", 90.0), POD]
    nodes = [decision[0] for decision in run(happenings, REDIS, {"p.policy": ALONE[2]}, 1 << 20)]
    assert nodes[0] is not None
    assert nodes[1] is None


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('node.name is nope message "no {pod.name}"', "no redis-{}"),
        ("pod.name is nobody", "pod.name is nobody is false: pod.name is redis-{}"),
    ],
)
def test_each_pod_is_told_of_itself(rule, words):
    found = run([*TWO, POD, POD], REDIS, {"p.policy": f"filter: {rule}\n"}, 1 << 20)
    messages = [one[-2] for one in found]
    assert [words.format(number) in one for number, one in enumerate(messages, 2)] == [True, True]


def test_words_that_read_what_the_rule_does_not_are_of_now():
    words = "{node.cpu.free} free, {bandwidth}, at {now}"
    rule = f'filter: node.name is nope message "{words}"'
    framework, cache = chain({"p.policy": f"{rule}\n"}), Cache()
    samples = Samples(cache).serve(framework)
    cache.add_node(make_node("n1", cpu="4"))

    def told(now):
        return decide(
            make_pod("p", cpu="1"), cache.snapshot(now, samples.view(cache, now)), framework
        ).message

    assert "4 free, <none>, at 1970-01-01T00:00:05Z" in told(5.0)
    cache.add_pod(make_pod("other", cpu="1"), "n1")
    assert "3 free, <none>, " in told(5.0)
    samples.put("bandwidth", {"n1": 7.0})
    assert "3 free, 7/s, " in told(5.0)
    assert "3 free, 7/s, at 1970-01-01T00:00:06Z" in told(6.0)


def test_a_row_is_asked_about_as_it_is_whoever_was_asked_meanwhile():
    """A class of pods keeps how to ask about a row; what that says is of now."""
    cache = Cache()
    for name in ("n0", "n1"):
        cache.add_node(make_node(name))
    framework = chain({"p.policy": "filter: count(node.pods where it.label[app] is red) < 2\n"})

    def red(name, cpu="100m"):
        return make_pod(name, cpu=cpu, labels={"app": "red"})

    def feasible(pod):
        return decide(pod, cache.snapshot(1e9), framework).feasible

    assert feasible(red("first")) == 2
    cache.assume(red("first"), "n0")
    assert feasible(red("second")) == 2
    assert feasible(red("of another class", "200m")) == 2
    cache.assume(red("second"), "n0")
    assert feasible(red("third")) == 1
