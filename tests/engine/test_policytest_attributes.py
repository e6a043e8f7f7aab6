"""Every attribute of a fixture and every expectation, read by rules.

The tables are those of the language's section on policy tests, line by line.
"""

from __future__ import annotations

from textwrap import dedent

import pytest

from dsl.compiler import Compiler
from dsl.parser import Parser
from dsl.policytest.attributes import ATTRIBUTES, EXPECTATIONS
from dsl.schema import FIELDS, POD_SETS
from dsl.types import Kind, Level
from engine.policytests.running import Runner

COMPILER = Compiler()
READER = Parser()


@pytest.fixture
def judged(tmp_path):
    """Runs the tests of one policy; gives outcome and message of each."""

    def go(policy, tests, **files):
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(dedent(text))
        (tmp_path / "p.policy").write_text(dedent(policy))
        (tmp_path / "t.policytest").write_text("use p\n" + dedent(tests))
        runner = Runner(None, COMPILER, READER)
        runner.run(tmp_path / "t.policytest")
        return [(one.outcome, one.message) for one in runner.report.results]

    return go


def holds(judged, expression, fixtures, *, declared="", pod="", **files):
    """Whether a filter of this expression lets the pod onto the node `n`."""
    tests = f'{fixtures}\ntest: "t"\n  given pod {pod}\n  expect feasible [n]\n'
    ((outcome, message),) = judged(f"{declared}filter: {expression}\n", tests, **files)
    assert outcome in ("passed", "failed"), message
    assert "no policy used here reads" not in message, message
    return outcome == "passed"


# ---- nodes

T = "2025-02-01T00:00:00Z"
#: Attribute -> how it is written, what holds then, and what holds without it.
NODE = {
    "cpu": ("cpu 4", "node.cpu.capacity == 4 and node.cpu.allocatable == 4", "node.cpu.free == 0"),
    "memory": ("memory 8Gi", "node.memory.capacity == 8Gi", "node.memory.allocatable == 0Gi"),
    "storage": ("storage 10G", "node.storage.free == bytes(10G)", "node.storage.free == 0Gi"),
    "gpu": ("gpu 2", "node.gpu.allocatable == 2", "node.gpu.allocatable == 0"),
    "resource": (
        "resource rdma/hca=2 resource nvidia.com/gpu=4",
        "node.resource[rdma/hca].free == 2 and node.gpu.capacity == 4",
        "node.resource[rdma/hca].free is missing",
    ),
    "pods": ("pods 7", "node.pods.capacity == 7", "node.pods.capacity == 110"),
    "label": ("label a=b label topology.kubernetes.io/zone=z", "node.label a=b and node.zone is z",
              "node.label[a] is missing and node.label kubernetes.io/hostname=n"),
    "annotation": ("annotation a=b", "node.annotation a=b", "node.annotation[a] is missing"),
    "taint": ("taint a=b", "node.taint a=b", "not node.taint a"),
    "condition": ("condition Bad=True", 'node.condition[Bad] is "True"',
                  "node.condition[Bad] is missing"),
    "ready": ("ready false", "not node.ready", "node.ready"),
    "unschedulable": ("unschedulable true", "node.unschedulable", "not node.unschedulable"),
    "kernel": ("kernel v6.1", "node.kernel is v6.1", "node.kernel is missing"),
    "kubelet_version": ("kubelet_version v1.31.4", "node.kubelet_version is v1.31.4",
                        "node.kubelet_version is missing"),
    "os_image": ('os_image "Flatcar 4081"', 'node.os_image is "Flatcar 4081"',
                 "node.os_image is missing"),
    "container_runtime": ('container_runtime "cri-o://1.31.2"',
                          'node.container_runtime is "cri-o://1.31.2"',
                          "node.container_runtime is missing"),
    "created": (f'created "{T}"', f'node.created == time("{T}")', "node.created is missing"),
    "heartbeat": (f'heartbeat "{T}"', f'node.heartbeat == time("{T}")',
                  "node.heartbeat is missing"),
    "metric": ("metric bandwidth 5", "(number(bandwidth) ?? 1) == 5", "bandwidth is missing"),
    "ips": ("ips 13", "node.ips.capacity == 13 and node.ips.free == 13", "node.ips.free == 110"),
    "volumes_limit": ("volumes_limit 25", "node.volumes.limit == 25",
                      "node.volumes.limit is missing"),
    "image_size": ('image_size "nginx:1"=5Mi',
                   '"nginx:1" in node.images and node.missing_image_bytes == 0Mi',
                   'not ("nginx:1" in node.images)'),
    "from": ('from "n.yaml"', "node.kernel is v6 and node.cpu.free == 3",
             "node.kernel is missing"),
}  # fmt: skip
NODE_YAML = """\
    kind: Node
    metadata: {name: other}
    status: {nodeInfo: {kernelVersion: v6}, capacity: {cpu: 4}, allocatable: {cpu: 3}}
    """


