"""Fixtures of a policy test become API objects, as a cluster would have them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, Final

import msgspec

from dsl.policytest import Cluster, Thing, pod_names
from dsl.quantities import parse_quantity, parse_time
from dsl.schema import FIELDS
from dsl.types import is_missing
from engine.objects import Identity, Namespace, Node, Pod, from_builtins
from engine.objects.ondemand import WORKLOADS, FinishedPod, Lease, Workload, scale_kind
from engine.objects.storage import CSINode
from engine.objects.workloads import ElasticQuota, GangFailure, PodDisruptionBudget, PodGroup
from engine.pods.podinfo import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    PodInfo,
    UnreadablePod,
    make_pod_info,
)
from engine.pods.workloads import TEMPLATES, pod_of_manifest, top_owner, workload_of
from engine.policy.objectreads import LEASES
from engine.text.documents import objects_in

Tree = dict[str, Any]
ReadText = Callable[[str], str]
"""Path of a manifest, relative to the test file -> its text; raises `FixtureError`."""

GPU: Final = "nvidia.com/gpu"
_RESOURCES: Final = {
    "cpu": CPU, "memory": MEMORY, "storage": EPHEMERAL_STORAGE, "gpu": GPU, "pods": PODS,
}  # fmt: skip
_SLOTS: Final = "110"
_FINISHED: Final = ("Succeeded", "Failed")
#: The label that tells the ReplicaSets of a Deployment apart.
_TEMPLATE_HASH: Final = "pod-template-hash"
_DELETED: Final = "2025-03-01T10:00:00Z"


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


class FixtureError(Exception):
    """A fixture cannot be made into an object; the message says why, in the user's words."""


# ---- manifests -------------------------------------------------------------------------------


def _manifest(thing: Thing, kinds: Sequence[str], read: ReadText) -> Tree:
    """The first object of one of the kinds in the file of `from`; nothing without `from`."""
    path = thing.get("from", "")
    if not path:
        return {}
    try:
        objects = objects_in(read(path))
    except ValueError as failed:
        raise FixtureError(f"{path} {failed}") from failed
    for one in objects:
        if one.get("kind") in kinds:
            return one
    found = ", ".join(sorted({str(one.get("kind")) for one in objects}))
    raise FixtureError(f"{path} holds no {' or '.join(kinds[:2])}, but {found or 'nothing'}")


def _items(tree: Tree, name: str) -> list[Tree]:
    there = tree.get(name)
    return [dict(one) for one in there if isinstance(one, dict)] if isinstance(there, list) else []


def _merged(*trees: Tree) -> Tree:
    """One object of several, of which the later ones count.

    What is null is not there, and where parts belong stands nothing else.
    """
    whole: Tree = {}
    for tree in trees:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                there = whole.get(name)
                whole[name] = _merged(there if isinstance(there, dict) else {}, dict(value))
            elif value is not None and not isinstance(whole.get(name), dict):
                whole[name] = value
    return whole


def _others(items: Iterable[Tree], key: str, given: Container[str]) -> list[Tree]:
    """The items that are not replaced by those that are given."""
    return [one for one in items if one.get(key) not in given]


def _made(kind: type[msgspec.Struct], tree: Tree, thing: Thing) -> Any:  # noqa: ANN401 - a struct of that kind
    try:
        return from_builtins(kind, tree)
    except msgspec.ValidationError as failed:
        raise FixtureError(f"{thing.get('from', '') or thing.name}: {failed}") from failed


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


# ---- nodes -----------------------------------------------------------------------------------


