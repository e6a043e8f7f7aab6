"""The one table of what a policy may read: every field with type, level and meaning.

The checker asks it for types, the engine for columns, the language reference for prose.
"""

from collections.abc import Iterator, Mapping
from math import inf
from types import MappingProxyType
from typing import Final, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from dsl.types import (
    BOOL,
    BYTES,
    CORES,
    DURATION,
    NODES,
    NUMBER,
    PLAIN,
    PODS,
    SECONDS,
    TEXT,
    TEXTS,
    TIME,
    Level,
    Type,
    Unit,
    number_of,
)


class Facts(TypedDict, total=False):
    """Some columns of a field that several have alike."""

    changes: bool
    wakes: tuple[str, ...]
    low: float


class FieldSpec(Struct, frozen=True):
    """One field.

    Attributes:
        name: canonical dotted name; a key, where there is one, is not part of it.
        keyed: whether it is read as `name[key]`.
        optional: whether it may be missing.
        changes: whether evicting pods could change it (the rule's status follows from that).
        words: all its values, where there are only a few.
        of_pod: whether a field of the node depends on the pod to place, too.
        wire: where it stands in the object, as the API writes it; "" where it is computed.
        absent: what it is where the object says nothing.
        wakes: what of a cluster changes it, for pods that were turned away.
        low: its least value.
        high: its greatest value.
        often_zero: whether it is 0 on many nodes or for many pods.
        letters: what its texts consist of, `NAME`, `WORD` or `IMAGE`; "" where anything may stand.
    """

    name: str
    type: Type
    level: Level
    doc: str
    keyed: bool = False
    optional: bool = False
    changes: bool = False
    words: tuple[str, ...] = ()
    of_pod: bool = False
    wire: str = ""
    absent: str = ""
    wakes: tuple[str, ...] = ()
    low: float = -inf
    high: float = inf
    often_zero: bool = False
    letters: str = ""


#: Lower-case letters, digits, `-` and `.`; letters, digits and `-._`; these and `/:@`.
NAME, WORD, IMAGE = "name", "word", "image"
_CORE: Final = number_of(CORES)
_BYTE: Final = number_of(BYTES)
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
QOS: Final = ("Guaranteed", "Burstable", "BestEffort")
PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
STATUSES: Final = ("True", "False", "Unknown")
#: Labels that stand behind fields of their own.
WELL_KNOWN_LABELS: Final = MappingProxyType(
    {
        "node.zone": "topology.kubernetes.io/zone",
        "node.region": "topology.kubernetes.io/region",
        "node.rack": "topology.kubernetes.io/rack",
        "node.arch": "kubernetes.io/arch",
        "node.os": "kubernetes.io/os",
        "node.instance_type": "node.kubernetes.io/instance-type",
    }
)


def _cycle() -> Iterator[FieldSpec]:
    level = Level.CYCLE
    yield FieldSpec("now", TIME, level, "the time of the cycle")
    for name, high in (("hour", 23), ("minute", 59)):
        doc = f"{name} of the {'day' if name == 'hour' else 'hour'}, 0 to {high}"
        yield FieldSpec(f"time.{name}", NUMBER, level, doc, low=0, high=high, often_zero=True)
    yield FieldSpec("time.weekday", TEXT, level, "day of the week", words=WEEKDAYS)
    yield FieldSpec("time.day", NUMBER, level, "day of the month, 1 to 31", low=1, high=31)
    yield FieldSpec("time.month", NUMBER, level, "month of the year, 1 to 12", low=1, high=12)
    yield FieldSpec("cluster.nodes", NUMBER, level, "number of nodes", low=0)
    for kind, of in (("cpu", _CORE), ("memory", _BYTE), ("gpu", NUMBER)):
        for part in ("allocatable", "requested", "free"):
            moves = part != "allocatable"
            yield FieldSpec(
                f"cluster.{kind}.{part}",
                of,
                level,
                f"{kind} {part}, all nodes together",
                changes=moves,
                wakes=("nodes", "pods") if moves else ("nodes",),
                low=-inf if part == "free" else 0.0,
                often_zero=kind == "gpu",
            )
    doc = "pods bound to or assumed on any node"
    yield FieldSpec("cluster.pods", PODS, level, doc, changes=True, wakes=("nodes", "pods"))
    doc = "pods that wait for a node, without the pod itself"
    yield FieldSpec("queue.pods", PODS, level, doc, changes=True, wakes=("queue",))


