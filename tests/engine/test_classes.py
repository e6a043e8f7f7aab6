"""Classes of pods: every step equals a full pass, whatever plugins answer, and costs little."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cycle import decide
from engine.framework.classes import _LEAST_CLASSES, _MOST_CLASSES
from engine.framework.derived import Sharing
from engine.framework.interface import (
    ALL_PASS,
    UNSHARED,
    Normalization,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scope,
    Verdicts,
)
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import MEMO_BYTES, Framework
from engine.framework.snapshot import Cause
from engine.framework.status import Status, unschedulable
from engine.objects import ContainerImage, Namespace, ObjectMeta
from engine.plugins.registry import make_plugin
from tests.builders import Cache, changed, default_plugins, make_node, make_pod, scored
from tests.effort import examples
from tests.engine.policy.builders import chain

IN_ZONE = {"key": "z", "operator": "In"}


def zone_of(node):
    return float((node.metadata.labels or {}).get("z", "0"))


@dataclass
class Odd:
    """A plugin that filters and scores by what it is told to read, as it is told to say so."""

    name: str
    reads: str
    filters: str
    scores: str
    how: Normalization
    shared: bool
    keyed: int
    least: float = 5.0

    def points(self):
        return Points(
            class_key=self.key,
            pre_filter=self.pre_filter if self.filters else None,
            filter=self.filter if self.filters else None,
            pre_score=self.pre_score if self.scores else None,
            score=self.score if self.scores else None,
            normalize=(lambda state, scores: np.maximum(100.0 - scores, 0.0)),
            tiers=self.tiers if self.keyed == 3 and self.shared else None,
        )

    def key(self, pod, snapshot):
        return UNSHARED if self.keyed == 0 and pod.priority == 3 else pod.priority % self.keyed_by

    @property
    def keyed_by(self):
        return max(1, self.keyed)

    def number(self, pod):
        return pod.priority % self.keyed_by

    @property
    def causes(self):
        return {"pods": Cause.POD, "zone": Cause.LABELS, "both": Cause.POD | Cause.LABELS}[
            self.reads
        ]

    def column(self, snapshot, rows):
        nodes = snapshot.nodes
        zone = nodes.number("test z", zone_of)[rows]
        pods = nodes.pod_count[rows].astype(np.float64)
        return {"pods": pods, "zone": zone, "both": pods * 2 + zone}[self.reads]

    def version(self, snapshot):
        return len(snapshot.namespaces)

    def said(self, kind, scope, snapshot, pod, **more):
        by_row = scope == "row"
        shared = self.number(pod) if self.shared and scope != "all" else None
        scopes = {"row": Scope.ROW, "feasible": Scope.FEASIBLE, "all": Scope.ALL}
        version = self.version if self.keyed == 2 or not by_row else None
        if version is not None and shared is not None:
            shared = shared, version(snapshot)
        state = len(snapshot.namespaces)
        told = {"scope": scopes[scope], "version": version, "shared": shared, "state": state}
        return kind(causes=self.causes, **told, **more)

    def pre_filter(self, pod, snapshot):
        if self.number(pod) == 2:
            return PreFilterResult(Status.SKIP)
        allowed = np.flatnonzero(snapshot.nodes.present)[::2] if self.number(pod) == 1 else None
        if self.filters == "some" and allowed is not None:
            return PreFilterResult(rows=allowed, causes=Cause.ANY, version=lambda s: s.layout)
        return self.said(PreFilterResult, "all" if self.filters == "all" else "row", snapshot, pod)

    def filter(self, state, pod, snapshot, rows):
        values = self.column(snapshot, rows)
        if self.filters == "all":
            values = values + snapshot.nodes.pod_count.max(initial=0) // 4
        most = self.least + self.number(pod) + (state if self.keyed == 2 else 0)
        return Verdicts.uniform(values < most, unschedulable(self.name))

    def pre_score(self, pod, snapshot):
        how = Normalization.NONE if self.scores == "feasible" else self.how
        return self.said(PreScoreResult, self.scores, snapshot, pod, normalization=how)

    def score(self, state, pod, snapshot, rows):
        values = self.column(snapshot, rows) + self.number(pod)
        if self.keyed == 2 or self.scores != "row":
            values = values + state
        if self.scores != "row" and len(values):
            values = values - values.min()
        return np.minimum(values * 7.5, 100.0)

    def tiers(self, pod, snapshot, candidates):
        return [snapshot.nodes.pod_count[candidates] < 2]


odd = st.builds(
    Odd,
    name=st.just(""),
    reads=st.sampled_from(["pods", "zone", "both"]),
    filters=st.sampled_from(["", "row", "row", "some", "all"]),
    scores=st.sampled_from(["", "row", "row", "feasible", "all"]),
    how=st.sampled_from(Normalization),
    shared=st.booleans(),
    keyed=st.integers(0, 3),
)
events = st.lists(
    st.one_of(
        *[st.tuples(st.just("schedule"), st.integers(0, 3), st.integers(0, 3))] * 6,
        st.tuples(st.just("node"), st.integers(0, 30), st.integers(0, 4)),
        st.tuples(st.sampled_from(["gone", "cordon"]), st.integers(0, 30)),
        st.tuples(st.just("nodes"), st.integers(1, 40)),
        st.tuples(st.just("pods"), st.integers(1, 40), st.integers(0, 30)),
        st.tuples(st.just("free"), st.integers(0, 40)),
        st.tuples(st.just("namespace")),
    ),
    min_size=8,
    max_size=30,
)


def happen(cache, event, number):
    match event:
        case ("node", index, zone):
            cache.add_node(make_node(f"n{index}", cpu="40", labels={"z": f"{zone}"}))
        case ("nodes", count):
            for index in range(count):
                cache.add_node(make_node(f"n{index}", cpu="40", labels={"z": f"{index % 3}"}))
        case ("gone", index):
            cache.remove_node(f"n{index}")
        case ("cordon", index):
            cache.add_node(make_node(f"n{index}", cpu="40", unschedulable=True))
        case ("pods", count, first):
            for index in range(count):
                name = f"n{(first + index) % 31}"
                cache.add_pod(make_pod(f"x{number}-{index}", cpu="1", node=name), name)
        case ("free", index):
            cache.remove_pod(f"uid-default-x{number - 1}-{index}")
        case ("namespace",):
            cache.namespaces[f"ns{number}"] = None


def of_app(app, name, **how):
    """Of an app, which is spread in its way or not at all: a class of its own by nothing else."""
    labels = {"app": f"{app}"}
    wanted = {"maxSkew": 1, "topologyKey": "z", "labelSelector": {"matchLabels": labels}}
    when = (None, "ScheduleAnyway", "ScheduleAnyway", "DoNotSchedule")[app]
    spec = {"topologySpreadConstraints": [{**wanted, "whenUnsatisfiable": when}]} if when else {}
    return make_pod(name, labels=labels, spec=spec, **how)


def told(pod, snapshot, framework):
    decision = decide(pod, snapshot, framework)
    return (
        decision.node,
        decision.feasible,
        decision.total,
        scored(decision, snapshot, framework),
        decision.fit_error and decision.fit_error.message(),
        decision.error,
    )


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(odd, max_size=3), events)
def test_every_step_equals_a_full_pass(zoo, happenings):
    for number, plugin in enumerate(zoo):
        plugin.name = f"Odd{number}"
    plugins = (*default_plugins(), *(Weighted(one, 1.0 + i) for i, one in enumerate(zoo)))
    profile = Profile("berth", plugins)
    kept, cache = Framework(profile), Cache()
    for number, event in enumerate([("nodes", 25), *happenings]):
        happen(cache, event, number)
        if event[0] != "schedule":
            continue
        pod = of_app(event[2], f"p{number}", cpu="1", priority=event[1])
        snapshot = cache.snapshot(0.0)
        found = told(pod, snapshot, kept)
        assert found == told(pod, snapshot, Framework(profile, memo_bytes=0))
        if found[0] is not None:
            cache.assume(pod, found[0])


class Same:
    """Says the same of every pod, and reads the pod when it is asked about rows."""

    name = "Same"

    def __init__(self):
        self.asked = []
        self.filters, self.scores = PreFilterResult(causes=Cause.POD), PreScoreResult()

    def points(self):
        return Points(
            class_key=lambda pod, snapshot: pod.priority,
            pre_filter=lambda pod, snapshot: self.asked.append(pod.name) or self.filters,
            filter=self.filter,
            pre_score=lambda pod, snapshot: self.scores,
            score=lambda state, pod, snapshot, rows: self.column(pod, snapshot)[rows],
        )

    def filter(self, state, pod, snapshot, rows):
        passed = snapshot.nodes.pod_count[rows] != 2 + pod.priority
        return Verdicts.uniform(passed, unschedulable(self.name))

    def column(self, pod, snapshot):
        return np.minimum(snapshot.nodes.pod_count * (7.0 + pod.priority), 100.0)


def of_image(image, name, tolerates=False, **how):
    """With an image, and one toleration or none."""
    spec = {"containers": [{"name": "c", "image": f"i{image}", **requests(how.pop("cpu", "1"))}]}
    spec["tolerations"] = [{"key": "k", "operator": "Exists"}] if tolerates else []
    return make_pod(name, spec=spec, **how)


def requests(cpu):
    return {"resources": {"requests": {"cpu": cpu}}}


def with_images(index, images, taint):
    """A node with images, and with a taint or none."""
    node = make_node(f"n{index}", cpu="40", taints=[{"key": "k", "effect": taint}] if taint else [])
    listed = [ContainerImage(names=[f"i{one}:latest"], size_bytes=300 << 20) for one in images]
    return changed(node, status={"images": listed})


streams = st.lists(
    st.one_of(
        *[st.tuples(*[st.integers(0, 3)] * 3, st.booleans())] * 5,
        st.builds(
            with_images,
            st.integers(0, 12),
            st.sets(st.integers(0, 2)),
            st.sampled_from([None, None, "NoSchedule", "PreferNoSchedule"]),
        ),
    ),
    min_size=8,
    max_size=30,
)


@settings(max_examples=examples(150), deadline=None)
@given(st.booleans(), streams)
def test_classes_of_which_plugins_say_the_same_equal_a_full_pass(also, stream):
    plugins = default_plugins() + ((Weighted(Same(), 2.0),) if also else ())
    profile = Profile("berth", plugins)
    kept, cache = Framework(profile), Cache()
    happen(cache, ("nodes", 10), 0)
    for number, event in enumerate(stream):
        if not isinstance(event, tuple):
            cache.add_node(event)
            continue
        priority, cpu, image, tolerates = event
        name, cpu = f"p{number}", f"{1 + cpu}.{number}"
        pod = of_image(image, name, tolerates=tolerates, cpu=cpu, priority=priority)
        snapshot = cache.snapshot(0.0)
        found = told(pod, snapshot, kept)
        assert found == told(pod, snapshot, Framework(profile, memo_bytes=0))
        if found[0] is not None:
            cache.assume(pod, found[0])


class Abstains:
    """Has no score for the first pod, and for others one relative to the highest."""

    name = "Abstains"

    def points(self):
        said = PreScoreResult(causes=Cause.POD, normalization=Normalization.BY_MAX)
        return Points(class_key=lambda *_: 0, pre_score=lambda *_: said, score=self.score)

    def score(self, state, pod, snapshot, rows):
        return None if pod.name == "p0" else 50.0 - snapshot.nodes.pod_count[rows]


def odd_by(reads, filters, *, keyed=2, shared=False):
    return Odd("Odd", reads, filters, "row", Normalization.NONE, shared=shared, keyed=keyed)


@pytest.mark.parametrize(
    ("plugin", "taint"),
    [
        (None, "PreferNoSchedule"),
        (odd_by("pods", "some", keyed=3), None),
        (odd_by("pods", "row", keyed=1, shared=True), None),
        (odd_by("zone", "row"), None),
        (Abstains(), None),
    ],
    ids=["relative", "left out", "shared", "version", "abstains"],
)
def test_a_class_takes_nothing_over_that_more_than_rows_decides(plugin, taint):
    profile = Profile("berth", default_plugins() + ((Weighted(plugin, 2.0),) if plugin else ()))
    kept, cache = Framework(profile), Cache()
    for index in range(3):
        cache.add_node(with_images(index, (), None if index else taint))
    for number in range(5):
        pod = make_pod(f"p{number}", cpu=f"{1 + number}", priority=1)
        snapshot = cache.snapshot(0.0)
        found = told(pod, snapshot, kept)
        assert found == told(pod, snapshot, Framework(profile, memo_bytes=0))
        assert found[0] is not None
        cache.assume(pod, found[0])
        cache.namespaces[f"ns{number}"] = None


SCRIPT = """
import sys
from tests.engine.test_classes import chosen
print(chosen(int(sys.argv[1])))
"""


def chosen(first):
    """Where pods go in a cluster whose nodes came in one order or another, all with equal room."""
    cache, count = Cache(), 300
    for i in range(count):
        cache.add_node(make_node(f"node-{(first + i * 7) % count}"))
    framework = chain({"p.policy": "quota: by pod.namespace max cpu 50\n"})
    found = []
    for i in range(20):
        spec = {"tolerations": [{"key": "k", "operator": "Exists"}], "nodeSelector": {}}
        pod = make_pod(f"p{i}", cpu="100m", labels={"a": "b"}, spec=spec if i % 2 else None)
        decision = decide(pod, cache.snapshot(0.0), framework)
        cache.assume(pod, decision.node)
        found.append(decision.node)
    return found


def test_ties_fall_alike_in_every_process_and_in_whatever_order_nodes_came():
    said = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(first)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for first, seed in ((0, "1"), (123, "2"))
    }
    assert len(said) == 1


def test_a_node_that_joins_moves_its_neighbour_among_ties():
    # By their hashes both would have one place; the one that joins gets it, the other the next.
    cache, profile = Cache(), Profile("berth", default_plugins())
    kept, pods = Framework(profile), [make_pod(f"p{n}", cpu=f"{n + 1}m") for n in range(8)]
    cache.add_node(make_node("n3342"))
    for pod in pods:
        assert decide(pod, cache.snapshot(0.0), kept).node == "n3342"
    cache.add_node(make_node("n1326"))
    snapshot = cache.snapshot(0.0)
    found = [decide(pod, snapshot, kept).node for pod in pods]
    assert found == [decide(pod, snapshot, Framework(profile, memo_bytes=0)).node for pod in pods]
    assert len(set(found)) == 2


# ---- what it costs -------------------------------------------------------------------------------


def known_class(nodes):
    cache = Cache()
    for i in range(nodes):
        cache.add_node(make_node(f"n{i}", cpu="64", memory="256Gi"))
    framework = Framework(Profile("berth", default_plugins()))
    for i in range(40):
        pod = make_pod(f"w{i}", cpu="100m", memory="64Mi")
        cache.assume(pod, decide(pod, cache.snapshot(0.0), framework).node)
    pod = make_pod("p", cpu="100m", memory="64Mi")
    framework.pre_enqueue(pod, cache.snapshot(0.0))
    return cache, framework, pod


def called(act):
    """The names of the functions that it calls."""
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame) if event == "call" else None)
    try:
        act()
    finally:
        sys.setprofile(None)
    return [call.f_code.co_qualname for call in calls[1:]]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions count calls otherwise")
def test_a_known_class_with_one_changed_row_takes_few_calls():
    cache, framework, pod = known_class(100)
    snapshot, found = cache.snapshot(0.0), []
    names = called(lambda: found.append(decide(pod, snapshot, framework)))
    assert found[0].node is not None
    assert len(names) <= 24, names


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions count calls otherwise")
def test_a_known_class_with_many_changed_rows_takes_few_calls():
    cache, framework, pod = known_class(100)
    assert decide(pod, cache.snapshot(0.0), framework).node is not None
    for i in range(40):
        cache.assume(make_pod(f"other{i}", cpu="200m"), f"n{i}")
    decide(make_pod("other", cpu="200m"), cache.snapshot(0.0), framework)  # a class in between
    snapshot, found = cache.snapshot(0.0), []
    names = called(lambda: found.append(decide(pod, snapshot, framework)))
    assert found[0].node is not None
    assert "_Asking._update_rows" in names, "they were asked about one by one"
    assert len(names) <= 37, names


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions count calls otherwise")
def test_a_new_class_asks_those_alone_that_may_say_something_else():
    cache, same = known_class(100)[0], Same()
    profile = Profile("berth", (*default_plugins(), Weighted(same, 1.0)))
    framework, fresh = Framework(profile), Framework(profile, memo_bytes=0)
    calls = []
    for number in range(4):
        pod = of_image(number, f"p{number}", cpu=f"{100 + number}m")
        snapshot = cache.snapshot(0.0)
        framework.pre_enqueue(pod, snapshot)
        same.asked.clear()
        calls.append(called(lambda pod=pod, at=snapshot: decide(pod, at, framework)))
        assert bool(same.asked) is (number == 0)
        names = called(lambda pod=pod, at=snapshot: decide(pod, at, fresh))
        assert "PluginRunner.pre_score" in names, "nothing is kept here"
    assert max(map(len, calls[1:])) <= 130


def test_one_changed_row_is_asked_of_the_joint_alone_and_of_policies_that_read_it():
    cache, _, pod = known_class(100)
    text = {"p.policy": "filter: count(node.pods) < 9\nscore: 99 - count(node.pods)\n"}
    framework, fresh = chain(text), chain(text)
    chosen = decide(pod, cache.snapshot(0.0), framework).node
    for node in (chosen, "n1"):
        cache.assume(make_pod(f"on-{node}", cpu="100m"), node)
        snapshot, found = cache.snapshot(0.0), []
        names = called(lambda at=snapshot, to=found: to.append(decide(pod, at, framework)))
        assert "_Asking._update_row" in names
        assert "_Asking._update_rows" not in names
        assert found[0].node == decide(pod, snapshot, fresh).node


def test_a_class_is_named_anew_where_a_version_moved():
    asked = []

    class Keyed:
        def __init__(self, name, version):
            self.name, self.version = name, version

        def points(self):
            return Points(
                class_key=lambda pod, snapshot: asked.append(self.name),
                key_version=self.version,
                score=lambda state, pod, snapshot, rows: None,
            )

    cache, namespaces = Cache(), lambda snapshot: len(snapshot.namespaces)
    plugins = Keyed("Still", None), Keyed("Moving", namespaces), Keyed("Same", lambda _: 0)
    sorter = Weighted(make_plugin("PrioritySort"))
    framework = Framework(Profile("berth", (sorter, *[Weighted(each, 1.0) for each in plugins])))
    pod = make_pod("p")
    for namespace in ("one", "one", "two"):
        cache.namespaces[namespace] = None
        framework.pre_enqueue(pod, cache.snapshot(0.0))
    assert asked == ["Still", "Moving", "Same"] * 2


def test_a_single_row_is_asked_about_with_the_snapshot_of_its_cycle():
    asked = []

    class Rows:
        """What it keeps between cycles may be told by the snapshot's generation."""

        name = "rows"

        def points(self):
            return Points(class_key=lambda pod, snapshot: 0, filter=self.filter, score=self.score)

        def filter(self, state, pod, snapshot, rows):
            asked.append(snapshot.generation)
            return Verdicts.uniform(np.ones(3, np.bool_)[rows], unschedulable(""))

        def score(self, state, pod, snapshot, rows):
            asked.append(snapshot.generation)
            return np.zeros(3)[rows]

    cache = Cache()
    for i in range(3):
        cache.add_node(make_node(f"n{i}"))
    plugins = [*default_plugins(), Weighted(Rows())]
    framework = Framework(Profile("default-scheduler", tuple(plugins)))
    for i in range(4):
        asked.clear()
        pod, snapshot = make_pod(f"p{i}"), cache.snapshot(0.0)
        decision = decide(pod, snapshot, framework)
        assert asked == [snapshot.generation] * 2
        cache.assume(pod, decision.node)


