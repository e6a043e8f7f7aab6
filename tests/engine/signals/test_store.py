from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from threading import current_thread, main_thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.plan import DOMAINS, MetricSpec
from dsl.schema import WELL_KNOWN_LABELS
from engine.clock import ManualClock
from engine.framework.snapshot import Dictionary, Signals
from engine.objects import Node, NodeAddress, NodeStatus, ObjectMeta
from engine.signals.samples import NodeDirectory, Series, without_port
from engine.signals.spec import DOMAIN_LABELS, question_of
from engine.signals.store import SignalStore
from tests.builders import Cache, make_metric, make_pod
from tests.effort import examples


def node(name: str, ip: str = "", hostname: str = "") -> Node:
    labels = {"kubernetes.io/hostname": hostname} if hostname else None
    addresses = [NodeAddress("InternalIP", ip)] if ip else None
    return Node(
        metadata=ObjectMeta(name=name, labels=labels), status=NodeStatus(addresses=addresses)
    )


@dataclass
class Bench:
    clock: ManualClock
    cache: Cache
    store: SignalStore

    def put(self, *nodes: Node) -> None:
        for each in nodes:
            self.cache.add_node(each)
            self.store.nodes_changed(None, each)

    def samples(self, spec: MetricSpec, **values: float) -> None:
        now = self.clock.time()
        self.series(spec, *(Series((name,), value, now) for name, value in values.items()))

    def series(self, spec: MetricSpec, *series: Series) -> None:
        self.store.ingest(question_of(spec), series)

    def view(self) -> Signals:
        return self.store.view(self.cache, self.clock.time())

    def read(self, metric: str = "m") -> dict[str, float]:
        return self._named(self.view().column(metric))

    def ages(self, metric: str = "m") -> dict[str, float]:
        return self._named(self.view().age(metric))

    def pods(self, metric: str) -> dict[str, float]:
        pods = self.cache.pods
        column = self.view().of_pods(metric, pods)
        assert column.shape == (pods.size,)
        found = {pods.pod(row).key: float(column[row]) for row in range(pods.size)}
        return {name: value for name, value in found.items() if not math.isnan(value)}

    def _named(self, column: np.ndarray) -> dict[str, float]:
        nodes = self.cache.nodes
        assert column.shape == (nodes.size,)
        return {
            nodes.name(row): float(column[row])
            for row in np.flatnonzero(nodes.present).tolist()
            if not math.isnan(column[row])
        }


@pytest.fixture
def bench() -> Bench:
    clock = ManualClock()
    return Bench(clock, Cache(), SignalStore(clock))


SPEC = make_metric("m", "q")
NOW = ManualClock().time()


def test_samples_find_their_node_by_any_of_its_names(bench: Bench) -> None:
    bench.put(
        node("a", "10.0.0.1"),
        node("b", hostname="host-b"),
        node("c", "fd00::1"),
        node("d"),
        node("e"),
    )
    bench.store.set_specs([SPEC])
    bench.view()
    bench.samples(
        SPEC, **{"10.0.0.1:9100": 1, "host-b:9100": 2, "[fd00::1]:9100": 3, "d": 4, "stranger": 5}
    )
    assert bench.read() == {"a": 1, "b": 2, "c": 3, "d": 4}
    [status] = bench.store.status()
    assert (status.series, status.matched, status.unmatched, status.error) == (5, 4, 1, "")


@pytest.mark.parametrize("gone", ["old", "new"])
def test_an_address_is_of_the_node_that_came_last_and_of_the_one_that_stays(
    bench: Bench, gone: str
) -> None:
    """A cloud gives the address of a node to the next one before the first is deleted."""
    old, new = node("old", "10.0.0.1", hostname="10.0.0.1"), node("new", "10.0.0.1")
    bench.store.set_specs([SPEC])
    for one in (old, new):
        bench.put(one)
    bench.samples(SPEC, **{"10.0.0.1:9100": 1})
    assert bench.read() == {"new": 1}
    bench.store.nodes_changed(old if gone == "old" else new, None)
    bench.cache.remove_node(gone)
    bench.samples(SPEC, **{"10.0.0.1:9100": 2})
    assert bench.read() == {"new" if gone == "old" else "old": 2}


