"""What `preempt:`, `gang:` and `quota:` mean on one snapshot, by columns and by the reference."""

import pytest

from dsl.collective import Budget
from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.engines import ByReference, preemption, rules
from tests.dsl.worlds import FakePod, FakeWorld

COMPILER = Compiler()
NODES = [
    {"node.name": "a", "node.zone": "z1"},
    {"node.name": "b", "node.zone": "z1"},
    {"node.name": "c", "node.zone": "z2"},
    {"node.name": "d"},
]


def plan_of(text):
    result = COMPILER.compile({"p.policy": text})
    assert result.ok, render(result.diagnostics)
    return result.plans[0]


def pod(**fields):
    base = {"pod.name": "p", "pod.namespace": "default", "pod.uid": "u"}
    named = {f"pod.{name}": value for name, value in fields.items() if "." not in name}
    return FakePod.of({**base, **named, **{k: v for k, v in fields.items() if "." in k}})


def running(on, **fields):
    named = {f"it.{name}": value for name, value in fields.items()}
    return {"on": on, "it.namespace": "default", "it.bound": True, **named}


# ---- who may be evicted


VICTIMS = [
    running(0, priority=5.0, cpu=1.0, started_at=10.0),
    running(0, priority=1.0, cpu=1.0, started_at=20.0),
    running(0, priority=1.0, cpu=1.0, started_at=30.0),
    running(0, priority=1.0, cpu=1.0, **{"label[critical]": "true"}),
    running(1, priority=0.0, cpu=9.0),
]


class Frees:
    """A dry run that wants so much CPU free on one node; the nodes start full."""

    def __init__(self, world, wanted, rows=(0,)):
        self._world, self._wanted, self._rows = world, wanted, rows
        self.asked = []

    def nodes(self, gone):
        self.asked.append(gone)
        cpu, node = self._world.pod_number("it.cpu", None), self._world.pod_node
        free = [sum(cpu[one] for one in gone if node[one] == row) for row in self._rows]
        return [row for row, own in zip(self._rows, free, strict=True) if own >= self._wanted]

    def fits(self, row, gone):
        return row in self.nodes(gone)


def evictions(text, subject, world):
    rule = plan_of(text).preempts[0]
    by_columns = rule.evictions(subject, world)
    meant = rules.evictions(rule.core, ByReference(subject, world))
    assert (by_columns is None) == (meant is None)
    if by_columns is not None:
        assert by_columns.ordered == meant.ordered
    return by_columns


@pytest.mark.parametrize(
    ("text", "wanted", "protected", "expected"),
    [
        ("preempt: victims where not it.label critical=true", 1, (), (2,)),
        ("preempt: victims where not it.label critical=true", 1, (2,), (1,)),
        ("preempt: victims where not it.label critical=true", 2, (), (2, 1)),
        ("preempt: victims where not it.label critical=true", 4, (), ()),
        ("preempt: victims where not it.label critical=true limit 1", 2, (), ()),
        ("preempt: victims order it.started_at asc", 1, (), (1,)),
        ("preempt: victims where it.priority > 1", 1, (), (0,)),
    ],
)
def test_victims_of_one_node(text, wanted, protected, expected):
    world, subject = FakeWorld(NODES, VICTIMS), pod(priority=3.0)
    found = preemption.search(
        evictions(text, subject, world),
        world,
        Frees(world, wanted),
        rows=[0],
        budgets=[Budget(frozenset(protected), 0)],
    )
    assert found.victims == expected
    assert found.row == (0 if expected else -1)


def test_never_evicts_nobody():
    assert evictions("preempt: never", pod(priority=3.0), FakeWorld(NODES, VICTIMS)) is None
