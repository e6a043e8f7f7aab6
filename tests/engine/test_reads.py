"""Every field of the language has its value in a running scheduler, and what gives it one.

One policy annotates its pod with what all fields are; the expected values are what was written into
the cluster.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest

from dsl.schema import FIELDS
from dsl.types import Kind, Level
from engine.embedded.resources import BY_PLURAL
from engine.objects import from_builtins
from engine.objects.ondemand import WORKLOADS
from tests.engine.test_app import embedded, process, settings_of

NOW = datetime.now(UTC).replace(microsecond=0)
KEYS = {"node.taint": "dedicated", "node.condition": "Ready", "score": "seen"} | dict.fromkeys(
    ("pod.request", "it.request", "pod.limit", "it.limit"), "cpu"
)
SET = {"it.attempts": "queue.pods", "it.queued_at": "queue.pods",
       "it.first_attempt_at": "queue.pods", "it.finished_at": "node.finished"}  # fmt: skip
EPOCH = 'time("1970-01-01T00:00:00Z")'


def ago(**of):
    return (NOW - timedelta(**of)).isoformat().replace("+00:00", "Z")


def at(**of):
    return str(int((NOW - timedelta(**of)).timestamp()))


def shown(spec):
    """A field as it is written."""
    if spec.name.startswith("node.resource."):
        return spec.name.replace("node.resource.", "node.resource[cpu].")
    return f"{spec.name}[{KEYS.get(spec.name, 'k')}]" if spec.keyed else spec.name


def text_of(spec):
    """An expression for the text of a field's value; of pods of a set, of the one that has most."""
    name, kind = shown(spec), spec.type.kind
    if spec.level is Level.IT:
        over = SET.get(spec.name, "node.pods")
        if kind is Kind.BOOL:
            return f"string(count({over} where {name}))"
        if kind is Kind.TEXT:
            return f"string(distinct({name} over {over}))"
        name = f"max({name} over {over})"
    if kind is Kind.TEXT:
        return name
    if kind is Kind.BOOL:
        return f'if {name} then "yes" else "no"'
    if kind is Kind.TIME:
        return f"string(number({name} - {EPOCH}))"
    if kind is Kind.LIST:
        return f"string(len({name}))"
    return (
        f"string(count({name}))" if kind in (Kind.PODS, Kind.NODES) else f"string(number({name}))"
    )


#: Gangs, quotas and preemption have tests of their own.
ENGINES = ("group.", "quota.", "it.quota.", "victims.")
AVAILABLE = [spec for spec in FIELDS.values() if not spec.name.startswith(ENGINES)]
#: A few fields a file, as each file has a budget of its own.
FILES = {"seen.policy": "score: 100*node.cpu.free/node.cpu.allocatable\n"}
for number, spec in enumerate(AVAILABLE):
    name = f"of-{number // 8}.policy"
    line = f"prebind: pod.name is web-0 -> annotate f/n{number} = {text_of(spec)}\n"
    FILES[name] = FILES.get(name, "") + line

AMOUNTS = {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "10",
           "nvidia.com/gpu": "4"}  # fmt: skip
NODE = {
    "metadata": {
        "name": "n",
        "labels": {
            "k": "of-the-node",
            "topology.kubernetes.io/zone": "z",
            "topology.kubernetes.io/region": "r",
            "topology.kubernetes.io/rack": "k7",
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m5",
        },
        "annotations": {"k": "noted"},
    },
    "spec": {
        "taints": [{"key": "dedicated", "value": "x", "effect": "PreferNoSchedule"}],
        "podCIDR": "10.0.0.0/29",
    },
    "status": {
        "allocatable": AMOUNTS,
        "capacity": AMOUNTS,
        "conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": ["i"], "sizeBytes": 100}],
        "nodeInfo": {
            "kernelVersion": "6.1.0",
            "kubeletVersion": "v1.37.1",
            "osImage": "Ubuntu",
            "containerRuntimeVersion": "containerd://2",
        },
    },
}
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi",
                          "nvidia.com/gpu": "1"},
             "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}  # fmt: skip
META = {"labels": {"k": "v"}, "annotations": {"k": "v"}}
SPEC = {
    "schedulerName": "berth",
    "priority": 7,
    "priorityClassName": "high",
    "preemptionPolicy": "PreemptLowerPriority",
    "serviceAccountName": "robot",
    "runtimeClassName": "gvisor",
    "activeDeadlineSeconds": 600,
    "nodeSelector": {"k": "of-the-node"},
    "tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    "containers": [{"name": "c", "image": "j", "resources": RESOURCES}],
}
OWNED = {"k": "v", "pod-template-hash": "abc", "scheduling.x-k8s.io/pod-group": "g"}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "u",
         "controller": True}  # fmt: skip


