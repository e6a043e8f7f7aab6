"""One test's cluster in a lab: its objects as a cluster would have them, metrics at their ages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dsl.plan import MetricSpec
from dsl.policytest.reading import Case, Cluster, Sample, Thing, pod_names
from dsl.quantities import parse_duration, parse_number, parse_quantity, parse_time
from dsl.reference import View
from dsl.schema import FIELDS
from dsl.types import is_missing
from engine.cache import Cache
from engine.cache.otherpods import FINISHED_SECONDS
from engine.clock import ManualClock
from engine.framework.snapshot import QueueTimes, Waiting
from engine.objects import Identity, Namespace, Node, Pod, from_builtins
from engine.objects.ondemand import WORKLOADS, FinishedPod, Lease, Workload, scale_kind
from engine.objects.storage import CSINode
from engine.objects.workloads import ElasticQuota, GangFailure, PodDisruptionBudget, PodGroup
from engine.pods import podinfo
from engine.pods.workloads import TEMPLATES, pod_of_manifest, top_owner, workload_of
from engine.policy.bundle import ATTENDABLE
from engine.policy.objectreads import LEASES
from engine.policy.world import Worlds
from engine.policytests.policies import CannotJudgeError, Used, meant
from engine.signals.spec import CLUSTER, DOMAIN_LABELS, NODE, PAIR
from engine.simulate.lab import Lab
from engine.simulate.samples import Columns, Samples, Values
from engine.text.documents import objects_in
from engine.text.files import bytes_in

Tree = dict[str, Any]

#: Bytes: no object of a cluster is larger, as etcd takes 1.5 MiB.
_MAX_MANIFEST: Final = 2 << 20
_RESOURCES: Final = {
    "cpu": podinfo.CPU,
    "memory": podinfo.MEMORY,
    "storage": podinfo.EPHEMERAL_STORAGE,
    "gpu": "nvidia.com/gpu",
    "pods": podinfo.PODS,
}
#: The label that tells the ReplicaSets of a Deployment apart.
_TEMPLATE_HASH: Final = "pod-template-hash"
#: Items of these lists are told apart by this field.
_KEYS: Final = {"taints": "key", "conditions": "type"}


def _fields(owner: str) -> dict[str, str]:
    """The fields of a node or a pod that stand in it as rules read them."""
    found = ((name.partition("."), spec.wire) for name, spec in FIELDS.items())
    return {name: wire for (level, _, name), wire in found if level == owner and wire}


_DESCRIBED: Final = {"label": "metadata.labels", "annotation": "metadata.annotations"}
_OF_POD: Final = _fields("it") | {"namespace": "metadata.namespace"}
#: Kind of fixture -> attribute -> where its value stands in the object, as the API writes it.
_WIRES: Final[Mapping[str, Mapping[str, str]]] = {
    "node": _fields("node") | _DESCRIBED | {"unschedulable": "spec.unschedulable"},
    "namespace": _DESCRIBED,
    "workload": _DESCRIBED | {"replicas": "spec.replicas"},
    "quota": {"min": "spec.min", "max": "spec.max"},
    "pdb": {
        "namespace": "metadata.namespace",
        "label": "spec.selector.matchLabels",
        "allowed": "status.disruptionsAllowed",
    },
    "group": {
        "namespace": "metadata.namespace",
        "created": "metadata.creationTimestamp",
        "min_member": "spec.minMember",
        "min_resources": "spec.minResources",
        "schedule_timeout": "spec.scheduleTimeoutSeconds",
    },
}
_STRUCTS: Final[dict[str, type[msgspec.Struct]]] = {
    "namespace": Namespace, "pdb": PodDisruptionBudget, "group": PodGroup, "quota": ElasticQuota,
}  # fmt: skip
_PERCENT: Final = 0.01
Given = dict[tuple[str, ...], Sample]
"""Names of whose it is -> a sample of one metric."""


class Scene:
    """A lab with the cluster of a test, under what takes part in it, and the pods in question.

    `pods` are those that are given, the first is `pod`, the one of the cycle; `queue` waits beside.
    `called` are the names, by UID, by which the test expects something of given ones: a manifest
    may have another. `rows` are those of the nodes, in the order of the file.
    """

    def __init__(self, case: Case, used: Used, folder: Path) -> None:
        """Builds the cluster; paths of manifests start at `folder`.

        Raises:
            CannotJudgeError: an object cannot be made, or the policies make no profile.
        """
        cluster, now = case.cluster, case.cluster.now
        given = list(_pods(cluster.of("pod"), folder))
        queue = list(_pods(cluster.of("pending"), folder))
        running = list(_pods(cluster.of("running", "finished"), folder))
        if not given:
            raise CannotJudgeError("this test gives no pod")
        everybody = [*given, *queue, *running]
        uids = Counter(one.uid for one, _ in everybody)
        if twice := [one.key for one, _ in everybody if uids[one.uid] > 1]:
            raise CannotJudgeError(f"two pods are called {twice[0]}")
        self.plans = used.plans
        self.pod, asked = given[0]
        self.pods, self.queue = [one for one, _ in given], [one for one, _ in queue]
        names = [name for thing in cluster.of("pod") for name in pod_names(thing)]
        self.called = dict(zip([pod.uid for pod in self.pods], names, strict=True))
        specs = [spec for plan in used.plans for spec in plan.metrics]
        hosts = [node_of(_annotated(one, specs, now), folder) for one in cluster.of("node")]
        each = [(one, _given(cluster, everybody, one)) for one in specs]
        samples: dict[str, Given] = {}
        for spec, own in each:  # One question may have several names.
            samples.setdefault(spec.id, {}).update(own)
        self.worlds = Worlds(UTC)
        self.framework = used.framework(self.worlds)
        signals = _signals(specs, samples, hosts, now)
        self.lab = Lab(self.framework, clock=ManualClock(now), signals=signals)
        cache = self.lab.cache
        cache.attend(ATTENDABLE)
        for host in hosts:
            cache.add_node(host)
        for thing in cluster.of("namespace"):
            cache.set_namespace(object_of(thing))
        for pod, thing in running:
            _run(pod, thing, now, cache)
        for pod, thing in (*given, *queue):
            if node := thing.get("previous_node", ""):
                cache.other_pods.leaves(pod, node)
            first = parse_time(thing.get("first_attempt_at", ""))
            queued_at, attempts = parse_time(thing.get("queued_at", "")), thing.get("attempts", 0)
            since = None if is_missing(first) else first
            cache.set_queued(pod, QueueTimes(queued_at, since, attempts))
            cache.nominate(pod, pod.pod.status.nominated_node_name)
        for item in objects_of(cluster, [pod for pod, _ in everybody]):
            cache.set_object(item)
        self.unread = list(_unread(cluster, each, samples))
        self.snapshot = self.lab.snapshot()
        self.rows = {one.name: cache.nodes.row(one.name) for one in cluster.of("node")}
        self.chosen, self.waited = asked.get("chosen", ""), asked.get("waited", 0.0)

    def view(self, row: int = -1, pod: podinfo.PodInfo | None = None) -> View:
        """Where rules look: at a row or before any node, for the pod or another given one."""
        world = self.worlds.of(self.snapshot, self.pod.uid)
        return View(world, self.worlds.subject(pod or self.pod, self.snapshot), row)


def _run(pod: podinfo.PodInfo, thing: Thing, now: float, cache: Cache) -> None:
    """Puts a running pod on its node, or among those that finished in the last hour."""
    at = parse_time(thing.get("finished_at", ""))
    if is_finished(thing):
        if not now - at > FINISHED_SECONDS:
            cache.set_finished(pod, now if is_missing(at) else at)
    elif thing.get("bound", True):
        cache.add_pod(pod, thing.node)
    else:
        # What has a node and is not bound yet waits in permit.
        cache.assume(pod, thing.node, now)
        cache.wait(Waiting(pod, thing.node, now, frozenset()))


def _pods(given: Iterable[Thing], folder: Path) -> Iterator[tuple[podinfo.PodInfo, Thing]]:
    for number, thing in enumerate(given, 1):
        name = "pod" if thing.kind == "pod" and number == 1 else f"{thing.kind}-{number}"
        yield from ((pod, thing) for pod in pods_of(thing, name, folder))


# ---- metrics, as if the source of each had just answered -----------------------------------------


def _given(
    cluster: Cluster, pods: Iterable[tuple[podinfo.PodInfo, Thing]], spec: MetricSpec
) -> Given:
    """The samples of a metric that a test gives; `pods` are all there are."""
    owners: list[tuple[tuple[str, ...], Thing]]
    if spec.of == "pod":
        owners = [((pod.namespace, pod.name), thing) for pod, thing in pods]
    else:
        # A workload is given without its namespace.
        space = ("",) if spec.of == "workload" else ()
        owners = [((*space, one.name), one) for one in cluster.of(spec.of)]
    found = {names: one.metrics[spec.name] for names, one in owners if spec.name in one.metrics}
    keys = {CLUSTER: 0, PAIR: 2}.get(spec.of, 1 if spec.of in DOMAIN_LABELS else -1)
    for (name, *names), sample in cluster.metrics.items():
        if (name, len(names)) == (spec.name, keys):
            found[tuple(names)] = sample
    return found


def _signals(
    specs: Iterable[MetricSpec], given: Mapping[str, Given], hosts: Iterable[Node], now: float
) -> Samples:
    """What a scheduler knows of these metrics, each as old as it is said to be."""
    columns: Columns = {}
    taken: Columns = {}
    others: Values = {}
    for spec in specs:
        owners = {one.metadata.name: (_owner(one, spec.of),) for one in hosts}
        nodes = {name: given[spec.id].get(key) for name, key in owners.items()}
        taken[spec.id] = {name: now - one.age_seconds for name, one in nodes.items() if one}
        # What an object says holds until it changes.
        stale = math.inf if spec.source == "object" else spec.stale_seconds
        values = {
            key: _value_of(one, spec)
            for key, one in given[spec.id].items()
            if one.age_seconds <= stale
        }
        others[spec.id] = [([*key], value) for key, value in values.items()]
        columns[spec.id] = {} if spec.default is None else dict.fromkeys(owners, spec.default)
        columns[spec.id] |= {name: values[key] for name, key in owners.items() if key in values}
    samples = Samples(now)  # however long the pod has waited
    samples.replace(columns, taken, others)
    return samples


def _owner(host: Node, of: str) -> str:
    """Whose values a node has: its own or those of its domain."""
    if of == NODE:
        return host.metadata.name
    return (host.metadata.labels or {}).get(DOMAIN_LABELS.get(of, ""), "")


def _value_of(sample: Sample, spec: MetricSpec) -> float:
    """A sample in the metric's base unit, as if it had come from its source."""
    text = sample.text
    if text.endswith("%") and spec.scale == _PERCENT:
        return parse_number(text)
    read = (parse_number(text), parse_duration(text))
    first, second = reversed(read) if spec.unit == "seconds" else read
    return (second if is_missing(first) else first) * spec.scale