@pytest.mark.parametrize("name", NODE)
def test_each_attribute_of_a_node(judged, name):
    written, then, without = NODE[name]
    pod = 'image "nginx:1"' if name == "image_size" else ""
    files = {"n__yaml": NODE_YAML}
    assert holds(judged, then, f"node: n  {written}", pod=pod, **files)
    bare = "node: n"
    if name == "metric":
        assert holds(judged, f"{without} or bandwidth is present", bare)
    assert not holds(judged, then, "node: n  metric bandwidth 6" if name == "metric" else bare)
    assert holds(judged, without, bare, pod=pod)


def test_volumes_attached_are_those_of_the_pods(judged):
    running = "running: on n  name a  volumes 2\nrunning: on n  name b  volumes 1"
    assert holds(judged, "node.volumes.attached == 3", f"node: n\n{running}")


def test_samples_turn_stale_at_every_level(judged):
    policy = (
        'metric m = promql "q" by {} stale 2m\nfilter: (m ?? 7) == {} and metric_age(m) == {}\n'
    )
    tests = 'node: n  metric m 5 age {}\ntest: "t"\n  given pod\n  expect feasible [n]\n'
    for age, value, seconds in (("2m", 5, "2m"), ("121s", 7, "121s")):
        text = policy.format("node", value, seconds)
        assert judged(text, tests.format(age)) == [("passed", "")]
    for level, line in (
        ("namespace", "namespace: default  metric m 5 age {}"),
        ("workload", "workload: w  metric m 5 age {}"),
        ("pod", ""),
    ):
        of_pod = "metric m 5 age {}" if level == "pod" else "workload w"
        for age, value in (("2m", 5), ("3m", 7)):
            declared = f'metric m = promql "q" by {level} stale 2m\n'
            got = holds(judged, f"(m ?? 7) == {value}", "node: n\n" + line.format(age),
                        declared=declared, pod=of_pod.format(age))  # fmt: skip
            assert got, (level, age)


# ---- pods

