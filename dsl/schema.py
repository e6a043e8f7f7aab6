"""The one table of what a policy may read: each field's type, level, meaning, path, and what wakes.

The checker asks it for types, the engine for columns, the language reference for prose.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, Final, NamedTuple

from msgspec import Struct

from dsl import types as t


class Form(NamedTuple):
    """What the texts of a field look like: a pattern of all, one that fits, and all in words."""

    pattern: str
    sample: str
    words: str = ""


#: A form a line, by its name; two blanks part its parts.
_FORM_LINES: Final = r"""
name  (?![.-]|.*\.\.)[a-z0-9.-]+(?<![.-])  a0  small letters and digits, `-` and `.` between them
word  (?![._-])[\w.-]*(?<![._-])  a0  letters and digits, `-`, `_` and `.` between them
image  [\w./:@-]+  a0  letters, digits and `./:@-_`
kernel  \d+\.\d+[.-].+  6.1.0-18-amd64
version  v\d+\.\d+\.\d.*  v1.31.4
system  ([A-Z]|openSUSE).* .+  Ubuntu 24.04.1 LTS
runtime  [a-z-]+://.+  containerd://1.7.24
"""
_FORMS: Final = {
    name: Form(*parts)
    for name, *parts in (line.split("  ") for line in _FORM_LINES.strip().splitlines())
}


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
        unsteady: whether it may change while no row of a node or pod does.
        form: what its texts look like; None where anything may stand.
    """

    name: str
    type: t.Type
    level: t.Level
    doc: str
    keyed: bool = False
    optional: bool = False
    changes: bool = False
    words: tuple[str, ...] = ()
    of_pod: bool = False
    wire: str = ""
    absent: str = ""
    wakes: tuple[str, ...] = ()
    unsteady: bool = False
    low: float = -inf
    high: float = inf
    form: Form | None = None

    @property
    def of_clock(self) -> bool:
        """Whether the time alone decides it."""
        return self.wakes == ("time",)

    @property
    def of_outcome(self) -> bool:
        """Whether it is known of what was decided, and comes with the call."""
        return self.name.partition(".")[0] in RESULTS


#: Labels that stand behind fields of their own.
WELL_KNOWN_LABELS: Final[Mapping[str, str]] = {
    "node.zone": "topology.kubernetes.io/zone",
    "node.region": "topology.kubernetes.io/region",
    "node.rack": "topology.kubernetes.io/rack",
    "node.arch": "kubernetes.io/arch",
    "node.os": "kubernetes.io/os",
    "node.instance_type": "node.kubernetes.io/instance-type",
}