def _annotated(thing: Thing, specs: Iterable[MetricSpec], now: float) -> Thing:
    """The node with the samples of metrics that are annotations where they are read."""
    written = dict(thing.maps.get("annotation", {}))
    for spec in specs:
        if spec.source == "annotation" and spec.name in thing.metrics:
            sample = thing.metrics[spec.name]
            at = datetime.fromtimestamp(now - sample.age_seconds, UTC).isoformat()
            written[spec.query] = f"{_value_of(sample, spec) / spec.scale!r},{at}"
    return replace(thing, maps={**thing.maps, "annotation": written})


def _unread(
    cluster: Cluster, given: Sequence[tuple[MetricSpec, Given]], by_id: Mapping[str, Given]
) -> Iterator[tuple[int, str]]:
    """Line and words of samples that no policy reads, not of that, or that another one denies."""
    for spec, own in given:
        for names, sample in own.items():
            if replace(last := by_id[spec.id][names], line=0) != replace(sample, line=0):
                yield sample.line, f"`{spec.name}` asks what line {last.line} answers otherwise"
    read = {id(sample) for _, own in given for sample in own.values()}
    known = {spec.name: spec.of for spec, _ in given}
    there = [item for thing in cluster.things.values() for item in thing.metrics.items()]
    there += [(key[0], sample) for key, sample in cluster.metrics.items()]
    for name, sample in there:
        if id(sample) not in read:
            hint = f"it is by {known[name]}" if name in known else meant(name, known, "they read")
            yield sample.line, f"no policy used here reads the metric `{name}` given here; {hint}"