class Pods:
    """Writes pods, with a status that no client may write when it creates one."""

    def __init__(self, cluster):
        self.cluster = cluster

    def make(self, name, status=None, meta=None, **spec):
        meta = {**META, "name": name, **(meta or {})}
        self.cluster.create("pods", {"metadata": meta, "spec": {**SPEC, **spec}}, namespace="d")
        if status is not None:
            key = ("d", name)
            self.cluster.api.patch(
                BY_PLURAL["pods"], key, {"status": status}, strategic=False, subresource="status"
            )


def furnish(cluster):
    """All that is read, but for the pod that is asked about."""
    cluster.create("namespaces", {"metadata": {"name": "d", **META}})
    cluster.create("nodes", NODE)
    cluster.create("priorityclasses", {"metadata": {"name": "high"}, "value": 7})
    lease = {"metadata": {"name": "n"}, "spec": {"renewTime": ago(minutes=1)}}
    cluster.create("leases", lease, namespace="kube-node-lease")
    driver = {"name": "d", "nodeID": "n", "allocatable": {"count": 25}}
    cluster.create("csinodes", {"metadata": {"name": "n"}, "spec": {"drivers": [driver]}})
    deployment = {"metadata": {**META, "name": "web"}, "spec": {"replicas": 3}}
    cluster.create("deployments", deployment, namespace="d")
    pods = Pods(cluster)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    running = {
        "phase": "Running", "startTime": ago(hours=2), "nominatedNodeName": "n",
        "qosClass": "Burstable",
        "conditions": [{"type": "Ready", "status": "True"},
                       {"type": "PodScheduled", "status": "True",
                        "lastTransitionTime": ago(hours=3)}],
        "containerStatuses": [{"name": "c", "restartCount": 4}],
    }  # fmt: skip
    everything = [{"operator": "Exists"}, *SPEC["tolerations"]]
    pods.make("runs", running, {"labels": OWNED, "ownerReferences": [OWNER]}, nodeName="n",
              volumes=volumes, tolerations=everything, hostNetwork=True)  # fmt: skip
    ended = {"state": {"terminated": {"finishedAt": ago(minutes=20)}}, "name": "c"}
    pods.make("done", {"phase": "Succeeded", "containerStatuses": [ended]}, nodeName="n")
    held = [{"name": "wait"}]
    pods.make("large", nodeSelector={"k": "of-no-node"})
    pods.make("promised", {"phase": "Pending", "nominatedNodeName": "n"}, schedulingGates=held)
    return pods


#: Of the clock, of the lives of objects, and made by the server: these have some value.
ALIVE = {
    "now", "time.hour", "time.minute", "time.weekday", "time.day", "time.month", "pod.uid",
    "pod.created", "pod.queued_at", "pod.first_attempt_at", "it.created", "it.queued_at",
    "it.first_attempt_at", "it.scheduled_at", "node.created", "score.total",
}  # fmt: skip
VALUES = """
cluster.nodes 1, cluster.cpu.allocatable 4, cluster.cpu.requested 2, cluster.cpu.free 2
cluster.memory.allocatable 8589934592, cluster.memory.requested 2147483648
cluster.memory.free 6442450944, cluster.gpu.allocatable 4, cluster.gpu.requested 2
cluster.gpu.free 2, cluster.pods 2, queue.pods 2
pod.name web-0, pod.namespace d, pod.priority 7, pod.qos Burstable, pod.scheduler berth
pod.service_account robot, pod.priority_class high, pod.preemption_policy PreemptLowerPriority
pod.runtime_class gvisor, pod.nominated_node n, pod.label v, pod.annotation v
pod.node_selector of-the-node, pod.workload web, pod.toleration v, pod.owner.kind ReplicaSet
pod.owner.name web-abc, pod.image j, pod.cpu 1, pod.memory 1073741824, pod.storage 1073741824
pod.gpu 1, pod.request 1, pod.limit 2, pod.volumes.count 0, pod.active_deadline 600
pod.tolerates_all no, pod.host_network no, pod.images 1, pod.containers 1, pod.attempts 0
pod.previous_node n, workload.label v, workload.annotation v, workload.replicas 3
namespace.name d, namespace.label v, namespace.annotation v
node.name n, node.label of-the-node, node.annotation noted, node.taint yes, node.zone z
node.region r, node.rack k7, node.arch arm64, node.os linux, node.instance_type m5
node.kernel 6.1.0, node.kubelet_version v1.37.1, node.os_image Ubuntu
node.container_runtime containerd://2, node.ready yes, node.unschedulable no, node.condition True
node.cpu.capacity 4, node.memory.capacity 8589934592, node.storage.capacity 107374182400
node.gpu.capacity 4, node.resource.capacity 4, node.cpu.allocatable 4
node.memory.allocatable 8589934592, node.storage.allocatable 107374182400
node.gpu.allocatable 4, node.resource.allocatable 4, node.cpu.requested 2
node.memory.requested 2147483648, node.storage.requested 2147483648, node.gpu.requested 2
node.resource.requested 2, node.cpu.free 2, node.memory.free 6442450944
node.storage.free 105226698752, node.gpu.free 2, node.resource.free 2, node.pods.capacity 10
node.pods.free 8, node.pods 2, zone.pods 2, region.pods 2, rack.pods 2, zone.nodes 1
region.nodes 1, rack.nodes 1, node.images 1, node.eligible yes, node.missing_image_bytes 0
node.ips.capacity 8, node.ips.free 7, node.nominated 1, node.finished 1
node.volumes.attached 1, node.volumes.limit 25
it.name 2, it.namespace 1, it.uid 2, it.priority 7, it.qos 1, it.scheduler 1
it.service_account 1, it.priority_class 1, it.preemption_policy 1, it.runtime_class 1
it.nominated_node 1, it.label 1, it.annotation 1, it.node_selector 1, it.workload 1
it.toleration 1, it.owner.kind 1, it.owner.name 1, it.image 1, it.cpu 1, it.memory 1073741824
it.storage 1073741824, it.gpu 1, it.request 1, it.limit 2, it.volumes.count 1
it.active_deadline 600, it.tolerates_all 1, it.host_network 1, it.node 1, it.phase 2
it.terminating 0, it.nominated 2, it.ready 1, it.restarts 4, it.bound 1
it.namespace.label 1, it.namespace.annotation 1, it.attempts 1, score 75
"""
EXPECTED = dict(one.rsplit(" ", 1) for one in re.split(r", |\n", VALUES.strip())) | {
    "node.heartbeat": at(minutes=1),
    "it.started_at": at(hours=2),
    "it.finished_at": at(minutes=20),
    "pod.group": "g",
    "it.group": "1",
}