def test_among_scores_that_are_no_whole_numbers_ties_fall_as_without_the_memo():
    class Third:
        name = "third"

        def points(self):
            return Points(class_key=lambda pod, snapshot: 0, score=self.score)

        def score(self, state, pod, snapshot, rows):
            return np.full(len(snapshot.nodes.present[rows]), 100 / 3)

    profile, chosen = Profile("", (*default_plugins(), Weighted(Third()))), []
    for framework in (Framework(profile), Framework(profile, memo_bytes=0)):
        cache, nodes = Cache(), []
        for i in range(40):
            cache.add_node(make_node(f"n{i}"))
        for i in range(60):
            pod = make_pod(f"p{i}")
            nodes.append(decide(pod, cache.snapshot(0.0), framework).node)
            cache.assume(pod, nodes[-1])
        chosen.append(nodes)
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("moved", [1, 20])
def test_rows_that_a_pre_filter_left_out_stay_left_out(moved):
    class First:
        name = "first"

        def points(self):
            said = PreFilterResult(rows=np.array([0]), causes=Cause.POD)
            return Points(
                class_key=lambda pod, snapshot: 0,
                pre_filter=lambda pod, snapshot: said,
                filter=lambda state, pod, snapshot, rows: ALL_PASS,
            )

    sorter = Weighted(make_plugin("PrioritySort"))
    cache, framework = Cache(), Framework(Profile("", (sorter, Weighted(First()))))
    for i in range(30):
        cache.add_node(make_node(f"n{i}"))
    for step in range(2):
        decision = decide(make_pod("p"), cache.snapshot(0.0), framework)
        assert (decision.node, decision.feasible) == ("n0", 1)
        for i in range(1, 1 + moved):
            cache.add_pod(make_pod(f"x{step}-{i}"), f"n{i}")


