"""Pods that no selector tells apart: what a label that nobody asked for yet costs to count."""

from __future__ import annotations

import gc
import random
import sys

import pytest

from engine.cache.podkinds import Kinds
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


def kinds_of(count):
    """Kinds with labels of their own, in a hundred namespaces."""
    kinds = Kinds()
    for i in range(count):
        labels = {"app": f"a{i % 20}", "own": str(i), "tier": f"t{i % 3}"}
        whole = make_pod(f"p{i}", namespace=f"ns{i % 100}").pod
        kinds.take(make_pod_info(changed(whole, metadata={"labels": labels})))
    return kinds


def exists(key):
    return Requirement(key, "Exists")


def value(key, *values):
    return Requirement(key, "In", values)


A_NAMESPACE, HALF = frozenset({"ns1"}), frozenset({f"ns{i}" for i in range(50)})


@pytest.mark.parametrize(
    ("namespaces", "requirements", "most"),
    [
        (None, [value("own", "7")], 1),
        (A_NAMESPACE, [value("own", "1")], 1),
        (A_NAMESPACE, [value("own", "1"), exists("tier")], 1),
        (None, [value("own", "7"), exists("own")], 1),
        (A_NAMESPACE, [value("app", "a1"), exists("tier")], 40),
        (A_NAMESPACE, [value("app", "a1"), Requirement("own", "DoesNotExist")], 40),
        (None, [value("app", "a1"), exists("own")], 200),
        (None, [value("no", "1"), exists("own")], 0),
    ],
)
def test_a_selector_looks_at_the_kinds_that_have_its_rarest_value(namespaces, requirements, most):
    kinds, looked_at = kinds_of(4000), []

    class Numbers(tuple):
        """Kinds, of which it tells when they are looked at."""

        __slots__ = ()

        def __iter__(self):
            looked_at.extend(tuple.__iter__(self))
            return tuple.__iter__(self)

    for values in kinds._with.values():
        values.update({text: Numbers(there) for text, there in values.items()})
    kinds.matching(namespaces, Selector(tuple(requirements)), terminating=False)
    assert len(looked_at) <= most


@pytest.mark.parametrize(
    ("namespaces", "requirements"),
    [
        (None, [exists("own")]),
        (None, [Requirement("own", "DoesNotExist")]),
        (None, [Requirement("own", "NotIn", ("7",))]),
        (None, [value("tier", "t1", "t2")]),
        (None, [value("app", "a1")]),
        (HALF, [Requirement("tier", "NotIn", ("t1",))]),
        (HALF, []),
        (HALF, [exists("own"), Requirement("tier", "NotIn", ("t1",))]),
        (None, []),
    ],
)
def test_broad_selectors_take_as_many_steps_whatever_kinds_there_are(namespaces, requirements):
    """What is done for each kind is done by calls that loop by themselves."""
    selector = Selector(tuple(requirements))
    taken = []
    for count in (2000, 4000):
        kinds = kinds_of(count)
        taken.append(
            bytecodes(lambda of=kinds: of.matching(namespaces, selector, terminating=False))
        )
    assert taken[0] == taken[1] <= 1500


def bytecodes(act):
    """How many it takes, of whatever it calls too."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # others may be told of collections
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


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