async def test_every_field_has_its_value_in_a_running_scheduler():
    async with embedded(nodes=0, files=FILES) as cluster:
        pods = furnish(cluster)
        mine = {"labels": OWNED, "ownerReferences": [OWNER]}
        pods.make("web-0", {"phase": "Running"}, mine, nodeName="n")
        async with process(cluster, settings_of()) as berth:
            await berth.until(lambda: berth.bundles)
            cluster.delete("pods", "web-0", namespace="d")
            await berth.until(lambda: not named(cluster, "web-0"))
            # Held until its status is written, or it might be decided about before that.
            status, held = {"phase": "Pending", "nominatedNodeName": "n"}, [{"name": "status"}]
            pods.make("web-0", status, mine, schedulingGates=held)
            cluster.patch("pods", "web-0", {"spec": {"schedulingGates": []}}, namespace="d")
            await berth.until(lambda: named(cluster, "web-0")["spec"].get("nodeName"))
            written = named(cluster, "web-0")["metadata"]["annotations"]
    seen = {spec.name: written.get(f"f/n{number}") for number, spec in enumerate(AVAILABLE)}
    assert not [name for name in ALIVE if not seen.pop(name)]
    assert seen == EXPECTED


def named(cluster, name):
    found = [one for one in cluster.list("pods") if one["metadata"]["name"] == name]
    return found[0] if found else None


# ---- what wakes a pod that such a field turned away ----------------------------------------------

OTHER = {"metadata": {"name": "other"}, "spec": {}, "status": {}}


def lease(cluster):
    spec = {"spec": {"renewTime": datetime.now(UTC).isoformat()}}
    cluster.patch("leases", "n", spec, namespace="kube-node-lease")


def scaled(cluster):
    cluster.patch("deployments", "web", {"spec": {"replicas": 5}}, namespace="d")


def labelled(cluster):
    meta = {"metadata": {"labels": {"ready": "yes"}}}
    cluster.patch("deployments", "web", meta, namespace="d")


def driver(cluster):
    drivers = [{"name": "d", "nodeID": "n", "allocatable": {"count": 99}}]
    cluster.patch("csinodes", "n", {"spec": {"drivers": drivers}})


def gone(name):
    return lambda cluster: cluster.delete("pods", name, namespace="d")


def ended(cluster):
    key = ("d", "runs")
    status = {"phase": "Succeeded"}
    cluster.api.patch(
        BY_PLURAL["pods"], key, {"status": status}, strategic=False, subresource="status"
    )


def told_by(name, **labels):
    """What a ConfigMap says, for the one that it names or is labelled with."""

    def change(cluster):
        meta = {"name": name, "labels": labels}
        cluster.create("configmaps", {"metadata": meta, "data": {"go": "true"}}, namespace="d")

    return change


