"""What policies read of a real cache: every field of the table has a reader, and it is right."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from dsl.schema import FIELDS, NODE_SETS, RESULTS
from dsl.types import Kind, Level
from engine.framework.snapshot import QueueTimes
from engine.objects import Namespace, Node, OwnerReference, Pod, from_builtins
from engine.pods.podinfo import make_pod_info
from engine.pods.workloads import owned_by, workload_of
from engine.policy.objectreads import ImageLists
from engine.policy.podreads import epoch_seconds, reader_of
from engine.policy.world import DEFAULT_GPUS, PodSubject, SnapshotWorld, Worlds
from tests.builders import Cache, changed, make_node, make_pod, pod_object

#: What is known of the outcome is given to actions, not read of the world.
AVAILABLE = {
    spec.name: spec for spec in FIELDS.values() if spec.name.partition(".")[0] not in RESULTS
}
GIB = 1 << 30
NOON = datetime(2025, 3, 1, 12, 34, tzinfo=ZoneInfo("UTC")).timestamp()
KEYS = {"node.taint": "dedicated", "pod.request": "cpu", "it.request": "cpu"}


def node(name, *, meta=None, spec=None, status=None):
    return from_builtins(
        Node,
        {
            "metadata": {"name": name, "uid": name, **(meta or {})},
            "spec": spec or {},
            "status": status or {},
        },
    )


@pytest.fixture
def cache():
    cache = Cache()
    amounts = {
        "cpu": "4",
        "memory": "8Gi",
        "ephemeral-storage": "100Gi",
        "pods": "3",
        "nvidia.com/gpu": "2",
        "amd.com/gpu": "1",
        "example.com/fpga": "5",
    }
    cache.add_node(
        node(
            "big",
            meta={
                "labels": {
                    "disk": "ssd",
                    "topology.kubernetes.io/zone": "z1",
                    "topology.kubernetes.io/region": "r1",
                    "kubernetes.io/arch": "arm64",
                },
                "annotations": {"rack": "7"},
                "creationTimestamp": "2025-03-01T12:00:00Z",
            },
            spec={
                "taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}],
                "unschedulable": True,
            },
            status={
                "allocatable": amounts,
                "capacity": {**amounts, "cpu": "5"},
                "nodeInfo": {
                    "kernelVersion": "6.1.0",
                    "kubeletVersion": "v1.31.4",
                    "osImage": "Ubuntu 24.04.1 LTS",
                    "containerRuntimeVersion": "containerd://1.7.24",
                },
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "DiskPressure", "status": "Unknown"},
                ],
            },
        )
    )
    cache.add_node(node("bare", status={"conditions": [{"type": "Ready", "status": "False"}]}))
    cache.add_node(make_node("gone"))
    cache.remove_node("gone")
    gpu = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    cache.add_pod(
        make_pod(
            "runs",
            namespace="prod",
            priority=7,
            labels={"app": "web"},
            node="big",
            spec={
                "serviceAccountName": "robot",
                "priorityClassName": "high",
                "runtimeClassName": "gvisor",
                "activeDeadlineSeconds": 600,
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {"name": "a", "image": "nginx", "resources": {"requests": gpu, "limits": gpu}}
                ],
            },
            status={
                "phase": "Running",
                "startTime": "2025-03-01T12:30:00Z",
                "containerStatuses": [
                    {"name": "a", "restartCount": 2},
                    {"name": "b"},
                    {"name": "c", "restartCount": 3},
                ],
            },
        ),
        "big",
    )
    cache.assume(make_pod("assumed", cpu="250m"), "bare")
    prod = {"metadata": {"name": "prod", "labels": {"tier": "gold"}, "annotations": {"who": "me"}}}
    cache.set_namespace(from_builtins(Namespace, prod))
    return cache


def world_of(cache, zone="UTC", now=NOON):
    return SnapshotWorld(cache.snapshot(now), Worlds(ZoneInfo(zone)))


def text(world, code):
    return None if code < 0 else world.dictionary.texts[code]


# ---- every field ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(AVAILABLE))
def test_every_field_can_be_read(name, cache):
    spec = AVAILABLE[name]
    world = world_of(cache)
    subject = PodSubject(make_pod("p", namespace="unknown"), world.snapshot, DEFAULT_GPUS)
    key = KEYS.get(name, "some.key/of-it") if spec.keyed else None
    kind, level = spec.type.kind, spec.level
    number = kind in (Kind.NUMBER, Kind.TIME)
    if spec.of_pod or (kind is Kind.LIST and level is Level.NODE):
        pytest.skip("tested on its own below")
    if kind is Kind.PODS:
        assert world.pod_node.dtype == np.int32
    elif kind is Kind.NODES:
        # Its domains are those of a label, or of the field of that label.
        assert world.node_text(f"node.{NODE_SETS[name]}", None).dtype == np.int32
    elif level is Level.CYCLE:
        value = world.cycle_number(name) if number else world.cycle_text(name)
        assert isinstance(value, float if number else str)
    elif level is Level.POD:
        read = {Kind.TEXT: subject.text, Kind.BOOL: subject.flag}.get(kind, subject.number)
        value = subject.texts(name) if kind is Kind.LIST else read(name, key)
        assert spec.optional or value is not None
        assert spec.optional or not number or not np.isnan(value)
    else:
        nodes = level is Level.NODE
        readers = {
            Kind.TEXT: (world.node_text if nodes else world.pod_text, np.int32),
            Kind.BOOL: (world.node_flag if nodes else world.pod_flag, np.bool_),
        }
        numbers = world.node_number if nodes else world.pod_number, np.float64
        read, dtype = readers.get(kind, numbers)
        column = read(name, key)
        assert column.dtype == dtype
        assert column.shape == (world.nodes if nodes else len(world.pod_node),)
        if number and not spec.optional:
            used = world.present if nodes else world.pod_node >= 0
            assert not np.isnan(column[used]).any()


@pytest.mark.parametrize("reader", ["node_text", "node_flag", "cycle_number", "cycle_text"])
def test_a_field_without_a_reader_is_an_error_of_ours(reader, cache):
    with pytest.raises(KeyError):
        getattr(world_of(cache), reader)(*("node.nothing", "k")[: 1 + reader.startswith("node")])


def test_text_lists_have_one_field(cache):
    subject = PodSubject(make_pod("p"), cache.snapshot(NOON), DEFAULT_GPUS)
    with pytest.raises(KeyError):
        subject.texts("pod.nothing")


# ---- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "key", "big", "bare"),
    [
        ("node.name", None, "big", "bare"),
        ("node.label", "disk", "ssd", None),
        ("node.label", "absent", None, None),
        ("node.annotation", "rack", "7", None),
        ("node.zone", None, "z1", None),
        ("node.region", None, "r1", None),
        ("node.arch", None, "arm64", None),
        ("node.rack", None, None, None),
        ("node.kernel", None, "6.1.0", None),
        ("node.kubelet_version", None, "v1.31.4", None),
        ("node.os_image", None, "Ubuntu 24.04.1 LTS", None),
        ("node.container_runtime", None, "containerd://1.7.24", None),
        ("node.condition", "DiskPressure", "Unknown", None),
        ("node.condition", "Ready", "True", "False"),
    ],
)
def test_texts_of_nodes(field, key, big, bare, cache):
    world = world_of(cache)
    codes = world.node_text(field, key)
    row = cache.nodes.row
    assert text(world, codes[row("big")]) == big
    assert text(world, codes[row("bare")]) == bare


@pytest.mark.parametrize(
    ("field", "key", "big", "bare"),
    [
        ("node.ready", None, True, False),
        ("node.unschedulable", None, True, False),
        ("node.taint", "dedicated", True, False),
        ("node.taint", "dedicated=ml", True, False),
        ("node.taint", "dedicated=", False, False),
        ("node.taint", "dedicated=web", False, False),
        ("node.taint", "ml", False, False),
    ],
)
def test_flags_of_nodes(field, key, big, bare, cache):
    flags = world_of(cache).node_flag(field, key)
    assert flags[[cache.nodes.row("big"), cache.nodes.row("bare")]].tolist() == [big, bare]


@pytest.mark.parametrize(
    ("field", "key", "big", "bare"),
    [
        ("node.cpu.capacity", None, 5000, 0),
        ("node.cpu.allocatable", None, 4000, 0),
        ("node.cpu.requested", None, 1500, 250),
        ("node.cpu.free", None, 2500, -250),
        ("node.memory.allocatable", None, 8 * GIB, 0),
        ("node.memory.requested", None, GIB, 0),
        ("node.memory.free", None, 7 * GIB, 0),
        ("node.storage.allocatable", None, 100 * GIB, 0),
        ("node.gpu.allocatable", None, 3, 0),
        ("node.gpu.requested", None, 1, 0),
        ("node.gpu.free", None, 2, 0),
        ("node.resource.allocatable", "example.com/fpga", 5, None),
        ("node.resource.free", "example.com/fpga", 5, None),
        ("node.resource.free", "cpu", 2500, None),
        ("node.resource.free", "pods", 2, None),
        ("node.resource.requested", "pods", 1, None),
        ("node.pods.capacity", None, 3, 0),
        ("node.pods.free", None, 2, -1),
        ("node.created", None, NOON - 34 * 60, None),
    ],
)
def test_numbers_of_nodes_are_milli_cores_bytes_and_counts(field, key, big, bare, cache):
    column = world_of(cache).node_number(field, key)
    for name, expected in (("big", big), ("bare", bare)):
        value = column[cache.nodes.row(name)]
        assert np.isnan(value) if expected is None else value == expected


def test_an_empty_row_is_not_present(cache):
    world = world_of(cache)
    assert world.nodes == 3
    assert int(world.present.sum()) == 2


# ---- the cycle -----------------------------------------------------------------------------------


def test_the_cluster_is_the_sum_of_its_nodes(cache):
    world = world_of(cache)
    assert world.cycle_number("cluster.nodes") == 2
    assert world.cycle_number("cluster.cpu.allocatable") == 4000
    assert world.cycle_number("cluster.cpu.requested") == 1750
    assert world.cycle_number("cluster.cpu.free") == 2250
    assert world.cycle_number("cluster.memory.free") == 7 * GIB
    assert world.cycle_number("cluster.gpu.free") == 2


@pytest.mark.parametrize(
    ("zone", "hour", "minute", "weekday", "day"),
    [
        ("UTC", 12, 34, "sat", 1),
        ("Europe/Berlin", 13, 34, "sat", 1),
        ("Asia/Kolkata", 18, 4, "sat", 1),
        ("Pacific/Kiritimati", 2, 34, "sun", 2),
    ],
)
def test_the_clock_is_that_of_the_zone(zone, hour, minute, weekday, day, cache):
    world = world_of(cache, zone)
    assert world.now == world.cycle_number("now") == NOON
    assert world.cycle_number("time.hour") == hour
    assert world.cycle_number("time.minute") == minute
    assert world.cycle_text("time.weekday") == weekday
    assert (world.cycle_number("time.month"), world.cycle_number("time.day")) == (3, day)


def test_summer_time_is_the_zones_own(cache):
    july = datetime(2025, 7, 1, 12, tzinfo=ZoneInfo("UTC")).timestamp()
    assert world_of(cache, "Europe/Berlin", july).cycle_number("time.hour") == 14


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("2025-03-01T12:34:00Z", NOON),
        ("2025-03-01T13:34:00+01:00", NOON),
        ("2025-03-01T12:34:00.250000Z", NOON + 0.25),
        (None, None),
        ("", None),
        ("yesterday", None),
        ("2025-03-01T12:34:00", None),
        ("2025-03-01", None),
    ],
)
def test_timestamps_are_epoch_seconds_and_never_of_the_machines_own_zone(stamp, seconds):
    read = epoch_seconds(stamp)
    assert np.isnan(read) if seconds is None else read == seconds


# ---- the pod to be placed ------------------------------------------------------------------------


def subject(cache, **pod):
    how = {"namespace": "prod", **pod}
    return PodSubject(make_pod("p", **how), cache.snapshot(NOON), DEFAULT_GPUS)


def test_labels_of_the_namespace_and_of_one_that_is_not_known_yet(cache):
    known, unknown = subject(cache), subject(cache, namespace="later")
    assert known.text("namespace.name", None) == "prod"
    assert known.text("namespace.label", "tier") == "gold"
    assert known.text("namespace.annotation", "who") == "me"
    assert known.text("namespace.label", "absent") is None
    assert unknown.text("namespace.name", None) == "later"
    assert unknown.text("namespace.label", "tier") is None
    assert unknown.text("namespace.annotation", "who") is None
    assert unknown.text("namespace.label", "kubernetes.io/metadata.name") == "later"


def containers(*resources):
    listed = [{"name": f"c{n}", "resources": each} for n, each in enumerate(resources)]
    return {"spec": {"containers": listed}}


ONE = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("pod", "qos"),
    [
        ({}, "BestEffort"),
        ({"cpu": "1"}, "Burstable"),
        ({"status": {"qosClass": "Guaranteed"}}, "Guaranteed"),
        (containers({"requests": ONE, "limits": ONE}), "Guaranteed"),
        (containers({"limits": ONE}), "Guaranteed"),
        (containers({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": ONE}),
         "Guaranteed"),
        (containers({"requests": ONE, "limits": ONE}, {}), "Burstable"),
        (containers({"requests": ONE}), "Burstable"),
        (containers({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": ONE}), "Burstable"),
        (containers({"limits": {"cpu": "1"}}), "Burstable"),
        (containers({"requests": {"ephemeral-storage": "1Gi"}}), "BestEffort"),
        (containers({"requests": {"cpu": "0"}, "limits": {"memory": "0"}}), "BestEffort"),
        ({"spec": {"containers": [{"name": "c"}], "resources": {"requests": ONE, "limits": ONE}}},
         "Guaranteed"),
        ({"spec": {"containers": [{"name": "c"}], "resources": {"requests": ONE}}}, "Burstable"),
        ({"spec": {"containers": [{"name": "c"}],
                   "initContainers": [{"name": "i", "resources": {"requests": ONE}}]}},
         "Burstable"),
    ],
)  # fmt: skip
def test_qos_is_what_the_server_says_or_would_say(pod, qos, cache):
    assert subject(cache, **pod).text("pod.qos", None) == qos


def test_limits_are_missing_if_a_container_has_none(cache):
    two = {"limits": {"cpu": "500m", "memory": "1Gi"}}
    both = subject(cache, **containers(two, two))
    assert both.number("pod.limit", "cpu") == 1000
    assert both.number("pod.limit", "memory") == 2 * GIB
    assert np.isnan(subject(cache, **containers(two, {})).number("pod.limit", "cpu"))
    assert np.isnan(both.number("pod.limit", "nvidia.com/gpu"))
    assert np.isnan(subject(cache, **containers()).number("pod.limit", "cpu"))


def test_a_limit_that_cannot_be_read_is_missing(cache):
    bad = subject(cache, **containers({"limits": {"cpu": "lots"}}))
    assert np.isnan(bad.number("pod.limit", "cpu"))
    assert bad.text("pod.qos", None) == "BestEffort"


def test_requests_of_the_pod(cache):
    pod = subject(cache, cpu="1500m", memory="2Gi")
    assert pod.number("pod.cpu", None) == 1500
    assert pod.number("pod.memory", None) == 2 * GIB
    assert pod.number("pod.request", "memory") == 2 * GIB
    assert pod.number("pod.request", "nvidia.com/gpu") == 0
    assert pod.number("pod.gpu", None) == 0
    gpus = {"requests": {"nvidia.com/gpu": "2", "amd.com/gpu": "1"}}
    assert subject(cache, **containers(gpus)).number("pod.gpu", None) == 3


def test_other_texts_of_the_pod(cache):
    meta = {
        "name": "p",
        "namespace": "prod",
        "uid": "u",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "creationTimestamp": "2025-03-01T12:33:00Z",
        "ownerReferences": [
            {"kind": "Node", "name": "n"},
            {"kind": "Job", "name": "nightly", "controller": True},
        ],
    }
    spec = {
        "initContainers": [{"name": "z", "image": "setup"}],
        "containers": [{"name": "x", "image": "nginx"}, {"name": "y", "image": "redis"}],
    }
    info = make_pod_info(from_builtins(Pod, {"metadata": meta, "spec": spec}))
    pod = PodSubject(info, cache.snapshot(NOON), DEFAULT_GPUS)
    assert pod.text("pod.label", "a") == "b"
    assert pod.text("pod.annotation", "c") == "d"
    assert pod.text("pod.node_selector", "a") is None
    assert pod.text("pod.owner.kind", None) == "Job"
    assert pod.text("pod.owner.name", None) == "nightly"
    assert pod.text("pod.image", None) == "nginx"
    assert pod.texts("pod.images") == ("nginx", "redis", "setup")
    assert pod.texts("pod.containers") == ("x", "y")
    assert pod.text("pod.preemption_policy", None) == "PreemptLowerPriority"
    assert pod.text("pod.service_account", None) is None
    assert pod.number("pod.created", None) == NOON - 60
    assert pod.flag("pod.tolerates_all", None) is False


# ---- the pods that are there ---------------------------------------------------------------------


def test_pods_are_read_with_the_same_words(cache):
    world = world_of(cache)
    rows = {cache.pods.pod(row).name: row for row in np.flatnonzero(world.pod_node >= 0)}
    runs, assumed = rows["runs"], rows["assumed"]

    def texts(field, key=None):
        codes = world.pod_text(field, key)
        return text(world, codes[runs]), text(world, codes[assumed])

    assert texts("it.name") == ("runs", "assumed")
    assert texts("it.namespace") == ("prod", "default")
    assert texts("it.label", "app") == ("web", None)
    assert texts("it.node_selector", "disk") == ("ssd", None)
    assert texts("it.qos") == ("Guaranteed", "Burstable")
    assert texts("it.phase") == ("Running", None)
    assert texts("it.service_account") == ("robot", None)
    assert texts("it.priority_class") == ("high", None)
    assert texts("it.runtime_class") == ("gvisor", None)
    assert texts("it.node")[0] == "big"
    assert world.pod_number("it.priority", None)[[runs, assumed]].tolist() == [7, 0]
    assert world.pod_number("it.cpu", None)[[runs, assumed]].tolist() == [1500, 250]
    assert world.pod_number("it.gpu", None)[[runs, assumed]].tolist() == [1, 0]
    assert world.pod_number("it.limit", "memory")[runs] == GIB
    assert world.pod_number("it.started_at", None)[runs] == NOON - 240
    assert world.pod_number("it.restarts", None)[[runs, assumed]].tolist() == [5, 0]
    deadlines = world.pod_number("it.active_deadline", None)[[runs, assumed]]
    assert deadlines[0] == 600
    assert np.isnan(deadlines[1])
    assert world.pod_flag("it.tolerates_all", None)[[runs, assumed]].tolist() == [True, False]
    assert world.pod_flag("it.terminating", None)[[runs, assumed]].tolist() == [False, False]
    assert world.pod_node[runs] == cache.nodes.row("big")


def test_columns_follow_the_cache(cache):
    world = world_of(cache)
    world.pod_text("it.label", "app")
    world.node_text("node.label", "disk")
    cache.add_pod(make_pod_info(pod_object("runs", namespace="prod", node="big")), "big")
    cache.add_node(node("big", meta={"labels": {"disk": "hdd"}}))
    after = world_of(cache)
    assert text(after, after.node_text("node.label", "disk")[cache.nodes.row("big")]) == "hdd"
    assert set(after.pod_text("it.label", "app").tolist()) == {-1}


def test_an_assumed_pod_is_on_its_node(cache):
    world = world_of(cache)
    row = next(r for r in np.flatnonzero(world.pod_node >= 0) if cache.pods.pod(r).name != "runs")
    assert text(world, world.pod_text("it.node", None)[row]) == "bare"


# ---- fields of their own kind --------------------------------------------------------------------


def test_members_of_a_group_are_found_by_who_asks_first():
    cache = Cache()
    cache.add_node(make_node("n"))
    first, second = (
        make_pod(name, labels={"scheduling.x-k8s.io/pod-group": "g"}) for name in ("p", "q")
    )
    cache.assume(first, "n")
    asked = PodSubject(second, cache.snapshot(NOON), DEFAULT_GPUS)
    assert asked.number("group.reserved", None) == 1


@pytest.fixture
def rich():
    cache = Cache()
    images = [{"names": ["nginx:1", "nginx@sha"], "sizeBytes": 100}, {"names": ["redis"]}]
    cache.add_node(
        node("a", meta={"labels": {"disk": "ssd"}},
             spec={"podCIDR": "10.0.0.0/30"},
             status={"images": images, "allocatable": {"pods": "110"}})
    )  # fmt: skip
    cache.add_node(node("b", spec={"unschedulable": True}, status={"allocatable": {"pods": "5"}}))
    cache.add_node(node("c", meta={"labels": {"disk": "hdd"}}))
    ready = [
        {"type": "Ready", "status": "True"},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-03-01T12:00:00Z"},
    ]
    owner = {"kind": "ReplicaSet", "name": "web-5d9", "controller": True}
    meta = {"name": "one", "uid": "1", "labels": {"pod-template-hash": "5d9"}}
    pod = {
        "metadata": {**meta, "ownerReferences": [owner]},
        "spec": {"nodeName": "a"},
        "status": {"conditions": ready},
    }
    cache.add_pod(make_pod_info(from_builtins(Pod, pod)), "a")
    cache.assume(make_pod("two", spec={"hostNetwork": True}), "a")
    return cache


def test_images_are_lists_of_names_kept_between_snapshots(rich):
    world = world_of(rich)
    starts, codes = world.node_texts("node.images")
    assert starts.tolist() == [0, 3, 3, 3]
    assert [text(world, code) for code in codes] == ["nginx:1", "nginx@sha", "redis"]
    index = ImageLists()
    first = index.of(rich.snapshot(NOON))
    assert index.of(rich.snapshot(NOON)) is first
    rich.add_node(node("b", status={"images": [{"names": ["redis"], "sizeBytes": 7}]}))
    starts, codes = index.of(rich.snapshot(NOON))
    assert starts.tolist() == [0, 3, 4, 4]
    rich.remove_node("a")
    starts, codes = index.of(rich.snapshot(NOON))
    assert starts.tolist() == [0, 0, 1, 1]
    assert [text(world_of(rich), code) for code in codes] == ["redis"]


def test_missing_image_bytes_count_what_some_node_has(rich):
    world = world_of(rich)
    column = world.node_column("node.missing_image_bytes", ("nginx:1", "redis", "unknown"))
    assert column.tolist() == [0.0, 100.0, 100.0]


def test_eligible_is_selector_affinity_and_no_cordon(rich):
    world = world_of(rich)
    free = PodSubject(make_pod("p"), world.snapshot, DEFAULT_GPUS)
    assert world.node_column("node.eligible", free.asks("node.eligible")).tolist() == [
        True, False, True,
    ]  # fmt: skip
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["hdd"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    bound = make_pod("p", spec={"affinity": {"nodeAffinity": required}})
    key = PodSubject(bound, world.snapshot, DEFAULT_GPUS).asks("node.eligible")
    assert world.node_column("node.eligible", key).tolist() == [False, False, True]


def test_addresses_are_slots_or_the_cidr_where_it_is_smaller(rich):
    world = world_of(rich)
    assert world.node_number("node.ips.capacity", None)[:2].tolist() == [4.0, 5.0]
    assert world.node_number("node.ips.free", None)[:2].tolist() == [3.0, 5.0]
    assert np.isnan(world.node_number("node.ips.free", None)[2])


def test_state_of_placed_pods(rich):
    world = world_of(rich)
    assert world.pod_flag("it.ready", None).tolist() == [True, False]
    assert world.pod_flag("it.bound", None).tolist() == [True, False]
    assert text(world, world.pod_text("it.workload", None)[0]) == "web"
    noon = datetime(2025, 3, 1, 12, tzinfo=ZoneInfo("UTC")).timestamp()
    assert world.pod_number("it.scheduled_at", None)[0] == noon


@pytest.mark.parametrize(
    ("kind", "name", "workload"),
    [
        ("Job", "nightly-29434560", "nightly"),
        ("Job", "nightly-2-29434560", "nightly-2"),
        ("Job", "import-20251218", "import-20251218"),
        ("Job", "import-3", "import-3"),
        ("Job", "import-129434560", "import-129434560"),
        ("ReplicaSet", "web-29434560", "web-29434560"),
        ("StatefulSet", "db", "db"),
    ],
)
def test_the_workload_of_a_run_of_a_cron_job_is_the_cron_job(kind, name, workload):
    owner = OwnerReference(kind=kind, name=name, controller=True)
    pod = pod_object("p")
    made = make_pod_info(changed(pod, metadata={"owner_references": [owner]}))
    assert workload_of(made) == workload


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_a_template_gives_pods_of_its_workload(kind):
    reference, labels = owned_by(kind, "web-1")
    meta = {"name": "p", "namespace": "d", "labels": labels, "ownerReferences": [reference]}
    assert workload_of(make_pod_info(from_builtins(Pod, {"metadata": meta}))) == "web-1"


def test_a_pod_knows_its_containers_volumes_tolerations_and_times():
    limits = {"resources": {"limits": {"memory": "1Gi"}}}
    pod = make_pod(
        "p",
        spec={
            "containers": [{"name": "a", "image": "x", **limits}, {"name": "b"}],
            "volumes": [{"persistentVolumeClaim": {"claimName": "c"}}, {"ephemeral": {}}, {}],
            "tolerations": [{"key": "k", "value": "v"}, {"key": "e", "operator": "Exists"}],
        },
    )
    times = QueueTimes(5.0, None, 3)
    subject = PodSubject(pod, Cache().snapshot(NOON), DEFAULT_GPUS, times)
    assert subject.containers == 2
    assert subject.container_text(0, "image") == "x"
    assert subject.container_text(1, "image") is None
    assert subject.container_number(0, "limit", "memory") == GIB
    assert np.isnan(subject.container_number(1, "limit", "memory"))
    assert subject.container_number(1, "request", "memory") == 0
    assert subject.number("pod.volumes.count", None) == 2
    assert subject.text("pod.toleration", "k") == "v"
    assert subject.text("pod.toleration", "e") == ""
    assert subject.pairs("pod.toleration") == (("e", ""), ("k", "v"))
    assert subject.number("pod.queued_at", None) == 5
    assert np.isnan(subject.number("pod.first_attempt_at", None))
    assert subject.number("pod.attempts", None) == 3


def test_metrics_from_annotations(rich):
    now = datetime(2025, 3, 1, 12, 34, tzinfo=ZoneInfo("UTC")).timestamp()
    for name, value in (("a", "0.5,2025-03-01T12:33:00Z"), ("b", "40%"), ("c", "1,soon")):
        rich.add_node(node(name, meta={"annotations": {"cpu:avg": value}}))
    world = world_of(rich, now=now)
    assert world.metric("annotation:120.0:1.0:cpu:avg")[:2].tolist() == [0.5, 0.4]
    assert np.isnan(world.metric("annotation:120.0:1.0:cpu:avg")[2])
    assert np.isnan(world.metric("annotation:30.0:1.0:cpu:avg")[0])
    assert world.metric_age("annotation:30.0:1.0:cpu:avg")[0] == 60
    assert np.isnan(world.metric_age("annotation:30.0:1.0:cpu:avg")[1])


def test_a_field_that_no_struct_decodes_is_no_missing_value():
    pod = make_pod("p")
    assert reader_of("pod.spec.affinity.nodeAffinity")(pod) is None
    with pytest.raises(AttributeError, match="restart_policy"):
        reader_of("pod.spec.restartPolicy")(pod)