#: Attribute -> how it is written, what holds then of `it`, and what holds without it.
POD = {
    "namespace": ("namespace z", "it.namespace is z", "it.namespace is default"),
    "uid": ("uid u-1", "it.uid is u-1", "it.uid is not u-1 and it.uid is present"),
    "priority": ("priority -3", "it.priority == -3", "it.priority == 0"),
    "qos": ("qos Guaranteed", "it.qos is Guaranteed", "it.qos is BestEffort"),
    "cpu": ("cpu 250m", "it.cpu == 250m and it.qos is Burstable", "it.cpu == 0"),
    "memory": ("memory 1Gi", "it.memory == 1Gi", "it.memory == 0Gi"),
    "storage": ("storage 2Gi", "it.storage == 2Gi", "it.storage == 0Gi"),
    "gpu": ("gpu 2", "it.gpu == 2 and it.request[nvidia.com/gpu] == 2", "it.gpu == 0"),
    "request": ("request a.b/c=2", "it.request[a.b/c] == 2", "it.request[a.b/c] == 0"),
    "limit": ("limit cpu=2", "it.limit[cpu] == 2 and it.cpu == 0", "it.limit[cpu] is missing"),
    "label": ("label a=b", "it.label a=b", "it.label[a] is missing"),
    "annotation": ("annotation a=b", "it.annotation a=b", "it.annotation[a] is missing"),
    "node_selector": ("node_selector a=b", "it.node_selector[a] is b",
                      "it.node_selector[a] is missing"),
    "toleration": ("toleration a=b", "it.toleration[a] is b", "it.toleration[a] is missing"),
    "tolerates_all": ("tolerates_all true", "it.tolerates_all", "not it.tolerates_all"),
    "workload": ("workload w", "it.workload is w", "it.workload is missing"),
    "owner_kind": ("owner_kind Job owner_name j", "it.owner.kind is Job",
                   "it.owner.kind is missing"),
    "owner_name": ("owner_kind Job owner_name j", "it.owner.name is j",
                   "it.owner.name is missing"),
    "image": ('image "x:1"', 'it.image is "x:1"', "it.image is missing"),
    "images": ('images ["x:1", y]', 'it.image is "x:1"', "it.image is missing"),
    "volumes": ("volumes 2", "it.volumes.count == 2", "it.volumes.count == 0"),
    "host_network": ("host_network true", "it.host_network", "not it.host_network"),
    "created": (f'created "{T}"', f'it.created == time("{T}")', "it.created is missing"),
    "scheduler": ("scheduler s", "it.scheduler is s", "it.scheduler is berth"),
    "service_account": ("service_account s", "it.service_account is s",
                        "it.service_account is missing"),
    "preemption_policy": ("preemption_policy Never", "it.preemption_policy is Never",
                          "it.preemption_policy is PreemptLowerPriority"),
    "priority_class": ("priority_class c", "it.priority_class is c",
                       "it.priority_class is missing"),
    "runtime_class": ("runtime_class kata", "it.runtime_class is kata",
                      "it.runtime_class is missing"),
    "active_deadline": ("active_deadline 5m", "it.active_deadline == 5m",
                        "it.active_deadline is missing"),
    "nominated_node": ("nominated_node n", "it.nominated_node is n",
                       "it.nominated_node is missing"),
    "from": ('from "p.yaml"', "it.label app=web and it.cpu == 1", "it.label[app] is missing"),
}  # fmt: skip
#: What only pods of a set have; and what only the one to place has.
PLACED = {
    "restarts": ("restarts 4", "it.restarts == 4", "it.restarts == 0"),
    "started_at": (f'started_at "{T}"', f'it.started_at == time("{T}")',
                   "it.started_at is missing"),
    "scheduled_at": (f'scheduled_at "{T}"', f'it.scheduled_at == time("{T}")',
                     "it.scheduled_at is missing"),
    "terminating": ("terminating true", "it.terminating", "not it.terminating"),
}  # fmt: skip
RUNNING = {
    **PLACED,
    "ready": ("ready false", "not it.ready", "it.ready"),
    "bound": ("bound false", "not it.bound and it.node is n", "it.bound and it.node is n"),
    "phase": ("phase Pending", "it.phase is Pending", "it.phase is Running"),
}
FINISHED = {
    **PLACED,
    "ready": ("ready true", "it.ready", "not it.ready"),
    "bound": ("bound false", "not it.bound", "it.bound"),
    "phase": ("phase Failed", "it.phase is Failed", "it.phase is Succeeded"),
    "finished_at": ('finished_at "2025-03-01T09:30:00Z"',
                    'it.finished_at == time("2025-03-01T09:30:00Z")', "it.finished_at is missing"),
}  # fmt: skip
GIVEN = {
    "name": ("name q", "pod.name is q", "pod.name is not q"),
    "attempts": ("attempts 3", "pod.attempts == 3", "pod.attempts == 0"),
    "queued_at": (f'queued_at "{T}"', f'pod.queued_at == time("{T}")', "pod.queued_at is missing"),
    "first_attempt_at": (f'first_attempt_at "{T}"', f'pod.first_attempt_at == time("{T}")',
                         "pod.first_attempt_at is missing"),
    "previous_node": ("previous_node n", "pod.previous_node is n", "pod.previous_node is missing"),
    "images": ('images ["x:1", y]', 'pod.images contains y', "len(pod.images) == 0"),
}  # fmt: skip
POD_YAML = """\
    kind: Pod
    metadata: {name: other, labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {cpu: 1}}}]}
    """


def _all_but_bound(table):
    """A pod that has finished was on its node."""
    return {name: row for name, row in table.items() if name != "bound"}


KINDS = {
    "running": ("running: on n  ", "any(node.pods where {})", POD | RUNNING),
    "finished": ("finished: on n  ", "any(node.finished where {})", _all_but_bound(POD | FINISHED)),
    "pending": ("pending: ", "any(queue.pods where {})", POD),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, (_, _, table) in KINDS.items() for name in table]
)
def test_each_attribute_of_a_pod_of_a_set(judged, kind, name):
    head, asked, table = KINDS[kind]
    written, then, without = table[name]
    files = {"p__yaml": POD_YAML}
    with_it, bare = f"node: n\n{head}name x {written}", f"node: n\n{head}name x"
    assert holds(judged, asked.format(then), with_it, **files)
    assert not holds(judged, asked.format(then), bare)
    assert holds(judged, asked.format(without), bare)
    assert not holds(judged, asked.format("it.name is not x"), bare)


