"""Pods that no selector tells apart: what a label that nobody asked for yet costs to count."""

from __future__ import annotations

import msgspec

from engine.cache import Cache
from engine.framework.podinfo import make_pod_info
from engine.framework.selectors import Requirement, Selector
from tests.builders import make_node, make_pod

LABELS = [{"app": f"a{i}", "team": "t"} for i in range(3)]


def pod(number, labels):
    whole = make_pod(f"p{number}").pod
    meta = msgspec.structs.replace(whole.metadata, labels=labels)
    return make_pod_info(msgspec.structs.replace(whole, metadata=meta))


def counted(cache, key, value):
    selector = Selector((Requirement(key, "In", (value,)),))
    return cache.topology.pod_set(None, selector, terminating=False).counts


def test_a_new_label_looks_at_kinds_and_not_at_pods():
    cache = Cache()
    for i in range(4):
        cache.add_node(make_node(f"n{i}"))
    for i in range(600):
        cache.add_pod(pod(i, LABELS[i % 3]), f"n{i % 4}")
    cache.add_pod(pod(600, LABELS[0]), "unknown")
    cache.pods.pod = cache.pods.on = None  # not one pod is looked at
    assert len(cache.pods._kinds.each) == 3
    assert counted(cache, "app", "a1") == dict.fromkeys(range(4), 50)
    assert counted(cache, "team", "t") == dict.fromkeys(range(4), 150)
    assert counted(cache, "other", "x") == {}


def test_numbers_of_kinds_are_given_again():
    cache = Cache()
    cache.add_node(make_node("n"))
    for i in range(50):
        cache.add_pod(pod(i, {"app": f"a{i}"}), "n")
        cache.update_pod(pod(i, {"app": "b"}), "n")
        cache.remove_pod(pod(i, None).uid)
    assert cache.pods.size == 0
    assert len(cache.pods._kinds.each) <= 2
    assert counted(cache, "app", "b") == {}