def test_the_first_label_that_names_a_node_counts(bench: Bench) -> None:
    bench.put(node("a"), node("b"))
    bench.store.set_specs([SPEC])
    bench.view()
    bench.series(SPEC, Series(("exporter-7", "a:9100", "b"), 1.0, bench.clock.time()))
    assert bench.read() == {"a": 1}


def test_samples_that_came_before_their_node_are_not_lost(bench: Bench) -> None:
    bench.store.set_specs([SPEC])
    bench.samples(SPEC, a=1, b=2)
    assert bench.read() == {}
    bench.put(node("a"))
    assert bench.read() == {"a": 1}
    bench.put(node("b"))
    assert bench.read() == {"a": 1, "b": 2}


def test_a_new_address_is_told_by_nodes_changed(bench: Bench) -> None:
    bench.put(node("a"))
    bench.store.set_specs([SPEC])
    bench.samples(SPEC, **{"10.0.0.1:9100": 1})
    assert bench.read() == {}
    version = bench.view().version
    bench.store.nodes_changed(node("a"), node("a", "10.0.0.1"))
    assert bench.read() == {"a": 1}
    assert bench.view().version != version


@pytest.mark.parametrize("other", ["a", "c"])
def test_a_node_that_comes_later_does_not_inherit(bench: Bench, other: str) -> None:
    bench.put(node("a"), node("b"))
    bench.store.set_specs([SPEC])
    bench.view()
    bench.samples(SPEC, a=1, b=2)
    bench.cache.remove_node("a")
    bench.store.nodes_changed(node("a"), None)
    bench.put(node(other))
    assert bench.read() == {"b": 2}
    bench.samples(SPEC, b=3)
    assert bench.read() == {"b": 3}


def test_the_largest_of_several_series_is_used_and_told_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put(node("a"))
    bench.store.set_specs([SPEC])
    bench.view()
    now = bench.clock.time()
    for _ in range(2):
        bench.series(
            SPEC, Series(("a:1",), 3, now), Series(("a:2",), 7, now), Series(("a:3",), 5, now)
        )
    assert bench.read() == {"a": 7}
    assert bench.store.status()[0].duplicates == 2
    assert len([r for r in caplog.records if "P603" in r.message]) == 1


def test_stale_samples_are_missing_and_their_age_still_shows(bench: Bench) -> None:
    spec = make_metric("m", "q", stale_seconds=60.0)
    bench.put(node("a"), node("b"))
    bench.store.set_specs([spec])
    bench.view()
    bench.samples(spec, a=1)
    bench.clock.advance(50.0)
    bench.samples(spec, b=2)
    version = bench.view().version
    assert bench.read() == {"a": 1, "b": 2}
    assert bench.ages() == {"a": 50, "b": 0}
    bench.clock.advance(10.0)
    assert bench.view().version == version
    assert bench.read() == {"a": 1, "b": 2}
    bench.clock.advance(0.5)
    assert bench.view().version != version
    assert bench.read() == {"b": 2}
    assert bench.ages() == {"a": 60.5, "b": 10.5}
    bench.clock.advance(100.0)
    assert bench.read() == {}


def test_a_metric_is_missing_by_its_own_time(bench: Bench) -> None:
    hourly = make_metric("hourly", "r", every_seconds=3600.0, stale_seconds=7200.0)
    bench.put(node("a"))
    bench.store.set_specs([SPEC, hourly])
    bench.view()

    def missing() -> list[str]:
        return [one.id for one in bench.store.status() if one.missing]

    assert missing() == ["hourly", "m"], "there is no answer yet"
    for spec in (SPEC, hourly):
        bench.samples(spec, a=1)
    assert missing() == []
    bench.clock.advance(3600.0)
    bench.samples(SPEC)
    assert missing() == ["m"], "its answer is empty; the other is not even asked for again"
    bench.samples(SPEC, stranger=1)
    assert missing() == ["m"], "no node has it"
    bench.samples(SPEC, a=1)
    assert missing() == []
    bench.clock.advance(3601.0)
    assert missing() == ["hourly", "m"]