def slots(cluster):
    cluster.patch("priorityclasses", "high", {"metadata": {"labels": {"a": "b"}}})
    cluster.create("priorityclasses", {"metadata": {"name": "n"}, "value": 12})


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("filter: workload.replicas > 4", scaled),
        ("gate: workload.label[ready] is yes", labelled),
        ("filter: now - node.heartbeat < 20s", lease),
        ("filter: node.volumes.limit > 30", driver),
        ("filter: count(node.nominated) == 0", gone("promised")),
        ("gate: not any(queue.pods where it.name is promised)", gone("promised")),
        ("filter: count(queue.pods) < 2", gone("large")),
        ("filter: count(node.finished) > 1", ended),
        ("filter: pod.previous_node is present", gone("runs")),
        (
            'metric room = object "scheduling.k8s.io/priorityclasses" field "value" by name\n'
            "filter: (room ?? 0) > 10",
            slots,
        ),
        *(
            (f'metric go = object "core/configmaps" field "data.go" by {by}\n{line}', change)
            for by, line, change in (
                ("cluster", "permit: wait 5m until (go ?? 0) > 0", told_by("any")),
                ("namespace", "prefilter: (go ?? 0) > 0", told_by("any")),
                ("workload", "reserve: (go ?? 0) > 0", told_by("web")),
                ("pod", "gate: (go ?? 0) > 0", told_by("web-0")),
                ("host", "filter: (go ?? 0) > 0", told_by("any", host="n")),
            )
        ),
    ],
)
async def test_a_change_of_what_is_read_wakes_the_pods_that_it_turned_away(rule, change):
    *before, last = rule.splitlines()
    line = last.replace(":", ": pod.name starts with web ->", 1)
    policy = "\n".join([*before, line]) + "\n"
    async with embedded(nodes=0, files={"r.policy": policy}) as cluster:
        pods = furnish(cluster)
        async with process(cluster, settings_of()) as berth:
            await berth.until(lambda: berth.bundles)
            pods.make("web-0", None, {"labels": OWNED, "ownerReferences": [OWNER]})
            await berth.until(lambda: waits(cluster))
            change(cluster)
            await berth.until(lambda: named(cluster, "web-0")["spec"].get("nodeName"))


def waits(cluster):
    conditions = named(cluster, "web-0")["status"].get("conditions") or ()
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


async def test_who_counts_its_tries_is_tried_again_after_a_pause():
    policy = 'filter: pod.attempts >= 2 message "try {pod.attempts + 1}"\n'
    async with embedded(nodes=0, files={"r.policy": policy}) as cluster:
        pods = furnish(cluster)
        async with process(cluster, settings_of()) as berth:
            pods.make("web-0")
            await berth.until(lambda: named(cluster, "web-0")["spec"].get("nodeName"))
            tried = [name for name, _ in berth.placed if name == "web-0"]
            assert len(tried) == 3


async def test_pods_that_look_at_each_other_in_the_queue_do_not_keep_each_other_awake():
    policy = "filter: all(queue.pods where it.attempts == 0) and pod.name is nobody\n"
    async with embedded(nodes=0, files={"r.policy": policy}) as cluster:
        pods = furnish(cluster)
        async with process(cluster, settings_of()) as berth:
            await berth.until(lambda: berth.bundles)
            for number in range(3):
                pods.make(f"web-{number}")
            await berth.until(lambda: len(berth.placed) >= 4)
            began, seen = len(berth.placed), asyncio.get_running_loop().time()
            await asyncio.sleep(2)
            spent = asyncio.get_running_loop().time() - seen
            # Four pods, each woken once a second at most.
            assert len(berth.placed) - began <= 4 * (spent + 1)


@pytest.mark.parametrize(
    ("kind", "body", "replicas"),
    [
        ("Job", {"spec": {"parallelism": 4, "completions": 9}}, 4),
        ("Job", {"spec": {"parallelism": 4, "completions": 9}, "status": {"succeeded": 7}}, 2),
        ("Job", {"spec": {"parallelism": 4}, "status": {"succeeded": 7}}, 4),
        ("Job", {"spec": {"parallelism": 0, "completions": 9}, "status": {"succeeded": 9}}, 0),
        ("CronJob", {"spec": {"jobTemplate": {"spec": {"parallelism": 4}}}}, 4),
        ("CronJob", {"spec": {"jobTemplate": {"spec": {}}}}, 1),
        ("DaemonSet", {"status": {"desiredNumberScheduled": 3}}, 3),
        ("Deployment", {}, None),
    ],
)
def test_how_many_pods_a_workload_asks_for_at_a_time(kind, body, replicas):
    assert from_builtins(WORKLOADS[kind], body).replicas == replicas
