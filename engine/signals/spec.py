"""What a metric is to this room: a question, and how it stands. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dsl.plan import MetricSpec

NODE: Final = "node"
CLUSTER: Final = "cluster"
PAIR: Final = "pair"
DOMAIN_LABELS: Final[Mapping[str, str]] = {
    one: f"topology.kubernetes.io/{one}" for one in ("zone", "region", "rack")
}
"""Domains with metrics of their own -> the label of a node that says in which one it is."""
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    NODE: ("node", "instance", "kubernetes_node"),
    **{
        one: (one, f"topology_kubernetes_io_{one}", f"label_topology_kubernetes_io_{one}")
        for one in DOMAIN_LABELS
    },
    CLUSTER: (),
    "namespace": ("namespace",),
    "workload": ("namespace", "workload"),
    "pod": ("namespace", "pod"),
}
"""Labels tried for whose a value is when a metric does not say which."""
PROMETHEUS: Final = "promql"
OBJECT: Final = "object"


class Question(NamedTuple):
    """What is asked; equal questions are asked once and share their answer.

    `source` is who answers: Prometheus, the metrics API (`usage`) or watched objects (`object`).
    """

    query: str
    by: tuple[str, ...]
    of: str = NODE
    source: str = PROMETHEUS

    @property
    def any_label(self) -> bool:
        """Whether the first label that a series has counts, rather than all of them together."""
        return self.of == NODE or self.of in DOMAIN_LABELS


def question_of(spec: MetricSpec) -> Question:
    """What has to be asked for a metric.

    A label of objects that says which node's they are is no label of series, but a key.
    """
    by = spec.labels or (spec.keys if spec.of == NODE else ()) or _LABELS[spec.of]
    return Question(spec.query, by, spec.of, spec.source)


class SignalStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How a metric is, for users.

    `matched` is how many there are with a sample: of nodes and of domains the nodes, else those
    whose values they are. `unmatched` series name none; `duplicates` series lost to a larger one of
    the same, or are too many for the one of the cluster. `age_seconds` is that of the newest
    sample, None without any; `missing` says that none is fresh. `error` is why the last question
    failed, "" if it did not.
    """

    id: str
    name: str
    query: str
    series: int
    matched: int
    unmatched: int
    duplicates: int
    age_seconds: float | None
    missing: bool
    error: str