#: A field a line: its name (`[]` where there is a key), what it is and what is known of that, what
#: wakes (`-`: what `_WAKES` says), what it means; two blanks part them. `?` may be missing, `a..b`
#: are bounds, `@` is where it stands in the object, `=` what holds where that says nothing.
_CYCLE: Final = """
now  time  -  the time of the cycle
time.hour  number 0..23  -  hour of the day, 0 to 23
time.minute  number 0..59  -  minute of the hour, 0 to 59
time.weekday  text mon|tue|wed|thu|fri|sat|sun  -  day of the week
time.day  number 1..31  -  day of the month, 1 to 31
time.month  number 1..12  -  month of the year, 1 to 12
cluster.nodes  number 0..  -  number of nodes
cluster.{cpu,memory,gpu}.allocatable  amount 0..  -  {} allocatable, all nodes together
cluster.{cpu,memory,gpu}.requested  amount changes 0..  nodes,pods  {} requested, all nodes together
cluster.{cpu,memory,gpu}.free  amount changes  nodes,pods  {} free, all nodes together
cluster.pods  pods changes  nodes,pods  pods bound to or assumed on any node
queue.pods  pods changes  queue  pods that wait for a node, without the pod itself
"""
#: What a pod to place and one of a set have alike.
_ANY_POD: Final = """
name  text name  -  name of the pod
namespace  text name  -  namespace of the pod
uid  text  -  UID of the pod
priority  number @spec.priority  -  priority, 0 where none is set
qos  text Guaranteed|Burstable|BestEffort @status.qosClass  -  quality of service class
scheduler  text word @spec.schedulerName  -  name of the scheduler the pod asks for
service_account  text? name @spec.serviceAccountName  -  service account
priority_class  text? word @spec.priorityClassName  -  name of the priority class
preemption_policy  text PreemptLowerPriority|Never @spec.preemptionPolicy \
=PreemptLowerPriority  -  PreemptLowerPriority or Never
runtime_class  text? name @spec.runtimeClassName  -  name of the runtime class
nominated_node  text? name @status.nominatedNodeName  -  node that preemption chose
created  time? @metadata.creationTimestamp  -  when the pod was created
label[]  text? word @metadata.labels  -  value of a label
annotation[]  text? @metadata.annotations  -  value of an annotation
node_selector[]  text? word @spec.nodeSelector  -  value the pod's nodeSelector asks for
workload  text? name  -  top owner: the Deployment, not its ReplicaSet
group  text? name  -  \
name of its group: schedulingGroup, else the label scheduling.x-k8s.io/pod-group
toleration[]  text? word  -  value of a toleration, empty for Exists
owner.kind  text?  -  kind of the controlling owner
owner.name  text? name  -  name of the controlling owner
image  text? image  -  image of the first container
cpu  cores 0..  -  effective CPU request
memory  bytes 0..  -  effective memory request
storage  bytes 0..  -  effective ephemeral storage request
gpu  number 0..  -  GPUs requested
request[]  number 0..  -  effective request of a resource, 0 if none
limit[]  number? 0..  -  limit of a resource
volumes.count  number  -  claims and generic ephemeral volumes
active_deadline  seconds? @spec.activeDeadlineSeconds  -  \
how long the pod may be active (activeDeadlineSeconds)
tolerates_all  flag  -  tolerates every taint
host_network  flag @spec.hostNetwork  -  whether it uses the network of its node
"""
_POD: Final = """
pod.images  texts  -  images of all containers, init containers and sidecars too
pod.containers  texts  -  spec.containers: without init containers; in `len` their number
pod.queued_at  time?  tries  when it last entered the queue
pod.first_attempt_at  time?  tries  when it was first let into the queue
pod.attempts  number?  tries  how often it was tried before
pod.previous_node  text? name  pods  \
node that the pod of its name, or else the last one of its workload, has left
workload.label[]  text? word  workloads  label of the pod's workload
workload.annotation[]  text?  workloads  annotation of the pod's workload
workload.replicas  number? 0..  workloads  how many pods the workload asks for at a time
group.name  text? changes  groups  name of the pod's group
group.min_member  number? changes  groups  members the group needs
group.size  number? changes  groups,pods,queue  members there are
group.assigned  number? changes  groups,pods,queue  members bound
group.reserved  number? changes  groups,pods,queue  members bound or assumed
group.waiting  number? changes  groups,pods,queue  members waiting in permit
group.schedule_timeout  seconds? changes  groups  how long its members wait, if its object says so
group.created  time? changes  groups  when the group was created
group.last_failure  time? changes  groups  when the group last failed
quota.name  text? changes  pods,quotas  name of the quota of the namespace
quota.over_max_with_pod  flag changes  pods,quotas  over its maximum with this pod
quota.over_min_with_pod  flag changes  pods,quotas  over its minimum with this pod
quota.min[]  number? changes  pods,quotas  minimum of a resource
quota.max[]  number? changes  pods,quotas  maximum of a resource
quota.used[]  number? changes  pods,quotas  use of a resource
namespace.name  text name  -  namespace of the pod
namespace.label[]  text? word  -  value of a namespace's label
namespace.annotation[]  text?  -  value of a namespace's annotation
"""
_NODE: Final = """
node.name  text name  -  name of the node
node.label[]  text? word  labels  value of a label
node.annotation[]  text?  annotations  value of an annotation
node.taint[]  flag  taints  whether the node has the taint
node.{zone,region,rack,arch,os,instance_type}  text? word  labels  value of the label {}
node.kernel  text? kernel @status.nodeInfo.kernelVersion  others  kernel version
node.kubelet_version  text? version @status.nodeInfo.kubeletVersion  others  \
version of the kubelet, such as v1.31.4
node.os_image  text? system @status.nodeInfo.osImage  others  \
name and version of the system, such as Ubuntu 24.04.1 LTS
node.container_runtime  text? runtime @status.nodeInfo.containerRuntimeVersion  others  \
container runtime and its version, such as containerd://1.7.24
node.ready  flag  conditions  whether the node is ready
node.unschedulable  flag  cordon  whether the node is cordoned
node.created  time? @metadata.creationTimestamp  -  when the node was created
node.condition[]  text? True|False|Unknown  conditions  status of a condition
node.{cpu,memory,storage,gpu}.capacity  amount 0..  allocatable,others  {} capacity
node.resource.capacity[]  number? 0..  allocatable,others  capacity of a resource
node.{cpu,memory,storage,gpu}.allocatable  amount 0..  allocatable  {} allocatable
node.resource.allocatable[]  number? 0..  allocatable  allocatable of a resource
node.{cpu,memory,storage,gpu}.requested  amount changes 0..  allocatable,pods  {} requested
node.resource.requested[]  number? changes 0..  allocatable,pods  requested of a resource
node.{cpu,memory,storage,gpu}.free  amount changes  allocatable,pods  {} free
node.resource.free[]  number? changes  allocatable,pods  free of a resource
node.pods.capacity  number 0..  allocatable,others  pod slots
node.pods.free  number changes  allocatable,pods  pod slots left
node.pods  pods changes  pods  pods bound to or assumed on the node
{zone,region,rack}.pods  pods changes  labels,pods  pods of all nodes in the node's {}
{zone,region,rack}.nodes  nodes  nodes  all nodes of the node's {}
node.images  texts  others  names of the images on the node
node.eligible  flag of_pod  labels,taints  \
whether selector and required affinity of the pod allow the node, and it is not cordoned
node.missing_image_bytes  bytes of_pod  others  \
bytes of the pod's images that are not on the node; of unknown size: 0
node.ips.capacity  number? 0..  allocatable,others  pod addresses
node.ips.free  number? changes  allocatable,pods  pod addresses left
node.nominated  pods changes  nominations  other pods that wait and are promised the node
node.finished  pods changes  finished,time  pods that finished on the node in the last hour
node.heartbeat  time? unsteady  leases  when the node's Lease was renewed
node.volumes.attached  number changes unsteady 0..  pods  \
claims and generic ephemeral volumes of the node's pods
node.volumes.limit  number? unsteady 0..  drivers  \
volumes that the node's drivers can attach, all together
"""
_IT: Final = """
it.node  text? name  -  name of the pod's node
it.phase  text? Pending|Running|Succeeded|Failed|Unknown @status.phase  -  phase of the pod
it.terminating  flag  -  whether the pod is being deleted
it.started_at  time? @status.startTime  -  when the pod started
it.nominated  flag  -  whether it is nominated to a node
it.ready  flag  -  whether it is ready
it.restarts  number 0..  -  how often its containers were restarted
it.bound  flag  -  whether it is bound, not only assumed
it.scheduled_at  time?  -  when it was scheduled
it.namespace.label[]  text? word  -  value of a label of the pod's namespace
it.namespace.annotation[]  text?  -  value of an annotation of the pod's namespace
it.queued_at  time?  queue  when a pending pod last entered the queue
it.first_attempt_at  time?  queue  when a pending pod was first let into the queue
it.attempts  number?  queue  how often a pending pod was tried before
it.finished_at  time?  finished  when it finished
it.quota.over_min  flag unsteady  pods,quotas  whether its quota is over its minimum
"""
_RESULTS: Final = """
score[]  number?  -  what a policy or plugin of that name gave the node, before its weight
score.total  number?  -  the node's total score
victims.pdb_violations  number?  -  disruption budgets that would be broken
victims.max_priority  number?  -  highest priority among the victims
victims.sum_priority  number?  -  sum of the victims' priorities
victims.count  number?  -  number of victims
victims.latest_start  time?  -  latest start among the most important victims
"""
TYPES: Final[Mapping[str, t.Type]] = {
    "text": t.TEXT, "number": t.NUMBER, "time": t.TIME, "flag": t.BOOL, "seconds": t.DURATION,
    "texts": t.TEXTS, "pods": t.PODS, "nodes": t.NODES, "cores": t.number_of(t.CORES),
    "bytes": t.number_of(t.BYTES),
}  # fmt: skip
_AMOUNTS: Final = {"cpu": "cores", "memory": "bytes", "storage": "bytes", "gpu": "number"}
#: What changes all fields of an owner that do not say more.
_WAKES: Final = {
    "it": ("pods",), "pod": ("pod",), "cluster": ("nodes",), "namespace": ("namespaces",),
    "time": ("time",), "now": ("time",),
}  # fmt: skip