@pytest.mark.parametrize("name", {**POD, **GIVEN})
def test_each_attribute_of_the_given_pod(judged, name):
    written, then, without = {**POD, **GIVEN}[name]
    then, without = then.replace("it.", "pod."), without.replace("it.", "pod.")
    assert holds(judged, then, "node: n", pod=written, p__yaml=POD_YAML)
    assert not holds(judged, then, "node: n")
    assert holds(judged, without, "node: n")


def test_containers_of_a_manifest_are_those_of_the_pod(judged):
    then = "max(it.limit[cpu] over pod.containers) == 1 and len(pod.containers) == 1"
    assert holds(judged, then, "node: n", pod='from "p.yaml"', p__yaml=POD_YAML)


@pytest.mark.parametrize("of", ["image: evil.io/x:1", "image: evil.io/x:1, restartPolicy: Always"])
def test_images_of_a_manifest_are_those_of_init_containers_too(judged, of):
    then = 'all(pod.images where it starts with "registry.local/")'
    own = '{containers: [{name: c, image: "registry.local/web:1"}]'
    head = "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: "
    init = f"{head}{own}, initContainers: [{{name: i, {of}}}]}}"
    assert holds(judged, then, "node: n", pod='from "p.yaml"', p__yaml=f"{head}{own}}}")
    assert not holds(judged, then, "node: n", pod='from "p.yaml"', p__yaml=init)
    assert holds(judged, "len(pod.containers) == 1", "node: n", pod='from "p.yaml"', p__yaml=init)


@pytest.mark.parametrize("kind", KINDS)
def test_a_count_of_pods(judged, kind):
    head, asked, _ = KINDS[kind]
    counted = asked.replace("any", "count")
    fixtures = f"node: n\n{head}name x  count 3"
    assert holds(judged, f"{counted.format('it.name starts with x')} == 3", fixtures)
    assert holds(judged, asked.format('it.name is "x-2"'), fixtures)


@pytest.mark.parametrize("kind", [*KINDS, "pod"])
def test_a_metric_by_pod(judged, kind):
    declared = 'metric m = promql "q" by pod unit cores\n'
    if kind == "pod":
        assert holds(judged, "(m ?? 0) == 500m", "node: n", declared=declared, pod="metric m 0.5")
        assert not holds(judged, "(m ?? 0) == 500m", "node: n", declared=declared)
        return
    head, asked, _ = KINDS[kind]
    sums = asked.format("true").replace("any(", "sum(m ?? 0 over ").replace(" where true", "")
    fixtures = f"node: n\n{head}name x metric m 0.5\n{head}name y metric m 0.25\n{head}name z"
    assert holds(judged, f"{sums} == 750m", fixtures, declared=declared)


def test_pods_of_other_sets_are_in_no_other(judged):
    fixtures = (
        "node: n\nnode: m\nrunning: on n  name r\nrunning: on n  name s  phase Failed\n"
        "pending: name q\npending: name v  nominated_node n\nfinished: on n  name f"
    )
    there = (
        "count(node.pods) == 1 and count(cluster.pods) == 1 and count(queue.pods) == 2"
        " and count(node.nominated) == 1 and count(node.finished) == 2"
    )
    assert holds(judged, f"node.name is n -> {there}", fixtures, pod="node_selector x=y") is False
    nowhere = "count(node.pods) + count(node.nominated) + count(node.finished) == 0"
    # More important than the pod that is promised the node, which would count as if it were there.
    tests = f'{fixtures}\ntest: "t"\n  given pod priority 1\n  expect feasible [n, m]\n'
    text = f"filter: node.name is n -> {there}\nfilter: node.name is m -> {nowhere}\n"
    assert judged(text, tests) == [("passed", "")]


def test_finished_pods_are_forgotten_after_an_hour(judged):
    fixtures = (
        'node: n\nfinished: on n  name a  finished_at "2025-03-01T09:00:00Z"\n'
        'finished: on n  name b  finished_at "2025-03-01T08:59:59Z"\nfinished: on n  name c'
    )
    assert holds(judged, "count(node.finished) == 2", fixtures)


# ---- what stands beside


