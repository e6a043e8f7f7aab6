"""What is long, wide or often wrong costs steps in proportion: steps are counted, not time."""

import pytest

from dsl import ir
from dsl.analysis.cubes import Cubes, Unknown
from dsl.compiler import Compiler
from dsl.parser import Parser
from dsl.parser.automaton import Automaton
from dsl.parser.tables import load_tables
from dsl.source import make_source

COMPILER = Compiler()


class Counting(Cubes):
    """Counts how often two cubes are put together."""

    def __init__(self):
        super().__init__()
        self.met = 0

    def meet(self, left, right):
        self.met += 1
        return super().meet(left, right)


def test_of(text):
    """The condition of a policy's one filter."""
    (plan,) = COMPILER.compile({"a.policy": f"filter: {text}\n"}).understood
    core = plan.filters[0].core
    assert isinstance(core, ir.FilterCore)
    return core.test


test_of.__test__ = False


def either(letter, count=6):
    """`(p0 or q0) and (p1 or q1) ...`: two to the power of `count` cubes."""
    return " and ".join(f"(node.label {letter}{i}=x or node.label {letter}z{i}=y)"
                        for i in range(count))  # fmt: skip


def test_whether_two_conditions_meet_is_told_by_the_first_cubes_that_do():
    cubes = Counting()
    left, right = (cubes.of(test_of(either(one))) for one in "ab")
    assert len(left) == len(right) == 64
    cubes.met = 0
    assert cubes.meets(left, right)
    assert cubes.met == 1
    assert not cubes.meets(left, cubes.of(test_of(either("a")), wanted=False))


def test_nothing_is_said_of_conditions_about_more_values_than_can_be_held():
    def never(count):
        parts = " or ".join(f"node.label a{i}=b" for i in range(count))
        return f"filter: not ({parts}) and node.label a0=b\n"

    told = [
        {one.code for one in COMPILER.compile({"a.policy": never(count)}).diagnostics}
        for count in (256, 257)
    ]
    assert ["P301" in one for one in told] == [True, False]
    with pytest.raises(Unknown):
        Cubes().of(test_of(" and ".join(f"node.label a{i}=b" for i in range(257))))


class Reading(Automaton):
    """Counts the texts that are read."""

    def __init__(self):
        super().__init__(load_tables())
        self.size = 0

    def read(self, text, *more):
        self.size += len(text)
        return super().read(text, *more)


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("filter: pod.name is is a\n", 4),
        ("filter: pod.nam is a\n", 1),
        ("filter: pod.name == 'a' && pod.name == 'b'\n", 4),
        ("}\n", 1),
        ("filter: (\n", 8),
    ],
)
def test_wrong_lines_are_read_a_few_times_each_however_many_there_are(line, times):
    parser, reading = Parser(), Reading()
    parser._loaded = reading
    text = line * 100
    assert len(list(parser.statements(make_source("a.policy", text)))) > 0
    assert 0 < reading.size <= times * len(text)
