"""Ports in use: the table and what lies over it say what a plain list of pods says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.nodes import PortsOver, PortTable, taken
from tests.effort import examples

PORTS = st.tuples(
    st.sampled_from(["0.0.0.0", "10.0.0.1", "::"]),
    st.sampled_from(["TCP", "UDP"]),
    st.integers(1, 3),
)
SETS = st.frozensets(PORTS, max_size=3)
STEPS = st.lists(st.tuples(st.integers(0, 2), SETS, st.sampled_from([1, -1])), max_size=12)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, STEPS, PORTS)
def test_ports_are_a_set_of_each_node(real, imagined, wanted):
    table, used = PortTable(), {row: set() for row in range(3)}
    for row, ports, sign in real:
        (table.add if sign > 0 else table.remove)(row, ports)
        used[row] = used[row] | ports if sign > 0 else used[row] - ports
    assert table.rows(wanted) == {row for row in used if taken(wanted, used[row])}
    over = PortsOver(table, {})
    for row, ports, sign in imagined:
        over = over.with_pods(row, [(ports, sign)])
        used[row] = used[row] | ports if sign > 0 else used[row] - ports
    assert over.rows(wanted) == {row for row in used if taken(wanted, used[row])}
    for row in used:
        assert over.of(row) == used[row]
        table.clear(row)
        assert table.of(row) == frozenset()