def test_default_and_scale(bench: Bench) -> None:
    spec = make_metric("m", "q", default=5.0, scale=0.01)
    bench.put(node("a"), node("b"))
    bench.store.set_specs([spec])
    bench.samples(spec, a=50)
    assert bench.read() == {"a": 0.5, "b": 5.0}
    assert bench.ages() == {"a": 0}
    bench.clock.advance(1000.0)
    assert bench.read() == {"a": 5.0, "b": 5.0}


def test_a_reload_keeps_what_is_still_asked_for(bench: Bench) -> None:
    bench.put(node("a"))
    bench.store.set_specs([SPEC])
    bench.samples(SPEC, a=1)
    bench.store.set_specs([make_metric("n", "q", stale_seconds=5), make_metric("o", "other")])
    assert bench.read("n") == {"a": 1}
    assert bench.read("o") == bench.read("m") == {}


def test_what_may_come_back_is_asked_for_and_not_in_use(bench: Bench) -> None:
    bench.put(node("a"))
    bench.store.set_specs([make_metric("o", "other")], also=[SPEC])
    assert question_of(SPEC) in bench.store.questions()
    bench.samples(SPEC, a=1)
    assert bench.read() == {}
    assert [one.id for one in bench.store.status()] == ["o"]
    bench.store.set_specs([SPEC])
    assert bench.read() == {"a": 1}


def test_one_question_serves_equal_metrics_at_the_quicker_pace(bench: Bench) -> None:
    other = make_metric("n", "q", every_seconds=5)
    bench.store.set_specs([SPEC, other, make_metric("o", "q", by=("host",))])
    assert bench.store.questions() == {
        question_of(SPEC): 5.0,
        question_of(make_metric("", "q", ("host",))): 15.0,
    }
    assert bench.store.names(question_of(SPEC)) == "m, n"


def test_a_sample_from_the_future_is_from_now(bench: Bench) -> None:
    bench.put(node("a"))
    bench.store.set_specs([SPEC])
    bench.series(SPEC, Series(("a",), 1.0, bench.clock.time() + 3600))
    bench.view()
    assert bench.ages() == {"a": 0}
    bench.clock.advance(121.0)
    assert bench.read() == {}


def test_columns_are_read_only_and_made_once(bench: Bench) -> None:
    bench.put(node("a"))
    bench.store.set_specs([SPEC])
    column = bench.view().column("m")
    assert bench.view().column("m") is column
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1.0


def test_an_answer_to_a_question_of_yesterday_is_dropped(bench: Bench) -> None:
    bench.store.set_specs([])
    bench.samples(SPEC, a=1)
    assert not bench.store.fail(question_of(SPEC), "x")


def test_a_match_made_before_nodes_changed_is_made_again(bench: Bench) -> None:
    bench.put(node("a"), node("b"))
    bench.store.set_specs([SPEC])
    bench.view()
    answer = [Series(("a",), 1.0, bench.clock.time()), Series(("b",), 2.0, bench.clock.time())]
    matched = bench.store.match(question_of(SPEC), answer)
    bench.cache.remove_node("a")
    bench.store.nodes_changed(node("a"), None)
    bench.put(node("c"))
    bench.view()
    bench.store.ingest(question_of(SPEC), answer, matched)
    assert bench.read() == {"b": 2}


async def test_an_answer_is_taken_in_however_often_nodes_come(bench: Bench) -> None:
    bench.put(node("a"))
    bench.store.set_specs([SPEC])
    came = itertools.count()

    def read() -> Iterator[Series]:
        assert next(came) < 9, "it is read again and again"
        if current_thread() is not main_thread():
            bench.store.nodes_changed(None, node(f"new-{next(came)}"))
        yield Series(("a",), 1.0, bench.clock.time())

    await bench.store.read_in(question_of(SPEC), read)
    assert bench.read() == {"a": 1}


