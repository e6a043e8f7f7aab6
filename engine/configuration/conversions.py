"""Plugins of others as policies: their arguments in, a `use` line out. Data and pure functions.

Source: kubernetes-sigs/scheduler-plugins apis/config/types.go and defaults.go; the published
NetworkTraffic and label-filter plugins; of kubernetes those behind gates that 1.37 has off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

_COOKBOOK: Final = (
    "docs/cookbook.md#{} does it with metrics of Prometheus; take it and set its limits"
)
_OF_GANGS: Final = "`gang: by pod.group` has the topology of PodGroups with it"
_VOLUMES: Final = "NodeVolumeLimits counts these volumes, too"
_GANG: Final = """\
sort: pod.priority desc, group.last_failure ?? group.created ?? pod.first_attempt_at,
  pod.namespace, pod.name
gang: pod.label[scheduling.x-k8s.io/pod-group] is not "" ->
  by pod.label[scheduling.x-k8s.io/pod-group] min group.min_member
  wait {wait}s backoff {rest}s reject above {percent}% missing
"""
"""The bundled policy for Coscheduling, which has one share of members that may be missing."""
Arguments = Mapping[str, Any]
_HOUR: Final = 3600
_OLD: Final = {"deniedPGExpirationTimeSeconds", "kubeConfigPath", "kubeMaster"}
"""Arguments of Coscheduling before v1."""
_REJECTED_ABOVE: Final = 10
"""Percent of a group that may be missing: scheduler-plugins' default, and what the policy has."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a plugin.

    Attributes:
        use: the policy's line, without its weight; empty if there is none.
        rules: statements of a policy of its own, where no policy that comes along does the same.
        lost: what it does not say, each a sentence.
        prometheus: the address that the plugin asked.
    """

    use: str
    lost: tuple[str, ...] = ()
    prometheus: str = ""
    rules: str = ""

    def text(self, weight: int, suffix: str = "") -> str:
        """The policy; empty if there is none. With a suffix to its name if it is a further one."""
        if self.rules:
            return f"{self.rules}weight: {weight}\n" if weight > 1 else self.rules
        alias = f" as {self.use.split()[0]}{suffix}" if suffix else ""
        share = f" weight {weight}" if weight > 1 else ""
        return f"use {self.use}{alias}{share}\n" if self.use else ""


def convert(name: str, args: Arguments) -> Converted | None:
    """The policy for a plugin; None: nobody here knows the plugin.

    Raises:
        msgspec.ValidationError: the plugin would refuse these arguments.
    """
    if name in _PLUGINS:
        return _PLUGINS[name](args)
    if {"node_label", "nodeLabel"} & set(args):
        return _label_filter(args)
    if {"deviceName", "networkInterface"} & set(args):
        return _network_traffic(args)
    if name in _ELSEWHERE:
        return Converted("", (_ELSEWHERE[name],))
    return None


def _label_filter(args: Arguments) -> Converted:
    label = str(args.get("node_label", args.get("nodeLabel", "")))
    workload = str(args.get("workload_name", args.get("workloadName", "")))
    lost = []
    key, _, value = label.rpartition("/")
    if key and "=" not in label:
        if "." in key and "/" not in key:  # the prefix of a key, as in topology.kubernetes.io/zone
            lost.append(
                f"`{label}` is taken for the key of a label; if it means the key and its value,"
                f" write {key}={value}"
            )
        else:
            label = f"{key}={value}"
    if not workload:
        lost.append("no workload_name is given: the label is required for every pod")
    given = f'node_label = "{label}", workload_name = "{workload}"'
    return Converted(f"label-filter ({given})", tuple(lost))


def _network_traffic(args: Arguments) -> Converted:
    device = args.get("deviceName", args.get("networkInterface", "eth0"))
    span = args.get("timeRange", args.get("timeRangeInMinutes", 3))
    minutes = f"{span}m" if isinstance(span, int) or str(span).isdecimal() else str(span)
    address = str(args.get("ip", args.get("prometheusAddress", args.get("address", ""))))
    if address and "://" not in address:
        address = f"http://{address}" if ":" in address else f"http://{address}:9090"
    lost = (
        "the sum of a counter grows with the uptime of a node and is no bandwidth;"
        " `use network-bandwidth` reads the rate",
    )
    return Converted(f'network-traffic (device = "{device}", range = {minutes})', lost, address)


class _Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The arguments of a plugin of scheduler-plugins, and what they say of themselves."""

    api_version: str = ""
    kind: str = ""


class _Resource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    weight: Annotated[int, msgspec.Meta(gt=0)] = 1


class _AllocatableArgs(_Args, frozen=True):
    mode: Literal["", "Least", "Most"] = ""
    resources: tuple[_Resource, ...] = ()


def _allocatable(args: Arguments) -> Converted:
    given = msgspec.convert(args, _AllocatableArgs)
    mode = given.mode.lower() or "least"
    weights = {one.name: one.weight for one in given.resources}
    if weights.keys() <= {"cpu", "memory"} and len(weights) != 1:
        words = "".join(f", {name}_weight = {weight}" for name, weight in weights.items())
        return Converted(f"node-resources-allocatable (mode = {mode}{words})")
    units = {"cpu": 1000}
    parts = [
        f'number(node.resource["{name}"].allocatable ?? 0)*{weight * units.get(name, 1)}'
        for name, weight in weights.items()
    ]
    size = f"let size = floor(({' + '.join(parts)}) / {sum(weights.values())})\n"
    score = f"score: {'-' if mode == 'least' else ''}size normalize minmax\n"
    return Converted("", rules=size + score)