def test_namespaces(judged):
    line = "namespace: z  label a=b  annotation c=d  metric m 5"
    declared = 'metric m = promql "q" by namespace\n'
    then = "namespace.label a=b and namespace.annotation c=d and (m ?? 0) == 5"
    assert holds(judged, then, f"node: n\n{line}", declared=declared, pod="namespace z")
    assert not holds(judged, then, f"node: n\n{line}", declared=declared)


def test_workloads(judged):
    line = "workload: w  replicas 3  label a=b  annotation c=d  metric m 5"
    declared = 'metric m = promql "q" by workload\n'
    then = (
        "workload.replicas == 3 and workload.label[a] is b and workload.annotation[c] is d"
        " and (m ?? 0) == 5"
    )
    assert holds(judged, then, f"node: n\n{line}", declared=declared, pod="workload w")
    assert not holds(judged, then, f"node: n\n{line}", declared=declared, pod="workload v")
    none = "workload.replicas is missing and workload.label[a] is missing"
    assert holds(judged, none, "node: n\nworkload: w", pod="workload v")


def test_metrics_of_the_cluster_and_of_pairs(judged):
    cluster = "metric: m = 5\nnode: n"
    declared = 'metric m = promql "q" by cluster\n'
    assert holds(judged, "(m ?? 0) == 5", cluster, declared=declared)
    assert not holds(judged, "(m ?? 0) == 5", "node: n", declared=declared)
    pairs = "metric: rtt [n, m] = 0.5\nnode: n\nrunning: on n  name x"
    declared = 'metric rtt = promql "q" by src, dst unit seconds\n'
    assert holds(judged, "(rtt(node.name, pod.label[to]) ?? 9s) == 500ms", pairs,
                 declared=declared, pod="label to=m")  # fmt: skip
    assert holds(judged, "rtt(pod.label[to], node.name) is missing", pairs,
                 declared=declared, pod="label to=m")  # fmt: skip


def test_the_time(judged):
    then = 'time.weekday is sun and time.hour == 23 and now == time("2025-03-02T23:30:00Z")'
    assert holds(judged, then, 'now: "2025-03-02T23:30:00Z"\nnode: n')
    assert holds(judged, 'now == time("2025-03-01T10:00:00Z")', "node: n")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("workload w", "pod.workload is w and pod.owner.kind is ReplicaSet"),
        ("owner_kind ReplicaSet workload w", "pod.workload is w and pod.owner.kind is ReplicaSet"),
        ("owner_kind ReplicaSet owner_name w-7d workload w",
         "pod.workload is w and pod.owner.name is w-7d and pod.label[pod-template-hash] is 7d"),
        ("owner_kind ReplicaSet owner_name w-7d", "pod.workload is w-7d"),
        ("owner_kind ReplicaSet owner_name w workload w",
         "pod.workload is w and pod.label[pod-template-hash] is missing"),
        ("owner_kind StatefulSet workload w", "pod.workload is w and pod.owner.name is w"),
        ("label pod-template-hash=7d workload w", "pod.workload is w and pod.owner.name is w-7d"),
        ("owner_kind Job", "pod.owner.kind is Job"),
        ("owner_kind Job owner_name w-29345601 workload w", "pod.owner.name is w-29345601"),
    ],
)  # fmt: skip
def test_a_workload_and_the_owner_that_makes_it(judged, written, said):
    assert holds(judged, said, "node: n", pod=written)


def test_an_owner_that_is_not_of_the_workload(judged):
    tests = 'node: n\ntest: "t"\n  given pod owner_kind Job owner_name j workload w\n' + (
        "  expect feasible [n]\n"
    )
    ((outcome, message),) = judged("filter: node.ready\n", tests)
    assert outcome == "error"
    assert "is j, not w" in message


GROUP = f'group: g  min_member 4  created "{T}"  last_failure "2025-02-02T00:00:00Z"'
OF_GROUP = "label scheduling.x-k8s.io/pod-group=g"


