"""Small things beside their equal in bare NumPy: what the language and the memo add."""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import numpy as np

from dsl.compiler import Compiler
from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.cycle import decide
from engine.framework.decision import Placed
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot, label_column
from engine.journal.recorder import Recorder
from engine.pods.podinfo import PodInfo
from engine.policy.bundle import compile_at_once, compile_settings
from engine.policy.plugin import PolicyPlugin
from engine.policy.world import Worlds
from tests.bench import decisions
from tests.bench.measure import Measurement, seconds_each
from tests.builders import Cache, make_pod


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    nodes: int = 5000
    pods: int = 100_000
    rounds: int = 60
    imports: int = 5
    journal_pods: int = 1500
    journal_rounds: int = 5


QUICK = Sizes(rounds=20, imports=2, journal_pods=300, journal_rounds=3)
TOY = Sizes(nodes=20, pods=50, rounds=3, imports=1, journal_pods=20, journal_rounds=1)


@dataclass
class World:
    """A cluster with the two lines in force and a metric."""

    nodes: int
    clock: ManualClock = field(default_factory=ManualClock)
    cache: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        objects = decisions.cluster_nodes(self.nodes)
        for node in objects:
            self.cache.add_node(node)
        self.bundle = decisions.bundle_of_lines()
        self.metric = decisions.Metric(objects, self.bundle, self.clock)
        self.metric.change()
        self.framework: Framework = decisions.framework_with(self.bundle)

    @property
    def policy(self) -> PolicyPlugin:
        """The two lines as a plugin."""
        plugins = [weighted.plugin for weighted in self.framework.profile.plugins]
        return next(one for one in plugins if isinstance(one, PolicyPlugin))

    def snapshot(self) -> Snapshot:
        """The cluster as of now."""
        now = self.clock.time()
        return self.cache.snapshot(now, self.metric.store.view(self.cache, now))


def measure(sizes: Sizes) -> Iterator[Measurement]:
    """All small rows."""
    yield from _lines(sizes)
    yield from _rows(sizes)
    yield from _compile(sizes)
    yield from _imports(sizes)
    yield from _journal(sizes)


# ---- a line against what one would write by hand -------------------------------------------------


