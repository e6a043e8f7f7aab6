"""Pods that no selector tells apart: what a label that nobody asked for yet costs to count."""

from __future__ import annotations

import random

from engine.pods.podinfo import make_pod_info
from engine.pods.selectors import Requirement, Selector
from tests.builders import Cache, changed, make_node, make_pod

LABELS = [{"app": f"a{i}", "team": "t"} for i in range(3)]


def pod(number, labels):
    whole = make_pod(f"p{number}").pod
    return make_pod_info(changed(whole, metadata={"labels": labels}))


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
    assert len(cache.pods._kinds._each) == 3
    assert counted(cache, "app", "a1") == dict.fromkeys(range(4), 50)
    assert counted(cache, "team", "t") == dict.fromkeys(range(4), 150)
    assert counted(cache, "other", "x") == {}


def test_kinds_without_the_value_cost_a_selector_nothing():
    """A thousand pods with labels of their own, and selectors for labels that nobody named yet."""
    cache = Cache()
    cache.add_node(make_node("n"))
    for i in range(1000):
        labels = {"app": f"a{i % 10}", "own": str(i)} | ({"few": "x"} if i % 100 == 0 else {})
        cache.add_pod(pod(i, labels), "n")
    counted(cache, "app", "a1")
    kinds = cache.pods._kinds
    each, kinds._each = kinds._each, Untouched(kinds._each)  # no kind is looked at
    for key, value, count in [("few", "x", 10), ("few", "y", 0), ("own", "7", 1), ("no", "x", 0)]:
        assert sum(counted(cache, key, value).values()) == count
    kinds._each = each


class Untouched(list):
    """Of which nobody reads an entry."""

    def __getitem__(self, at):
        raise AssertionError(at)

    def __iter__(self):
        raise AssertionError


def test_every_selector_counts_what_it_matches():
    """Kinds come and go meanwhile, many enough for numbers to be given again."""
    cache = Cache()
    cache.add_node(make_node("n"))
    there: dict[str, dict[str, str]] = {}
    rng = random.Random(7)
    keys = ("a", "b", "c")
    requirements = [
        Requirement(key, operator) for key in keys for operator in ("Exists", "DoesNotExist")
    ]
    requirements += [
        Requirement(key, operator, values)
        for key in keys
        for operator in ("In", "NotIn")
        for values in (("0",), ("1", "2"))
    ]
    for step in range(6000):
        if there and rng.random() < 0.48:
            cache.remove_pod(there_uid := rng.choice(list(there)))
            del there[there_uid]
        else:
            labels = {key: str(rng.randrange(4)) for key in keys if rng.random() < 0.6}
            one = pod(step, labels)
            there[one.uid] = labels
            cache.add_pod(one, "n")
        if step % 40 == 0:
            selector = Selector(tuple(rng.sample(requirements, rng.randrange(3))))
            cache.topology._sets.sets.clear()  # so that it is counted anew
            found = cache.topology.pod_set(None, selector, terminating=rng.random() < 0.5)
            assert found.counts.get(0, 0) == sum(map(selector.matches, there.values()))


def test_numbers_of_kinds_are_given_again():
    cache = Cache()
    cache.add_node(make_node("n"))
    for i in range(3000):
        cache.add_pod(pod(i, {"app": f"a{i}"}), "n")
        cache.add_pod(pod(i, {"app": "b"}), "n")
        cache.remove_pod(pod(i, None).uid)
    assert cache.pods.size == 0
    assert len(cache.pods._kinds._each) <= 2
    assert not cache.pods._kinds._with
    assert counted(cache, "app", "b") == {}