class _CoschedulingArgs(_Args, frozen=True):
    permit_waiting_time_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    pod_group_backoff_seconds: Annotated[int, msgspec.Meta(ge=0)] = 0
    pod_group_reject_percentage: Annotated[int, msgspec.Meta(ge=0, le=100)] = _REJECTED_ABOVE


def _coscheduling(args: Arguments) -> Converted:
    given = msgspec.convert({k: v for k, v in args.items() if k not in _OLD}, _CoschedulingArgs)
    # Source: scheduler-plugins pkg/util/podgroup.go: a wait of 0 is the default one.
    wait, rest = given.permit_waiting_time_seconds or 60, given.pod_group_backoff_seconds
    lost = [
        f"{seconds} seconds are more than the hour that the policy allows, which is used"
        for seconds in (wait, rest)
        if seconds > _HOUR
    ]
    lost += [f"its argument {one}, which newer versions lack" for one in sorted(_OLD & args.keys())]
    wait, rest, percent = min(wait, _HOUR), min(rest, _HOUR), given.pod_group_reject_percentage
    if percent != _REJECTED_ABOVE:
        return Converted("", tuple(lost), rules=_GANG.format(wait=wait, rest=rest, percent=percent))
    return Converted(f"coscheduling (permit_wait = {wait}s, backoff = {rest}s)", tuple(lost))


class _MetadataArgs(_Args, frozen=True, kw_only=True):
    metadata_key: str
    metadata_source: Literal["Label", "Annotation"]
    metadata_type: Literal["Number", "Timestamp"]
    scoring_strategy: Literal["Highest", "Lowest", "Newest", "Oldest"]
    timestamp_format: str = ""


def _metadata(args: Arguments) -> Converted:
    given = msgspec.convert(args, _MetadataArgs)
    if given.timestamp_format not in ("", "2006-01-02T15:04:05Z07:00"):
        return Converted("", (f"no policy reads times written as {given.timestamp_format}",))
    best = "highest" if given.scoring_strategy in ("Highest", "Newest") else "lowest"
    lost = "nodes without a value score as the worst one does, and scored below it"
    return Converted(f'node-score-by-label (key = "{given.metadata_key}", best = {best})', (lost,))


def _gang_scheduling(args: Arguments) -> Converted:
    msgspec.convert(args, _Args)
    lost = "pods with the label scheduling.x-k8s.io/pod-group are a gang, too"
    return Converted("", (lost,), rules="gang: by pod.group\n")


def _as(name: str) -> Callable[[Arguments], Converted]:
    return lambda args: Converted(
        name, tuple([f"its argument {key}" for key in sorted(args.keys() - {"apiVersion", "kind"})])
    )


_PLUGINS: Final[Mapping[str, Callable[[Arguments], Converted]]] = {
    "QOSSort": _as("qos-sort"),
    "NodeResourcesAllocatable": _allocatable,
    "Coscheduling": _coscheduling,
    "GangScheduling": _gang_scheduling,
    "CapacityScheduling": _as("capacity-scheduling"),
    "CrossNodePreemption": _as("cross-node-preemption"),
    "PodState": _as("pod-state"),
    "NodeMetadata": _metadata,
    "NetworkTraffic": _network_traffic,
}
_ELSEWHERE: Final[Mapping[str, str]] = {
    "AzureDiskLimits": _VOLUMES,
    "DiskIO": "docs/cookbook.md#disk-io-budget does it with metrics of Prometheus",
    "Dynamic": "docs/cookbook.md#node-annotations-as-load does it, if it is Crane's",
    "EBSLimits": _VOLUMES,
    "GCEPDLimits": _VOLUMES,
    "NodeResourcesMostAllocated": "give NodeResourcesFit scoringStrategy: {type: MostAllocated}",
    "TargetLoadPacking": _COOKBOOK.format("target-load-packing"),
    "LoadVariationRiskBalancing": _COOKBOOK.format("load-variation-risk"),
    "LoadAwareScheduling": "`use load-aware` does it with metrics of Prometheus",
    "LowRiskOverCommitment": _COOKBOOK.format("low-risk-overcommitment"),
    "PreemptionToleration": (
        "docs/cookbook.md#preemption-toleration reads the same annotations, of pods: copy them"
        " there from the PriorityClasses"
    ),
    "NodeResourceTopologyMatch": "docs/cookbook.md#numa-room does it for one resource",
    "NetworkOverhead": "docs/cookbook.md#network-cost does it with measured latencies",
    "SySched": "docs/cookbook.md#syscall-profiles does it with labels",
    "TopologyPlacementGenerator": _OF_GANGS,
    "PodGroupPodsCount": _OF_GANGS,
    "DeferredPodScheduling": "nobody is evicted for a resize that waits",
}
KNOWN: Final = _PLUGINS.keys() | _ELSEWHERE.keys()
"""Plugins that something is known of."""
