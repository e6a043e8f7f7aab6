"""What right policies come to where nothing but the compiled plan tells: numbers, metrics."""

import pytest

from dsl import ir
from dsl.checker import FileChecker
from dsl.checker.metrics import metric_spec
from dsl.files import read_source
from dsl.parser import Parser
from dsl.schema import MetricDefinition
from dsl.source import Span
from tests.dsl.bothways import COMPILER, passing, plan_of
from tests.dsl.worlds import FakePod, FakeWorld

PARSER = Parser()
NODES = [
    {"node.gpu.free": 4.0, "node.label[k]": "a", "node.label[5]": "a"},
    {"node.gpu.free": 5.0, "node.taint[t=x]": True},
    {"node.gpu.free": 6.0, "node.label[k]": "b!=c"},
]
POD = FakePod.of({"pod.name": "p", "pod.namespace": "default", "pod.gpu": 3.0})


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("node.gpu.free >= 50% of 10", [False, True, True]),
        ("node.label[$five] is a", [True, False, False]),
        ("node.label $five", [True, False, False]),
        ('node.label "k=a"', [True, False, False]),
        ('node.label "k==a"', [True, False, False]),
        ('node.label "k=a" = a', [False, False, False]),
        ('node.label "k!=a"', [False, True, True]),
        ('node.label "k=b!=c"', [False, False, True]),
        ('node.label "k!=b=c"', [True, True, True]),
        ("node.taint t == x", [False, True, False]),
        ('hash(pod.gpu) == hash("3") and node.gpu.free > 4', [False, True, True]),
        ('string(node.label[k]) == "a"', [True, False, False]),
        ("node.gpu.free > (if pod.gpu > 5 then 3 else if pod.gpu > 4 then 7 else 5)", [0, 0, 1]),
        ("node.gpu.free > (if pod.gpu > 5 then 3 else if pod.gpu > 2 then 4 else 5)", [0, 1, 1]),
        # A text may have several lines.
        ('node.label "pool!=x\\ny"', [1, 1, 1]),
    ],
)
def test_conditions(test, expected):
    assert passing(f"param five = 5\nfilter: {test}", FakeWorld(NODES), POD) == expected


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


UNRESOLVABLE = "UnschedulableAndUnresolvable"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("permit: reject", UNRESOLVABLE),
        ("permit: reject status unschedulable", "Unschedulable"),
        ("permit: count(node.pods) > 3 -> reject", "Unschedulable"),
        ("permit: wait 1s until count(node.pods) > 3", "Unschedulable"),
        ("permit: wait 1s until count(node.pods) > 3 status unresolvable", UNRESOLVABLE),
        ("quota: by pod.namespace max cpu 3", "Unschedulable"),
        ("quota: by pod.namespace max cpu 3 status unresolvable", UNRESOLVABLE),
    ],
)
def test_what_a_rejection_means_for_preemption(line, status):
    plan = plan_of(line)
    (rule,) = (*plan.permits, *plan.quotas)
    assert rule.status == status


def test_what_a_gang_says_and_what_it_does_not():
    plan = plan_of("gang: by pod.label[a] min pod.gpu wait duration(pod.annotation[b])")
    (gang,) = plan.gangs
    assert gang.reads == {"pod.label", "pod.gpu", "pod.annotation"}
    assert (gang.core.wait.name, gang.core.backoff_seconds) == ("duration", 0.0)
    (other,) = plan_of("param p = 1m\ngang: by pod.label[a] min 3 backoff $p").gangs
    assert (other.core.wait, other.core.backoff_seconds) == (None, 60.0)
    (of_all,) = plan_of("gang: by namespace.name min 3").gangs
    assert (of_all.core.by.field, of_all.core.member.field) == ("namespace.name", "it.namespace")


def test_a_quota_looks_at_the_pods_of_the_cluster_whatever_it_limits():
    (rule,) = plan_of("quota: by pod.namespace elastic").quotas
    assert rule.reads == {"pod.namespace", "cluster.pods", "it.request"}
    assert rule.row_local is False


def test_a_preempt_line_that_says_never_evicts_nobody():
    assert plan_of("preempt: never").preempts[0].core.never is True


def test_what_the_configuration_sets_and_the_policy_has_not_is_reported_at_its_start():
    compiled = COMPILER.compile({"a.policy": "score: node.gpu.free\n"}, params={"a": {"x": 1}})
    assert [(one.code, one.span) for one in compiled.diagnostics] == [("P105", Span(0, 0))]