# ---- objects ---------------------------------------------------------------------------------


def _manifest(thing: Thing, kinds: Sequence[str], folder: Path) -> Tree:
    """The first object of one of the kinds in the file of `from`; nothing without `from`."""
    path = thing.get("from", "")
    if not path:
        return {}
    try:
        objects = objects_in(bytes_in(folder / path, _MAX_MANIFEST))
    except OSError as failed:
        why = f"cannot be read: {failed.strerror} (paths start at the test file)"
        raise CannotJudgeError(f"{path} {why}") from failed
    except ValueError as failed:
        raise CannotJudgeError(f"{path} {failed}") from failed
    for one in objects:
        if one.get("kind") in kinds:
            return one
    found = ", ".join(sorted({str(one.get("kind")) for one in objects}))
    raise CannotJudgeError(f"{path} holds no {' or '.join(kinds[:2])}, but {found or 'nothing'}")


def _items(tree: Tree, name: str) -> list[Tree]:
    there = tree.get(name)
    return [dict(one) for one in there if isinstance(one, dict)] if isinstance(there, list) else []


def _merged(*trees: Tree) -> Tree:
    """One object of several, of which the later ones count, also item by item of lists.

    What is null is not there, and where parts belong stands nothing else.
    """
    whole: Tree = {}
    for tree in trees:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                there = whole.get(name)
                whole[name] = _merged(there if isinstance(there, dict) else {}, dict(value))
            elif name in _KEYS and isinstance(value, list):
                key, newer = _KEYS[name], _items(tree, name)
                names = [one.get(key) for one in newer]
                whole[name] = [one for one in _items(whole, name) if one.get(key) not in names]
                whole[name] += newer
            elif value is not None and not isinstance(whole.get(name), dict):
                whole[name] = value
    return whole


