"""What a word of another language is called here: fields, values, nothing; and near names.

Tables and look-ups for the helps of diagnostics. Decides nothing about what is right; knows no
tree.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from dsl.nearest import MAX_DISTANCE, called, closest, edit_distance
from dsl.schema import FIELDS, canonical

#: Values that mean "nothing" elsewhere and are ordinary words here.
NOTHING: Final = frozenset({"null", "none", "nil", "undefined", "nan", "nothing"})
#: Further words that ask whether there is a value: their meaning is `is missing` or `is present`.
_ABSENT: Final = frozenset({"empty", "unset", "absent", "blank", "missing"})
_THERE: Final = frozenset({"set", "defined", "given", "exists", "existing", "nonempty", "present"})


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


def presence(word: str, *, negated: bool = False) -> str:
    """Returns what a word asks of a value that there is, or is not; "" of any other word."""
    there = word.lower() in _THERE
    if not there and word.lower() not in NOTHING | _ABSENT:
        return ""
    return "is present" if there != negated else "is missing"


# ---- close names


def closest_field(name: str) -> str | None:
    """Returns the field with a close name: word by word, so that `pod.age` is not `pod.name`."""
    words = name.lower().split(".")
    fields = [one for one in FIELDS if one.count(".") == len(words) - 1]
    apart = [(sum(map(_apart, words, one.split("."))), one[0] != name[0]) for one in fields]
    low = min(apart, default=(MAX_DISTANCE + 1, True))
    return fields[apart.index(low)] if low[0] <= MAX_DISTANCE and apart.count(low) == 1 else None


@lru_cache(maxsize=4096)
def _apart(word: str, other: str) -> int:
    """Returns the edit distance of two words, something large where they are not close at all."""
    near = word == other or closest(word, (other,)) is not None
    return edit_distance(word, other) if near else MAX_DISTANCE + 1


# ---- fields


_ROOTS: Final = frozenset({"input", "request", "review", "object", "self", "params", "data"})
_OWNERS: Final = called(
    {"pod": "pod pods p", "node": "node nodes n", "namespace": "namespace ns", "it": "it its",
     "workload": "workload", "cluster": "cluster", "zone": "zone", "region": "region",
     "time": "time", "group": "group podgroup", "quota": "quota", "": "metadata spec status"}
)  # fmt: skip
_FRAMES: Final = frozenset({"metadata", "spec", "status", "template", "resources", "topology"})
_KEYED: Final = called(
    {"label": "labels label matchlabels", "annotation": "annotations annotation",
     "toleration": "tolerations toleration", "node_selector": "nodeselector selector",
     "condition": "conditions condition", "taint": "taints taint"}
)  # fmt: skip
#: Of resources.
AMOUNT_WORDS: Final = called(
    {"cpu": "cpu cpus cores", "memory": "memory mem ram", "gpu": "gpu gpus",
     "storage": "storage ephemeralstorage disk"}
)  # fmt: skip
_PARTS: Final = called(
    {"allocatable": "allocatable alloc", "capacity": "capacity total size",
     "free": "free available remaining left unused idle",
     "requested": "requested requests request used allocated reserved"}
)  # fmt: skip
#: What is meant by names of others: what to write (`?`: what is likely meant), their paths, and
#: what there is to know of it; two blanks part them.
_CONCEPTS: Final = {
    path: Spelling(text.removeprefix("?"), not text.startswith("?"), *note)
    for text, paths, *note in (
        re.split(" {2,}", line)
        for line in """
now - pod.created  pod.age
now - node.created  node.age node.uptime
now - it.created  it.age
pod.owner.kind  pod.kind pod.ownerkind pod.ownerreferences.kind
pod.owner.name  pod.ownername pod.ownerreferences.name
pod.workload  pod.deployment pod.statefulset pod.controller deployment.name workload.name
pod.label[app]  pod.app
it.label[app]  it.app
workload.replicas  deployment.replicas pod.replicas
pod.namespace  pod.namespace.name
it.namespace  it.namespace.name
?pod.image  pod.containers.image
count(node.pods)  node.pods.count node.pods.size node.podcount
cluster.nodes  cluster.nodecount cluster.size
node.name  node.hostname
node.os  node.operatingsystem
node.arch  node.architecture
node.kubelet_version  node.kubelet node.version
node.container_runtime  node.runtime
node.instance_type  node.type node.instance
it.restarts  it.restartcount it.containerstatuses.restartcount
time.weekday  time.dayofweek now.weekday
time.day  now.day
time.hour  now.hour
?node.ready  node.status node.health node.state
?not node.unschedulable  node.schedulable
?it.phase  pod.phase
node.name  pod.nodename pod.node pod.host  the pod is on no node yet; the one asked is
cpu_usage  node.cpu.usage node.cpuusage node.cpu.utilization  use that is measured is a metric:
memory_usage  node.memory.usage node.memoryusage  use that is measured is a metric:
""".strip().splitlines()
    )
    for path in paths.split()
}


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
        of_node = ("allocatable", "capacity", "conditions", "taints")
        owner = "node" if rest and rest[0].lower() in of_node else "pod"
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


def plain(word: str) -> str:
    """Returns a word as all spellings of it are compared: small letters, no `_` and `-`."""
    return re.sub(r"[_-]", "", word).lower()


def _concept(path: str) -> Spelling | None:
    return _CONCEPTS.get(".".join(plain(one) for one in path.split(".")))


def _keyed(owner: str, rest: Sequence[str], key: str | None) -> Spelling | None:
    name = _KEYED.get(plain(rest[0])) if rest else None
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
    if key is not None:
        words.append(plain(key))
    kinds = [AMOUNT_WORDS[one] for one in words if one in AMOUNT_WORDS]
    parts = [one for one in words if one in _PARTS or one in ("limits", "limit")]
    if len(kinds) != 1 or len(kinds) + len(parts) != len(words):
        return None
    kind = kinds[0]
    if owner in ("pod", "it"):
        if parts and parts[0] in ("limits", "limit"):
            return Spelling(f"{owner}.limit[{kind}]")
        return Spelling(f"{owner}.{kind}")
    name = f"{owner}.{kind}.{_PARTS.get(parts[0], '') if parts else 'free'}"
    if name not in FIELDS:
        return None
    return Spelling(name, sure=bool(parts))


def _of_kubernetes(path: str) -> Spelling | None:
    low = path.lower()
    singular = canonical(low)
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
_FLAT: Final = {one.replace("_", ""): one for one in FIELDS}
