"""What kube-scheduler's reasons leave out: which taint, which label, whose volume.

Only words: whether a node takes a pod the plugins alone decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from engine.objects import Node, NodeSelectorTerm, SelectorRequirement
from engine.plugins.taint_toleration import NO_EXECUTE, NO_SCHEDULE, tolerates
from engine.pods.podinfo import PodInfo

Telling = Callable[[PodInfo, Node], Iterator[str]]


def details(plugin: str, pod: PodInfo, node: Node) -> str:
    """What on the node is in the way of the pod, where more is to be said than the plugin does."""
    tell = _TELLING.get(plugin)
    return "" if tell is None else ", ".join(tell(pod, node))


def _taints(pod: PodInfo, node: Node) -> Iterator[str]:
    there = pod.pod.spec.tolerations or ()
    for one in node.spec.taints or ():
        if one.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerates(there, one):
            value = f"={one.value}" if one.value else ""
            yield f"taint {one.key}{value}:{one.effect}"


def _labels(pod: PodInfo, node: Node) -> Iterator[str]:
    labels = node.metadata.labels or {}
    for key, wanted in sorted((pod.pod.spec.node_selector or {}).items()):
        if labels.get(key) != wanted:
            yield f"label {key} is {labels.get(key, '<none>')}, the pod wants {wanted}"
    affinity = pod.pod.spec.affinity
    required = affinity.node_affinity if affinity is not None else None
    terms = required.required_during_scheduling_ignored_during_execution if required else None
    for term in terms.node_selector_terms or () if terms is not None else ():
        yield f"it wants {_wanted(term)}"
        for key in sorted({one.key for one in term.match_expressions or ()}):
            yield f"{key} is {labels.get(key, '<none>')}"


def _wanted(term: NodeSelectorTerm) -> str:
    each = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return " and ".join(map(_requirement, each)) or "nothing that is"


def _requirement(one: SelectorRequirement) -> str:
    values = ", ".join(one.values or ())
    return f"{one.key} {one.operator} [{values}]" if values else f"{one.key} {one.operator}"


_TELLING: Final[Mapping[str, Telling]] = MappingProxyType(
    {"TaintToleration": _taints, "NodeAffinity": _labels}
)
