"""Before the instant at which the clock may turn a rule, the clock alone changes nothing of it."""

import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.dsl.random_worlds import TIMES, RandomPod, RandomWorld, Rows
from tests.effort import examples
from tests.properties import policies as p
from tests.properties.test_language_evaluators import compiled, subjects, worlds

SPANS = ("5s", "90s", "5min", "1h", "30d", "$span")
SIGNS = ("<", "<=", ">", ">=")
OF_POD = ("now - pod.created", "(now - (pod.queued_at ?? pod.created))*2", "now + 1h - pod.created")
OF_NODE = (
    "now - node.created",
    "now - time(node.label[k])",
    "now - max(it.started_at over node.pods)",
)


def compared(writer, values):
    sign, value, span = writer.one(SIGNS), writer.one(values), writer.one(SPANS)
    within = f"{value} in 60..3600"
    return writer.one((f"{value} {sign} {span}", f"{span} {sign} {value}", within))


def condition(writer, place, values):
    """A condition on the clock among others."""
    clock = compared(writer, values)
    other = writer.flag(place, 1)
    joined = writer.one(("A and B", "A or B", "not A and B", "if A then B else not B", "A"))
    return joined.replace("A", f"({clock})").replace("B", f"({other})")


@st.composite
def filters(draw):
    writer = p.Writer(draw)
    own = compared(writer, ("now - it.scheduled_at", "now - it.created"))
    among = writer.one(
        (
            f"count(node.pods where {own}) < 2",
            f"sum(it.cpu over node.pods where {own}) > 1",
            f"any(cluster.pods where {own})",
            f"count(nodes where {compared(writer, OF_NODE)}) > 1",
            condition(writer, p.DECIDES, OF_NODE),
            condition(writer, p.DECIDES, OF_POD),
        )
    )
    left = writer.one(("", f"{condition(writer, p.POD, OF_POD)} -> "))
    return f"{writer.one(('filter', 'forbid'))}: {left}{among}"


moments = st.sampled_from(TIMES).flatmap(
    lambda at: st.sampled_from((0.0, 1.0, 89.0, 90.0, 4000.0, 1e6)).map(lambda more: at + more)
)


def said(rule, world, pod):
    parts = rule.prepare(pod, world)
    return (
        parts is None or rule.verdict(parts, world, slice(0, world.nodes))[world.present].tolist()
    )


@settings(max_examples=examples(100), deadline=None)
@given(filters(), worlds(), subjects, moments, st.floats(0, 1))
def test_nothing_changes_before_the_first_turn(text, world, pod, now, share):
    rule = compiled(text).filters[0]
    assume(rule.turns is not None)
    at = RandomWorld(world.rows, world.dictionary, now)
    seconds = rule.turns(pod, at)
    # Times of a policy have about microseconds.
    until = min(seconds, 1e9) - 1e-3
    assume(until > 0)
    later = RandomWorld(world.rows, world.dictionary, now + share * until)
    assert said(rule, at, pod) == said(rule, later, pod)


def test_and_often_something_does_at_it():
    """So that the property says something."""
    rule = compiled("filter: now - node.created > 90s and (now - pod.created)*2 < 1h").filters[0]
    turned = 0
    for number in range(30):
        rows = Rows((f"{number}/a", f"{number}/b"), (), str(number))
        pod = RandomPod(str(number))
        for now in TIMES:
            world = RandomWorld(rows, now=now)
            seconds = rule.turns(pod, world)
            if math.isfinite(seconds):
                later = RandomWorld(rows, world.dictionary, now + seconds + 1e-3)
                turned += said(rule, world, pod) != said(rule, later, pod)
    assert turned > 20