def test_only_changes_of_state_are_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.store.set_specs([SPEC])
    assert bench.store.fail(question_of(SPEC), "x")
    assert not bench.store.fail(question_of(SPEC), "x")
    bench.samples(SPEC, a=1)
    bench.samples(SPEC, a=1)
    assert [r.message for r in caplog.records] == ["metric m: has an answer again"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "drop", "sample", "wait", "readdress"]),
            st.integers(0, 4),
            st.integers(0, 9),
        ),
        max_size=40,
    )
)
def test_columns_equal_a_naive_model(ops: list[tuple[str, int, int]]) -> None:
    clock = ManualClock()
    bench = Bench(clock, Cache(), SignalStore(clock))
    bench.store.set_specs([SPEC])
    known: dict[str, Node] = {}
    model: dict[str, tuple[float, float]] = {}
    for op, which, number in ops:
        name = f"n{which}"
        now = clock.time()
        match op:
            case "put" | "readdress" if op == "put" or name in known:
                old, new = known.get(name), node(name, f"10.0.{number}.{which}")
                known[name] = new
                bench.cache.add_node(new)
                bench.store.nodes_changed(old, new)
            case "drop" if name in known:
                bench.cache.remove_node(name)
                bench.store.nodes_changed(known.pop(name), None)
                model.pop(name, None)
            case "sample":
                present = [n for n in known if int(n[1]) >= which]
                bench.series(
                    SPEC,
                    *(
                        Series((f"{known[n].status.addresses[0].address}:9100",), number, now)  # type: ignore[index]  # these nodes have one
                        for n in present
                    ),
                )
                model |= dict.fromkeys(present, (number, now))
            case "wait":
                clock.advance(number * 20.0)
            case _:
                pass
        fresh = {n: v for n, (v, t) in model.items() if clock.time() - t <= 120.0}
        assert bench.read() == fresh
        assert bench.ages() == {n: clock.time() - t for n, (_, t) in model.items()}


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("a:9100", "a"),
        ("a", "a"),
        ("a:b", "a:b"),
        ("fd00::1", "fd00::1"),
        ("[fd00::1]:1", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("[", "["),
        (":1", ""),
        ("", ""),
    ],
)
def test_ports(text: str, host: str) -> None:
    assert without_port(text) == host


def test_an_alias_never_hides_a_name() -> None:
    directory = NodeDirectory()
    directory.put(node("a", hostname="b"))
    directory.put(node("b"))
    assert directory.find("b") == "b"
    directory.remove("b")
    assert directory.find("b") == "a"
    directory.remove("a")
    assert directory.find("b") is None
    assert not directory.nodes


# ---- domains -------------------------------------------------------------------------------------

CARBON = make_metric("carbon", "q", of="zone")


def in_zone(name: str, zone: str | None) -> Node:
    labels = None if zone is None else {"topology.kubernetes.io/zone": zone}
    return Node(metadata=ObjectMeta(name=name, labels=labels))