def test_groups(judged):
    fixtures = (
        f"node: n\n{GROUP}\nrunning: on n  name a  {OF_GROUP}\n"
        f"running: on n  name b  bound false  {OF_GROUP}\npending: name c  count 2  {OF_GROUP}\n"
        f"running: on n  name d  namespace z  {OF_GROUP}\npending: name e"
    )
    then = (
        "group.name is g and group.min_member == 4 and group.size == 5 and group.assigned == 1"
        " and group.reserved == 2 and group.waiting == 1"
        f' and group.created == time("{T}") and group.last_failure > group.created'
    )
    assert holds(judged, then, fixtures, pod=OF_GROUP)
    none = "group.name is missing and group.size is missing"
    assert holds(judged, none, fixtures)
    silent = "group.name is g and group.min_member is missing and group.size == 1"
    elsewhere = f"node: n\n{GROUP}  namespace z"
    assert holds(judged, silent, elsewhere, pod=OF_GROUP)
    there = f"{OF_GROUP} namespace z"
    assert holds(judged, "group.min_member == 4", elsewhere, pod=there)


def test_quotas(judged):
    fixtures = (
        "node: n\nquota: default  min cpu=2  max cpu=4  max memory=1Gi\nquota: z  min cpu=4\n"
        "running: on n  name a  cpu 3\nrunning: on n  name b  namespace z  cpu 1"
    )
    then = (
        "quota.name is default and quota.min[cpu] == 2 and quota.max[memory] == 1Gi"
        " and quota.used[cpu] == 3 and quota.min[memory] is missing"
    )
    assert holds(judged, then, fixtures)
    assert holds(judged, "quota.over_min_with_pod and not quota.over_max_with_pod", fixtures)
    assert holds(judged, "quota.over_max_with_pod", fixtures, pod="cpu 1100m")
    assert holds(judged, "not quota.over_min_with_pod", fixtures, pod="namespace z cpu 3")
    over = "count(node.pods where it.quota.over_min) == 1"
    assert holds(judged, over, fixtures)
    assert holds(judged, "any(node.pods where it.quota.over_min and it.name is a)", fixtures)
    none = "quota.name is missing and quota.used[cpu] is missing and not quota.over_max_with_pod"
    assert holds(judged, none, fixtures, pod="namespace other cpu 9")


def test_a_pod_that_overdraws_a_quota_makes_those_of_other_nodes_overdraw_it(judged):
    counted = "count(node.pods where it.quota.over_min)"
    policy = f"filter: {counted} == 0\npermit: sum({counted} over nodes) > 2 -> reject\n"
    tests = """\
        node: a
        node: b
        quota: default  min cpu=3
        running: on a  name x  cpu 1
        running: on b  name y  cpu 1
        test: "t"
          given pod cpu 2 chosen a
          expect feasible [a, b]
          expect permit reject
        """
    assert judged(policy, tests) == [("passed", "")]


def test_budgets(judged):
    policy = "preempt: victims\nrequire: node.cpu.free >= pod.cpu\n"
    tests = """\
        node: n  cpu 2
        running: on n  name a  cpu 1  label app=web  priority 1
        running: on n  name b  cpu 1  priority 2
        pdb: web  label app=web  allowed {}
        test: "t"
          given pod cpu 1 priority 5
          expect victims [{}]
        """
    assert judged(policy, tests.format(0, "b")) == [("passed", "")]
    assert judged(policy, tests.format(1, "a")) == [("passed", "")]
    elsewhere = tests.format(0, "a").replace("pdb: web ", "pdb: web  namespace z ")
    assert judged(policy, elsewhere) == [("passed", "")]


# ---- in a test


def test_everything_may_be_given_in_a_test(judged):
    policy = """\
        param limit: number = 1 from 0 to 9
        metric c = promql "q" by cluster
        metric rtt = promql "r" by src, dst
        let there = count(node.pods) + 10*count(node.finished) + 100*count(queue.pods)
        filter: there == number(pod.annotation[all])
        filter: namespace.label[a] is b and workload.replicas == 2 and group.min_member == 5
        filter: (c ?? 0) == 3 and (rtt(node.name, node.name) ?? 0) == 4 and $limit == 2
        filter: node.cpu.free == 7 and time.hour == 3
        """
    tests = f"""\
        node: n  cpu 1
        running: on n  name a
        namespace: default  label a=x
        workload: w  replicas 1
        {GROUP}
        metric: c = 1
        metric: rtt [n, n] = 1
        test: "given"
          given pod {OF_GROUP} workload w annotation all=112
          given node n cpu 7
          given running on n name b
          given finished on n name c
          given pending name d
          given namespace default label a=b
          given workload w replicas 2
          given group g min_member 5
          given metric c = 3
          given metric rtt [n, n] = 4
          given param limit = 2
          given now "2025-03-01T03:00:00Z"
          expect feasible [n]
        test: "as before"
          given pod annotation all=1
          expect feasible none
        """
    first, second = judged(policy, tests)
    assert first == ("passed", "")
    assert second == ("passed", "")


