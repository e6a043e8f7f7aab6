"""What holds of every tree that the checker hands on, whoever wrote it: a rule, or the checker."""

import pytest

from dsl import ir
from dsl.source import Span
from dsl.types import Kind
from tests.dsl.bothways import HEADER, plan_of

LIST = 'split(pod.label[k], ",")'
OF_NODE = 'split(node.label[k], ",")'
#: Their level is that of who is asked, not of what is asked of each.
SETS = ir.NodeAggregate | ir.PodAggregate | ir.ContainerAggregate | ir.Rank
FILTERS = [
    f"filter: any({LIST} where it is x)",
    f"forbid: any({LIST} where it == node.zone)",
    f"filter: all({LIST} where it == node.zone)",
    f"filter: all({LIST} where it is x) -> node.ready",
    f"filter: node.ready and any({LIST} where it is x) -> any({OF_NODE} where it is y)",
    f"filter: count({LIST} where it == node.zone) == 2",
    f"filter: sum(number(it) over {LIST} where it == node.zone) > 2",
    f"filter: sum(node.gpu.free over {LIST} where it is x) > 2",
    "filter: any($words where it == node.name)",
    "filter: all($words where it != node.name)",
    "filter: count($words where it == node.name) == 1",
    "filter: sum(it over $sizes where it > node.gpu.free) > 6",
]
PREEMPTS = [
    "preempt: victims",
    "preempt: victims where it.label k=v",
    "preempt: pod.label a=b -> victims where it.priority < 3 or it.label k=v",
]


def parts_of(text):
    plan = plan_of(HEADER + text)
    cores = [one.core for one in (*plan.filters, *plan.preempts)]
    roots = [core.guard for core in cores]
    roots += [core.where if isinstance(core, ir.PreemptCore) else core.test for core in cores]
    return ir.walk(*(one for one in roots if one is not None))


@pytest.mark.parametrize("text", [*FILTERS, *PREEMPTS])
def test_each_part_says_where_it_stands_and_is_of_the_level_and_kind_of_its_own_parts(text):
    for one in parts_of(text):
        assert isinstance(one.span, Span)
        inner = ir.children(one)
        if inner and not isinstance(one, SETS):
            assert one.level == max(part.level for part in inner), one
        match one:
            case ir.Logical():
                assert one.operator in ("and", "or")
                assert {part.type.kind for part in inner} == {Kind.BOOL}
            case ir.Arith():
                assert all(part.type.is_number for part in inner)
            case _:
                pass


def test_what_the_checker_adds_has_no_text():
    """Else values would be told of it in the words of what somebody wrote."""
    (rule,) = plan_of(FILTERS[3]).filters
    added = [rule.core.test, rule.core.guard, rule.core.test.operands[0]]
    (rule,) = plan_of(PREEMPTS[1]).preempts
    added += [rule.core.where.operands[0], *ir.children(rule.core.where.operands[0])]
    assert all(one.span.start == one.span.end for one in added)
