"""What wakes a pod that kube-scheduler would try in vain."""

from __future__ import annotations

import pytest

from engine.framework.events import QueueingHint
from engine.objects import Pod
from engine.plugins.node_resources_fit import NodeResourcesFit
from tests.builders import Cache, make_node, make_pod


def _finer(pod, gone, cache):
    [registered] = [one for one in NodeResourcesFit().points().events if one.finer is not None]
    assert isinstance(gone, Pod)
    assert registered.hint(pod, gone, None, cache.snapshot(0.0)) is QueueingHint.QUEUE
    return registered.finer(pod, gone, None, cache.snapshot(0.0))


@pytest.mark.parametrize(
    ("promised", "freed", "others", "wakes"),
    [
        ("", "b", 1, True),  # it may evict who is left there
        ("a", "a", 1, True),
        ("a", "b", 0, True),
        ("a", "b", 1, False),
        ("a", "gone", 0, False),
    ],
)
def test_room_that_is_promised_to_others_wakes_nobody_who_waits_for_their_own(
    promised, freed, others, wakes
):
    cache = Cache()
    for name in ("a", "b"):
        cache.add_node(make_node(name, cpu="2"))
    waits = make_pod("waits", cpu="2", priority=5)
    cache.nominate(waits, promised)
    for number in range(others):
        cache.nominate(make_pod(f"other-{number}", cpu="2", priority=5), "b")
    gone = make_pod("gone", cpu="2", node=freed).pod
    expected = QueueingHint.QUEUE if wakes else QueueingHint.SKIP
    assert _finer(waits, gone, cache) is expected


def test_less_important_promises_leave_the_room():
    cache = Cache()
    for name in ("a", "b"):
        cache.add_node(make_node(name, cpu="2"))
    waits = make_pod("waits", cpu="2", priority=5)
    cache.nominate(waits, "a")
    cache.nominate(make_pod("other", cpu="2", priority=4), "b")
    gone = make_pod("gone", cpu="2", node="b").pod
    assert _finer(waits, gone, cache) is QueueingHint.QUEUE