def _pod_like(owner: str, level: Level) -> Iterator[FieldSpec]:
    def text(name: str, doc: str, **more: object) -> FieldSpec:
        return FieldSpec(f"{owner}.{name}", TEXT, level, doc, **more)  # type: ignore[arg-type]  # what FieldSpec takes

    def number(name: str, of: Type, doc: str, **more: object) -> FieldSpec:
        return FieldSpec(f"{owner}.{name}", of, level, doc, **more)  # type: ignore[arg-type]  # what FieldSpec takes

    def optional(name: str, doc: str, wire: str, letters: str) -> FieldSpec:
        return text(name, doc, optional=True, wire=wire, letters=letters)

    yield text("name", "name of the pod", letters=NAME)
    yield text("namespace", "namespace of the pod", letters=NAME)
    yield text("uid", "UID of the pod")
    doc = "priority, 0 where none is set"
    yield number("priority", NUMBER, doc, wire="spec.priority", often_zero=True)
    yield text("qos", "quality of service class", words=QOS, wire="status.qosClass")
    doc = "name of the scheduler the pod asks for"
    yield text("scheduler", doc, wire="spec.schedulerName", letters=WORD)
    yield optional("service_account", "service account", "spec.serviceAccountName", NAME)
    doc = "name of the priority class"
    yield optional("priority_class", doc, "spec.priorityClassName", WORD)
    yield text(
        "preemption_policy",
        "PreemptLowerPriority or Never",
        words=("PreemptLowerPriority", "Never"),
        wire="spec.preemptionPolicy",
        absent="PreemptLowerPriority",
    )
    yield optional("runtime_class", "name of the runtime class", "spec.runtimeClassName", NAME)
    yield optional("nominated_node", "node that preemption chose", "status.nominatedNodeName", "")
    doc, wire = "when the pod was created", "metadata.creationTimestamp"
    yield number("created", TIME, doc, optional=True, wire=wire)
    for name, doc, wire in (
        ("label", "value of a label", "metadata.labels"),
        ("annotation", "value of an annotation", "metadata.annotations"),
        ("node_selector", "value the pod's nodeSelector asks for", "spec.nodeSelector"),
    ):
        letters = WORD if name == "label" else ""
        yield text(name, doc, keyed=True, optional=True, wire=wire, letters=letters)
    doc = "top owner: the Deployment, not its ReplicaSet"
    yield text("workload", doc, optional=True, letters=NAME)
    doc = "name of its group: schedulingGroup, else the label scheduling.x-k8s.io/pod-group"
    yield text("group", doc, optional=True, letters=NAME)
    yield text("toleration", "value of a toleration, empty for Exists", keyed=True, optional=True)
    yield text("owner.kind", "kind of the controlling owner", optional=True)
    yield text("owner.name", "name of the controlling owner", optional=True)
    yield text("image", "image of the first container", optional=True, letters=IMAGE)
    kept = {"low": 0.0, "often_zero": owner == "pod"}
    yield number("cpu", _CORE, "effective CPU request", **kept)
    yield number("memory", _BYTE, "effective memory request", **kept)
    yield number("storage", _BYTE, "effective ephemeral storage request", **kept)
    yield number("gpu", NUMBER, "GPUs requested", **kept)
    doc = "effective request of a resource, 0 if none"
    yield number("request", NUMBER, doc, keyed=True, **kept)
    yield number("limit", NUMBER, "limit of a resource", keyed=True, optional=True, low=0.0)
    yield number("volumes.count", NUMBER, "claims and generic ephemeral volumes")
    doc, wire = (
        "how long the pod may be active (activeDeadlineSeconds)",
        "spec.activeDeadlineSeconds",
    )
    yield number("active_deadline", DURATION, doc, optional=True, wire=wire)
    yield FieldSpec(f"{owner}.tolerates_all", BOOL, level, "tolerates every taint")
    doc = "whether it uses the network of its node"
    yield FieldSpec(f"{owner}.host_network", BOOL, level, doc, wire="spec.hostNetwork")


