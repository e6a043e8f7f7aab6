"""Where metrics come from and whose they are: what is declared, read and refused."""

import pytest

from dsl.checker.declarations import metric_spec
from dsl.compiler import Compiler
from dsl.schema import MetricDefinition
from dsl.types import BYTES, CORES
from tests.dsl import oracle
from tests.dsl.worlds import FakePod, FakeWorld

COMPILER = Compiler()


def spec_of(text):
    result = COMPILER.compile({"a.policy": f"metric x = {text}\nscore: x normalize minmax\n"})
    assert [one.message for one in result.diagnostics if one.is_error] == []
    (spec,) = result.plans[0].metrics
    return spec


def test_an_annotation_says_all_in_its_id():
    spec = spec_of("annotation cpu_usage_avg_5m stale 6m")
    assert spec.source == "annotation"
    assert spec.id == "annotation:360.0:1.0:cpu_usage_avg_5m"
    assert spec_of("annotation a/b unit percent").id == "annotation:120.0:0.01:a/b"


def test_usage_brings_its_unit():
    cpu, memory = spec_of("usage cpu every 30s"), spec_of("usage memory")
    assert (cpu.source, cpu.query, cpu.unit, cpu.every_seconds) == ("usage", "cpu", "cores", 30)
    assert memory.unit == "bytes"
    assert cpu.scale == 1000
    assert (CORES.core, BYTES.byte) == (1, 1)


def test_an_object_is_named_by_kind_and_field():
    spec = spec_of('object "apps/deployments" field "spec.replicas" by name')
    assert (spec.source, spec.query, spec.keys) == (
        "object",
        "apps/deployments#spec.replicas",
        ("name",),
    )


@pytest.mark.parametrize(
    ("by", "of"),
    [("instance", "node"), ("cluster", "cluster"), ("namespace", "namespace"), ("pod", "pod"),
     ("workload", "workload"), ("namespace, workload", "workload"), ("src, dst", "pair"),
     ("zone", "zone"), ("region", "region"), ("rack", "rack"), ("cloud_zone", "zone"),
     ("label_topology_kubernetes_io_rack", "rack"), ("namespace, pod", "pod"),
     ("namespace, team", "pair"), ("app, pod", "pair")],
)  # fmt: skip
def test_by_says_whose_it_is(by, of):
    text = f'metric x = promql "q" by {by}\nscore: node.pods.free\nlet y = x\n'
    if of == "pair":
        text = text.replace("let y = x", 'let y = x(node.name, "b")')
    result = COMPILER.compile({"a.policy": text.replace("node.pods.free", "y")})
    assert [one.message for one in result.diagnostics if one.is_error] == []
    (spec,) = result.plans[0].metrics
    assert spec.of == of
    # A metric of the configuration is the same one.
    configured = metric_spec("x", MetricDefinition("q", by))
    assert (configured.of, configured.keys, configured.by) == (of, spec.keys, spec.by)
    assert configured.id == spec.id


@pytest.mark.parametrize(
    ("by", "labels"),
    [
        ("instance", ("instance",)),
        ("zone", None),
        ("cloud_zone", ("cloud_zone",)),
        ("cluster", None),
        ("pod", None),
        ("namespace, workload", None),
        ("src, dst", ("src", "dst")),
    ],
)
def test_labels_are_named_where_they_are_not_the_usual_ones(by, labels):
    assert metric_spec("x", MetricDefinition("q", by)).labels == labels
    assert metric_spec("x", MetricDefinition("q")).labels is None


def test_a_value_of_the_zone_changes_with_the_zone_of_a_node():
    """What a rule reads says what wakes the pods that it rejected."""
    text = 'metric x = promql "q" by zone\nfilter: (x ?? 0) < 3\nfilter: metric_age(x) is missing\n'
    (plan,) = COMPILER.compile({"a.policy": text}).plans
    assert [rule.reads for rule in plan.filters] == [
        {"metric:x", "node.zone"},
        {"metric_age:x", "node.zone"},
    ]


def test_levels_are_read_where_they_belong():
    text = """\
metric all = promql "a" by cluster
metric space = promql "b" by namespace
metric hot = promql "c" by pod
metric rtt = promql "d" by src, dst
score: (load_all ?? 0) + space + hot + rtt(node.name, pod.name)
score: max(hot over node.pods)
"""
    text = text.replace("metric all", "metric load_all")
    result = COMPILER.compile({"a.policy": text})
    assert [one.message for one in result.diagnostics if one.is_error] == []
    plan = result.plans[0]
    given = {"load_all": 1.0, "rtt": {("a", "p"): 40.0, ("b", "p"): 20.0}}
    nodes = [{"node.name": "a"}, {"node.name": "b"}]
    pods = [{"on": 0, "metrics": {"hot": 7.0}}, {"on": 0, "metrics": {"hot": 9.0}}]
    world = FakeWorld(nodes, pods, given=given).knows(plan)
    pod = FakePod.of({"pod.name": "p", "metrics": {"space": 2.0, "hot": 3.0}}).knows(plan)
    first, second = plan.scores
    assert oracle.scores(first.core, world, pod, [0, 1]) == [46.0, 26.0]
    assert oracle.scores(second.core, world, pod, [0, 1]) == [9.0, 0.0]


def test_pairs_over_other_nodes_have_no_other_value_of_the_node():
    text = 'metric rtt = promql "q" by src, dst\n'
    rule = "score: sum(node.gpu.free * rtt(node.name, it.node) over cluster.pods)\n"
    (one,) = COMPILER.compile({"a.policy": text + rule}).diagnostics
    assert one.code == "P202"
    assert "may not read a field of the node" in one.message