def _lines(sizes: Sizes) -> Iterator[Measurement]:
    world = World(sizes.nodes)
    snapshot, policy = world.snapshot(), world.policy
    pod = make_pod("nginx-1", cpu="100m")
    everyone = np.arange(sizes.nodes)
    full, one = slice(0, sizes.nodes), np.array([sizes.nodes // 2], dtype=np.intp)
    points = policy.points()
    scored = points.pre_score(pod, snapshot).state
    asked = points.pre_filter(pod, snapshot).state
    bandwidth = snapshot.signals.column(world.bundle.metrics[0].id)
    labels = snapshot.nodes.text(*label_column("test"))
    code = snapshot.dictionary.find("test")
    row = int(one[0])
    (rule,), (parts,) = policy.plan.scores, scored
    columns = policy._worlds.of(snapshot)
    took = seconds_each(
        {
            "score": lambda: points.score(scored, pod, snapshot, everyone),
            "bare score": lambda: 100 - bandwidth / bandwidth.max() * 100,
            "score of one row": lambda: rule.column(parts, columns, one, full),
            "label": lambda: points.filter(asked, pod, snapshot, full),
            "bare label": lambda: labels == code,
            "label of one row": lambda: points.filter(asked, pod, snapshot, one),
            "bare label of one row": lambda: labels.item(row) == code,
        },
        rounds=sizes.rounds,
        repeat=50,
    )
    size = f"{sizes.nodes} nodes"
    yield _against(
        f"score line, {size}", took["score"], took["bare score"], "bare NumPy", at_most=10
    )
    yield _against(
        "score line, one changed row",
        took["score of one row"],
        took["score"],
        "all rows",
        us_at_most=15.0,
    )
    yield _against(
        f"label test, {size}", took["label"], took["bare label"], "bare int compare", at_most=5
    )
    yield _against(
        "label test, one changed row",
        took["label of one row"],
        took["label"],
        "all rows",
        us_at_most=15.0,
    )
    yield _changed_row(world, sizes)


# ---- rows that changed, and pods -----------------------------------------------------------------

#: A bundle beyond the two lines: what a rule of each usual kind costs for one row.
HEAVIER = """\
filter: pod.name contains nginx -> node.label test=test
require: node.cpu.requested + pod.cpu <= 80% of node.cpu.allocatable
require: node.memory.free - pod.memory >= 10% of node.memory.allocatable
require: not node.label drain and (node.label disktype in [ssd, nvme] or node.label test)
forbid: pod.qos is BestEffort -> node.label tier=gold
filter: count(node.pods where it.namespace == pod.namespace and it.name contains nginx) <= 100
filter: peers(node) < 50
"""
COUNTING = "filter: count(node.pods where it.priority < pod.priority) < 1000"
#: Of the snapshot alone, so that it is kept and brought up to date.
SUMMED = "filter: sum(it.memory over node.pods where it.priority < 50) < 1Ti and pod.priority > 0"


def _rows(sizes: Sizes) -> Iterator[Measurement]:
    """What one changed row costs, and aggregates over many pods."""
    cluster = Crowd(sizes)
    bounds = {"the two lines": 15.0}
    rules = {"the two lines": decisions.LINES, "seven filters": HEAVIER}
    for name, text in rules.items():
        policy, asked = cluster.policy(text)
        ask = policy.points().filter
        took = seconds_each(
            {
                "one": lambda f=ask, a=asked: f(a, cluster.pod, cluster.snapshot, cluster.one),
                "all": lambda f=ask, a=asked: f(a, cluster.pod, cluster.snapshot, cluster.everyone),
            },
            rounds=sizes.rounds,
            repeat=20,
        )
        text = f"one changed row, {name}"
        yield _against(text, took["one"], took["all"], "all rows", us_at_most=bounds.get(name))
    yield from _counted(cluster, sizes)


def _counted(cluster: Crowd, sizes: Sizes) -> Iterator[Measurement]:
    policy, asked = cluster.policy(COUNTING)
    priorities, rows = cluster.columns()
    sums, summed = cluster.policy(SUMMED)
    ask, sum_up = policy.points().filter, sums.points().filter

    def bare() -> object:
        return np.bincount(rows[priorities < 50], minlength=sizes.nodes) < 1000

    def touched() -> object:
        cluster.touch()
        return sum_up(summed, cluster.pod, cluster.take(), cluster.everyone)

    took = seconds_each(
        {
            "full": lambda: ask(asked, cluster.pod, cluster.snapshot, cluster.everyone),
            "bare": bare,
            "one": lambda: ask(asked, cluster.pod, cluster.snapshot, cluster.one),
            "touch": lambda: (cluster.touch(), cluster.take()),
            "patched": touched,
        },
        rounds=sizes.rounds,
        repeat=5,
    )
    pods = f"{sizes.pods:,} pods"
    yield _against(
        f"count(node.pods ...), {pods}", took["full"], took["bare"], "bare NumPy", us_at_most=1000.0
    )
    yield _against(
        f"count(node.pods ...), {pods}, one changed row", took["one"], took["full"], "all rows"
    )
    yield _against(
        f"sum(... over node.pods), {pods}, all rows after one changed",
        took["patched"] - took["touch"],
        took["full"],
        "all rows",
    )


class Crowd:
    """A cluster full of pods, and policies asked about one more."""

    def __init__(self, sizes: Sizes) -> None:
        self.cache = Cache()
        nodes = decisions.cluster_nodes(sizes.nodes)
        for node in nodes:
            self.cache.add_node(node)
        for number in range(sizes.pods):
            pod = make_pod(f"p{number}", memory="64Mi", priority=number * 7 % 100)
            self.cache.assume(pod, nodes[number % sizes.nodes].metadata.name)
        self.everyone = slice(0, sizes.nodes)
        self.one = np.array([sizes.nodes // 2], dtype=np.intp)
        self.pod = make_pod("nginx-1", cpu="100m", priority=50)
        self._other, self._name = make_pod("other"), self.cache.nodes.name(0)
        self._worlds = Worlds(ZoneInfo("UTC"), ())
        self.take()

    def take(self) -> Snapshot:
        """A new snapshot."""
        self.snapshot = self.cache.snapshot(0.0)
        return self.snapshot

    def touch(self) -> None:
        """One row changes."""
        if not self.cache.forget(self._other.uid):
            self.cache.assume(self._other, self._name)

    def policy(self, text: str) -> tuple[PolicyPlugin, object]:
        """The text as a plugin, and what its filters read of the pod."""
        (plan,) = decisions.bundle_of_lines(text).plans
        plugin = PolicyPlugin(plan, self._worlds)
        return plugin, plugin.points().pre_filter(self.pod, self.take()).state

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Priority and node row of each pod, as one would hold them by hand."""
        pods = self.cache.pods
        return pods.priority.astype(np.float64), pods.node.astype(np.intp)


def _changed_row(world: World, sizes: Sizes) -> Measurement:
    """A whole decision: a class that is known with one changed row, and a class that is new."""
    framework, cache = world.framework, world.cache
    pod = make_pod("nginx-known", cpu="50m", memory="64Mi")
    fresh: Iterator[PodInfo] = iter(
        [
            make_pod(f"nginx-fresh-{i}", cpu=f"{100 + i}m", memory="64Mi")
            for i in range(20 * sizes.rounds + 3)
        ]
    )
    other = make_pod("other", cpu="10m", memory="16Mi")
    name = cache.nodes.name(0)

    def touch() -> None:
        cache.assume(other, name)
        cache.forget(other.uid)

    def known() -> None:
        touch()
        decide(pod, world.snapshot(), framework)

    def new() -> None:
        touch()
        decide(next(fresh), world.snapshot(), framework)

    took = seconds_each({"known": known, "new": new}, rounds=sizes.rounds, repeat=20)
    text = f"decision with one changed row, {sizes.nodes} nodes"
    return _against(text, took["known"], took["new"], "new class")


def _against(
    name: str,
    ours: float,
    other: float,
    what: str,
    *,
    at_most: float | None = None,
    us_at_most: float | None = None,
) -> Measurement:
    """One thing beside another; `at_most` is how many times the other it may take."""
    values = {"us": 1e6 * ours, "other_us": 1e6 * other, "ratio": ours / other}
    tags: dict[str, str | int | float] = {"other": what}
    if at_most is not None:
        tags["at_most"] = at_most
    if us_at_most is not None:
        tags["us_at_most"] = us_at_most
    return Measurement("language", name, values, tags)


# ---- once in a while -----------------------------------------------------------------------------


def _compile(sizes: Sizes) -> Iterator[Measurement]:
    settings = compile_settings(BerthDocument())
    compiler = Compiler()
    files = {"demo.policy": decisions.LINES}
    began = time.perf_counter()
    compiler.warm()
    warm = time.perf_counter() - began
    took = seconds_each(
        {"compile": lambda: compile_at_once(compiler, files, settings)},
        rounds=max(3, sizes.rounds // 2),
        repeat=3,
    )
    yield Measurement("language", "grammar tables, once a process", {"us": 1e6 * warm})
    yield Measurement(
        "language", "parse, check and compile two lines", {"us": 1e6 * took["compile"]}
    )


def _imports(sizes: Sizes) -> Iterator[Measurement]:
    bare = _start(["-c", "pass"], sizes.imports)
    for name, code in (
        ("import dsl", "import dsl.compiler"),
        ("import engine.app", "import engine.app"),
    ):
        seconds = _start(["-c", code], sizes.imports) - bare
        yield Measurement("language", f"{name}, beyond a bare Python", {"us": 1e6 * seconds})


def _start(arguments: Sequence[str], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


# ---- the journal ---------------------------------------------------------------------------------


def _journal(sizes: Sizes) -> Iterator[Measurement]:
    """What writing a journal (to memory) adds to a decision, and that it is nothing when off."""
    nodes = min(sizes.nodes, 1000)
    taken: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(sizes.journal_rounds):
        for which, each in taken.items():
            each.append(_decisions(nodes, sizes.journal_pods, recorded=which == "on"))
    off, on = statistics.median(taken["off"]), statistics.median(taken["on"])
    yield _against(f"decision with the journal off, {nodes} nodes", off, on, "journal on")


def _decisions(nodes: int, pods: int, *, recorded: bool) -> float:
    """CPU seconds a decision of identical pods."""
    ids = tuple([spec.id for spec in decisions.bundle_of_lines().metrics])
    recorder = Recorder(io.BytesIO(), lambda: ids) if recorded else None
    world = World(nodes, cache=Cache() if recorder is None else recorder.cache)
    waiting = decisions.identical(pods)
    began = time.thread_time()
    for pod in waiting:
        snapshot = world.snapshot()
        decision = decide(pod, snapshot, world.framework)
        if recorder is not None:
            recorder.placed(Placed(decision, snapshot, 0.0))
        assert decision.node is not None
        world.cache.assume(pod, decision.node)
    return (time.thread_time() - began) / pods