def test_each_node_has_the_value_of_its_zone(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    spec = make_metric("carbon", "q", of="zone", scale=2.0, stale_seconds=60.0)
    nodes = [in_zone("a", "z1"), in_zone("b", "z2"), in_zone("c", "z1"), in_zone("d", None)]
    bench.put(*nodes, in_zone("e", "z9"))
    bench.store.set_specs([spec])
    now = bench.clock.time()
    bench.series(spec, Series(("z1",), 1, now), Series(("z2", "z1"), 2, now), Series((), 3, now))
    assert bench.read("carbon") == {"a": 2, "b": 4, "c": 2}
    [status] = bench.store.status()
    assert (status.series, status.matched, status.unmatched) == (3, 3, 1)
    bench.clock.advance(40.0)
    bench.series(spec, Series(("z1",), 5, now + 40), Series(("z1",), 7, now + 40))
    assert bench.read("carbon") == {"a": 14, "b": 4, "c": 14}
    assert bench.ages("carbon") == {"a": 0, "b": 40, "c": 0}
    assert [r.message for r in caplog.records] == [
        "P603: metric carbon: 1 series more than zones; the largest of each zone is used"
    ]
    bench.clock.advance(21.0)
    assert bench.read("carbon") == {"a": 14, "c": 14}
    assert bench.ages("carbon") == {"a": 21, "b": 61, "c": 21}


def test_a_node_that_moves_has_the_value_of_its_new_zone(bench: Bench) -> None:
    bench.put(in_zone("a", "z1"), in_zone("b", None))
    bench.store.set_specs([CARBON, make_metric("price", "p", of="region", default=3.0)])
    bench.series(CARBON, Series(("z1",), 1, NOW), Series(("z2",), 2, NOW))
    assert bench.read("carbon") == {"a": 1}
    assert bench.read("price") == {"a": 3, "b": 3}
    for old, new in ((in_zone("a", "z1"), in_zone("a", "z2")), (None, in_zone("c", "z1"))):
        version = bench.view().version
        bench.cache.add_node(new)
        bench.store.nodes_changed(old, new)
        assert bench.view().version != version
    assert bench.read("carbon") == {"a": 2, "c": 1}
    assert [one.matched for one in bench.store.status()] == [2, 0]


# ---- one value, or one for each name ----------------------------------------------------------

PRICE = make_metric("price", "q", of="cluster", scale=0.01, stale_seconds=60.0)


def test_the_cluster_has_one_value(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.put(node("a"))
    bench.store.set_specs([PRICE])
    assert math.isnan(bench.view().value("price", ()))
    assert bench.view().values("price") == {}
    bench.series(PRICE, Series((), 30.0, NOW + 99))
    assert bench.view().value("price", ()) == 0.3
    assert bench.view().values("price") == {(): 0.3}
    assert bench.read("price") == {}
    assert math.isnan(bench.view().value("other", ()))
    [status] = bench.store.status()
    assert (status.series, status.matched, status.duplicates) == (1, 1, 0)
    bench.clock.advance(60.0)
    version = bench.view().version
    assert bench.view().value("price", ()) == 0.3
    bench.clock.advance(0.5)
    assert bench.view().version != version
    assert math.isnan(bench.view().value("price", ()))
    assert bench.view().values("price") == {}
    assert caplog.records == []


def test_several_values_of_the_cluster_are_none(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.set_specs([PRICE])
    bench.series(PRICE, Series((), 30.0, NOW))
    for _ in range(2):
        bench.series(PRICE, Series((), 1.0, NOW), Series((), 1.0, NOW))
        assert math.isnan(bench.view().value("price", ()))
        assert bench.view().values("price") == {}
    [status] = bench.store.status()
    assert (status.series, status.matched, status.duplicates) == (2, 0, 1)
    assert [r.message for r in caplog.records] == [
        "P603: metric price: the answer has 2 series, and the cluster one value, so it is missing;"
        " have the query give one series, as with sum(...) or avg(...)"
    ]
    bench.series(PRICE, Series((), 50.0, NOW))
    assert bench.view().value("price", ()) == 0.5
    # No answer at all is no new value: the last one holds until it is stale.
    bench.series(PRICE)
    assert bench.view().value("price", ()) == 0.5


SPENT = make_metric("spent", "q", of="namespace")
SPEED = make_metric("speed", "q", of="workload")
HEAT = make_metric("heat", "q", of="pod", scale=2.0)
RTT = make_metric("rtt", "q", by=("src", "dst"), of="pair")


def test_values_are_of_what_their_labels_name(bench: Bench) -> None:
    specs = [SPENT, SPEED, HEAT, RTT]
    bench.store.set_specs(specs)
    assert len(bench.store.questions()) == 4, "the same query read in four ways"
    bench.series(SPENT, Series(("shop",), 1, NOW), Series(("",), 2, NOW))
    bench.series(SPEED, Series(("shop", "web"), 3, NOW), Series(("shop", ""), 4, NOW))
    bench.series(HEAT, Series(("shop", "p"), 5, NOW), Series(("", "q"), 6, NOW))
    bench.series(RTT, Series(("a", "b"), 7, NOW), Series(("a", ""), 8, NOW))
    view = bench.view()
    assert view.values("spent") == {("shop",): 1}
    assert view.values("speed") == {("shop", "web"): 3}
    assert view.values("heat") == {("shop", "p"): 10, ("", "q"): 12}
    assert view.values("rtt") == {("a", "b"): 7}
    assert (view.value("spent", ("shop",)), view.value("speed", ("shop", "web"))) == (1, 3)
    assert math.isnan(view.value("speed", ("other", "web")))
    assert (view.value("heat", ("shop", "p")), view.value("rtt", ("a", "b"))) == (10, 7)
    assert math.isnan(view.value("heat", ("other", "p")))
    assert view.value("heat", ("any", "q")) == 12, "the query left the namespace out"
    assert math.isnan(view.value("rtt", ("b", "a")))
    assert [(one.matched, one.unmatched) for one in bench.store.status()] == [
        (2, 0),
        (1, 1),
        (1, 1),
        (1, 1),
    ]


def test_the_namespaces_own_value_comes_before_that_of_a_name_alone(bench: Bench) -> None:
    bench.store.set_specs([HEAT])
    bench.series(HEAT, Series(("", "p"), 1, NOW), Series(("shop", "p"), 2, NOW))
    for pod in (make_pod("p", namespace="shop"), make_pod("p", namespace="other"), make_pod("q")):
        bench.cache.add_pod(pod, "a")
    bench.clock.advance(100.0)
    bench.series(HEAT, Series(("", "p"), 3, NOW + 100))
    assert bench.pods("heat") == {"shop/p": 4, "other/p": 6}
    bench.clock.advance(21.0)
    assert bench.pods("heat") == {"shop/p": 6, "other/p": 6}
    assert bench.view().value("heat", ("shop", "p")) == 6


def test_the_largest_of_several_of_a_name_is_used(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.set_specs([SPENT])
    values = (4.0, 9.0, 1.0)
    bench.series(SPENT, *(Series(("shop",), value, NOW) for value in values))
    assert bench.view().values("spent") == {("shop",): 9}
    (record,) = caplog.records
    assert record.message == (
        "P603: metric spent: 2 series more than namespaces; the largest of each namespace is used"
    )


def test_a_match_made_before_other_names_came_is_made_again(bench: Bench) -> None:
    bench.store.set_specs([SPENT])
    first, second = [Series(("a",), 1, NOW)], [Series(("b",), 2, NOW)]
    matched = bench.store.match(question_of(SPENT), second)
    bench.store.ingest(question_of(SPENT), first)
    bench.store.ingest(question_of(SPENT), second, matched)
    assert bench.view().values("spent") == {("a",): 1, ("b",): 2}
    matched = bench.store.match(question_of(SPENT), first)
    bench.store.set_specs([make_metric("spent", "other", of="namespace")])
    bench.store.ingest(question_of(SPENT), first, matched)
    assert bench.view().values("spent") == {}


def test_names_that_are_not_heard_of_any_more_go_in_the_end(bench: Bench) -> None:
    bench.store.set_specs([HEAT])
    for space, name in (("old", "p0"), ("old", "p24999"), ("new", "p")):
        bench.cache.add_pod(make_pod(name, namespace=space), "a")
    old = [Series(("old", f"p{each}"), 7, NOW - 25 + each / 1000) for each in range(25_000)]
    bench.series(HEAT, *old)
    assert bench.pods("heat") == {"old/p0": 14, "old/p24999": 14}
    new = [Series(("new", "p"), 8, NOW)]
    bench.series(HEAT, *new)
    assert bench.pods("heat") == {"old/p24999": 14, "new/p": 16}
    left = bench.view().values("heat")
    assert left.keys() == {("new", "p")} | {one.names for one in old[15_000:]}
    matched = bench.store.match(question_of(HEAT), old)
    bench.series(HEAT, *old[:5000], *new)
    bench.store.ingest(question_of(HEAT), old, matched)
    assert bench.pods("heat") == {"old/p0": 14, "old/p24999": 14, "new/p": 16}
    assert len(bench.view().values("heat")) == 25_001


def test_columns_of_pairs_are_found_by_codes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    spec = make_metric("rtt", "q", by=("src", "dst"), of="pair", scale=0.5, stale_seconds=60.0)
    bench.store.set_specs([spec])
    dictionary = bench.cache.dictionary
    codes = {text: dictionary.code(text) for text in "xabcd"}
    ends = np.array([[codes[one] for one in "aabbcxd"], [codes[one] for one in "abbacax"]])
    left, right = ends.astype(np.int32)

    def column() -> list[float | None]:
        found = bench.view().pairs("rtt", (left, right), dictionary)
        return [None if math.isnan(one) else one for one in found.tolist()]

    assert column() == [None] * 7
    bench.series(spec, Series(("b", "a"), 2, NOW), Series(("a", "b"), 4, NOW))
    assert column() == [None, 2, None, 1, None, None, None]
    bench.clock.advance(50.0)
    bench.series(
        spec,
        Series(("c", "c"), 8, NOW + 50),
        Series(("a", "b"), 6, NOW + 50),
        Series(("a", "b"), 5, NOW + 50),
        Series(("", "b"), 1, NOW + 50),
    )
    assert column() == [None, 3, None, 1, 4, None, None]
    [status] = bench.store.status()
    assert (status.matched, status.unmatched, status.duplicates) == (3, 1, 1)
    assert "1 series more than pairs; the largest of each pair" in caplog.records[0].message
    assert bench.view().values("rtt") == {("a", "b"): 3, ("b", "a"): 1, ("c", "c"): 4}
    assert bench.view().value("rtt", ("b", "a")) == 1
    assert math.isnan(bench.view().value("rtt", ("b", "z")))
    assert math.isnan(bench.view().value("rtt", ("c", "a")))
    bench.clock.advance(11.0)
    assert column() == [None, 3, None, None, 4, None, None]
    none = np.full(2, -1, np.int32)
    assert np.isnan(bench.view().pairs("rtt", (none, left[:2]), dictionary)).all()
    assert np.isnan(bench.view().pairs("rtt", (left[:2], none), dictionary)).all()
    assert np.isnan(bench.view().pairs("other", (left, right), dictionary)).all()
    # Another cluster has codes of its own.
    other = Dictionary()
    ends = np.array([[other.code("c")], [other.code("c")]], np.int32)
    assert bench.view().pairs("rtt", (ends[0], ends[1]), other).tolist() == [4]
    assert column() == [None, 3, None, None, 4, None, None]


def test_pairs_that_are_not_heard_of_any_more_go_in_the_end(bench: Bench) -> None:
    bench.store.set_specs([RTT])
    old = [Series((f"n{each}", "x"), each, NOW - 25 + each / 1000) for each in range(25_000)]
    bench.series(RTT, *old)
    assert bench.view().value("rtt", ("n7", "x")) == 7
    new = [Series(("x", "y"), 9, NOW), Series(("n24999", "x"), 8, NOW)]
    bench.series(RTT, *new)
    left = bench.view().values("rtt")
    assert left.keys() == {one.names for one in (*old[14_999:], *new)}
    assert left[("x", "y")] == 9
    assert left[("n24999", "x")] == 8
    assert left[("n15000", "x")] == 15_000
    matched = bench.store.match(question_of(RTT), old)
    bench.series(RTT, Series(("z", "y"), 1, NOW))
    bench.store.ingest(question_of(RTT), old[:5], matched)
    assert bench.view().value("rtt", ("n4", "x")) == 4
    assert math.isnan(bench.view().value("rtt", ("n5", "x")))
    assert bench.view().value("rtt", ("z", "y")) == 1


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(0, 9)),
            max_size=8,
        ),
        max_size=6,
    )
)
def test_pairs_equal_a_naive_model(answers: list[list[tuple[str, str, int]]]) -> None:
    clock = ManualClock()
    bench = Bench(clock, Cache(), SignalStore(clock))
    bench.store.set_specs([RTT])
    model: dict[tuple[str, str], tuple[float, float]] = {}
    dictionary = bench.cache.dictionary
    codes = np.array([dictionary.code(one) for one in "dcba"], np.int32)
    left, right = (each.ravel() for each in np.meshgrid(codes, codes))
    for answer in answers:
        now = clock.time()
        bench.series(RTT, *(Series((a, b), value, now) for a, b, value in answer))
        for a, b, _ in answer:
            model[a, b] = max(v for x, y, v in answer if (x, y) == (a, b)), now
        clock.advance(50.0)
        fresh = {key: v for key, (v, t) in model.items() if clock.time() - t <= 120.0}
        assert bench.view().values("rtt") == fresh
        column = bench.view().pairs("rtt", (left, right), dictionary)
        texts = dictionary.texts
        for a, b, value in zip(left.tolist(), right.tolist(), column.tolist(), strict=True):
            expected = fresh.get((texts[a], texts[b]), math.nan)
            assert value == expected or (math.isnan(value) and math.isnan(expected))
            alone = bench.view().value("rtt", (texts[a], texts[b]))
            assert alone == value or (math.isnan(value) and math.isnan(alone))


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["come", "go", "sample", "bare", "wait"]),
            st.integers(0, 3),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_columns_of_pods_equal_their_values(ops: list[tuple[str, int, int]]) -> None:
    clock = ManualClock()
    bench = Bench(clock, Cache(), SignalStore(clock))
    bench.store.set_specs([HEAT])
    model: dict[tuple[str, str], tuple[float, float]] = {}
    pods: dict[str, str] = {}
    for op, which, number in ops:
        key = (f"s{which % 2}", f"p{number}")
        pod = make_pod(key[1], namespace=key[0])
        now = clock.time()
        match op:
            case "come" if pod.uid not in pods:
                bench.cache.add_pod(pod, "a")
                pods[pod.uid] = "/".join(key)
            case "go" if pod.uid in pods:
                bench.cache.remove_pod(pod.uid)
                del pods[pod.uid]
            case "sample" | "bare":
                key = key if op == "sample" else ("", key[1])
                bench.series(HEAT, Series(key, float(which), now))
                model[key] = float(which), now
            case "wait":
                clock.advance(number * 30.0)
            case _:
                pass
        fresh = {key: 2 * v for key, (v, t) in model.items() if clock.time() - t <= 120.0}
        assert bench.view().values("heat") == fresh
        found = {}
        for name in pods.values():
            space, _, own = name.partition("/")
            value = fresh.get((space, own), fresh.get(("", own)))
            if value is not None:
                found[name] = value
            assert bench.view().value("heat", (space, own)) == pytest.approx(
                math.nan if value is None else value, nan_ok=True
            )
        assert bench.pods("heat") == found


