"""Names that come and go leave no columns behind, and are counted exactly while they are there."""

from __future__ import annotations

from collections import Counter, deque
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cache import cache as cache_module
from engine.cache import columns, domains
from engine.cache import nodes as nodes_module
from engine.cache import pods as pods_module
from engine.framework.snapshot import label_column
from engine.objects import Taint
from engine.pods.selectors import EVERYTHING
from tests.builders import Cache, make_node, make_pod
from tests.effort import examples

NAMES = [f"example.com/r{i}" for i in range(6)]


def asking(name: str, **requests: int):
    amounts = {key.replace("_", "/"): str(amount) for key, amount in requests.items()}
    spec = {"containers": [{"name": "c", "resources": {"requests": amounts}}]}
    return make_pod(name, spec=spec)


def of(*names: int, amount: int = 1) -> dict[str, int]:
    return {NAMES[name]: amount for name in names}


def having(name: str, resources: dict[str, int]):
    return make_node(name, **{one: str(amount) for one, amount in resources.items()})


class Resources(RuleBasedStateMachine):
    """Nodes and pods with odd resources, against sums taken anew; two of them have columns."""

    amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=4)

    def __init__(self) -> None:
        super().__init__()
        self.most, nodes_module.MOST_RESOURCES = nodes_module.MOST_RESOURCES, 6
        self.cache = Cache()
        self.nodes: dict[str, dict[str, int]] = {}
        self.pods: dict[str, tuple[str, dict[str, int]]] = {}
        self.kept: tuple[int, dict[str, list[np.ndarray]]] = (-1, {})

    def teardown(self) -> None:
        nodes_module.MOST_RESOURCES = self.most

    @rule(name=st.sampled_from("ab"), amounts=amounts)
    def node_comes(self, name, amounts):
        self.cache.add_node(having(name, amounts))
        self.nodes[name] = amounts

    @rule(name=st.sampled_from("ab"))
    def node_goes(self, name):
        self.cache.remove_node(name)
        self.nodes.pop(name, None)

    @rule(name=st.sampled_from("pqr"), node=st.sampled_from("ab"), amounts=amounts)
    def pod_comes(self, name, node, amounts):
        spec = {"containers": [{"name": "c", "resources": {"requests": amounts}}]}
        self.cache.add_pod(make_pod(name, spec=spec), node)
        self.pods[name] = node, amounts

    @rule(name=st.sampled_from("pqr"))
    def pod_goes(self, name):
        self.cache.remove_pod(f"uid-default-{name}")
        self.pods.pop(name, None)

    @invariant()
    def columns_are_exact(self):
        table = self.cache.nodes
        read = {
            name: [table.allocatable(name), table.capacity(name), table.has_resource(name)]
            for name in NAMES
        }
        for node, has in self.nodes.items():
            row = table.row(node)
            for name in NAMES:
                allocatable, capacity, named = read[name]
                assert allocatable[row] == capacity[row] == has.get(name, 0)
                assert named[row] == (name in has)
                held = [asked.get(name, 0) for there, asked in self.pods.values() if there == node]
                assert table.requested(name)[row] == sum(held)
        assert len(table._allocatable) <= 6
        layout, kept = self.kept
        if layout == self.cache.nodes.layout:  # then columns that somebody kept are good still
            for name in NAMES:
                assert [c.tolist() for c in kept[name]] == [c.tolist() for c in read[name]], name
        self.kept = self.cache.nodes.layout, read

    @invariant()
    def nothing_is_kept_of_what_nobody_has(self):
        table = self.cache.nodes
        named = {name for has in self.nodes.values() for name in has}
        held = {
            name
            for node, asked in self.pods.values()
            for name, amount in asked.items()
            if amount and node in self.nodes
        }
        assert table._allocatable.keys() <= named | {"cpu", "memory", "pods", "ephemeral-storage"}
        assert table._sparse.keys() <= named | held
        assert not table._allocatable.keys() & table._sparse.keys()


TestResources = Resources.TestCase
TestResources.settings = settings(max_examples=examples(100), deadline=None)