def _pod() -> Iterator[FieldSpec]:
    level = Level.POD
    yield from _pod_like("pod", level)
    yield FieldSpec("pod.images", TEXTS, level, "images of all containers")
    yield FieldSpec("pod.containers", TEXTS, level, "containers of the pod; in `len` their number")
    for name, of, doc in (
        ("queued_at", TIME, "when it last entered the queue"),
        ("first_attempt_at", TIME, "when it was first let into the queue"),
        ("attempts", NUMBER, "how often it was tried before"),
    ):
        yield FieldSpec(f"pod.{name}", of, level, doc, optional=True, wakes=("tries",))
    doc = "node that the pod of its name, or else the last one of its workload, has left"
    yield FieldSpec("pod.previous_node", TEXT, level, doc, optional=True, wakes=("pods",))
    for part in ("label", "annotation"):
        yield FieldSpec(
            f"workload.{part}",
            TEXT,
            level,
            f"{part} of the pod's workload",
            keyed=True,
            optional=True,
            wakes=("workloads",),
            letters=WORD if part == "label" else "",
        )
    doc = "how many pods the workload asks for at a time"
    yield FieldSpec(
        "workload.replicas", NUMBER, level, doc, optional=True, wakes=("workloads",), low=0.0
    )
    for name, of, doc in (
        ("group.name", TEXT, "name of the pod's group"),
        ("group.min_member", NUMBER, "members the group needs"),
        ("group.size", NUMBER, "members there are"),
        ("group.assigned", NUMBER, "members bound"),
        ("group.reserved", NUMBER, "members bound or assumed"),
        ("group.waiting", NUMBER, "members waiting in permit"),
        ("group.schedule_timeout", DURATION, "how long its members wait, if its object says so"),
        ("group.created", TIME, "when the group was created"),
        ("group.last_failure", TIME, "when the group last failed"),
    ):
        counted = name.rpartition(".")[2] in ("size", "assigned", "reserved", "waiting")
        wakes = ("groups", "pods", "queue") if counted else ("groups",)
        yield FieldSpec(name, of, level, doc, optional=True, changes=True, wakes=wakes)
    later = (
        ("quota.name", TEXT, "name of the quota of the namespace"),
        ("quota.over_max_with_pod", BOOL, "over its maximum with this pod"),
        ("quota.over_min_with_pod", BOOL, "over its minimum with this pod"),
        ("quota.min", NUMBER, "minimum of a resource"),
        ("quota.max", NUMBER, "maximum of a resource"),
        ("quota.used", NUMBER, "use of a resource"),
    )
    keyed = {"min", "max", "used"}
    for name, of, doc in later:
        yield FieldSpec(
            name,
            of,
            level,
            doc,
            keyed=name.rsplit(".", 1)[1] in keyed,
            optional=of is not BOOL,
            changes=name.startswith("quota."),
            wakes=("pods", "quotas") if name.startswith("quota.") else (),
        )
    yield FieldSpec("namespace.name", TEXT, level, "namespace of the pod", letters=NAME)
    for part in ("label", "annotation"):
        yield FieldSpec(
            f"namespace.{part}",
            TEXT,
            level,
            f"value of a namespace's {part}",
            keyed=True,
            optional=True,
            letters=WORD if part == "label" else "",
        )


#: Parts of what a node has of a resource, and what changes them.
_WAKING: Final = MappingProxyType(
    {
        "capacity": ("allocatable", "others"),
        "allocatable": ("allocatable",),
        "requested": ("allocatable", "pods"),
        "free": ("allocatable", "pods"),
    }
)


