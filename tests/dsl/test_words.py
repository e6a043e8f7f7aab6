"""What is said of a rejection: by columns in a scheduler, one by one in the reference, the same."""

import pytest

from dsl import reference, words
from dsl.types import Kind
from tests.dsl.bothways import plan_of, subject
from tests.dsl.worlds import FakeWorld

HOSTS = [{"node.name": "n0", "node.cpu.free": 2.0, "node.label[k]": "v", "node.images": ("x:1",)}]
PODS = [{"on": 0, "it.cpu": 1500.0, "it.label[app]": "web"}, {"on": 0, "it.cpu": 250.0}]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("filter: count(node.pods) < 2",
         "count(node.pods) < 2 is false: count(node.pods) is 2"),
        ("prefilter: sum(it.cpu over cluster.pods) < 1",
         "sum(it.cpu over cluster.pods) < 1 is false: sum(it.cpu over cluster.pods) is 1750m"),
        ('forbid: any(node.pods where it.label app=web) message "{count(node.pods)} on it"',
         "2 on it"),
        ("let mine = count(node.pods where it.label app=web)\nfilter: node.ready or mine > 1",
         "node.ready or mine > 1 is false: node.ready is false; mine is 1"),
        ('reserve: max(node.cpu.free over nodes) > 8 message "{node.label[k]}, {pod.name}"',
         "v, p"),
        ("gate: count(cluster.pods) == 0",
         "count(cluster.pods) == 0 is false: count(cluster.pods) is 2"),
        ("filter: pod.image in node.images and node.name is x",
         "pod.image in node.images is false: pod.image is y:1; node.images is [x:1]"),
        ('permit: reject message "{count(node.pods)} there"', "2 there"),
    ],
)  # fmt: skip
def test_nobody_is_asked_one_by_one_for_the_words(rule, said, monkeypatch):
    plan = plan_of(rule)
    world = FakeWorld(HOSTS, PODS).knows(plan)
    pod = subject(name="p", image="y:1").knows(plan)
    (one,) = (
        *plan.gates, *plan.prefilters, *plan.filters, *plan.reserves, *plan.permits,
    )  # fmt: skip
    row = 0 if plan.filters or plan.reserves or plan.permits else -1
    ask = reference.asked(reference.View(world, pod, row))
    if not plan.permits:
        assert words.message(one.core, plan.source.text, ask) == said
    evaluate = reference.evaluate

    def of_lists(node, view):
        assert node.type.kind is Kind.LIST
        return evaluate(node, view)

    monkeypatch.setattr(reference, "evaluate", of_lists)
    assert one.message(pod, world, row) == said