def test_chosen_and_waited(judged):
    policy = (
        'reserve: node.cpu.free >= 0 message "{node.name} is full"\n'
        "permit: node.label slow=yes -> wait 1m until node.label go=yes, then allow message no\n"
        'permit: pod.cpu > 1 -> wait 1m until count(node.pods) > 1 message "alone"\n'
        "prebind: node.label slow=yes -> annotate example.com/free = node.cpu.free\n"
        "postbind: annotate example.com/score = score.total\nscore: 50\n"
    ).replace(" message no", "")
    tests = """\
        node: n  cpu 2
        node: s  cpu 4  label slow=yes
        test: "the best where none is chosen"
          given pod cpu 1
          given node s unschedulable true
          expect permit allow
        test: "reserve sees the pod on its node"
          given pod cpu 3 chosen n
          expect permit reject message "n is full"
        test: "waits"
          given pod cpu 2 chosen n waited 59s
          expect permit wait message "alone"
        test: "waits no longer"
          given pod cpu 2 chosen n waited 1m
          expect permit reject message "alone"
        test: "not alone"
          given running on n name x
          given pod cpu 2 chosen n
          expect permit allow
        test: "then it is allowed"
          given pod cpu 1 chosen s waited 60s
          expect permit allow
          expect annotation example.com/free 3
          expect annotation example.com/score 50
        """
    policy += "filter: not node.unschedulable\n"
    assert judged(policy, tests) == [("passed", "")] * 6


@pytest.mark.parametrize(("chosen", "skipped"), [("n", 1), ("s", 2)])
def test_a_permit_whose_left_side_is_false_on_the_chosen_node_is_skipped(judged, chosen, skipped):
    policy = (
        "permit: node.label slow=yes -> reject\npermit: not node.label slow=yes -> reject\n"
        "prebind: annotate example.com/a = node.name\n"
    )
    tests = f"""\
        node: n
        node: s  label slow=yes
        test: "t"
          given pod chosen {chosen}
          expect permit reject
          expect skipped {{}}
        """
    assert judged(policy, tests.format(skipped)) == [("passed", "")]
    ((outcome, message),) = judged(policy, tests.format(3 - skipped))
    assert outcome == "failed"
    assert f"rule {3 - skipped} did apply" in message


# ---- expectations

RULES = """\
    sort: pod.priority desc
    gate: pod.label hold -> pod.annotation ok=yes message "held"
    filter: node.label ok=yes message "not {node.name}" status unresolvable
    score: number(node.label[score]) normalize none
    permit: pod.label slow=yes -> wait 1m until node.label go=yes message "wait"
    prebind: annotate example.com/n = node.name, label example.com/on = node.name
    preempt: victims
    require: node.cpu.free >= pod.cpu message "full"
    """
CLUSTER = """\
    node: a  cpu 2  label ok=yes  label score=10
    node: b  cpu 4  label ok=yes  label score=90
    node: c  cpu 4
    running: on a  name low  cpu 2
    """
#: Expectation -> what holds, and what does not, of a pod that asks for 1 CPU.
WANTED = {
    "feasible": ("feasible [b]", "feasible [a, b]"),
    "rejected": ('rejected [c] message "not c" status unresolvable', "rejected [c]"),
    "score": ("score b 90", "score b 89.9"),
    "best": ("best b", "best a"),
    "order": ("order [q, p]", "order [p, q]"),
    "victims": ("victims none", "victims [low]"),
    "nominated": ("nominated none", "nominated a"),
    "permit": ("permit allow", 'permit wait message "wait"'),
    "gated": ('gated q message "held"', "gated p"),
    "ungated": ("ungated p", "ungated q"),
    "skipped": ("skipped 5", "skipped 3"),
    "annotation": ("annotation example.com/n b", "annotation example.com/n a"),
    "label": ("label example.com/on b", "label example.com/on a"),
    "unset": ("unset example.com/other", "unset example.com/n"),
    "events": ("events none", 'events ["placed"]'),
}


#: More of what holds, and what nearly does.
NEAR = [
    ("score b 90.000001", "score b 89.99999"),
    ('gated q message "held"', 'gated q message "hel"'),
    ("permit allow", 'permit allow message "wait"'),
    ("annotation example.com/n b", "label example.com/n b"),
    ("label example.com/on b", "annotation example.com/on b"),
    ("unset example.com/off", "unset example.com/on"),
]