def _made(kind: type[msgspec.Struct], tree: Tree, thing: Thing) -> Any:  # noqa: ANN401 - a struct of that kind
    try:
        return from_builtins(kind, tree)
    except msgspec.ValidationError as failed:
        raise CannotJudgeError(f"{thing.get('from', '') or thing.name}: {failed}") from failed


def _wired(thing: Thing) -> Tree:
    """What a fixture says of fields that stand in the object as they are."""
    tree: Tree = {}
    for name, path in _WIRES.get(thing.kind, _OF_POD).items():
        value = thing.plain.get(name, thing.maps.get(name))
        if value is not None:
            *parts, last = path.split(".")
            part = tree
            for one in parts:
                part = part.setdefault(one, {})
            part[last] = value
    return tree


def _amounts(thing: Thing, keyed: str) -> dict[str, str]:
    """The amounts of a fixture: those that have names of their own, and those by key."""
    named = {of: str(thing.plain[name]) for name, of in _RESOURCES.items() if name in thing.plain}
    return named | thing.maps.get(keyed, {})


def node_of(thing: Thing, folder: Path) -> Node:
    """The node of a fixture; paths of manifests start at `folder`.

    Raises:
        CannotJudgeError: its manifest cannot be used.
    """
    given = _merged({"status": {}}, _manifest(thing, ("Node",), folder))
    least, amounts = (
        {podinfo.CPU: "0", podinfo.MEMORY: "0", podinfo.PODS: "110"},
        _amounts(thing, "resource"),
    )
    there = given["status"].get("allocatable") or given["status"].get("capacity")
    named = {"name": thing.name, "labels": {"kubernetes.io/hostname": thing.name}}
    maps, ips = thing.maps, thing.get("ips", 0)
    conditions = dict(maps.get("condition", {}))
    if "ready" in thing.plain:
        conditions.setdefault("Ready", str(thing.get("ready", True)))
    images = [
        {"names": [name], "sizeBytes": int(parse_quantity(size))}
        for name, size in maps.get("image_size", {}).items()
    ]
    tree = _merged(
        {"metadata": {"uid": f"node-{thing.name}", **named}, "spec": {}},
        {"status": {"capacity": least, "allocatable": least}},
        {"status": {"allocatable": there, "conditions": [{"type": "Ready", "status": "True"}]}},
        given,
        _wired(thing),
        {"metadata": {"name": thing.name}},
        {"spec": {"taints": [
            {"key": key, "value": value, "effect": "NoSchedule"}
            for key, value in maps.get("taint", {}).items()
        ]}},
        {"status": {"capacity": amounts, "allocatable": amounts}},
        {"status": {"conditions": [{"type": k, "status": v} for k, v in conditions.items()]}},
        {"status": {"images": _items(given["status"], "images") + images}},
        # Ranges that have so many addresses together.
        {"spec": {"podCIDRs": [f"10.0.0.0/{32 - n}" for n in range(32) if ips >> n & 1] or None}},
    )  # fmt: skip
    made: Node = _made(Node, tree, thing)
    return made


