"""What the snapshot alone decides is computed once, brought up to date row by row, and bounded."""

import pytest

from dsl import reference
from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.lower import Memo
from tests.dsl.random_worlds import RandomPod, RandomWorld, Rows
from tests.properties import policies as p
from tests.properties.test_language_evaluators import SMALL, a_world, verdict_of


def twins(text, other):
    """Two policies of one compiler, and what it keeps."""
    memo = Memo()
    files = {"a.policy": p.HEADER + text, "b.policy": p.HEADER.replace("m1", "m9") + other}
    result = Compiler(memo).compile(files, size=SMALL)
    assert result.ok, render(result.diagnostics)
    return result.plans, memo


LONG = "(node.cpu.free + node.cpu.requested) * 3 - 500m > node.cpu.capacity"
SHARED = "sum(it.cpu over node.pods where it.qos is BestEffort)"


def test_equal_parts_are_computed_once_a_generation_for_all_policies_and_pods():
    """Whatever stands around them, and whatever a file calls its metrics."""
    whole, inner = f"{SHARED} + node.cpu.free", f"({SHARED} + node.cpu.free) * (m1 ?? 3)"
    (a, b), memo = twins(
        f"filter: {whole} >= pod.cpu\nfilter: {inner} < {whole} * 9",
        f"let x = {whole}\nforbid: x < 2 and {inner.replace('m1', 'm9')} > pod.cpu * 2",
    )
    world = a_world(1)
    for pod in map(RandomPod, "pqr"):
        for plan in (a, b):
            for rule in plan.filters:
                parts = rule.prepare(pod, world)
                rule.verdict(parts, world, slice(0, world.nodes))
    # The sum, with the node's own; times the metric; the whole of the second line and its half;
    # one side of the third.
    once = memo.computed
    assert once <= 6
    for plan in (a, b):
        verdict_of(plan, world, RandomPod("other"))
    assert memo.computed == once
    verdict_of(a, world.after([0], "new"), RandomPod("p"))
    assert memo.computed > once


def test_what_a_single_row_changed_is_asked_of_that_row():
    """Work is proportional to what changed."""
    (a, _), memo = twins(f"filter: {SHARED} + node.cpu.free >= pod.cpu", "filter: true")
    pod, own = RandomPod("p"), "wide"
    pods = tuple((f"{own}/pod {at}", at % 64) for at in range(200))
    world = RandomWorld(Rows(tuple(f"{own}/{row}" for row in range(64)), pods, own))
    verdict_of(a, world, pod)
    assert (memo.computed, memo.patched) == (1, 0)
    for number in range(20):
        world = world.after([number * 3 % 64, 5], f"change {number}")
        found = verdict_of(a, world, pod).tolist()
        core = a.filters[0].core
        assert found == [reference.passes(core, world, pod, row) for row in range(64)]
    assert (memo.computed, memo.patched) == (1, 20)
    # Many rows at once are a full pass.
    verdict_of(a, world.after(list(range(40)), "many"), pod)
    assert (memo.computed, memo.patched) == (2, 20)


def test_what_a_zone_has_is_computed_once_a_generation():
    """It is a pass over all nodes, however little is asked of each."""
    zone = "sum(node.cpu.free over zone.nodes)"
    (a, b), memo = twins(f"filter: {zone} >= pod.cpu", f"filter: {zone} >= 2")
    world = a_world(4)
    for pod in map(RandomPod, "pqr"):
        for plan in (a, b):
            core = plan.filters[0].core
            rows = [row for row in range(world.nodes) if world.present[row]]
            expected = [reference.passes(core, world, pod, row) for row in rows]
            assert verdict_of(plan, world, pod)[rows].tolist() == expected
    # The sum, which both have, and the comparison that no pod takes part in.
    assert memo.computed == 2
    verdict_of(a, world.after([0], "new"), RandomPod("p"))
    assert (memo.computed, memo.patched) == (3, 0)


@pytest.mark.parametrize(
    "text",
    [
        "now - node.created > 5min and LONG",
        "ma is present and ma > 1 and ma < 9 and ma != 7",
        "(time.hour > 7 or LONG) and count(node.finished) > 0",
        "(metric_age(m1) ?? 1s) > 5s or node.eligible or LONG",
        "count(node.finished where it.cpu > 2) > count(node.nominated)",
        "node.cpu.free > pod.cpu or node.name is (pod.name) or LONG",
        # A comparison takes less than finding out that it is known.
        "node.cpu.free > 2",
    ],
)
def test_what_the_clock_or_the_pod_decides_is_not_kept(text):
    (a, _), memo = twins(f"filter: {text.replace('LONG', LONG)}", "filter: true")
    world = a_world(2)
    for _ in range(2):
        verdict_of(a, world, RandomPod("p"))
    # What stands beside it may be kept.
    assert memo.computed == text.count("LONG")


def test_columns_that_are_kept_have_a_bound():
    memo = Memo(most_bytes=1_000)
    text = "\n".join(f"filter: {LONG.replace('3', str(at))} or pod.gpu > 7" for at in range(2, 12))
    plan = Compiler(memo).compile({"a.policy": text}, size=SMALL).plans[0]
    own = "many"
    world = RandomWorld(Rows(tuple(f"{own}/{row}" for row in range(200)), (), own))
    for _ in range(3):
        for rule in plan.filters:
            rule.verdict(rule.prepare(RandomPod("p"), world), world, slice(0, 200))
        assert memo.bytes <= 1_000
    # Ten columns of 200 bytes do not fit at once.
    assert memo.computed > 10


def test_a_mask_is_the_askers_own():
    """The scheduler writes into it when rows change; a column of the world must not change then."""
    (a, _), _ = twins("filter: node.ready", "filter: node.cpu.free > 2")
    world = a_world(3)
    mask = verdict_of(a, world, RandomPod("p"))
    before = mask.copy()
    mask[:] = ~mask
    assert verdict_of(a, world, RandomPod("p")).tolist() == before.tolist()