@pytest.mark.parametrize(("right", "wrong"), [*WANTED.values(), *NEAR])
def test_each_expectation_holds_and_does_not(judged, right, wrong):
    tests = """\
    test: "t"
      given pod name p cpu 1
      given pod name q priority 3 label hold=x
      expect {}
    """
    assert judged(RULES, dedent(CLUSTER) + dedent(tests).format(right)) == [("passed", "")]
    ((outcome, message),) = judged(RULES, dedent(CLUSTER) + dedent(tests).format(wrong))
    assert outcome == "failed"
    assert f"expect {wrong}" in message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("feasible none", "feasible [b]"),
        ("feasible []", "rejected none"),
        ("victims [low]", "victims []"),
        ("nominated a", "nominated none"),
        ('rejected [a, b] message "full" status unschedulable', 'rejected [a, b] message "no"'),
    ],
)
def test_expectations_where_no_node_is_left(judged, right, wrong):
    tests = """\
    test: "t"
      given pod name p cpu 2 priority 1
      given node b cpu 1
      expect {}
    """
    assert judged(RULES, dedent(CLUSTER) + dedent(tests).format(right)) == [("passed", "")]
    assert judged(RULES, dedent(CLUSTER) + dedent(tests).format(wrong))[0][0] == "failed"


def test_an_error_is_expected(judged):
    tests = 'test: "t"\n  expect error {}\n'
    assert judged("filter: node.nam is x\n", tests.format("P101")) == [("passed", "")]
    ((outcome, message),) = judged("filter: node.nam is x\n", tests.format("P102"))
    assert outcome == "failed"
    assert "the policy is refused with P101" in message


def test_every_attribute_and_expectation_has_a_row_here():
    rows = {
        "node": {*NODE},
        "running": {*POD, *RUNNING},
        "finished": {*POD, *FINISHED},
        "pending": {*POD},
        "pod": {*POD, *GIVEN, "chosen", "waited"},
        "namespace": {"label", "annotation", "metric"},
        "workload": {"replicas", "label", "annotation", "metric"},
        "group": {
            "namespace",
            "min_member",
            "min_resources",
            "schedule_timeout",
            "created",
            "last_failure",
        },
        "quota": {"min", "max"},
        "pdb": {"namespace", "label", "allowed"},
    }
    pods = {"name", "count", "metric"}
    #: What fixtures of pods share although only one kind has a field of it.
    shared = {*POD, *RUNNING, *FINISHED, *GIVEN}
    for kind, known in ATTRIBUTES.items():
        of_pods = shared | pods if "priority" in known else set()
        assert set(known) - rows[kind] - of_pods == set(), kind
    assert {*WANTED, "error"} == set(EXPECTATIONS)


# ---- fields


def present(spec):
    """A condition that reads a field, whatever its value."""
    name = f"{spec.name}[cpu]" if spec.keyed else spec.name
    match spec.type.kind:
        case Kind.PODS | Kind.NODES:
            return f"count({name}) >= 0"
        case Kind.BOOL:
            return (
                f"({spec.name} cpu or not {spec.name} cpu)" if spec.keyed else f"({name} or true)"
            )
        case Kind.LIST:
            return f"len({name}) >= 0"
        case _:
            return f"({name} is present or {name} is missing)"


READABLE = [one for one in FIELDS.values() if not one.name.startswith(("score", "victims."))]
#: A few at a time, as a policy may only cost so much.
FIELDS_OF_PODS = [one for one in READABLE if one.level is Level.IT]
ASKED = {
    "the rest": [present(one) for one in READABLE if one.level is not Level.IT],
    **{
        f"{pods} {at}": [f"all({pods} where {present(one)})" for one in FIELDS_OF_PODS[at : at + 8]]
        for pods in POD_SETS
        for at in range(0, len(FIELDS_OF_PODS), 8)
    },
}


@pytest.mark.parametrize("part", ASKED)
def test_every_field_can_be_read_in_a_test(judged, part):
    fixtures = "node: n\nrunning: on n  name r\npending: name q  nominated_node n\n"
    fixtures += "finished: on n  name f"
    lines = "".join(f"filter: {one}\n" for one in ASKED[part])
    tests = f'{fixtures}\ntest: "t"\n  given pod\n  expect feasible [n]\n'
    assert judged(lines, tests) == [("passed", "")]