@pytest.mark.parametrize(
    ("rule", "reads"),
    [
        ("score: rtt(pod.name, node.name)", {"metric:rtt", "pod.name", "node.name"}),
        ("filter: pod.gpu > 0 -> node.ready", {"pod.gpu", "node.ready"}),
        ("first: pod.gpu > 0 -> node.ready", {"pod.gpu", "node.ready"}),
        ("spread: pod.gpu > 0 -> over zone hard", {"pod.gpu", "node.eligible", "node.zone"}),
        ("spread: pod.gpu > 0 -> over zone", {"pod.gpu", "node.zone"}),
        ("permit: pod.gpu > 0 -> wait 5s until node.ready", {"pod.gpu", "node.ready"}),
    ],
)
def test_what_a_rule_reads(rule, reads):
    plan = plan_of(f'metric rtt = promql "q" by a, b\n{rule}')
    (found,) = (*plan.filters, *plan.tiers, *plan.scores, *plan.permits)
    assert reads <= found.reads
    assert found.reads_metrics is ("rtt" in rule)


def test_a_hard_spread_compares_with_the_fewest_of_all_eligible_nodes():
    core = plan_of("spread: over zone hard").filters[0].core
    fewest = core.test.left.operands[2]
    assert (fewest.function, fewest.over, fewest.where.field) == ("min", "nodes", "node.eligible")
    assert (core.forbids, core.guard, core.status) == (False, None, None)
    assert core.message.parts == ("more than 1 apart over zone",)
    label = 'spread: over "example.com/row" skew 3 hard'
    (text,) = plan_of(label).filters[0].core.message.parts
    assert text == 'more than 3 apart over "example.com/row"'


def test_scores_say_how_much_they_weigh_and_what_a_missing_value_is_worth():
    text = "param w = 4\nspread: over zone weight 3\nscore: load missing 5 weight $w\nscore: load"
    cores = [one.core for one in plan_of(text).scores]
    assert [one.weight for one in cores] == [3.0, 4.0, 1.0]
    assert [one.missing for one in cores] == [None, 5.0, None]


def test_a_condition_of_the_node_before_the_arrow_becomes_part_of_the_test():
    text = "filter: pod.gpu > 0 and node.ready -> node.gpu.free > 1"
    core = plan_of(text).filters[0].core
    assert (core.test.operator, type(core.test.operands[0])) == ("or", ir.Not)
    assert core.guard.operator == ">"
    rule = plan_of(f"applies to: pod.cpu > 1\n{text}").filters[0]
    assert [one.operator for one in (rule.core.guard, *rule.core.guard.operands)] == [
        "and",
        ">",
        ">",
    ]
    assert rule.core.guard.span.start == rule.core.guard.operands[0].span.start
    assert core.forbids is False
    other = plan_of("forbid: node.ready").filters[0].core
    assert (other.forbids, type(other.test)) == (True, ir.Not)


def test_what_the_chosen_node_is_bound_with_and_what_is_written():
    binds = ["bind: default", "bind: with other", "bind: dry run"]
    cores = [plan_of(one).binds[0].core for one in binds]
    assert [(one.kind, one.name) for one in cores] == [
        ("default", ""),
        ("with", "other"),
        ("dry", ""),
    ]
    written = 'prebind: label a = pod.name, annotate a = pod.name, event "x"'
    actions = plan_of(written).prebinds[0].core.actions
    assert [(one.kind, one.key) for one in actions] == [
        ("label", "a"),
        ("annotate", "a"),
        ("event", ""),
    ]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ("allow", ("allow", 0.0, "reject")),
        ('reject message "a"', ("reject", 0.0, "reject")),
        ("wait 5s until node.ready", ("wait", 5.0, "reject")),
        ("wait $p until node.ready, then allow", ("wait", 300.0, "allow")),
        ('wait 1min until node.ready, then reject message "a"', ("wait", 60.0, "reject")),
    ],
)
def test_what_permit_decides(decision, expected):
    core = plan_of(f"param p: duration = 5m\npermit: {decision}").permits[0].core
    assert (core.decision, core.seconds, core.then) == expected


@pytest.mark.parametrize(
    "line", ["filter: loda -> node.ready", "permit: loda -> reject", "score: loda -> 5"]
)
def test_a_line_whose_left_side_is_wrong_is_no_rule(line):
    source, _ = read_source("p.policy", line)
    checker = FileChecker(source, [one for one, _ in PARSER.statements(source)])
    assert list(checker.steps()) == [None]
    policy, found = checker.result()
    assert (policy.rules, [one.code for one in found]) == ((), ["P102"])


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


def test_orders_say_which_comes_first():
    keys = plan_of("sort: pod.priority desc, pod.label[a] [x, 50%], pod.name, pod.gpu [2, 1]")
    assert [(one.direction, one.items) for one in keys.sorts[0].core.keys] == [
        ("desc", ()),
        ("listed", ("x", "50%")),
        ("asc", ()),
        ("listed", (2.0, 1.0)),
    ]