def test_a_known_class_with_one_changed_row_allocates_nothing_of_the_size_of_the_cluster():
    nodes = 20_000
    cache, framework, pod = known_class(nodes)
    snapshot = cache.snapshot(0.0)
    tracemalloc.start()
    try:
        decide(pod, snapshot, framework)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < nodes


def bytes_a_class(nodes: int) -> float:
    classes, first = 50, 10
    cache, framework, _ = known_class(nodes)
    pods = [make_pod(f"c{i}", cpu=f"{200 + i}m") for i in range(first + classes)]
    snapshot = cache.snapshot(0.0)
    tracemalloc.start()
    try:
        for pod in pods[:first]:  # what is made once is no class's
            framework.class_of(pod, snapshot)
        before, _ = tracemalloc.get_traced_memory()
        for pod in pods[first:]:
            framework.class_of(pod, snapshot)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / classes


def test_a_class_takes_a_key_a_node():
    nodes = 5_000
    # Nor is what is made once a process, whenever that comes.
    assert min(bytes_a_class(nodes) for _ in range(3)) <= 8 * nodes + (8 << 10)


def test_a_class_that_is_not_asked_for_keeps_no_samples():
    class Samples(type(Cache().snapshot(0.0).signals)):
        """With a name for itself to be gone by."""

    cache, framework, pod = known_class(20)
    samples = Samples().view(cache, 0.0)
    gone = weakref.ref(samples)
    for number in range(3):
        decision = decide(pod, cache.snapshot(0.0, samples), framework)
        cache.add_pod(make_pod(f"new-{number}", cpu="1"), decision.node)
    del samples, decision
    gc.collect()
    assert gone() is None