def _node() -> Iterator[FieldSpec]:
    level = Level.NODE
    yield FieldSpec("node.name", TEXT, level, "name of the node", letters=NAME)
    for part, letters in (("label", WORD), ("annotation", "")):
        yield FieldSpec(
            f"node.{part}",
            TEXT,
            level,
            f"value of a{'n' * (part == 'annotation')} {part}",
            keyed=True,
            optional=True,
            wakes=(f"{part}s",),
            letters=letters,
        )
    doc = "whether the node has the taint"
    yield FieldSpec("node.taint", BOOL, level, doc, keyed=True, wakes=("taints",))
    for name in WELL_KNOWN_LABELS:
        doc = f"value of the label {WELL_KNOWN_LABELS[name]}"
        yield FieldSpec(name, TEXT, level, doc, optional=True, wakes=("labels",), letters=WORD)
    for name, doc, wire in (
        ("kernel", "kernel version", "kernelVersion"),
        ("kubelet_version", "version of the kubelet, such as v1.31.4", "kubeletVersion"),
        ("os_image", "name and version of the system, such as Ubuntu 24.04.1 LTS", "osImage"),
        (
            "container_runtime",
            "container runtime and its version, such as containerd://1.7.24",
            "containerRuntimeVersion",
        ),
    ):
        yield FieldSpec(
            f"node.{name}",
            TEXT,
            level,
            doc,
            optional=True,
            wire=f"status.nodeInfo.{wire}",
            wakes=("others",),
        )
    yield FieldSpec("node.ready", BOOL, level, "whether the node is ready", wakes=("conditions",))
    doc = "whether the node is cordoned"
    yield FieldSpec("node.unschedulable", BOOL, level, doc, wakes=("cordon",))
    yield FieldSpec(
        "node.created",
        TIME,
        level,
        "when the node was created",
        optional=True,
        wire="metadata.creationTimestamp",
    )
    yield FieldSpec(
        "node.condition",
        TEXT,
        level,
        "status of a condition",
        keyed=True,
        optional=True,
        words=STATUSES,
        wakes=("conditions",),
    )
    kinds = (("cpu", _CORE), ("memory", _BYTE), ("storage", _BYTE), ("gpu", NUMBER))
    for part, wakes in _WAKING.items():
        facts: Facts = {
            "changes": "pods" in wakes,
            "wakes": wakes,
            "low": -inf if part == "free" else 0.0,
        }
        for kind, of in kinds:
            zero = kind == "gpu" or "pods" in wakes
            doc = f"{kind} {part}"
            yield FieldSpec(f"node.{kind}.{part}", of, level, doc, often_zero=zero, **facts)
        doc = f"{part} of a resource"
        yield FieldSpec(
            f"node.resource.{part}", NUMBER, level, doc, keyed=True, optional=True, **facts
        )
    wakes = _WAKING["capacity"]
    yield FieldSpec("node.pods.capacity", NUMBER, level, "pod slots", wakes=wakes, low=0.0)
    free: Facts = {"changes": True, "wakes": _WAKING["free"]}
    yield FieldSpec("node.pods.free", NUMBER, level, "pod slots left", often_zero=True, **free)
    for owner, doc in (
        ("node", "pods bound to or assumed on the node"),
        ("zone", "pods of all nodes in the node's zone"),
        ("region", "pods of all nodes in the node's region"),
        ("rack", "pods of all nodes in the node's rack"),
    ):
        wakes = ("pods",) if owner == "node" else ("labels", "pods")
        yield FieldSpec(f"{owner}.pods", PODS, level, doc, changes=True, wakes=wakes)
    for owner in ("zone", "region", "rack"):
        doc = f"all nodes of the node's {owner}"
        yield FieldSpec(f"{owner}.nodes", NODES, level, doc, wakes=("nodes",))
    doc = "names of the images on the node"
    yield FieldSpec("node.images", TEXTS, level, doc, wakes=("others",))
    doc = "whether selector and required affinity of the pod allow the node, and it is not cordoned"
    yield FieldSpec("node.eligible", BOOL, level, doc, of_pod=True, wakes=("labels", "taints"))
    doc = "bytes of the pod's images that are not on the node; of unknown size: 0"
    name = "node.missing_image_bytes"
    yield FieldSpec(name, _BYTE, level, doc, of_pod=True, wakes=("others",))
    wakes = _WAKING["capacity"]
    doc = "pod addresses"
    yield FieldSpec("node.ips.capacity", NUMBER, level, doc, optional=True, wakes=wakes, low=0.0)
    yield FieldSpec("node.ips.free", NUMBER, level, "pod addresses left", optional=True, **free)
    for name, doc, wakes in (
        ("nominated", "pods that wait and are promised the node", ("nominations",)),
        ("finished", "pods that finished on the node in the last hour", ("finished", "time")),
    ):
        yield FieldSpec(f"node.{name}", PODS, level, doc, changes=True, wakes=wakes)
    doc = "when the node's Lease was renewed"
    yield FieldSpec("node.heartbeat", TIME, level, doc, optional=True, wakes=("leases",))
    doc = "claims and generic ephemeral volumes of the node's pods"
    yield FieldSpec(
        "node.volumes.attached", NUMBER, level, doc, changes=True, wakes=("pods",), low=0.0
    )
    doc = "volumes that the node's drivers can attach, all together"
    yield FieldSpec(
        "node.volumes.limit", NUMBER, level, doc, optional=True, wakes=("drivers",), low=0.0
    )