def test_what_waiting_pods_ask_for_has_no_columns():
    cache = Cache()
    cache.add_node(make_node("a"))
    before = len(cache.nodes._columns())
    for i in range(200):
        column = cache.snapshot(0.0).nodes.requested(f"example.com/odd{i}")
        assert column.tolist() == [0]
    assert len(cache.nodes._columns()) == before


def test_taints_that_come_and_go_are_forgotten():
    cache = Cache()
    for name in ("a", "b"):
        cache.add_node(make_node(name, taints=[{"key": "own", "value": name}]))
    seen = {id(cache.nodes.taint_sets)}
    for stamp in range(1_000):
        taints = [{"key": "autoscaler", "value": str(stamp)}]
        cache.add_node(make_node("a", taints=taints))
        sets, numbers = cache.nodes.taint_sets, cache.nodes.taint_set
        assert sets[numbers[0]] == (Taint("autoscaler", str(stamp)),)
        assert sets[numbers[1]] == (Taint("own", "b"),)
        assert sets[0] == ()
        assert len(sets) <= 70
        seen.add(id(sets))
    assert len(seen) >= 2


@pytest.mark.parametrize(
    ("most_bytes", "most"),
    [(10 * 4 * columns.FIRST_CAPACITY, columns.MOST_COLUMNS), (64 << 20, 10)],
)
def test_columns_of_odd_labels_go_when_they_are_too_many(monkeypatch, most_bytes, most):
    monkeypatch.setattr(columns, "MOST_COLUMNS", most)
    cache = Cache()
    for i in range(3):
        cache.add_node(make_node(f"n{i}", labels={"zone": f"z{i}"}))
    cache.nodes._derived = columns.Derived(most_bytes)
    layout = cache.nodes.layout
    for i in range(40):
        zone = cache.nodes.text(*label_column("zone"))
        assert [cache.dictionary.texts[code] for code in zone] == ["z0", "z1", "z2"]
        cache.nodes.text(*label_column(f"odd{i}"))
        assert len(list(cache.nodes._derived)) <= 11
    assert "text label:zone" in cache.nodes._derived._columns, "what is read often stays"
    assert cache.nodes.layout > layout


def test_groupings_of_few_nodes_are_few(monkeypatch):
    monkeypatch.setattr(domains, "GROUPING_BYTES", 20 * 2048)
    cache = Cache()
    cache.add_node(make_node("n"))
    for i in range(40):
        tally = cache.topology.pod_set(None, EVERYTHING, terminating=True)
        cache.topology.table(tally, f"odd{i}").sync(cache.nodes)
    assert len(cache.topology._groupings) <= 20


def test_groupings_that_are_dropped_are_kept_by_no_set_of_pods(monkeypatch):
    monkeypatch.setattr(domains, "GROUPING_BYTES", 20 * 2048)
    cache, kept = Cache(), WeakSet()
    cache.add_node(make_node("n", labels={f"odd{i}": "a" for i in range(40)}))
    cache.add_pod(make_pod("p"), "n")
    tables = []
    for i in range(40):
        moves = cache.topology.moves
        tally = cache.topology.pod_set(
            frozenset((f"ns{i}", "default")), EVERYTHING, terminating=True
        )
        table = cache.topology.table(tally, f"odd{i}")
        table.sync(cache.nodes)
        assert dict(table.counts) == {1: 1}
        assert table.live
        kept.add(table.domains)
        if i < 2:
            tables.append(table)
    assert cache.topology.moves > moves
    assert not any(table.live for table in tables)
    assert len(kept) <= 20 + len(tables)


@pytest.fixture
def few_texts(monkeypatch):
    monkeypatch.setattr(cache_module, "MOST_TEXTS", 50)


def test_texts_of_pods_that_are_gone_are_forgotten(few_texts):
    cache = Cache()
    for i in range(3):
        cache.add_node(make_node(f"n{i}", labels={"zone": f"z{i}"}))
    cache.nodes.text(*label_column("zone"))
    for i in range(500):
        names = cache.pods.text("name", lambda pod: pod.name)
        pod = make_pod(f"p{i}")
        cache.add_pod(pod, f"n{i % 3}")
        texts = cache.dictionary.texts
        assert texts[cache.pods.text("name", lambda pod: pod.name)[-1]] == f"p{i}"
        zones = cache.nodes.text(*label_column("zone"))
        assert [texts[code] for code in zones] == ["z0", "z1", "z2"]
        assert [texts[code] for code in cache.nodes.name_codes()] == ["n0", "n1", "n2"]
        assert len(texts) < 60
        if i >= 5:
            cache.remove_pod(f"uid-default-p{i}")
    assert len(names) == 5