def test_classes_that_are_forgotten_leave_nothing_behind():
    """Whoever makes pods that no other is like, say each with an image of its own."""
    nodes, classes = 1_000, 100
    cache, framework, _ = known_class(nodes)
    snapshot = cache.snapshot(0.0)

    def unlike(number):
        container = {"name": "c", "image": f"example.com/{number}"}
        tolerates = {"key": f"k{number}", "operator": "Exists"}
        return make_pod(f"u{number}", spec={"containers": [container], "tolerations": [tolerates]})

    tracemalloc.start()
    try:
        for number in range(_MOST_CLASSES):
            framework.class_of(unlike(number), snapshot)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(_MOST_CLASSES, _MOST_CLASSES + classes):
            framework.class_of(unlike(number), snapshot)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= classes * (8 << 10)


def test_scores_of_sets_of_nodes_are_bounded_by_their_bytes():
    nodes, bound = 50_000, 32 << 20
    sharing = Sharing()
    column = np.zeros(nodes)
    tracemalloc.start()
    try:
        for number in range(100):
            for plugin in range(20):
                sharing.keep((plugin, number), column.copy(), 1.0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept <= bound + 100 * nodes
    assert (19, 99) in sharing.scores


def test_beyond_their_bytes_those_classes_are_kept_that_were_asked_for_last():
    cache = Cache()
    cache.add_node(make_node("n", cpu="64"))
    framework = Framework(Profile("berth", default_plugins()), memo_bytes=1)
    pods = [make_pod(f"p{number}", cpu=f"{number + 1}m") for number in range(3 * _LEAST_CLASSES)]
    snapshot, seen = cache.snapshot(0.0), []
    for pod in pods:
        seen.append(framework.class_of(pod, snapshot))
        assert framework.class_of(pod, snapshot) is seen[-1]
        assert framework.class_of(pods[0], snapshot) is seen[0]
    kept = [framework.class_of(pod, snapshot) is one for pod, one in zip(pods, seen, strict=True)]
    assert sum(kept) < _LEAST_CLASSES
    assert kept[0]
    assert not any(kept[1:-_LEAST_CLASSES])


def test_a_hundred_workloads_that_take_turns_are_known_at_50_000_nodes():
    nodes = 50  # and a thousandth of the memory
    cache, _, _ = known_class(nodes)
    profile = Profile("berth", default_plugins())
    framework = Framework(profile, memo_bytes=MEMO_BYTES * nodes // 50_000)
    snapshot = cache.snapshot(0.0)
    pods = [make_pod(f"p{number}", cpu=f"{number + 1}m") for number in range(100)]
    first, second = ([framework.class_of(pod, snapshot) for pod in pods] for _ in range(2))
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_classes_that_only_differ_in_what_looks_further_have_one_column_and_each_its_choice():
    cache, framework, _ = known_class(9)
    for number in range(9):
        node = make_node(f"n{number}", cpu="64", memory="256Gi", labels={"zone": f"{number % 3}"})
        cache.add_node(node)
    hard = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    apps = ("a", "b", "c")

    def waiting(app, number):
        selector = {"matchLabels": {"app": app}}
        spec = {"topologySpreadConstraints": [{**hard, "labelSelector": selector}]}
        return make_pod(f"{app}{number}", cpu="100m", labels={"app": app}, spec=spec)

    zones = {app: [] for app in apps}
    for number in range(9):
        for app in apps:
            pod = waiting(app, number)
            node = decide(pod, cache.snapshot(0.0), framework).node
            cache.assume(pod, node)
            zones[app].append(int(node[1:]) % 3)
    assert all({seen.count(zone) for zone in range(3)} == {3} for seen in zones.values())
    columns = [framework.class_of(waiting(app, 0), cache.snapshot(0.0)).keys for app in apps]
    assert columns[0] is columns[1] is columns[2]
    other = framework.class_of(make_pod("o", cpu="200m"), cache.snapshot(0.0)).keys
    assert other is not columns[0]


def test_all_classes_of_a_column_notice_what_one_of_them_asked_anew_for():
    cache = Cache()
    for number in range(3):
        cache.add_node(make_node(f"n{number}", labels={"z": f"{number}"}))
    wide = Odd("Odd", "zone", "all", "", Normalization.NONE, shared=False, keyed=2, least=0.0)
    framework = Framework(Profile("berth", (*default_plugins(), Weighted(wide, 1.0))))

    def feasible(app):
        return decide(of_app(app, f"p{app}"), cache.snapshot(0.0), framework).feasible

    assert [feasible(app) for app in (1, 2)] == [0, 0]
    cache.namespaces["one"] = cache.namespaces["two"] = None
    assert [feasible(app) for app in (1, 2)] == [2, 2]


def test_equal_pods_that_fit_nowhere_are_rejected_once_while_nothing_changes(monkeypatch):
    cache, framework, _ = known_class(9)
    fresh = Framework(framework.profile, memo_bytes=0)
    asked, ask = [], framework.rejections
    monkeypatch.setattr(framework, "rejections", lambda *of: asked.append(1) or ask(*of))
    selector = {"labelSelector": {"matchLabels": {"app": "gone"}}, "topologyKey": "zone"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}

    def same(name, priority=0):
        specs = {"affinity": {"podAffinity": required}}, {"nodeSelector": {"gone": "yes"}}
        for pod in (make_pod(name, spec=spec, priority=priority) for spec in specs):
            snapshot = cache.snapshot(0.0)
            assert told(pod, snapshot, framework) == told(pod, snapshot, fresh)

    for name in "abc":
        same(name)
    assert len(asked) == 2
    cache.nominate(make_pod("promised", priority=5), "n1")
    for priority in (0, 0, 9, 9):
        same("d", priority)
    assert len(asked) == 6
    same("e")
    cache.assume(make_pod("new"), "n1")
    same("f")
    assert len(asked) == 10


def test_why_pods_fit_nowhere_is_told_anew_when_a_namespace_has_other_labels():
    cache = Cache()
    cache.add_node(make_node("n", labels={"host": "n"}))
    cache.assume(make_pod("there", namespace="space", labels={"app": "x"}), "n")
    kept, fresh = (Framework(Profile("b", default_plugins()), memo_bytes=m) for m in (1 << 20, 0))

    def of(label):
        spaces = {"namespaceSelector": {"matchLabels": {label: "yes"}}, "topologyKey": "host"}
        terms = [{"labelSelector": {"matchLabels": {"app": "x"}}, **spaces}]
        return {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    said = []
    for labels in ({}, {"near": "yes", "far": "yes"}, {"far": "yes"}):
        cache.set_namespace(Namespace(ObjectMeta(name="space", labels=labels)))
        pod = make_pod(
            f"p{len(said)}",
            spec={"affinity": {"podAffinity": of("near"), "podAntiAffinity": of("far")}},
        )
        each = [told(pod, cache.snapshot(0.0), one) for one in (kept, fresh)]
        assert each[0] == each[1]
        said.append(each[0])
    assert said[0] != said[1] != said[2]


def test_a_node_that_joins_drops_no_class():
    cache, framework, pod = known_class(200)
    known = framework.class_of(pod, cache.snapshot(0.0))
    fills = known.keys.fills
    cache.add_node(make_node("new", cpu="64", memory="256Gi"))
    cache.remove_node("n3")
    assert framework.class_of(pod, cache.snapshot(0.0)) is known
    assert known.keys.fills == fills == 1
    assert known.keys.feasible == 200


@pytest.mark.parametrize("beside", [0, 20])
def test_scores_are_normalised_anew_once_other_nodes_are_feasible(beside):
    cache, profile = Cache(), Profile("berth", default_plugins())
    for zone in "abc":
        cache.add_node(make_node(zone, cpu="1", labels={"z": zone}))
    for number in range(beside):
        cache.add_node(make_node(f"n{number}", unschedulable=True))
    wanted = [
        {"weight": weight, "preference": {"matchExpressions": [{**IN_ZONE, "values": [zone]}]}}
        for zone, weight in (("a", 100), ("b", 50))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wanted}}
    kept, nodes = Framework(profile), []
    for step in range(3):
        pod, snapshot = (
            make_pod(f"p{step}", cpu="1", spec={"affinity": affinity}),
            cache.snapshot(0),
        )
        found = told(pod, snapshot, kept)
        assert found == told(pod, snapshot, Framework(profile, memo_bytes=0))
        nodes.append(found[0])
        cache.assume(pod, found[0])
        for number in range(beside):
            cache.add_pod(make_pod(f"x{step}-{number}"), f"n{number}")
    assert nodes == ["a", "b", "c"]


def test_two_scores_that_move_at_once_are_both_noticed():
    cache = Cache()
    for number in range(3):
        cache.add_node(make_node(f"n{number}", labels={"z": "a"} if number == 0 else {}))
    in_zone = {"matchExpressions": [{**IN_ZONE, "values": ["a"]}]}
    wanted = [{"weight": 1, "preference": in_zone}]
    spec = {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wanted}}
    }
    pod = make_pod("p", spec=spec)
    profile = Profile("berth", default_plugins())
    kept = Framework(profile)
    assert decide(pod, cache.snapshot(0.0), kept).node == "n0"
    taint = {"key": "k", "effect": "PreferNoSchedule"}
    cache.add_node(make_node("n0", labels={"z": "a"}, taints=[taint]))
    cache.add_node(make_node("n1", labels={"z": "a"}))
    snapshot = cache.snapshot(0.0)
    fresh = Framework(profile, memo_bytes=0)
    assert told(pod, snapshot, kept) == told(pod, snapshot, fresh)