def _it() -> Iterator[FieldSpec]:
    level = Level.IT
    yield from _pod_like("it", level)
    doc = "name of the pod's node"
    yield FieldSpec("it.node", TEXT, level, doc, optional=True, letters=NAME)
    doc, wire = "phase of the pod", "status.phase"
    yield FieldSpec("it.phase", TEXT, level, doc, optional=True, words=PHASES, wire=wire)
    yield FieldSpec("it.terminating", BOOL, level, "whether the pod is being deleted")
    doc, wire = "when the pod started", "status.startTime"
    yield FieldSpec("it.started_at", TIME, level, doc, optional=True, wire=wire)
    yield FieldSpec("it.nominated", BOOL, level, "whether it is nominated to a node")
    yield FieldSpec("it.ready", BOOL, level, "whether it is ready")
    doc = "how often its containers were restarted"
    yield FieldSpec("it.restarts", NUMBER, level, doc, low=0.0)
    yield FieldSpec("it.bound", BOOL, level, "whether it is bound, not only assumed")
    yield FieldSpec("it.scheduled_at", TIME, level, "when it was scheduled", optional=True)
    for part in ("label", "annotation"):
        doc = f"value of a{'n' if part == 'annotation' else ''} {part} of the pod's namespace"
        yield FieldSpec(f"it.namespace.{part}", TEXT, level, doc, keyed=True, optional=True)
    doc = "when a pending pod last entered the queue"
    yield FieldSpec("it.queued_at", TIME, level, doc, optional=True, wakes=("queue",))
    doc = "when a pending pod was first let into the queue"
    yield FieldSpec("it.first_attempt_at", TIME, level, doc, optional=True, wakes=("queue",))
    doc = "how often a pending pod was tried before"
    yield FieldSpec("it.attempts", NUMBER, level, doc, optional=True, wakes=("queue",))
    doc = "when it finished"
    yield FieldSpec("it.finished_at", TIME, level, doc, optional=True, wakes=("finished",))
    doc = "whether its quota is over its minimum"
    yield FieldSpec("it.quota.over_min", BOOL, level, doc, wakes=("pods", "quotas"))


def _results() -> Iterator[FieldSpec]:
    later = (
        ("score", NUMBER, "what a policy or plugin of that name gave the node, before its weight"),
        ("score.total", NUMBER, "the node's total score"),
        ("victims.pdb_violations", NUMBER, "disruption budgets that would be broken"),
        ("victims.max_priority", NUMBER, "highest priority among the victims"),
        ("victims.sum_priority", NUMBER, "sum of the victims' priorities"),
        ("victims.count", NUMBER, "number of victims"),
        ("victims.latest_start", TIME, "latest start among the most important victims"),
    )
    for name, of, doc in later:
        yield FieldSpec(
            name,
            of,
            Level.NODE,
            doc,
            keyed=name == "score",
            optional=True,
        )


#: What changes all fields of an owner that do not say more.
_WAKES: Final = MappingProxyType(
    {"it": "pods", "pod": "pod", "cluster": "nodes", "namespace": "namespaces", "time": "time",
     "now": "time"}
)  # fmt: skip


def _woken(spec: FieldSpec) -> FieldSpec:
    common = _WAKES.get(spec.name.partition(".")[0])
    return spec if spec.wakes or common is None else replace(spec, wakes=(common,))


