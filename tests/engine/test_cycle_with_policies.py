"""The memo with policies: what is remembered never changes a decision, whatever they read."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.compiler import Compiler
from engine.configuration.berth import BerthDocument
from engine.cycle import decide
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.policy.bundle import Bundle, compile_at_once, compile_settings
from engine.policy.plugin import PolicyPlugin
from engine.policy.world import Worlds
from tests.builders import Cache, default_plugins, make_node, make_pod, scored
from tests.effort import examples
from tests.engine.policy.builders import Samples, chain

POLICIES = (
    "filter: pod.name contains nginx -> node.label test=test\nscore: 100 - bandwidth/max*100\n",
    "filter: bandwidth is missing or bandwidth < 80\n"
    "score: pod.cpu >= 1 -> bandwidth normalize minmax\nscore: 50\n",
    "filter: bandwidth is present and metric_age(bandwidth) < 60s\n"
    "score: node.cpu.free normalize minmax\n",
    "filter: count(node.pods where it.cpu >= 1) < 2\nscore: count(zone.pods) normalize minmax\n",
    "score: metric_age(bandwidth) normalize minmax\n",
    'filter: pod.cpu < 1 and bandwidth is missing message "no {pod.name}"\n',
)
COMPILER = Compiler()

events = st.one_of(
    st.tuples(st.just("node"), st.integers(0, 5), st.booleans(), st.sampled_from(("2", "4"))),
    st.tuples(st.just("pod gone"), st.integers(0, 12)),
    st.tuples(st.just("samples"), st.lists(st.sampled_from((1.0, 50.0, 90.0, np.nan)), max_size=6)),
    st.tuples(st.just("time"), st.sampled_from((1.0, 30.0, 50.0))),
    *[
        st.tuples(
            st.sampled_from(("schedule", "schedule", "ask")),
            st.sampled_from(("nginx", "redis")),
            st.sampled_from(("100m", "1")),
        )
    ]
    * 3,
)
"""Of pods that are only asked about, as one that is held or taken back, nothing is left."""


class Signals:
    """One metric, by row."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.version = 0
        self.values: list[float] = []
        self.taken = 0.0
        self.now = 0.0

    def column(self, metric: str) -> np.ndarray:
        column = np.full(self._cache.nodes.size, np.nan)
        count = min(len(self.values), len(column))
        column[:count] = self.values[:count]
        return column

    def age(self, metric: str) -> np.ndarray:
        return self.column(metric) * 0.0 + (self.now - self.taken)


def bundle(text):
    found = compile_at_once(COMPILER, {"p.policy": text}, compile_settings(BerthDocument()))
    assert isinstance(found, Bundle), found.text
    return found


def run(happenings, text, memo_bytes):
    cache = Cache()
    signals = Signals(cache)
    worlds = Worlds(ZoneInfo("UTC"), ())
    plugins = [Weighted(PolicyPlugin(plan, worlds), plan.weight) for plan in bundle(text).plans]
    profile = Profile("berth", (*default_plugins(), *plugins))
    framework = Framework(profile, memo_bytes=memo_bytes)
    decisions = []
    for number, happening in enumerate(happenings):
        match happening:
            case ("node", index, labelled, cpu):
                labels = {"topology.kubernetes.io/zone": f"z{index % 2}"}
                if labelled:
                    labels["test"] = "test"
                cache.add_node(make_node(f"n{index}", cpu=cpu, labels=labels))
                signals.version += 1
            case ("pod gone", index):
                cache.remove_pod(f"uid-default-nginx-{index}")
            case ("samples", values):
                signals.values, signals.taken = values, signals.now
                signals.version += 1
            case ("time", seconds):
                signals.now += seconds
            case ("schedule" | "ask" as how, name, cpu):
                pod = make_pod(f"{name}-{number}", cpu=cpu)
                snapshot = cache.snapshot(signals.now, signals)
                decision = decide(pod, snapshot, framework)
                decisions.append(
                    (
                        decision.node,
                        decision.total,
                        scored(decision, snapshot, framework),
                        decision.fit_error and decision.fit_error.message(),
                        decision.error,
                    )
                )
                if decision.node and how == "schedule":
                    cache.assume(pod, decision.node)
    return decisions


@pytest.mark.parametrize("text", POLICIES)
def test_what_is_remembered_never_changes_a_decision(text):
    @settings(max_examples=examples(40), deadline=None)
    @given(st.lists(events, max_size=25))
    def remembered(happenings):
        assert run(happenings, text, 1 << 20) == run(happenings, text, 0)

    remembered()


def test_an_age_grows_without_new_samples():
    happenings = [
        ("node", 0, False, "4"),
        ("node", 1, False, "4"),
        ("samples", [1.0, 2.0]),
        ("schedule", "redis", "100m"),
        ("time", 90.0),
        ("schedule", "redis", "100m"),
    ]
    nodes = [decision[0] for decision in run(happenings, POLICIES[2], 1 << 20)]
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
    happenings = [("node", 0, False, "4"), *[("schedule", "redis", "100m")] * 2]
    messages = [one[-2] for one in run(happenings, f"filter: {rule}\n", 1 << 20)]
    assert [words.format(number) in one for number, one in enumerate(messages, 1)] == [True, True]


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
