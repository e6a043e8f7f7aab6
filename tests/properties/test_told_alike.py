"""What is said of one node in the name of others is true of each of them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties import policies as p
from tests.properties.test_language_evaluators import compiled, subjects, worlds


@st.composite
def filters(draw):
    writer = p.Writer(draw)
    test = " and ".join(f"({writer.flag(p.DECIDES, 1)})" for _ in range(draw(st.integers(1, 3))))
    words = writer.one(("", "", ' message "it has {node.cpu.free} and {node.label[k]}"'))
    return f"{writer.one(('filter', 'forbid'))}: {test}{words}"


@settings(max_examples=examples(100), deadline=None)
@given(filters(), worlds(), subjects)
def test_nodes_of_which_a_message_speaks_alike_have_the_same_message(text, world, pod):
    rule = compiled(text).filters[0]
    parts = rule.prepare(pod, world)
    if parts is None:
        return
    rejected = np.flatnonzero(world.present & ~rule.verdict(parts, world, slice(0, world.nodes)))
    if len(rejected) and rule.alike(pod, world, rejected):
        assert len({rule.message(pod, world, row) for row in rejected.tolist()}) == 1