FIELDS: Final = MappingProxyType(
    {spec.name: _woken(spec) for table in (_cycle, _pod, _node, _it, _results) for spec in table()}
)

#: Plural and other spellings of the last word of a field.
PLURALS: Final = MappingProxyType(
    {
        "labels": "label",
        "annotations": "annotation",
        "taints": "taint",
        "requests": "request",
        "limits": "limit",
        "resources": "resource",
        "conditions": "condition",
        "tolerations": "toleration",
    }
)

#: Paths of the Kubernetes API and what they are called here.
KUBERNETES_PATHS: Final = MappingProxyType(
    {
        "pod.metadata.name": "pod.name",
        "pod.metadata.namespace": "pod.namespace",
        "pod.metadata.labels": "pod.label",
        "pod.metadata.annotations": "pod.annotation",
        "pod.metadata.uid": "pod.uid",
        "pod.metadata.creationtimestamp": "pod.created",
        "pod.spec.priority": "pod.priority",
        "pod.spec.priorityclassname": "pod.priority_class",
        "pod.spec.nodeselector": "pod.node_selector",
        "pod.spec.schedulername": "pod.scheduler",
        "pod.spec.serviceaccountname": "pod.service_account",
        "pod.spec.preemptionpolicy": "pod.preemption_policy",
        "pod.spec.containers.image": "pod.image",
        "pod.spec.hostnetwork": "pod.host_network",
        "pod.spec.runtimeclassname": "pod.runtime_class",
        "pod.spec.activedeadlineseconds": "pod.active_deadline",
        "it.status.containerstatuses.restartcount": "it.restarts",
        "pod.hostnetwork": "pod.host_network",
        "pod.status.nominatednodename": "pod.nominated_node",
        "pod.status.qosclass": "pod.qos",
        "pod.qosclass": "pod.qos",
        "pod.schedulername": "pod.scheduler",
        "pod.serviceaccountname": "pod.service_account",
        "pod.serviceaccount": "pod.service_account",
        "pod.ns": "pod.namespace",
        "pod.namespace.label": "namespace.label",
        "pod.namespace.labels": "namespace.label",
        "pod.namespace.annotation": "namespace.annotation",
        "pod.namespace.annotations": "namespace.annotation",
        "it.namespace.name": "it.namespace",
        "node.zone.pods": "zone.pods",
        "node.region.pods": "region.pods",
        "node.rack.pods": "rack.pods",
        "node.zone.nodes": "zone.nodes",
        "node.region.nodes": "region.nodes",
        "node.rack.nodes": "rack.nodes",
        "pod.mem": "pod.memory",
        "pod.gpus": "pod.gpu",
        "node.metadata.name": "node.name",
        "node.metadata.labels": "node.label",
        "node.metadata.annotations": "node.annotation",
        "node.metadata.creationtimestamp": "node.created",
        "node.spec.unschedulable": "node.unschedulable",
        "node.spec.taints": "node.taint",
        "node.status.allocatable.cpu": "node.cpu.allocatable",
        "node.status.allocatable.memory": "node.memory.allocatable",
        "node.status.allocatable.pods": "node.pods.capacity",
        "node.status.capacity.cpu": "node.cpu.capacity",
        "node.status.capacity.memory": "node.memory.capacity",
        "node.allocatable.cpu": "node.cpu.allocatable",
        "node.allocatable.memory": "node.memory.allocatable",
        "node.status.images": "node.images",
        "node.status.conditions": "node.condition",
        "node.status.nodeinfo.kernelversion": "node.kernel",
        "node.status.nodeinfo.kubeletversion": "node.kubelet_version",
        "node.status.nodeinfo.osimage": "node.os_image",
        "node.status.nodeinfo.containerruntimeversion": "node.container_runtime",
        "node.cpu": "node.cpu.free",
        "node.memory": "node.memory.free",
        "node.mem.free": "node.memory.free",
        "node.gpu": "node.gpu.free",
        "node.storage": "node.storage.free",
    }
)


STALE_SECONDS: Final = 120.0