def _fields(text: str, level: t.Level, owner: str = "") -> Iterator[FieldSpec]:
    """Yields the fields of a table; a name in braces stands for several."""
    for line in text.strip().splitlines():
        path, facts, wakes, doc = line.split("  ")
        several = re.search(r"\{(.*)\}", path)
        for one in several[1].split(",") if several is not None else ("",):
            name = owner + re.sub(r"\{.*\}", one, path)
            what = WELL_KNOWN_LABELS.get(name, one)
            amount = facts.replace("amount", _AMOUNTS.get(one, ""))
            yield _field(name, amount.split(" "), level, (wakes, doc.replace("{}", what)))


def _field(path: str, facts: list[str], level: t.Level, rest: tuple[str, str]) -> FieldSpec:
    more: dict[str, Any] = {"keyed": path.endswith("[]"), "optional": facts[0].endswith("?")}
    name, (wakes, doc) = path.removesuffix("[]"), rest
    for fact in facts[1:]:
        if fact in ("changes", "of_pod", "unsteady"):
            more[fact] = True
        elif fact in _FORMS:
            more["form"] = _FORMS[fact]
        elif fact[0] in "@=":
            more["wire" if fact[0] == "@" else "absent"] = fact[1:]
        elif ".." in fact:
            low, high = fact.split("..")
            more |= {"low": float(low), "high": float(high or inf)}
        else:
            more["words"] = tuple(fact.split("|"))
    common = _WAKES.get(name.partition(".")[0], ())
    woken = common if wakes == "-" else tuple(wakes.split(","))
    kind = TYPES[facts[0].removesuffix("?")]
    return FieldSpec(name, kind, level, doc, wakes=woken, **more)