class Sums:
    """How many pods there are of each priority."""

    of_namespaces = False

    def __init__(self):
        self.total = Counter()

    def count(self, pod, sign):
        self.total[pod.priority] += sign


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["comes", "goes", "changes", "step", "another's", "other rules"]),
            st.integers(0, 9),
        )
    )
)
def test_what_is_made_of_all_pods_in_steps_follows_what_happens_between_them(acts):
    cache = Cache()
    cache.add_node(make_node("n"))
    there = {str(at): 0 for at in range(5)}

    def put(name: str, priority: int) -> None:
        there[name] = priority
        cache.add_pod(make_pod(name, spec={"priority": priority}), "n")

    for name in list(there):
        put(name, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pods_module, "_PODS_A_STEP", 2)
        patch.setattr(pods_module, "_COUNTED_A_STEP", 2)
        steps, anothers = (
            cache.pods.prepare(
                lambda: cache.pods.derived("mine", np.int64, -1, lambda pod: pod.pod.spec.priority)
            )
            for _ in range(2)
        )
        sums, anothers_sums = (cache.pods.prepare_ledger("sums", Sums) for _ in range(2))
        is_left = True
        for number, (what, at) in enumerate(acts):
            name = str(at)
            if what == "step":
                next(steps, None)
                is_left &= next(sums, "over") is None
            elif what == "another's":
                next(anothers, None)
                is_left &= next(anothers_sums, "over") is None
            elif what == "other rules" and is_left:
                cache.pods.forget_ledgers()
            elif what == "goes" and name in there:
                del there[name]
                cache.remove_pod(make_pod(name).uid)
            elif what in ("comes", "changes") and (name in there) == (what == "changes"):
                put(name, number)
        for left in (steps, sums, anothers, anothers_sums):
            deque(left, maxlen=0)
        cache.pods.forget_ledgers()
    ledger = cache.pods.ledger("sums", lambda: pytest.fail("it is there"))
    assert isinstance(ledger, Sums)
    assert ledger.total == Counter(there.values())
    column = cache.pods.derived("mine", np.int64, -1, lambda pod: pytest.fail("it is there"))
    assert column.tolist() == [there[cache.pods.pod(row).name] for row in range(cache.pods.size)]


def test_who_forgets_texts_reads_no_pod_and_no_node_again(few_texts):
    cache, read = Cache(), Counter[str]()

    def seen(what, text):
        read[what] += 1
        return text

    for i in range(3):
        cache.add_node(make_node(f"n{i}"))
    for i in range(200):
        cache.nodes.text("zone", lambda node: seen("node", node.metadata.name))
        cache.pods.text("name", lambda pod: seen("pod", pod.name))
        cache.pods.number("length", lambda pod: seen("number", len(pod.name)))
        cache.add_pod(make_pod(f"p{i}"), "n1")
        if i >= 5:
            cache.remove_pod(f"uid-default-p{i}")
    assert len(cache.dictionary.texts) < 60
    assert read == {"node": 3, "pod": 200, "number": 200}


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(st.integers(0, 30), st.sampled_from(["renew", "clear"]))))
def test_a_dictionary_without_what_is_unused_knows_the_rest(acts):
    dictionary, column, held = columns.Dictionary(), columns.Column(np.int32, 8, -1), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_BROUGHT", 1)
        for at, act in enumerate(acts):
            if act == "renew":
                dictionary = dictionary.renewed([column])
                assert sorted(dictionary.texts) == sorted({*held.values()})
            elif act == "clear":
                column.array[:] = -1
                held.clear()
            else:
                text = held[at % 8] = f"t{act}"
                assert (dictionary.find(text) >= 0) == (text in dictionary.texts)
                column.cell[at % 8] = dictionary.code(text)
            known = dictionary.texts
            found = {row: known[code] for row, code in enumerate(column.array) if code >= 0}
            assert found == held
            assert [dictionary.find(text) for text in known] == [*range(len(known))]
