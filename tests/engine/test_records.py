"""What is kept of decisions, and what it says when somebody asks."""

from __future__ import annotations

import json

from engine.clock import ManualClock
from engine.cycle import conclude
from engine.framework.decision import Placed
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind
from engine.records import Records
from tests.builders import Cache, make_node, make_pod
from tests.engine.policy.builders import NOW, chain

FILES = {
    "net.policy": "filter: node.label test=test\nscore: node.cpu.free normalize minmax\nscore: 30\n"
}


class Deciding:
    """Decisions about pods in a cluster of three nodes, of which two have the label."""

    def __init__(self, clock=None, most=8):
        self.cache = Cache()
        for name, cpu, test in (("n1", "4", "test"), ("n2", "8", "test"), ("n3", "64", "other")):
            self.cache.add_node(make_node(name, cpu=cpu, labels={"test": test}))
        self.framework = chain(FILES)
        self.records = Records(lambda: self.framework, clock or ManualClock(NOW), most)

    def decide(self, name, **how):
        snapshot = self.cache.snapshot(NOW)
        decision = conclude(make_pod(name, **how), snapshot, self.framework)
        self.records.placed(Placed(decision, snapshot, 0.001))
        return decision

    def of(self, name):
        """A record as whoever reads it gets it."""
        return json.loads(json.dumps(self.records.of(f"default/{name}")))


def test_a_pod_with_a_node_has_its_best_nodes_by_plugin_and_line():
    deciding = Deciding()
    decision = deciding.decide("web", cpu="1")
    record = deciding.of("web")
    assert (record["node"], record["feasible"], record["nodes"]) == ("n2", 2, 3)
    assert record["total"] == decision.total
    assert record["at"] == "2025-03-01T10:00:00.000+00:00"
    assert [one["node"] for one in record["best"]] == ["n2", "n1"]
    assert record["ties"] == 1
    [policy] = [one for one in record["best"][0]["scores"] if one["plugin"] == "net"]
    assert policy["score"] == 65
    assert [(one["line"], one["score"]) for one in policy["lines"]] == [
        ("net.policy:2", 100),
        ("net.policy:3", 30),
    ]
    totals = [sum(s["score"] * s["weight"] for s in one["scores"]) for one in record["best"]]
    assert totals == [one["total"] for one in record["best"]]
    assert totals[0] == decision.total
    [rejected] = record["rejected"]
    assert (rejected["plugin"], rejected["nodes"]) == ("net", 1)
    assert "(net.policy:1)" in rejected["reasons"][0]


def test_what_became_of_the_binding_is_in_the_record_of_the_decision_it_was_of():
    deciding = Deciding()
    decision = deciding.decide("web", cpu="1")
    assert "binding" not in deciding.of("web")
    deciding.records.ended(Bind(decision.pod, "n2"), BindOutcome.REFUSED, "quota")
    assert deciding.of("web")["binding"] == {"outcome": "refused", "why": "quota"}
    deciding.records.ended(Bind(decision.pod, "n2"), BindOutcome.BOUND, "")
    assert deciding.of("web")["binding"] == {"outcome": "bound"}
    deciding.decide("web", cpu="1")
    deciding.records.ended(Bind(decision.pod, "n1"), BindOutcome.GONE, "of an older decision")
    assert "binding" not in deciding.of("web")


def test_a_pod_without_a_node_has_who_rejected_how_many_and_what_it_was_told():
    deciding = Deciding()
    decision = deciding.decide("big", cpu="16")
    record = deciding.of("big")
    assert "node" not in record
    assert record["message"] == decision.message
    assert {one["plugin"]: one["nodes"] for one in record["rejected"]} == {
        "NodeResourcesFit": 2,
        "net": 1,
    }
    assert record["rejected"][0]["reasons"] == ["Insufficient cpu"]


def test_nodes_that_a_prefilter_left_out_are_counted():
    deciding = Deciding()
    there = {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n3"]}]}]}  # fmt: skip
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": there}}
    deciding.decide("pinned", spec={"affinity": affinity})
    left_out, policy = sorted(deciding.of("pinned")["rejected"], key=lambda one: one["nodes"])[::-1]
    assert (left_out["plugin"], left_out["nodes"]) == ("NodeAffinity", 2)
    assert (policy["plugin"], policy["nodes"]) == ("net", 1)


def test_a_preemptor_has_its_node_and_whom_it_sends_away():
    deciding = Deciding()
    for name, cpu in (("n1", "4"), ("n2", "8")):
        deciding.cache.add_pod(make_pod(f"low-{name}", cpu=cpu, node=name), name)
    deciding.decide("important", cpu="4", priority=10)
    record = deciding.of("important")
    assert record["nominated"] == "n1"
    assert record["evicts"] == ["default/low-n1"]


def test_the_newest_decision_of_a_pod_is_kept_and_the_oldest_leave():
    deciding = Deciding(most=3)
    deciding.decide("a", cpu="16")
    deciding.decide("b", cpu="16")
    deciding.decide("a", cpu="1")
    assert deciding.of("a")["node"] == "n2"
    deciding.decide("c")
    assert deciding.of("a")["node"] == "n2"  # its older record has left
    deciding.decide("d")
    assert deciding.records.of("default/b") is None
    assert [one["pod"] for one in deciding.records.newest(2)] == ["default/d", "default/c"]
    assert [one["pod"] for one in deciding.records.newest(9)][2:] == ["default/a"]
    assert len(deciding.records) == 3


class Ticking(ManualClock):
    """A clock on which a moment passes between any two looks at it."""

    def monotonic(self):
        self.advance(1 / 1024)
        return super().monotonic()


def test_all_nodes_are_looked_at_for_a_hundredth_of_the_time():
    deciding = Deciding(clock=Ticking(), most=1000)
    decided = [deciding.decide(f"p{number}") for number in range(300)]
    with_scores = [number for number in range(300) if "best" in deciding.of(f"p{number}")]
    # One takes a moment, and a hundred pass before the next.
    assert with_scores == [0, 100, 200]
    assert [number for number in range(300) if decided[number].why] == with_scores
    assert decided[0].why.startswith("net.policy:1 filter: 2 of 3 nodes pass; net.policy:2 ")
