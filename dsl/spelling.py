"""What a word of another language is called here: fields, values, and which names are close.

Tables and look-ups for the helps of diagnostics. Decides nothing about what is right; knows no
tree.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from dsl.foreign import closest, edit_distance
from dsl.schema import FIELDS, PLURALS, POD_SETS

_MAX_DISTANCE: Final = 2
#: Values that mean "nothing" elsewhere and are ordinary words here.
NOTHING: Final = frozenset({"null", "none", "nil", "undefined", "nan", "nothing"})
#: Further words that ask whether there is a value: their meaning is `is missing` or `is present`.
ABSENT: Final = frozenset({"empty", "unset", "absent", "blank"})
THERE: Final = frozenset({"set", "defined", "given", "exists", "existing", "nonempty"})


class Spelling(NamedTuple):
    """How something is written here.

    Attributes:
        text: what to write.
        sure: whether it may replace what was written without a look.
        note: what there is to know about it.
    """

    text: str
    sure: bool = True
    note: str = ""


# ---- close names


def closest_field(name: str) -> str | None:
    """Returns the field with a close name: word by word, so that `pod.age` is not `pod.name`."""
    words = name.lower().split(".")
    best, best_distance = None, _MAX_DISTANCE + 1
    for field in FIELDS:
        others = field.split(".")
        if len(others) != len(words):
            continue
        distance = 0
        for word, other in zip(words, others, strict=True):
            distance += _apart(word, other)
            if distance >= best_distance:
                break
        else:
            best, best_distance = field, distance
    return best


@lru_cache(maxsize=4096)
def _apart(word: str, other: str) -> int:
    """Returns the edit distance of two words, something large where they are not close at all."""
    if word == other:
        return 0
    far = _MAX_DISTANCE + 1
    if abs(len(word) - len(other)) >= far or len({*word} ^ {*other}) > 2 * _MAX_DISTANCE:
        return far
    own = edit_distance(word, other)
    # `cu` is `cpu`: of a short word one letter is more than half, and yet only one is missing.
    added = own == 1 and len(other) > len(word) > 1
    return own if own * 2 < max(len(word), 2) or added else far


#: The words of `time.weekday`.
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


# ---- fields

_ROOTS: Final = frozenset(
    {"input", "request", "review", "object", "resource", "self", "this", "obj", "newobject",
     "params", "data", "values", "ctx", "context", "args", "state", "nodeinfo", "podinfo"}
)  # fmt: skip
_OWNERS: Final = MappingProxyType(
    {"pod": "pod", "pods": "pod", "p": "pod", "node": "node", "nodes": "node", "n": "node",
     "namespace": "namespace", "ns": "namespace", "it": "it", "its": "it", "workload": "workload",
     "cluster": "cluster", "zone": "zone", "region": "region", "time": "time",
     "group": "group", "podgroup": "group", "quota": "quota",
     "metadata": "", "spec": "", "status": ""}
)  # fmt: skip
_FRAMES: Final = frozenset({"metadata", "spec", "status", "template", "resources", "topology"})
_KEYED: Final = MappingProxyType(
    {"labels": "label", "label": "label", "matchlabels": "label", "annotations": "annotation",
     "annotation": "annotation", "tolerations": "toleration", "toleration": "toleration",
     "nodeselector": "node_selector", "selector": "node_selector", "conditions": "condition",
     "condition": "condition", "taints": "taint", "taint": "taint"}
)  # fmt: skip
_AMOUNTS: Final = MappingProxyType(
    {"cpu": "cpu", "cpus": "cpu", "cores": "cpu", "memory": "memory", "mem": "memory",
     "ram": "memory", "storage": "storage", "ephemeralstorage": "storage", "disk": "storage",
     "gpu": "gpu", "gpus": "gpu"}
)  # fmt: skip
_PARTS: Final = MappingProxyType(
    {"allocatable": "allocatable", "alloc": "allocatable", "capacity": "capacity",
     "total": "capacity", "size": "capacity", "free": "free", "available": "free",
     "remaining": "free", "left": "free", "unused": "free", "idle": "free",
     "requested": "requested", "requests": "requested", "request": "requested",
     "used": "requested", "allocated": "requested", "reserved": "requested"}
)  # fmt: skip
#: What is meant by names of others, each an owner and what is left of the path.
_MEANT: Final = {
    "now - pod.created": "pod.age",
    "now - node.created": "node.age node.uptime",
    "now - it.created": "it.age",
    "now - pod.queued_at": "pod.waiting",
    "pod.owner.kind": "pod.kind pod.ownerreferences.kind",
    "pod.owner.name": "pod.ownerreferences.name",
    "pod.workload": "pod.deployment pod.statefulset pod.controller deployment.name workload.name",
    "pod.label[app]": "pod.app",
    "it.label[app]": "it.app",
    "pod.label[team]": "pod.team",
    "workload.replicas": "deployment.replicas pod.replicas",
    "pod.priority_class": "pod.class",
    "pod.namespace": "pod.namespace.name pod.ns",
    "it.namespace": "it.namespace.name it.ns",
    "pod.image": "pod.containers.image pod.container.image",
    "count(node.pods)":
        "node.pods.count node.pods.size node.pods.length node.pods.used node.pods.requested "
        "node.podcount node.numpods node.pods.running node.pods.number",
    "node.pods.capacity":
        "node.pods.total node.pods.allocatable node.maxpods node.allocatable.pods "
        "node.capacity.pods node.pods.max",
    "node.pods.free": "node.pods.available",
    "cluster.nodes": "cluster.nodecount cluster.size",
    "node.name": "node.hostname node.id",
    "node.os": "node.operatingsystem node.platform",
    "node.arch": "node.architecture",
    "node.kubelet_version": "node.kubelet node.version node.kubernetesversion",
    "node.os_image": "node.distribution node.distro node.osversion",
    "node.container_runtime": "node.runtime node.containerruntime",
    "node.instance_type": "node.type node.instance node.flavor node.machinetype",
    "node.zone": "node.availabilityzone node.az",
    "node.unschedulable": "node.cordoned",
    "node.ready": "node.isready node.healthy",
    "node.region": "node.datacenter",
    "pod.uid": "pod.id",
    "pod.owner.kind is DaemonSet": "pod.isdaemonset",
    "pod.owner.kind is Job": "pod.isjob",
    "pod.owner.kind is StatefulSet": "pod.isstatefulset",
    "it.ready": "it.isready",
    "it.restarts": "it.restartcount it.containerstatuses.restartcount",
    "pod.runtime_class": "pod.runtime",
    "it.terminating": "it.isterminating it.deleting",
    "it.phase is Running": "it.running",
    "it.phase": "it.status it.state",
    "it.node": "it.nodename it.host",
    "time.weekday": "time.dayofweek now.weekday now.dayofweek",
    "time.day": "time.dayofmonth time.date now.day",
    "time.month": "now.month",
    "time.hour": "now.hour",
    "now": "time.now",
    "time.minute": "now.minute",
    "victims.count": "victims.size",
    "group.name": "pod.group",
    "quota.name": "pod.quota",
}  # fmt: skip
#: What is likely meant.
_LIKELY: Final = {
    "pod.owner.kind": "pod.owner pod.ownerreferences",
    "pod.containers": "pod.containers.name",
    "pod.toleration[KEY]": "pod.taints",
    "not node.unschedulable": "node.schedulable node.isschedulable",
    "node.ready": "node.status node.health",
    "now - pod.queued_at": "pod.queuetime pod.waitingtime",
    "pod.attempts": "pod.retries",
    "it.phase": "pod.phase",
}
#: What is meant, behind what there is to know of it.
_MEANT_IF: Final = {
    "the pod is on no node yet; the one asked is": {
        "node.name": "pod.nodename pod.node pod.host",
    },
    "the load of a node is a metric:": {"load": "node.load node.loadaverage node.cpu.load"},
    "bandwidth is a metric:": {"bandwidth": "node.bandwidth node.network node.networkbandwidth"},
    "latency is a metric:": {"latency": "node.latency"},
    "use that is measured is a metric:": {
        "cpu_usage":
            "node.cpu.usage node.cpu.utilization node.usage.cpu node.cpuutilization node.cpuusage",
        "memory_usage":
            "node.usage.memory node.memoryutilization node.memory.usage node.memory.utilization "
            "node.memoryusage",
    },
}  # fmt: skip
_CONCEPTS: Final = MappingProxyType(
    {path: Spelling(text) for text, paths in _MEANT.items() for path in paths.split()}
    | {
        path: Spelling(text, sure=False)
        for text, paths in _LIKELY.items()
        for path in paths.split()
    }
    | {
        path: Spelling(text, note=note)
        for note, texts in _MEANT_IF.items()
        for text, paths in texts.items()
        for path in paths.split()
    }
)


def field_for(path: str, key: str | None = None) -> Spelling | None:
    """Returns how the path of another language is written here, None where nobody knows.

    `key` is what stood in brackets, if anything did; an index may be left out.
    """
    words = _without_frames(path.split("."))
    if not words:
        return None
    owner = _OWNERS.get(words[0].lower())
    if owner is None:
        return _concept(".".join(words)) or _of_kubernetes(path)
    if key is not None and len(words) == 1 and owner in ("node", "pod"):
        direct = f"{owner}.{key}"
        return Spelling(direct if direct in FIELDS else f"{owner}.label[{quoted_key(key)}]")
    rest = words[1:]
    if not owner:
        owner = _owner_of(rest)
    named = _keyed(owner, rest, key)
    if named is not None:
        return named
    found = _concept(".".join((owner, *rest)))
    if found is None and owner in ("node", "cluster", "pod", "it"):
        found = _amount(owner, rest, key)
    return found or _of_kubernetes(".".join((owner, *rest))) or _of_kubernetes(path)


def _without_frames(words: Sequence[str]) -> list[str]:
    """Drops `input.`, `metadata`, `spec` and the like; keeps a frame that stands first."""
    kept = list(words)
    while len(kept) > 1 and kept[0].lower() in _ROOTS:
        kept = kept[1:]
    frames = _FRAMES - {"resources"} if kept[0].lower() == "node" else _FRAMES
    return kept[:1] + [one for one in kept[1:] if one.lower() not in frames]


def _owner_of(rest: Sequence[str]) -> str:
    first = rest[0].lower() if rest else ""
    return "node" if first in ("allocatable", "capacity", "conditions", "taints") else "pod"


def plain(word: str) -> str:
    """Returns a word as all spellings of it are compared: small letters, no `_` and `-`."""
    return re.sub(r"[_-]", "", word).lower()


def _concept(path: str) -> Spelling | None:
    return _CONCEPTS.get(".".join(plain(one) for one in path.split(".")))


def _keyed(owner: str, rest: Sequence[str], key: str | None) -> Spelling | None:
    name = _KEYED.get(plain(rest[0])) if rest else None
    if name is None and rest and (key is not None or rest[1:]):
        name = _KEYED.get(closest(plain(rest[0]), _KEYED) or "")
    if name is None or f"{owner}.{name}" not in FIELDS:
        return None
    key = key if key is not None else ".".join(rest[1:])
    if name == "taint":
        return Spelling(f"node.taint {key or 'KEY'}", sure=bool(key))
    return Spelling(f"{owner}.{name}[{quoted_key(key) or 'KEY'}]", sure=bool(key))


def quoted_key(key: str) -> str:
    """Returns a key as it stands in brackets: in quotes where it is more than a bare word."""
    if not key or re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?", key):
        return key
    return f'"{key}"'


def _amount(owner: str, rest: Sequence[str], key: str | None) -> Spelling | None:
    """`status.allocatable.cpu`, `freeMemory`, `requests[cpu]`: amounts of a resource."""
    words = [plain(one) for one in rest if plain(one) not in ("resource", "resources")]
    if len(words) == 1:
        words = _split_compound(words[0])
    if key is not None:
        words.append(plain(key))
    kinds = [_AMOUNTS[one] for one in words if one in _AMOUNTS]
    parts = [one for one in words if one in _PARTS or one in ("limits", "limit")]
    if len(kinds) != 1 or len(kinds) + len(parts) != len(words):
        if key is not None and owner == "node" and len(rest) == 1 and parts:
            return Spelling(f"node.resource[{quoted_key(key)}].{_PARTS[parts[0]]}")
        return None
    kind = kinds[0]
    if owner in ("pod", "it"):
        if parts and parts[0] in ("limits", "limit"):
            return Spelling(f"{owner}.limit[{kind}]")
        return Spelling(f"{owner}.{kind}")
    if parts and parts[0] not in _PARTS:
        limits = f"sum(it.limit[{kind}] over {owner}.pods)"
        known = f"{owner}.pods" in POD_SETS
        return Spelling(limits, note="what its pods may use is", sure=False) if known else None
    name = f"{owner}.{kind}.{_PARTS[parts[0]] if parts else 'free'}"
    if name not in FIELDS:
        return None
    if not parts and f"{owner}.{kind}.allocatable" in FIELDS:
        note = f"name which: {owner}.{kind}.allocatable, {owner}.{kind}.requested or"
        return Spelling(name, note=note, sure=False)
    return Spelling(name, sure=bool(parts))


def _split_compound(word: str) -> list[str]:
    for name in sorted(_AMOUNTS, key=len, reverse=True):
        for left, right in ((name, word[len(name) :]), (word[: -len(name)], name)):
            if left + right == word and (left in _PARTS or right in _PARTS):
                return [left, right]
    return [word]


def _of_kubernetes(path: str) -> Spelling | None:
    low = path.lower()
    singular = ".".join(PLURALS.get(one, one) for one in low.split("."))
    _, _, rest = singular.partition(".")
    known = _WIRES.get(low) or _WIRES.get(f"pod.{low}") or _FLAT.get(singular.replace("_", ""))
    if known is None and rest in FIELDS and rest.startswith(_OF_BOTH):
        known = rest
    return None if known is None else Spelling(known, sure=not FIELDS[known].keyed)


#: What a pod or a node has a share in: `pod.namespace.labels`, `node.zone.pods`.
_OF_BOTH: Final = ("namespace.", "zone.", "region.", "rack.")
#: Where fields stand in objects, and the last words of that: `pod.spec.schedulerName`.
_WIRES: Final = {
    f"{spec.name.partition('.')[0]}.{wire}".lower(): spec.name
    for spec in FIELDS.values()
    if spec.wire
    for wire in (spec.wire, spec.wire.rpartition(".")[2])
}
_FLAT: Final = {one.replace("_", "").lower(): one for one in FIELDS} | {
    one.replace("_", "").replace(".", "").replace("pod", "pod.", 1).lower(): one
    for one in FIELDS
    if one.startswith("pod.owner.")
}