FIELDS: Final[Mapping[str, FieldSpec]] = {
    spec.name: spec
    for table in (
        _fields(_CYCLE, t.Level.CYCLE),
        _fields(_ANY_POD, t.Level.POD, "pod."),
        _fields(_POD, t.Level.POD),
        _fields(_NODE, t.Level.NODE),
        _fields(_ANY_POD, t.Level.IT, "it."),
        _fields(_IT, t.Level.IT),
        _fields(_RESULTS, t.Level.NODE),
    )
    for spec in table
}
#: What fields begin with.
ROOTS: Final = frozenset(one.partition(".")[0] for one in FIELDS)
WEEKDAYS: Final = FIELDS["time.weekday"].words
QOS: Final = FIELDS["pod.qos"].words

#: Plurals of the words of fields.
PLURALS: Final[Mapping[str, str]] = {
    f"{one}s": one
    for one in ("label", "annotation", "taint", "request", "limit", "resource", "condition",
                "toleration")
}  # fmt: skip


def canonical(path: str) -> str:
    """Returns a path with its plurals turned into singulars."""
    if path in FIELDS:
        return path
    return ".".join(PLURALS.get(part, part) for part in path.split("."))


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
    unit: t.Unit = t.PLAIN
    percent: bool = False
    doc: str = ""