def stale_by_default(every_seconds: float) -> float:
    """Returns after what time a sample is stale where nothing is said of that.

    What is asked for seldom lasts twice as long as the pause, so that it is not missing between
    two answers, and one lost answer does no harm.
    """
    return max(STALE_SECONDS, 2 * every_seconds)


class MetricDefinition(Struct, frozen=True):
    """A metric as the catalogue, the configuration or a file defines it."""

    query: str
    by: str | None = None
    every_seconds: float = 15.0
    stale_seconds: float = STALE_SECONDS
    default: float | None = None
    unit: Unit = PLAIN
    percent: bool = False
    doc: str = ""


_PER_SECOND: Final = Unit(byte=1, second=-1)
_VIRTUAL: Final = 'device!~"lo|veth.*|docker.*|cni.*|flannel.*|cali.*|br-.*|virbr.*|tunl.*"'

#: The metrics that every policy may name without declaring them.
CATALOGUE: Final[Mapping[str, MetricDefinition]] = MappingProxyType(
    {
        "bandwidth": MetricDefinition(
            f"sum by (instance) (rate(node_network_receive_bytes_total{{{_VIRTUAL}}}[3m]))",
            unit=_PER_SECOND,
            doc="receive bytes/s per node",
        ),
        "transmit": MetricDefinition(
            f"sum by (instance) (rate(node_network_transmit_bytes_total{{{_VIRTUAL}}}[3m]))",
            unit=_PER_SECOND,
            doc="transmit bytes/s per node",
        ),
        "cpu_usage": MetricDefinition(
            '1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[3m]))',
            doc="share of the CPUs in use, 0..1",
        ),
        "memory_usage": MetricDefinition(
            "1 - max by (instance) (node_memory_MemAvailable_bytes)"
            " / max by (instance) (node_memory_MemTotal_bytes)",
            doc="share of the memory in use, 0..1",
        ),
        "load": MetricDefinition("max by (instance) (node_load1)", doc="load of the last minute"),
        "disk_io": MetricDefinition(
            "sum by (instance) (rate(node_disk_read_bytes_total[3m])"
            " + rate(node_disk_written_bytes_total[3m]))",
            unit=_PER_SECOND,
            doc="bytes/s read and written by the disks",
        ),
        "latency": MetricDefinition(
            "max by (instance) (probe_duration_seconds)",
            unit=Unit(second=1),
            doc="seconds a probe of the node takes",
        ),
    }
)

#: Words of `unit`, their unit, and whether samples are percentages.
UNIT_WORDS: Final = MappingProxyType(
    {
        "bytes": BYTES,
        "cores": CORES,
        "seconds": SECONDS,
        "percent": PLAIN,
    }
)


#: Fields of the outcome, and where alone they are known.
RESULTS: Final = MappingProxyType(
    {"score": "in `prebind` and `postbind`", "victims": "in `pick` of `preempt`"}
)
#: Fields with a key that is a resource, whose amounts have the resource's unit.
AMOUNTS: Final = frozenset(
    {"pod.request", "pod.limit", "it.request", "it.limit", "quota.min", "quota.max", "quota.used"}
    | {f"node.resource.{part}" for part in ("capacity", "allocatable", "requested", "free")}
)
#: Sets of pods: over which domain they run, and which pods they hold.
POD_SETS: Final = MappingProxyType(
    {
        "node.pods": ("node", "pods"),
        "zone.pods": ("zone", "pods"),
        "region.pods": ("region", "pods"),
        "rack.pods": ("rack", "pods"),
        "cluster.pods": ("cluster", "pods"),
        "queue.pods": ("cluster", "queue"),
        "node.nominated": ("node", "nominated"),
        "node.finished": ("node", "finished"),
    }
)
#: What is known of pending pods only.
OF_THE_QUEUE: Final = ("it.queued_at", "it.first_attempt_at", "it.attempts")
#: Sets of nodes: over which domain they run.
NODE_SETS: Final = MappingProxyType({f"{one}.nodes": one for one in ("zone", "region", "rack")})


def request_unit(resource: str) -> Unit:
    """Returns the unit of `pod.request[resource]` and `node.resource[resource]`."""
    if resource == "cpu":
        return CORES
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return BYTES
    return PLAIN