def test_domains_are_those_of_the_language() -> None:
    named = {f"node.{of}": key for of, key in DOMAIN_LABELS.items()}
    assert named.items() <= WELL_KNOWN_LABELS.items()
    assert tuple(DOMAIN_LABELS) == DOMAINS


def test_the_labels_of_a_domain_are_those_exporters_give() -> None:
    assert question_of(CARBON).by == (
        "zone",
        "topology_kubernetes_io_zone",
        "label_topology_kubernetes_io_zone",
    )
    assert question_of(make_metric("m", "q", by=("az",), of="zone"))[:3] == ("q", ("az",), "zone")


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "drop", "sample", "wait", "reload"]),
            st.integers(0, 4),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_columns_of_domains_equal_a_naive_model(ops: list[tuple[str, int, int]]) -> None:
    clock = ManualClock()
    bench = Bench(clock, Cache(), SignalStore(clock))
    bench.store.set_specs([CARBON])
    zones: dict[str, str | None] = {}
    model: dict[str, tuple[float, float]] = {}
    for op, which, number in ops:
        name, zone = f"n{which}", f"z{number}" if number else None
        now = clock.time()
        match op:
            case "put":
                old = in_zone(name, zones[name]) if name in zones else None
                bench.cache.add_node(in_zone(name, zone))
                bench.store.nodes_changed(old, in_zone(name, zone))
                zones[name] = zone
            case "drop" if name in zones:
                bench.cache.remove_node(name)
                bench.store.nodes_changed(in_zone(name, zones.pop(name)), None)
            case "sample":
                bench.series(CARBON, Series((f"z{number}",), float(which), now))
                model[f"z{number}"] = float(which), now
            case "wait":
                clock.advance(number * 30.0)
            case "reload":
                bench.store.set_specs([make_metric("other", "q")])
                bench.store.set_specs([CARBON])
                model.clear()
            case _:
                pass
        has = {n: model[z] for n, z in zones.items() if z in model}
        now = clock.time()
        assert bench.read("carbon") == {n: v for n, (v, t) in has.items() if now - t <= 120.0}
        assert bench.ages("carbon") == {n: now - t for n, (_, t) in has.items()}