def object_of(thing: Thing) -> Any:  # noqa: ANN401 - a struct of its kind
    """The namespace, disruption budget, group or quota of a fixture: just what it says."""
    meta: Tree = {"name": thing.name, "namespace": "default"}
    if thing.kind == "quota":
        meta["namespace"] = thing.name
    elif thing.kind == "namespace":
        meta["labels"] = {"kubernetes.io/metadata.name": thing.name}
    return _made(_STRUCTS[thing.kind], _merged({"metadata": meta}, _wired(thing)), thing)


def objects_of(cluster: Cluster, pods: Sequence[podinfo.PodInfo]) -> Iterator[Any]:
    """The objects beside nodes, pods and namespaces; `pods` are all there are."""
    yield from map(object_of, cluster.of("pdb", "quota", "group"))
    for thing in cluster.of("group"):
        failed = parse_time(thing.get("last_failure", ""))
        if not is_missing(failed):
            namespace = thing.get("namespace", "") or "default"
            yield GangFailure(Identity(name=thing.name, namespace=namespace), failed)
    for thing in cluster.of("node"):
        if at := thing.get("heartbeat", ""):
            meta = {"name": thing.name, "namespace": LEASES}
            yield _made(Lease, {"metadata": meta, "spec": {"renewTime": at}}, thing)
        if "volumes_limit" in thing.plain:
            driver = {"name": "csi", "allocatable": {"count": thing.plain["volumes_limit"]}}
            of_node = {"metadata": {"name": thing.name}, "spec": {"drivers": [driver]}}
            yield _made(CSINode, of_node, thing)
    tops = {(*owner, pod.namespace) for pod in pods if (owner := top_owner(pod)) is not None}
    for thing in cluster.of("workload"):
        # It is of the kind and in the namespace that its pods say.
        for kind, name, namespace in sorted(tops):
            if name == thing.name:
                struct = WORKLOADS.get(kind) or msgspec.defstruct(
                    scale_kind(kind), (), bases=(Workload,), frozen=True
                )
                meta = {"name": name, "namespace": namespace}
                yield _made(struct, _merged({"metadata": meta}, _wired(thing)), thing)


# ---- pods ------------------------------------------------------------------------------------


def is_finished(thing: Thing) -> bool:
    """Whether its pods hold nothing on their node any more."""
    return thing.kind == "finished" or thing.get("phase", "") in ("Succeeded", "Failed")


def pods_of(thing: Thing, default: str, folder: Path) -> list[podinfo.PodInfo]:
    """The pods of a fixture; `default` is the name of one without a name.

    Raises:
        CannotJudgeError: its manifest cannot be used.
    """
    tree = _manifest(thing, ("Pod", *TEMPLATES), folder)
    if tree:
        # What the API server fills in.
        filled = {"metadata": {"name": default}, "spec": {"serviceAccountName": "default"}}
        tree = _merged(filled, pod_of_manifest(tree))
    name = thing.name or str(tree["metadata"]["name"] if tree else default)
    return [_pod(thing, tree, one, one.removeprefix(name)) for one in pod_names(thing, name)]


