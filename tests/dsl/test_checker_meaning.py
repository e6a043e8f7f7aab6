"""What right policies come to where nothing but the compiled plan tells: numbers, metrics."""

import pytest

from dsl.checker.declarations import metric_spec
from dsl.parser import Parser
from dsl.schema import MetricDefinition
from tests.dsl.bothways import plan_of

PARSER = Parser()


@pytest.mark.parametrize(
    ("clause", "unit", "scale"),
    [
        ("", "", 1.0),
        ("unit percent", "", 0.01),
        ("unit bytes", "bytes", 1.0),
        ("unit bytes/s", "bytes/s", 1.0),
        ("unit cores", "cores", 1000.0),
        ("unit cores/s", "cores/s", 1000.0),
        ("unit seconds", "seconds", 1.0),
        ("unit percent/s", "/s", 0.01),
        ("unit celsius", "", 1.0),
        ("unit celsius/s", "/s", 1.0),
    ],
)
def test_units_of_metrics(clause, unit, scale):
    (found,) = plan_of(f'metric m = promql "q" {clause}\nscore: m normalize minmax').metrics
    assert (found.unit, found.scale) == (unit, scale)


@pytest.mark.parametrize(
    ("source", "query"),
    [
        ("promql \"x{a='$key', b='$five'}\"", "x{a='a/b', b='5'}"),
        ('promql "x{$lines}"', "x{a\\nb}"),
        ("annotation $key", "a/b"),
        ("annotation $five", "5"),
        ('annotation "x/$key"', "x/$key"),
        ('object "apps/deployments" field "spec.$key" by namespace', "apps/deployments#spec.$key"),
    ],
)
def test_what_a_metric_asks_for(source, query):
    head = 'param key = "a/b"\nparam five = 5\nparam lines = "a\\nb"\n'
    (found,) = plan_of(f"{head}metric m = {source}\nscore: m normalize minmax").metrics
    assert found.query == query


def test_a_metric_of_a_file_is_that_of_the_catalogue_if_it_asks_for_the_same():
    (found,) = plan_of('metric m = promql "q" by instance\nscore: m').metrics
    assert found == metric_spec("m", MetricDefinition(query="q", by="instance"))
    assert found.keys == ()


def test_how_often_a_metric_is_asked_for_and_when_it_is_stale():
    text = 'metric m = promql "q" every 5s stale 7min\nscore: m normalize minmax'
    (found,) = plan_of(text).metrics
    assert (found.every_seconds, found.stale_seconds) == (5.0, 420.0)


def test_metrics_have_one_id_where_the_same_is_asked_for_in_the_same_way():
    plain = MetricDefinition(query="q")
    others = [
        MetricDefinition(query="r"),
        MetricDefinition(query="q", by="XX"),
        MetricDefinition(query="q", every_seconds=5.0),
        MetricDefinition(query="q", stale_seconds=5.0),
        MetricDefinition(query="q", percent=True),
        MetricDefinition(query="\ud800"),
    ]
    ids = {metric_spec("m", one).id for one in (plain, *others)}
    assert len(ids) == 1 + len(others)
    same = MetricDefinition(query="q", default=3.0, doc="of another default and name")
    assert metric_spec("n", same).id == metric_spec("m", plain).id


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("node.created < now", True),
        ("node.ready or now > time(pod.label[t])", True),
        *((f"{one} < 3", True) for one in ("time.hour", "time.minute", "time.day", "time.month")),
        ("time.weekday is mon", True),
        ("node.ready or cluster.nodes > 3", False),
        ("metric_age(load) is present", True),
        ("load is present", False),
        ("node.created is present", False),
    ],
)
def test_rules_that_the_clock_decides(test, expected):
    assert plan_of(f"filter: {test}").filters[0].reads_time is expected
