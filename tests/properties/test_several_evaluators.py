"""`preempt:`, `gang:` and `quota:` come to the same by columns and by the reference."""

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsl import several as rules
from dsl.collective import Limits
from engine.collective.quotas import reclaim
from tests.dsl import oracle
from tests.effort import examples
from tests.properties import policies as p
from tests.properties.test_language_evaluators import compiled, subjects, worlds

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
IT = p.Place(it="pod")
POD = p.SCORED
OUTCOMES = ("pdb_violations", "max_priority", "sum_priority", "count", "latest_start")


def tried(usual):
    return settings(max_examples=examples(usual), deadline=None, suppress_health_check=SLOW)


@st.composite
def preempts(draw):
    w = p.Writer(draw)
    left = f"{w.flag(POD, 1)} -> " if w.one((True, False, False)) else ""
    where = f" where {w.flag(IT, 2)}" if w.one((True, True, False)) else ""
    order = f" order {_keys(w, IT)}" if w.one((True, False)) else ""
    pick = f" pick {_picks(w)}" if w.one((True, False)) else ""
    return f"preempt: {left}victims{where}{order}{pick}"


def _keys(w, place):
    return ", ".join(
        f"{_value(w, place)}{w.one(('', ' asc', ' desc'))}" for _ in range(w.one((1, 2)))
    )


def _value(w, place):
    return w.one((w.number, w.text))(place, 1)


def _picks(w):
    own = f"victims.{w.one(OUTCOMES)}{w.one(('', ' desc'))}"
    return f"{own}, {_keys(w, p.NODE)}" if w.one((True, False)) else own


@tried(300)
@given(preempts(), worlds(), subjects, st.data())
def test_who_may_be_evicted_and_what_it_costs(text, world, pod, data):
    (rule,) = compiled(text).preempts
    by_columns = rule.evictions(pod, world)
    meant = rules.evictions(rule.core, oracle.ByReference(pod, world))
    assert by_columns.ordered == meant.ordered
    if not meant.ordered:
        return
    rows = np.flatnonzero(world.present)
    numbers = st.sampled_from([0.0, 1.0, 2.0, -3.0])
    results = {
        f"victims.{name}": np.array(data.draw(st.lists(
            numbers if name != "latest_start" else numbers | st.just(math.nan),
            min_size=len(rows), max_size=len(rows),
        )))
        for name in OUTCOMES
    }  # fmt: skip
    for one, other in zip(by_columns.ranks, meant.ranks, strict=True):
        assert _order(one(rows, results)) == _order(other(rows, results))


def _order(places):
    """Which are equal, and which before which."""
    return np.unique(places, return_inverse=True)[1].tolist()


@st.composite
def gangs(draw):
    w = p.Writer(draw)
    left = f"{w.flag(POD, 1)} -> " if w.one((True, False)) else ""
    of_pod = ("pod.label[app]", "pod.namespace", "pod.priority", "pod.qos", "pod.owner.kind")
    by = w.one((*of_pod, "namespace.label[k]", "namespace.name"))
    # A number that is written down is a whole one from 1.
    asked = w.number(POD, 1)
    asked = asked if "pod." in asked else f"({asked} + pod.priority)"
    least = w.one(("2", "group.min_member", asked))
    wait = w.one(("", " wait 30s", f" wait seconds({w.number(POD, 1)})"))
    rest = w.one(("", " backoff 10s reject above 10% missing within zone"))
    return f"gang: {left}by {by} min {least}{wait}{rest}"


@tried(200)
@given(gangs(), worlds(), subjects)
def test_who_is_in_a_gang(text, world, pod):
    (rule,) = compiled(text).gangs
    values = oracle.ByReference(pod, world)
    found = rule.terms(pod, world)
    assert repr(found) == repr(rules.gang_terms(rule.core, values))
    assert rule.key(pod, world) == (None if found is None else found.key)
    assert rule.mates(pod, world) == values.chosen(rules.pending(rule.core))


@st.composite
def quotas(draw):
    w = p.Writer(draw)
    left = f"{w.flag(POD, 1)} -> " if w.one((True, False, False)) else ""
    of_pod = ("pod.label[app]", "pod.namespace", "pod.qos", "pod.priority")
    by = w.one((*of_pod, "namespace.annotation[k]"))
    lists = w.one(("max cpu 2, memory 2Ki", "min cpu 1 max cpu 3", "min memory 1Ki, cpu 1"))
    elastic = w.one(("", " elastic", f" elastic reclaim {_keys(w, IT)}"))
    return f"quota: {left}by {by} {lists}{elastic}"


@tried(200)
@given(quotas(), worlds(), subjects)
def test_what_a_quota_says_and_takes_back(text, world, pod):
    (rule,) = compiled(text).quotas
    values = oracle.ByReference(pod, world)
    use = rule.use(pod, world, {})
    assert repr(use) == repr(rules.quota_use(rule.core, values, {}))
    found = reclaim(use, rule.claims(pod, world, use))
    assert found.ordered == reclaim(use, rules.claims(rule.core, values, use)).ordered
    assert rule.owner(pod, world) == use.key


@tried(200)
@given(worlds(), subjects, st.integers(0, 4))
def test_quotas_that_are_objects(world, pod, size):
    (rule,) = compiled("quota: by pod.namespace elastic").quotas
    names = {pod.text("pod.namespace", None), "default", "web"}
    objects = {one: Limits({"cpu": 1000.0 * size}, {"cpu": 2000.0 * size}) for one in names}
    values = oracle.ByReference(pod, world)
    assert repr(rule.use(pod, world, objects)) == repr(rules.quota_use(rule.core, values, objects))
    use = rule.use(pod, world, objects)
    assert set(use.used) <= set(objects)
    assert all(not math.isnan(one) for used in use.used.values() for one in used.values())