_VIRTUAL: Final = 'device!~"lo|veth.*|docker.*|cni.*|flannel.*|cali.*|br-.*|virbr.*|tunl.*"'
#: A metric a line: its name, unit (`-`: none), what it is, and its query; two blanks part them.
_CATALOGUE: Final = f"""
bandwidth  byte/s  receive bytes/s per node  \
sum by (instance) (rate(node_network_receive_bytes_total{{{_VIRTUAL}}}[3m]))
transmit  byte/s  transmit bytes/s per node  \
sum by (instance) (rate(node_network_transmit_bytes_total{{{_VIRTUAL}}}[3m]))
cpu_usage  -  share of the CPUs in use, 0..1  \
1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle"}}[3m]))
memory_usage  -  share of the memory in use, 0..1  \
1 - max by (instance) (node_memory_MemAvailable_bytes) \
/ max by (instance) (node_memory_MemTotal_bytes)
load  -  load of the last minute  max by (instance) (node_load1)
disk_io  byte/s  bytes/s read and written by the disks  \
sum by (instance) (rate(node_disk_read_bytes_total[3m]) + rate(node_disk_written_bytes_total[3m]))
latency  s  seconds a probe of the node takes  max by (instance) (probe_duration_seconds)
"""
_CATALOGUE_UNITS: Final = {"-": t.PLAIN, "s": t.SECONDS, "byte/s": t.Unit(byte=1, second=-1)}
#: The metrics that every policy may name without declaring them.
CATALOGUE: Final[Mapping[str, MetricDefinition]] = {
    name: MetricDefinition(query, unit=_CATALOGUE_UNITS[unit], doc=doc)
    for name, unit, doc, query in (one.split("  ") for one in _CATALOGUE.strip().splitlines())
}


#: Words of `unit`, and their unit.
UNIT_WORDS: Final[Mapping[str, t.Unit]] = {
    "bytes": t.BYTES,
    "cores": t.CORES,
    "seconds": t.SECONDS,
    "percent": t.PLAIN,
}
#: Fields of the outcome, and where alone they are known.
RESULTS: Final[Mapping[str, str]] = {
    "score": "in `prebind` and `postbind`",
    "victims": "in `pick` of `preempt`",
}
#: Fields with a key that is a resource, whose amounts have the resource's unit.
AMOUNTS: Final = frozenset(
    name for name, one in FIELDS.items() if one.keyed and one.type.is_number and name != "score"
)
#: Sets of pods: over which domain they run, and which pods they hold.
POD_SETS: Final[Mapping[str, tuple[str, ...]]] = {
    name: ("cluster", "queue") if name == "queue.pods" else tuple(name.split("."))
    for name, one in FIELDS.items()
    if one.type == t.PODS
}
#: What is known of pending pods only.
OF_THE_QUEUE: Final = tuple(
    one.name for one in FIELDS.values() if one.level is t.Level.IT and one.wakes == ("queue",)
)
#: Sets of nodes: over which domain they run.
NODE_SETS: Final[Mapping[str, str]] = {
    name: name.partition(".")[0] for name, one in FIELDS.items() if one.type == t.NODES
}


def request_unit(resource: str) -> t.Unit:
    """Returns the unit of `pod.request[resource]` and `node.resource[resource]`."""
    if resource == "cpu":
        return t.CORES
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return t.BYTES
    return t.PLAIN
