"""What a word of another language is called here: fields, functions, and which names are close.

Tables and look-ups for the helps of diagnostics. Decides nothing about what is right; knows no
tree.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from dsl.foreign import closest as closest
from dsl.foreign import edit_distance
from dsl.functions import AGGREGATES as AGGREGATES
from dsl.functions import FUNCTIONS
from dsl.schema import FIELDS, KUBERNETES_PATHS, PLURALS, POD_SETS

_MAX_DISTANCE: Final = 2
_SHORT: Final = 4
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


def days(text: str) -> str:
    """Returns the days of `mon-fri`, `mon..fri` or `weekend` as a list; "" for anything else."""
    text = {"weekend": "sat-sun", "weekday": "mon-fri", "workday": "mon-fri"}.get(
        text.lower().rstrip("s"), text
    )
    found = re.fullmatch(r"(\w{3})\w*[ \t]*(?:-|\.\.|to)[ \t]*(\w{3})\w*", text.lower())
    if found is None or not {found[1], found[2]} <= {*DAYS}:
        return ""
    first, last = DAYS.index(found[1]), DAYS.index(found[2])
    named = DAYS[first : last + 1] if first <= last else DAYS[first:] + DAYS[: last + 1]
    return f"[{', '.join(named)}]"


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
    "pod.created": "pod.creationtimestamp pod.creationtime",
    "node.created": "node.creationtimestamp node.creationtime",
    "it.created": "it.creationtimestamp it.creationtime",
    "now - pod.queued_at": "pod.waiting",
    "pod.owner.kind": "pod.kind pod.ownerreferences.kind pod.ownerreference.kind",
    "pod.owner.name": "pod.ownerreferences.name",
    "pod.workload":
        "pod.deployment pod.statefulset pod.replicaset pod.daemonset pod.controller "
        "deployment.name statefulset.name job.name workload.name",
    "pod.label[app]": "pod.app",
    "it.label[app]": "it.app",
    "pod.label[team]": "pod.team",
    "workload.replicas": "deployment.replicas pod.replicas",
    "pod.qos": "pod.qosclass",
    "pod.priority_class": "pod.priorityclassname pod.class",
    "pod.service_account": "pod.serviceaccountname",
    "pod.scheduler": "pod.schedulername",
    "pod.namespace": "pod.namespace.name pod.podnamespace pod.ns",
    "pod.image": "pod.containers.image pod.container.image pod.imagename",
    "count(node.pods)":
        "node.pods.count node.pods.size node.pods.length node.pods.len node.pods.used "
        "node.pods.requested node.podcount node.numpods node.runningpods node.numberofpods "
        "node.podnumber node.pods.running node.pods.number node.pods.current",
    "node.pods.capacity":
        "node.pods.total node.pods.allocatable node.maxpods node.allocatable.pods "
        "node.capacity.pods node.pods.max",
    "node.pods.free": "node.pods.available",
    "cluster.nodes": "cluster.nodecount cluster.nodes.count cluster.size",
    "node.name": "node.hostname node.id node.nodename",
    "node.os": "node.operatingsystem node.platform",
    "node.arch": "node.architecture node.cpuarchitecture",
    "node.kernel": "node.kernelversion",
    "node.kubelet_version":
        "node.kubelet node.kubeletversion node.version node.kubernetesversion node.k8sversion",
    "node.os_image": "node.osimage node.distribution node.distro node.osversion",
    "node.container_runtime": "node.containerruntimeversion node.runtime node.containerruntime",
    "node.instance_type":
        "node.type node.instance node.flavor node.instancetypes node.machinetype "
        "node.vmsize",
    "node.zone": "node.availabilityzone node.az",
    "node.unschedulable": "node.cordoned node.iscordoned",
    "node.ready": "node.isready node.healthy",
    "node.region": "node.datacenter",
    "pod.uid": "pod.id",
    "pod.name": "pod.podname",
    "it.namespace": "it.ns",
    "pod.priority": "pod.prio",
    "pod.owner.kind is DaemonSet": "pod.isdaemonset",
    "pod.owner.kind is Job": "pod.isjob",
    "pod.owner.kind is StatefulSet": "pod.isstatefulset",
    "it.ready": "it.isready",
    "it.restarts": "it.restartcount it.containers.restarts it.restarted",
    "pod.runtime_class": "pod.runtimeclassname pod.runtimeclass pod.runtime",
    "pod.active_deadline": "pod.activedeadlineseconds pod.activedeadline",
    "it.terminating": "it.isterminating it.deleting",
    "it.phase is Running": "it.running",
    "it.started_at": "it.starttime",
    "it.phase": "it.status it.state",
    "it.node": "it.nodename it.host",
    "time.weekday": "time.dayofweek now.weekday now.dayofweek",
    "time.day": "time.dayofmonth time.date now.day now.dayofmonth now.date",
    "time.month": "now.month time.monthofyear",
    "time.hour": "time.hours now.hour",
    "now": "time.now",
    "time.minute": "now.minute",
    "victims.count": "victims.size victims.length",
    "group.min_member": "group.minmember",
    "group.name": "pod.group",
    "quota.name": "pod.quota",
}  # fmt: skip
#: What is likely meant.
_LIKELY: Final = {
    "pod.owner.kind": "pod.owner pod.ownerreferences",
    "pod.containers": "pod.containers.name",
    "pod.toleration[KEY]": "pod.taints",
    "not node.unschedulable": "node.schedulable node.isschedulable",
    "node.ready": "node.status node.health node.availability",
    "now - pod.queued_at": "pod.queuetime pod.waittime pod.waitingtime",
    "pod.attempts": "pod.retries",
    "it.phase": "pod.phase",
}  # fmt: skip
#: What is meant, behind what there is to know of it.
_MEANT_IF: Final = {
    "the pod is on no node yet; the one asked is": {
        "node.name": "pod.nodename pod.node pod.host",
    },
    "the load of a node is a metric:": {
        "load": "node.load node.loadaverage node.loadavg node.cpu.load",
    },
    "bandwidth is a metric:": {
        "bandwidth": "node.bandwidth node.network node.networkusage node.networkbandwidth",
    },
    "latency is a metric:": {
        "latency": "node.latency",
    },
    "use that is measured is a metric:": {
        "cpu_usage":
            "node.cpu.usage node.cpu.utilization node.utilization.cpu node.usage.cpu "
            "node.cpuutilization node.cpupercent node.cpuusage",
        "memory_usage":
            "node.utilization.memory node.usage.memory node.memoryutilization "
            "node.memorypercent node.memory.usage node.memory.utilization node.memoryusage",
    },
    "what the disks do is a metric:": {
        "disk_io": "node.diskio",
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

    Args:
        path: words with dots; an index may be left out.
        key: what stood in brackets, if anything did.
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


def _plain(word: str) -> str:
    return re.sub(r"[_-]", "", word).lower()


def _concept(path: str) -> Spelling | None:
    return _CONCEPTS.get(".".join(_plain(one) for one in path.split(".")))


def _keyed(owner: str, rest: Sequence[str], key: str | None) -> Spelling | None:
    name = _KEYED.get(_plain(rest[0])) if rest else None
    if name is None and rest and (key is not None or rest[1:]):
        name = _KEYED.get(closest(_plain(rest[0]), _KEYED) or "")
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
    words = [_plain(one) for one in rest if _plain(one) not in ("resource", "resources")]
    if len(words) == 1:
        words = _split_compound(words[0])
    if key is not None:
        words.append(_plain(key))
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
    known = KUBERNETES_PATHS.get(low) or KUBERNETES_PATHS.get(f"pod.{low}")
    if known is not None:
        return Spelling(known, sure=not FIELDS[known].keyed)
    singular = ".".join(PLURALS.get(one, one) for one in low.split("."))
    flat = _FLAT.get(singular.replace("_", ""))
    if flat is not None:
        return Spelling(flat, sure=not FIELDS[flat].keyed)
    return None


_FLAT: Final = {one.replace("_", "").lower(): one for one in FIELDS} | {
    one.replace("_", "").replace(".", "").replace("pod", "pod.", 1).lower(): one
    for one in FIELDS
    if one.startswith("pod.owner.")
}


# ---- functions

_RATE: Final = 'a rate is made by the metric:  metric NAME = promql "rate(SERIES[5m])" by instance'
_NO_SORT: Final = "`rank(x)` is the share of the candidates with a smaller value, 0..1"
#: Calls of other languages. `{0}` is the first argument, or what stands before the dot.
_CALLS: Final = MappingProxyType(
    {
        "size": "len({0})", "length": "len({0})", "has": "{0} is present",
        "exists": "{0} is present", "isset": "{0} is present", "defined": "{0} is present",
        "haskey": "{0} is present", "ispresent": "{0} is present", "isnull": "{0} is missing",
        "absent": "{0} is missing", "isempty": "{0} is missing", "isnan": "{0} is missing",
        "startswith": "{0} starts with {1}", "hasprefix": "{0} starts with {1}",
        "endswith": "{0} ends with {1}", "hassuffix": "{0} ends with {1}",
        "contains": "{0} contains {1}", "includes": "{0} contains {1}",
        "find": "{0} contains {1}", "matches": "{0} matches {1}", "match": "{0} matches {1}",
        "regexp": "{0} matches {1}", "like": "{0} like {1}", "rematch": "{1} matches {0}",
        "equals": "{0} == {1}", "coalesce": "({?})", "ifnull": "({?})", "orvalue": "({?})",
        "default": "({?})", "or": "({?})", "int": "number({0})", "float": "number({0})",
        "double": "number({0})", "tonumber": "number({0})", "tofloat": "number({0})",
        "str": "string({0})", "tostring": "string({0})", "timestamp": "time({0})",
        "date": "time({0})", "mean": "avg({*})", "average": "avg({*})", "maximum": "max({*})",
        "minimum": "min({*})", "greatest": "max({*})", "least": "min({*})", "total": "sum({*})",
        "clampmax": "min({0}, {1})", "clampmin": "max({0}, {1})", "ceiling": "ceil({0})",
        "trunc": "floor({0})", "power": "pow({0}, {1})", "modulo": "mod({0}, {1})",
        **dict.fromkeys(("log", "ln"), "(log2({0}) / log2(2.718281828))"),
        "toupper": "upper({0})", "upperascii": "upper({0})", "tolower": "lower({0})",
        "lowerascii": "lower({0})", "concat": "join({*})", "if": "if {0} then {1} else {2}",
        "not": "not ({0})", "isgreaterthan": "{0} > {1}", "compareto": "{0} - {1}",
        "gt": "{0} > {1}", "lt": "{0} < {1}", "gte": "{0} >= {1}", "lte": "{0} <= {1}",
        "eq": "{0} == {1}", "neq": "{0} != {1}", "nth": "item({0}, {1})", "get": "{0}[{1}]",
        "since": "now - {0}", "until": "{0} - now", "now": "now", "search": "{0} contains {1}",
        "metric": "{0}", "semver": "version({0})", "replaceall": "replace({0}, {1}, {2})",
        "between": "{0} in {1}..{2}",
    }
)  # fmt: skip
#: Calls that have no counterpart, and what to do instead.
_ADVICE: Final = MappingProxyType(
    {
        **dict.fromkeys(("rate", "irate", "increase", "delta", "deriv", "idelta"), _RATE),
        **dict.fromkeys(
            ("avgovertime", "maxovertime", "minovertime", "sumovertime", "lastovertime",
             "quantileovertime", "countovertime", "predictlinear", "histogramquantile"), _RATE,
        ),
        **dict.fromkeys(("topk", "bottomk", "quantile", "percentile", "percentrank"), _NO_SORT),
        "stddev": "of the candidates there are min, max, avg, median, sum and count",
        "substring": "cut a text with  before(TEXT, SEPARATOR)   or   after(TEXT, SEPARATOR)",
        "substr": "cut a text with  before(TEXT, SEPARATOR)   or   after(TEXT, SEPARATOR)",
        "sprintf": "texts are put together by  join(a, b)",
        "random": "there is no chance here; for stable shares write  hash(pod.uid) < 10%",
        "rand": "there is no chance here; for stable shares write  hash(pod.uid) < 10%",
        "vector": "a number stands alone:  5",
        "sort": "nodes are ranked by  prefer: most VALUE , pods by  sort: pod.priority desc",
        **dict.fromkeys(("index", "indexof", "strpos", "instr"),
            "places in a text are not counted: ask  TEXT contains PART"),
        "trace": "a rule tells its reason by  message \"...\"",
        "type": "types are checked when the policy is loaded, so there is nothing to ask",
        "isinstance": "types are checked when the policy is loaded, so there is nothing to ask",
        "dyn": "types are checked when the policy is loaded: leave `dyn` out",
        "distinct": "pods of a domain are counted by  peers(zone)   or   count(zone.pods)",
        **dict.fromkeys(("normalize", "minmax", "scale", "rescale", "normalise"),
            "a score is scaled behind its value:  score: load normalize minmax"),
        **dict.fromkeys(("promql", "prometheus", "query", "prom"),
            'a query is a metric of its own:  metric NAME = promql "QUERY" by node'),
        **dict.fromkeys(("tolerates", "istolerated", "toleratestaint", "tolerate"),
            "what a pod tolerates is asked by Kubernetes itself; of one key write"
            "  pod.toleration[KEY] is present"),
        **dict.fromkeys(("walk", "foreach", "map", "reduce"),
            "a set is asked by  count(node.pods where it.priority > 0)   and the like"),
        "weight": "a weight stands behind its value:  score: load weight 5",
        "bind": "a value gets a name on a line of its own:  let NAME = VALUE",
    }
)  # fmt: skip
#: What stands before the dot of a call and is no value.
_LIBRARIES: Final = frozenset(
    {"array", "arrays", "cel", "collections", "filepath", "fmt", "fnmatch", "glob", "json",
     "lists", "lodash", "math", "np", "numpy", "object", "objects", "os", "path", "random", "re",
     "regex", "regexp", "sets", "statistics", "str", "strconv", "string", "strings", "time",
     "units", "util", "utils"}
)  # fmt: skip


def call_for(name: str, args: Sequence[str]) -> Spelling | None:
    """Returns how a call is written here.

    Args:
        name: the function, or `VALUE.method`.
        args: the texts of its arguments.
    """
    owner, _, method = name.rpartition(".")
    parts = [one.strip() for one in args if one.strip()]
    if owner and owner.lower() not in _LIBRARIES:
        parts.insert(0, owner)
    plain = _plain(method)
    advice = _ADVICE.get(plain)
    if advice is not None:
        return Spelling("", sure=False, note=advice)
    if plain in (*AGGREGATES, *FUNCTIONS) and plain != _plain(name):
        return Spelling(f"{plain}({', '.join(parts)})")
    if plain in (*AGGREGATES, *FUNCTIONS) and method != plain:
        return Spelling(f"{plain}({', '.join(parts)})")
    near = closest(plain, (*FUNCTIONS, *AGGREGATES)) if plain not in _CALLS else None
    if near is not None and not owner:
        return None
    # Of four letters one edit makes another word: `bind` is no `find`.
    close = closest(plain, _CALLS) if len(plain) > _SHORT else None
    form = _CALLS.get(plain) or _CALLS.get(close or "")
    if form is None:
        return None
    if plain == "get" and len(parts) > 1:
        path = ".".join(PLURALS.get(one, one) for one in parts[0].split("."))
        better = f"({path}[{parts[1]}] ?? {parts[2]})" if parts[2:] else f"{path}[{parts[1]}]"
        return Spelling(better, sure=path in FIELDS and FIELDS[path].keyed)
    if form == "len({0})" and parts and parts[0] in POD_SETS:
        return Spelling(f"count({parts[0]})")
    return _filled(form, _in_order(form, [_inner(one) for one in parts]))


def _in_order(form: str, parts: list[str]) -> list[str]:
    """Returns the arguments with what is tested in front: `regex("^a", pod.name)`."""
    if form == "{1} matches {0}" and len(parts) > 1:
        return _in_order("{0} matches {1}", parts[1::-1])[::-1]
    texts = re.fullmatch(r"\{0\} (matches|like|contains|starts with|ends with) \{1\}", form)
    if texts is None or not parts[1:] or parts[2:]:
        return parts
    value, text = parts
    if re.match(r"[rRbu]?[\"']", value) and not re.match(r"[rRbu]?[\"']", text):
        value, text = text, value
    text = re.sub(r"\A[rRbu](?=[\"'])", "", text)
    if "\\" in text and "'" not in text:
        # In double quotes a backslash means something.
        text = f"'{text[1:-1]}'"
    if texts[1] == "matches" and re.fullmatch(r"([\"'])\^[^$]*[^$*+]\1", text):
        # Here a pattern is that of the whole text.
        text = f"{text[:-1]}.*{text[-1]}"
    return [value, text]


def _inner(text: str) -> str:
    """Returns an argument in the spelling of here, where it is a path that is known."""
    path = re.fullmatch(r"([A-Za-z_][\w.]*)(?:\[\s*[\"']?([^\]\"']*)[\"']?\s*\])?", text)
    if path is None or "." not in path[1] or path[1] in FIELDS:
        return text
    found = field_for(path[1], path[2])
    return found.text if found is not None else text


def _filled(form: str, parts: Sequence[str]) -> Spelling | None:
    wanted = {int(one) for one in re.findall(r"\{(\d)\}", form)}
    if wanted and max(wanted) >= len(parts):
        missing = ("VALUE", "OTHER", "ELSE")
        parts = [*parts, *missing[len(parts) :]]
        return Spelling(_put(form, parts), sure=False)
    return Spelling(_put(form, parts))


def _put(form: str, parts: Sequence[str]) -> str:
    joined = {"*": ", ".join(parts), "?": " ?? ".join(parts)}
    return re.sub(
        r"\{(\d|[*?])\}",
        lambda found: joined[found[1]] if found[1] in joined else parts[int(found[1])],
        form,
    )