def node_of(thing: Thing, read: ReadText) -> Node:
    """The node of a fixture.

    Raises:
        FixtureError: its manifest cannot be used.
    """
    given = _merged({"status": {}}, _manifest(thing, ("Node",), read))
    least = {CPU: "0", MEMORY: "0", PODS: _SLOTS}
    there = given["status"].get("allocatable") or given["status"].get("capacity")
    amounts = _amounts(thing, "resource")
    labels = {"kubernetes.io/hostname": thing.name}
    tree = _merged(
        {"metadata": {"uid": f"node-{thing.name}", "labels": labels}, "spec": {}},
        {"status": {"capacity": least, "allocatable": least}},
        {"status": {"allocatable": there}},
        given,
        _wired(thing),
        {"metadata": {"name": thing.name}},
        {"status": {"capacity": amounts, "allocatable": amounts}},
    )
    spec, status = tree["spec"], tree["status"]
    taints = thing.maps.get("taint", {})
    spec["taints"] = _others(_items(spec, "taints"), "key", taints) + [
        {"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints.items()
    ]
    if "ips" in thing.plain:
        spec["podCIDRs"] = _ranges(thing.get("ips", 0))
    status["conditions"] = _conditions(thing, _items(status, "conditions"))
    sizes = thing.maps.get("image_size", {})
    status["images"] = _items(status, "images") + [
        {"names": [name], "sizeBytes": int(parse_quantity(size))} for name, size in sizes.items()
    ]
    made: Node = _made(Node, tree, thing)
    return made


def _ranges(addresses: int) -> list[str]:
    """Ranges that have so many addresses together, as a node's pod CIDRs."""
    if not addresses:
        raise FixtureError("`ips` must be at least 1; to have none free, put pods on all")
    sizes = [2**bit for bit in range(31, -1, -1) if addresses >> bit & 1]
    starts = itertools.accumulate(sizes, initial=0)
    return [
        f"{IPv4Address(start)}/{32 - size.bit_length() + 1}"
        for start, size in zip(starts, sizes, strict=False)
    ]


def _amounts(thing: Thing, keyed: str) -> dict[str, str]:
    """The amounts of a fixture: those that have names of their own, and those by key."""
    named = {of: str(thing.plain[name]) for name, of in _RESOURCES.items() if name in thing.plain}
    return named | dict(thing.maps.get(keyed, {}))


def _conditions(thing: Thing, there: list[Tree]) -> list[Tree]:
    given = dict(thing.maps.get("condition", {}))
    if "ready" in thing.plain or all(one.get("type") != "Ready" for one in there):
        given.setdefault("Ready", str(thing.get("ready", True)))
    return _others(there, "type", given) + [
        {"type": kind, "status": status} for kind, status in given.items()
    ]


# ---- objects of other kinds ------------------------------------------------------------------


def object_of(thing: Thing) -> Any:  # noqa: ANN401 - a struct of its kind
    """The namespace, disruption budget, group or quota of a fixture: just what it says."""
    meta: Tree = {"name": thing.name, "namespace": "default"}
    if thing.kind == "quota":
        meta["namespace"] = thing.name
    elif thing.kind == "namespace":
        meta["labels"] = {"kubernetes.io/metadata.name": thing.name}
    return _made(_STRUCTS[thing.kind], _merged({"metadata": meta}, _wired(thing)), thing)


def objects_of(cluster: Cluster, pods: Sequence[PodInfo]) -> Iterator[Any]:
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
            tree = {"metadata": {"name": thing.name}, "spec": {"drivers": [driver]}}
            yield _made(CSINode, tree, thing)
    for thing in cluster.of("workload"):
        yield from _workloads(thing, pods)


def _workloads(thing: Thing, pods: Sequence[PodInfo]) -> Iterator[Any]:
    """A workload is of the kind and in the namespace that its pods say."""
    owners = {(owner[0], pod.namespace) for pod in pods if (owner := top_owner(pod)) is not None
              and owner[1] == thing.name}  # fmt: skip
    for kind, namespace in sorted(owners):
        meta = {"name": thing.name, "namespace": namespace}
        struct = WORKLOADS.get(kind) or msgspec.defstruct(
            scale_kind(kind), (), bases=(Workload,), frozen=True
        )
        yield _made(struct, _merged({"metadata": meta}, _wired(thing)), thing)


# ---- pods ------------------------------------------------------------------------------------


def is_finished(thing: Thing) -> bool:
    """Whether its pods hold nothing on their node any more."""
    return thing.kind == "finished" or thing.get("phase", "") in _FINISHED


def pods_of(thing: Thing, default: str, read: ReadText) -> list[PodInfo]:
    """The pods of a fixture; `default` is the name of one without a name.

    Raises:
        FixtureError: its manifest cannot be used.
    """
    tree = _manifest(thing, ("Pod", *TEMPLATES), read)
    if tree:
        # What the API server fills in.
        filled = {"metadata": {"name": default}, "spec": {"serviceAccountName": "default"}}
        tree = _merged(filled, pod_of_manifest(tree))
    name = thing.name or str(tree["metadata"]["name"] if tree else default)
    uid, names = thing.get("uid", ""), pod_names(thing, name)
    many = len(names) > 1
    uids = [f"{uid}-{n}" if uid and many else uid for n in range(1, len(names) + 1)]
    return [_pod(thing, tree, one, id_) for one, id_ in zip(names, uids, strict=True)]


def _pod(thing: Thing, given: Tree, name: str, uid: str) -> PodInfo:
    phase = {"running": "Running", "finished": "Succeeded"}.get(thing.kind)
    tree = _merged(
        {"metadata": {"namespace": "default", "labels": {}}, "status": {}},
        {"spec": {"schedulerName": "berth"}},
        given,
        {"status": {"phase": phase}},
        _wired(thing),
        {"metadata": {"name": name, "uid": uid or None}},
    )
    meta, spec, status = tree["metadata"], tree["spec"], tree["status"]
    if not uid:
        meta["uid"] = f"{meta['namespace']}/{name}"
    if thing.get("terminating", False):
        meta["deletionTimestamp"] = _DELETED
    _own(thing, meta)
    _fill_spec(thing, spec, from_file=bool(given))
    _fill_status(thing, status)
    try:
        pod = make_pod_info(_made(FinishedPod if is_finished(thing) else Pod, tree, thing))
    except UnreadablePod as failed:
        raise FixtureError(str(failed)) from failed
    if (said := thing.get("workload", "")) and said != workload_of(pod):
        raise FixtureError(f"the workload of {pod.key} is {workload_of(pod)}, not {said}")
    return pod


def _own(thing: Thing, meta: Tree) -> None:
    """Gives a pod the owner of its kind and name, or one that makes it of its workload."""
    kind, owner, workload = (thing.get(of, "") for of in ("owner_kind", "owner_name", "workload"))
    if not (kind or owner or workload):
        return
    name = owner or workload
    if workload and owner != workload and (kind == "ReplicaSet" or not (kind or owner)):
        # A Deployment's pods are those of a ReplicaSet, which it names so.
        kind, name = "ReplicaSet", owner or f"{workload}-{meta['labels'].get(_TEMPLATE_HASH, '0')}"
        start, _, made = name.rpartition("-")
        if start == workload:
            meta["labels"].setdefault(_TEMPLATE_HASH, made)
    meta["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]


def _fill_spec(thing: Thing, spec: Tree, *, from_file: bool) -> None:
    spec["containers"] = containers = _with_images(thing, _items(spec, "containers"))
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
    if thing.node and thing.get("bound", True):
        spec["nodeName"] = thing.node
    if "volumes" in thing.plain:
        spec["volumes"] = [
            {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": f"claim-{at}"}}
            for at in range(1, thing.get("volumes", 0) + 1)
        ]
    equal = [
        {"key": key, "operator": "Equal", "value": value}
        for key, value in thing.maps.get("toleration", {}).items()
    ]
    everything = [{"operator": "Exists"}] if thing.get("tolerates_all", False) else []
    spec["tolerations"] = [*_items(spec, "tolerations"), *equal, *everything]


def _with_images(thing: Thing, containers: list[Tree]) -> list[Tree]:
    listed = thing.plain.get("images")
    images = list(listed) if isinstance(listed, tuple) else []
    if thing.get("image", ""):
        images = [thing.get("image", ""), *images[1:]]
    for place, image in enumerate(images):
        if place == len(containers):
            containers.append({"name": "main" if not place else f"main-{place + 1}"})
        containers[place]["image"] = image
    return containers or [{"name": "main"}]


def _fill_status(thing: Thing, status: Tree) -> None:
    statuses = _items(status, "containerStatuses")
    if "restarts" in thing.plain:
        statuses = [{"name": "main", "restartCount": thing.plain["restarts"]}]
    if thing.get("finished_at", ""):
        ended = {"state": {"terminated": {"finishedAt": thing.get("finished_at", "")}}}
        statuses = [one | ended for one in statuses or [{"name": "main"}]]
    status["containerStatuses"] = statuses
    if thing.kind in ("running", "finished"):
        ready = thing.get("ready", thing.kind == "running")
        given = {"Ready": {"status": str(ready)}}
        if "scheduled_at" in thing.plain:
            at = thing.get("scheduled_at", "")
            given["PodScheduled"] = {"status": "True", "lastTransitionTime": at}
        kept = _others(_items(status, "conditions"), "type", given)
        status["conditions"] = kept + [{"type": kind, **one} for kind, one in given.items()]