def _pod(thing: Thing, given: Tree, name: str, end: str) -> podinfo.PodInfo:
    phase = {"running": "Running", "finished": "Succeeded"}.get(thing.kind)
    tree = _merged(
        {"metadata": {"namespace": "default", "labels": {}}, "status": {}},
        {"spec": {"schedulerName": "berth"}},
        given,
        {"status": {"phase": phase, **_status(thing)}},
        _wired(thing),
        {"metadata": {"name": name}},
    )
    meta, spec = tree["metadata"], tree["spec"]
    uid = thing.get("uid", "")
    meta["uid"] = uid + end if uid else f"{meta['namespace']}/{name}"
    if thing.get("terminating", False):
        meta["deletionTimestamp"] = "2025-03-01T10:00:00Z"
    _own(thing, meta)
    _fill_containers(thing, spec, from_file=bool(given))
    if thing.node and thing.get("bound", True):
        spec["nodeName"] = thing.node
    if "volumes" in thing.plain:
        spec["volumes"] = [
            {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": f"claim-{at}"}}
            for at in range(1, thing.get("volumes", 0) + 1)
        ]
    spec["tolerations"] = _items(spec, "tolerations") + [
        {"key": key, "operator": "Equal", "value": value}
        for key, value in thing.maps.get("toleration", {}).items()
    ]
    if thing.get("tolerates_all", False):
        spec["tolerations"].append({"operator": "Exists"})
    try:
        pod = podinfo.make_pod_info(_made(FinishedPod if is_finished(thing) else Pod, tree, thing))
    except podinfo.UnreadablePod as failed:
        raise CannotJudgeError(str(failed)) from failed
    if (said := thing.get("workload", "")) and said != workload_of(pod):
        raise CannotJudgeError(f"the workload of {pod.key} is {workload_of(pod)}, not {said}")
    return pod


def _own(thing: Thing, meta: Tree) -> None:
    """Gives a pod the owner of its kind and name, or one that makes it of its workload."""
    kind, owner, workload = (thing.get(of, "") for of in ("owner_kind", "owner_name", "workload"))
    labels = meta["labels"]
    if workload and not (kind or owner):
        # A Deployment's pods are those of a ReplicaSet, which it names so.
        kind, owner = "ReplicaSet", f"{workload}-{labels.get(_TEMPLATE_HASH, '0')}"
    start, _, made = owner.rpartition("-")
    if kind == "ReplicaSet" and start and start == workload:
        labels.setdefault(_TEMPLATE_HASH, made)
    if kind or owner or workload:
        owned = {"kind": kind, "name": owner or workload, "controller": True}
        meta["ownerReferences"] = [owned]


def _fill_containers(thing: Thing, spec: Tree, *, from_file: bool) -> None:
    containers = _items(spec, "containers")
    images: list[object] = [*thing.get("images", ())]
    images[:1] = [thing.get("image", "")] if thing.get("image", "") else images[:1]
    names = ["main", *(f"main-{number}" for number in range(2, len(images) + 1))]
    containers += [{"name": name} for name in names[len(containers) :]]
    for one, image in zip(containers, images, strict=False):
        one["image"] = image
    spec["containers"] = containers
    spec["initContainers"] = inits = _items(spec, "initContainers")
    asked = _amounts(thing, "request")
    for one in (*containers, *inits):
        resources = _merged({"resources": {"requests": {}, "limits": {}}}, one)["resources"]
        if from_file:
            # What the API server fills in when a container comes with limits only.
            resources = _merged({"requests": resources["limits"]}, resources)
        # The first container asks for all of it.
        requests = resources["requests"].items()
        resources["requests"] = {of: amount for of, amount in requests if of not in asked}
        one["resources"] = resources
    more = {"requests": asked, "limits": thing.maps.get("limit", {})}
    containers[0]["resources"] = _merged(containers[0]["resources"], more)


def _status(thing: Thing) -> Tree:
    """What a fixture says of a pod's status, where fields of it are parts of lists."""
    said: Tree = {}
    if "restarts" in thing.plain:
        said["restartCount"] = thing.plain["restarts"]
    if ended := thing.get("finished_at", ""):
        said["state"] = {"terminated": {"finishedAt": ended}}
    conditions: list[Tree] = []
    if thing.kind in ("running", "finished"):
        ready = str(thing.get("ready", thing.kind == "running"))
        conditions.append({"type": "Ready", "status": ready})
        if at := thing.get("scheduled_at", ""):
            conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at})
    statuses = [{"name": "main", **said}] if said else None
    return {"containerStatuses": statuses, "conditions": conditions}
