"""What a metric is to this room: a question, and how its answers are read. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_BY = ("node", "instance", "kubernetes_node")
"""Labels tried for the node's name when a metric does not say which."""


class Question(NamedTuple):
    """What is asked of Prometheus; equal questions are asked once and share their answer."""

    query: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """A metric that rules read under `id`; `name` is what their author calls it, for logs.

    `by` are the labels that may name the node, in the order they are tried; None means
    `DEFAULT_BY`. A sample older than `stale_seconds` is missing; `default` takes the place of what
    is missing; samples are multiplied by `scale`, the default is not.
    """

    id: str
    query: str
    by: tuple[str, ...] | None = None
    every_seconds: float = 15.0
    stale_seconds: float = 120.0
    default: float | None = None
    scale: float = 1.0
    name: str = ""

    @property
    def question(self) -> Question:
        """What has to be asked for it."""
        return Question(self.query, DEFAULT_BY if self.by is None else self.by)


@dataclass(frozen=True, slots=True)
class SignalStatus:
    """How a metric is, for users.

    `matched` nodes have a sample; `unmatched` series name no node; `duplicates` series lost to a
    larger one of the same node. `age_seconds` is that of the newest sample, None without any.
    `error` is why the last question failed, "" if it did not.
    """

    id: str
    query: str
    series: int
    matched: int
    unmatched: int
    duplicates: int
    age_seconds: float | None
    error: str
