"""What a metric is to this room: a question, and how its answers are read. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

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


class SignalSpec(msgspec.Struct, frozen=True):
    """A metric that rules read under `id`; `name` is what their author calls it, for logs.

    `of` says whose values they are: a node's, those of a domain (a key of `DOMAIN_LABELS`), the
    `cluster`'s, a `namespace`'s, a `workload`'s, a `pod`'s or a `pair`'s. `by` are the labels that
    say of which one: of a node or a domain any of them, in the order they are tried, else all
    together; None means those that are usual. A sample older than `stale_seconds` is missing;
    `default` takes the place of what is missing in a column of nodes; samples are multiplied by
    `scale`, the default is not. `source` is who gives the samples, see `Question`.
    """

    id: str
    query: str
    by: tuple[str, ...] | None = None
    every_seconds: float = 15.0
    stale_seconds: float = 120.0
    default: float | None = None
    scale: float = 1.0
    name: str = ""
    of: str = NODE
    source: str = PROMETHEUS

    @property
    def question(self) -> Question:
        """What has to be asked for it."""
        by = _LABELS[self.of] if self.by is None else self.by
        return Question(self.query, by, self.of, self.source)


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
