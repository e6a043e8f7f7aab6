"""Pod sets, terms and domains against a naive model: counts are exact whatever happens."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cache import podsets
from engine.cache.domains import DomainTable
from engine.framework.snapshot import label_column
from engine.objects import LabelSelector, Namespace, from_builtins
from engine.pods.podterms import Spaces, terms_of
from engine.pods.selectors import EVERYTHING, parse_selector
from tests.builders import Cache, make_node, make_pod

NODES = [f"n{i}" for i in range(5)]
PODS = [f"p{i}" for i in range(7)]
SPACES = ["a", "b"]
PROD = parse_selector(from_builtins(LabelSelector, {"matchLabels": {"env": "prod"}}))
NOT_PROD = parse_selector(
    from_builtins(
        LabelSelector,
        {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]},
    )
)
values = st.sampled_from(["", "x", "y"])
labels = st.dictionaries(st.sampled_from(["app", "tier", "unique"]), values)
node_labels = st.dictionaries(st.sampled_from(["zone", "rack"]), values)
expressions = st.one_of(
    st.builds(
        lambda key, op, some: {"key": key, "operator": op, "values": some},
        st.sampled_from(["app", "tier", "unique"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(values, min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda key, op: {"key": key, "operator": op},
        st.sampled_from(["app", "tier"]),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
selectors = st.builds(
    lambda match, also: {"matchLabels": match, "matchExpressions": also},
    st.dictionaries(st.sampled_from(["app", "tier"]), values, max_size=1),
    st.lists(expressions, max_size=2),
)
terms = st.builds(
    lambda selector, spaces, of: {
        "labelSelector": selector,
        "topologyKey": "zone",
        "namespaces": spaces,
        "namespaceSelector": of,
    },
    selectors,
    st.lists(st.sampled_from(SPACES), max_size=1),
    st.sampled_from([None, {}, {"matchLabels": {"env": "prod"}}]),
)


@dataclass(frozen=True)
class NotIn:
    """Nodes outside of a rack."""

    rack: str

    def mask(self, nodes, rows):
        racks = nodes.text(*label_column("rack"))[rows]
        return racks != nodes.dictionary.code(self.rack)


class TopologyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.nodes: dict[str, dict[str, str]] = {}
        self.pods: dict[str, tuple] = {}
        self.asked: list[tuple] = []
        self.synced: dict[int, tuple] = {}

    @rule(name=st.sampled_from(NODES), given=node_labels)
    def node_comes(self, name, given):
        self.cache.add_node(make_node(name, labels=given))
        self.nodes[name] = given

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name):
        self.cache.remove_node(name)
        self.nodes.pop(name, None)

    @rule(
        name=st.sampled_from(PODS),
        node=st.sampled_from(NODES),
        space=st.sampled_from(SPACES),
        given=labels,
        going=st.booleans(),
        term=st.none() | terms,
    )
    def pod_is_bound(self, name, node, space, given, going, term):
        far = {"requiredDuringSchedulingIgnoredDuringExecution": [term] if term else []}
        pod = make_pod(
            name,
            node=node,
            namespace=space,
            labels=given,
            uid=name,
            deleted="2026-01-01T00:00:00Z" if going else None,
            spec={"affinity": {"podAntiAffinity": far}},
        )
        self.cache.add_pod(pod, node)
        self.pods[name] = (node, space, given, going, pod)

    @rule(name=st.sampled_from(SPACES), env=st.sampled_from([None, "", "prod"]))
    def namespace_changes(self, name, env):
        if env is None:
            self.cache.remove_namespace(name)
        else:
            value = {"metadata": {"name": name, "labels": {"env": env}}}
            self.cache.set_namespace(from_builtins(Namespace, value))

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name):
        self.cache.remove_pod(name)
        self.pods.pop(name, None)

    @rule(
        selector=selectors,
        spaces=st.sampled_from(
            [
                *[None, frozenset("a"), frozenset("ab"), Spaces(((frozenset("a"), PROD),))],
                Spaces(((frozenset(), NOT_PROD), (frozenset("b"), PROD))),
            ]
        ),
        going=st.booleans(),
        rack=st.sampled_from([None, "x"]),
        fold=st.booleans(),
    )
    def a_set_is_asked_for(self, selector, spaces, going, rack, fold):
        of = parse_selector(from_builtins(LabelSelector, selector))
        self.asked.append((spaces, of, going, rack, fold))

    def covers(self, spaces, space):
        if not isinstance(spaces, Spaces):
            return spaces is None or space in spaces
        one = self.cache.namespaces.get(space)
        env = None if one is None else one.metadata.labels["env"]
        found = {PROD: env == "prod", NOT_PROD: env == ""}
        return all(space in names or found[selector] for names, selector in spaces.each)

    def expected(self, spaces, selector, going):
        return Counter(
            node
            for node, space, given, deleted, _ in self.pods.values()
            if node in self.nodes
            and self.covers(spaces, space)
            and (going or not deleted)
            and selector.matches(given)
        )

    @invariant()
    def sets_and_domains_are_exact(self):
        snapshot = self.cache.snapshot(0.0)
        row, topology = snapshot.nodes.row, snapshot.topology
        for spaces, selector, going, rack, fold in self.asked[-4:]:
            found = topology.pod_set(spaces, selector, terminating=going)
            want = self.expected(spaces, selector, going)
            assert found.counts == {row(node): count for node, count in want.items()}
            eligible = None if rack is None else NotIn(rack)
            table = topology.table(found, "zone", eligible, fold=fold)
            followed = self.synced.get(id(table)) == (table, topology.moves)
            told = dict(table.counts)
            table.sync(snapshot.nodes)
            assert not followed or told == table.counts
            self.synced[id(table)] = table, topology.moves
            value = {
                node: given.get("zone", "" if fold else None)
                for node, given in self.nodes.items()
                if rack is None or given.get("rack") != rack
            }
            counts = {v: 0 for v in value.values() if v is not None}
            for node, count in want.items():
                if value.get(node) is not None:
                    counts[value[node]] += count
            of = {node: int(table.domains.group[row(node)]) for node in self.nodes}
            assert {node for node, domain in of.items() if domain < 0} == {
                node for node in self.nodes if value.get(node) is None
            }
            domains = {value[node]: domain for node, domain in of.items() if domain >= 0}
            assert table.counts == {domains[v]: count for v, count in counts.items() if count}
            assert table.domains.sizes == Counter(d for d in of.values() if d >= 0)
            assert table.minimum({}) == min(counts.values(), default=None)
            for v, domain in domains.items():
                least = min(count + 2 * (v == other) for other, count in counts.items())
                assert table.minimum({domain: 2}) == least

    @invariant()
    def terms_are_exact(self):
        topology = self.cache.snapshot(0.0).topology
        for space, env, given in (("a", {"env": "prod"}, {"app": "x"}), ("b", {}, {"tier": ""})):
            want: Counter = Counter()
            for node, *_, pod in self.pods.values():
                for term in terms_of(pod.pod).anti if node in self.nodes else ():
                    if term.matches(space, env, given):
                        want[term, self.cache.nodes.row(node)] += 1
            assert want == {
                (found.term.term, row): count
                for found in topology.terms_on(space, env, given)
                for row, count in found.counts.items()
            }


TopologyMachine.TestCase.settings = settings(stateful_step_count=30)
TestTopology = TopologyMachine.TestCase


def test_sets_not_asked_for_longest_are_dropped_and_counted_again(monkeypatch):
    monkeypatch.setattr(podsets, "MOST_SETS", 3)
    cache = Cache()
    cache.add_node(make_node("n"))
    for i in range(6):
        cache.add_pod(make_pod(f"p{i}", labels={f"k{i}": "v"}), "n")
    topology = cache.topology
    of = [
        parse_selector(LabelSelector(match_labels={f"k{i}": "v"}, match_expressions=None))
        for i in range(6)
    ]
    first = topology.pod_set(None, of[0], terminating=True)
    held = topology.pod_set(None, EVERYTHING, terminating=True)
    for i in range(6):
        assert topology.pod_set(None, of[i], terminating=True).counts == {0: 1}
        assert topology.pod_set(None, EVERYTHING, terminating=True) is held
    assert (first.live, held.live) == (False, True)
    cache.remove_pod("uid-default-p0")
    assert held.counts == {0: 5}
    assert topology.pod_set(None, of[0], terminating=True).counts == {}


@pytest.mark.parametrize(("pods", "most"), [(0, 512), (300, 1112)])
def test_sets_are_as_many_as_pods_may_ask_for(pods, most):
    cache = Cache()
    cache.add_node(make_node("n"))
    for i in range(pods):
        cache.add_pod(make_pod(f"p{i}"), "n")
    for i in range(1500):
        selector = parse_selector(LabelSelector(match_labels={"app": f"a{i}"}))
        cache.topology.pod_set(None, selector, terminating=False)
    assert len(cache.topology._sets.sets) == most


def test_sets_follow_the_labels_of_namespaces():
    cache, rng = Cache(), random.Random(1)
    for node in NODES:
        cache.add_node(make_node(node))
    topology = cache.snapshot(0.0).topology
    named = frozenset("a")
    each = Spaces(((named, PROD),)), Spaces(((frozenset(), NOT_PROD), (named, NOT_PROD)))
    sets = [topology.pod_set(one, EVERYTHING, terminating=True) for one in each]
    pods = {}
    for step in range(200):
        name, space = f"p{rng.randrange(9)}", rng.choice("abc")
        seen, moves = [(one, one.end, dict(one.counts)) for one in sets], topology.moves
        if step % 2:
            env = rng.choice(["", "prod"])
            value = {"metadata": {"name": space, "labels": {"env": env}}}
            if rng.random() < 0.3:
                cache.remove_namespace(space)
            else:
                cache.set_namespace(from_builtins(Namespace, value))
        elif pods.pop(name, None):
            cache.remove_pod(name)
        else:
            node = rng.choice(NODES)
            pods[name] = node, space
            cache.add_pod(make_pod(name, namespace=space, node=node, uid=name), node)
        sets = [topology.pod_set(one, EVERYTHING, terminating=True) for one in each]
        for one, spaces, (was, end, before) in zip(sets, each, seen, strict=True):
            there = [node for node, of in pods.values() if spaces.have(of, cache.namespaces)]
            want = {cache.nodes.row(node): n for node, n in Counter(there).items()}
            assert one.counts == want
            if was.live:
                assert was is one
                changed = {row for row in {*before, *want} if before.get(row) != want.get(row)}
                assert changed <= {*one.since(end)}
            else:
                assert topology.moves != moves


def test_the_only_row_of_a_domain_is_not_looked_for():
    cache = Cache()
    for number, name in enumerate(NODES):
        cache.add_node(make_node(name, labels={"host": name, "zone": f"{number // 2}"}))
    snapshot, looked = cache.snapshot(0.0), {}
    topology, row = snapshot.topology, snapshot.nodes.row
    for key in ("host", "zone"):
        domains = topology.table(topology.pod_set(None, EVERYTHING, terminating=True), key).domains
        domains.sync(snapshot.nodes)
        found = [domains.rows_of(int(domains.group[row(name)]), row(name)) for name in NODES]
        looked[key] = [type(one) is list for one in found]
        assert [*map(set, found)] == [
            {row(other) for j, other in enumerate(NODES) if key == "zone" and i // 2 == j // 2}
            | {row(name)}
            for i, name in enumerate(NODES)
        ]
    assert looked == {"host": [False] * 5, "zone": [True] * 4 + [False]}


def test_pods_are_not_counted_by_domain_anew_for_nodes_without_any(monkeypatch):
    cache = Cache()
    nodes = {name: make_node(name, labels={"zone": f"{i % 2}"}) for i, name in enumerate(NODES)}
    for name, node in nodes.items():
        cache.add_node(node)
        cache.add_pod(make_pod(name), name)
    topology = cache.snapshot(0.0).topology
    table = topology.table(topology.pod_set(None, EVERYTHING, terminating=True), "zone")
    rebuild, anew = DomainTable._rebuild, []

    def rebuilt(of):
        anew.append(of)
        rebuild(of)

    monkeypatch.setattr(DomainTable, "_rebuild", rebuilt)

    def counts():
        """By zone, and how often all rows were gone through."""
        anew.clear()
        table.sync(cache.nodes)
        zones = [table.domains.group.item(cache.nodes.row(name)) for name in NODES[:2]]
        return [*map(table.counts.get, zones), len(anew)]

    assert counts() == [3, 2, 1]
    for number in range(3):
        cache.add_node(make_node(f"new-{number}", labels={"zone": f"{number}"}))
        assert counts() == [3, 2, 0]
    cache.add_pod(make_pod("more"), "new-0")
    cache.remove_node("new-1")
    assert counts() == [4, 2, 0]
    cache.add_node(make_node("new-0", labels={"zone": "1"}))
    assert counts() == [3, 3, 1]
