"""Plugins of others as policies: their arguments in, a `use` line out. Data and pure functions.

Source: kubernetes-sigs/scheduler-plugins apis/config/types.go and defaults.go; the published
NetworkTraffic and label-filter plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_COOKBOOK: Final = (
    "docs/cookbook.md#{} does it with metrics of Prometheus; take it and set its limits"
)
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a plugin.

    Attributes:
        use: the policy's line, without its weight; empty if there is none.
        lost: what it does not say, each a sentence.
        prometheus: the address that the plugin asked.
    """

    use: str
    lost: tuple[str, ...] = ()
    prometheus: str = ""


def convert(name: str, args: Arguments) -> Converted | None:
    """The policy for a plugin; None: nobody here knows the plugin."""
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
        lost.append("no workload_name is given: the label is asked of every pod")
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
        " `use network-bandwidth` has what moves in a second",
    )
    return Converted(f'network-traffic (device = "{device}", range = {minutes})', lost, address)


def _allocatable(args: Arguments) -> Converted:
    given = {"mode": str(args.get("mode", "Least")).lower()}
    lost = []
    for one in args.get("resources") or ():
        name, weight = one.get("name"), one.get("weight", 1)
        if name in ("cpu", "memory"):
            given[f"{name}_weight"] = str(weight)
        else:
            lost.append(f"the resource {name}: the policy looks at cpu and memory")
    words = ", ".join(f"{key} = {value}" for key, value in given.items())
    return Converted(f"node-resources-allocatable ({words})", tuple(lost))


def _coscheduling(args: Arguments) -> Converted:
    wait, rest = args.get("permitWaitingTimeSeconds", 60), args.get("podGroupBackoffSeconds", 0)
    return Converted(f"coscheduling (permit_wait = {wait}s, backoff = {rest}s)")


def _as(name: str) -> Callable[[Arguments], Converted]:
    def made(args: Arguments) -> Converted:
        lost = [f"its argument {key}" for key in sorted(args) if key not in ("apiVersion", "kind")]
        return Converted(name, tuple(lost))

    return made


_PLUGINS: Final[Mapping[str, Callable[[Arguments], Converted]]] = {
    "QOSSort": _as("qos-sort"),
    "NodeResourcesAllocatable": _allocatable,
    "Coscheduling": _coscheduling,
    "CapacityScheduling": _as("capacity-scheduling"),
    "CrossNodePreemption": _as("cross-node-preemption"),
    "PodState": _as("pod-state"),
    "NetworkTraffic": _network_traffic,
}
_ELSEWHERE: Final[Mapping[str, str]] = {
    "TargetLoadPacking": _COOKBOOK.format("target-load-packing"),
    "LoadVariationRiskBalancing": _COOKBOOK.format("load-variation-risk"),
    "LowRiskOverCommitment": _COOKBOOK.format("low-risk-overcommitment"),
    "PreemptionToleration": "docs/cookbook.md#preemption-toleration reads the same annotations",
    "NodeResourceTopologyMatch": "docs/cookbook.md#numa-room does it for one resource",
    "NetworkOverhead": "docs/cookbook.md#network-cost does it with measured latencies",
    "SySched": "docs/cookbook.md#syscall-profiles does it with labels",
    "Peaks": "there is no policy for it yet",
    "TopologicalSort": "there is no policy for it yet",
}
