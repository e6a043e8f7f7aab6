"""Samples of metrics as somebody gives them: a journal, or a command line."""

# ruff: noqa: D102 - most of what is public is told in `framework.snapshot.Signals`

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from engine.cache import Cache
from engine.framework.snapshot import CodeColumn, Dictionary, FloatColumn, NodeColumns, PodColumns

Columns = dict[str, dict[str, float]]
"""metric id -> node name -> value; nodes without a value are left out."""
Values = dict[str, list[tuple[list[str], float]]]
"""metric id -> what it has values of but nodes: the cluster's key is empty; and the values."""


class Samples:
    """A `SignalSource` and its own `Signals`, of one cluster; ages are as of `since`, if given."""

    def __init__(self, since: float | None = None) -> None:
        self._since = since
        self._nodes: NodeColumns | None = None
        self._now = 0.0
        self._values: Columns = {}
        self._sampled: Columns = {}
        self._keyed: dict[str, dict[tuple[str, ...], float]] = {}
        self.version = 0

    def replace(self, values: Columns, sampled: Columns, keyed: Values) -> None:
        """These are all, each with the time at which it was taken."""
        self._values, self._sampled = values, sampled
        self._keyed = {of: {tuple(key): value for key, value in each} for of, each in keyed.items()}
        self.version += 1

    def view(self, cache: Cache, now: float) -> Samples:
        self._nodes, self._now = cache.nodes, now if self._since is None else self._since
        return self

    def value(self, metric: str, key: tuple[str, ...]) -> float:
        """See `Signals.value`; what is given of the cluster is of whatever is asked for."""
        known = self._keyed.get(metric, {})
        for one in (key, ("", *key[1:]), ()):
            if one in known:
                return known[one]
        return math.nan

    def values(self, metric: str) -> Mapping[tuple[str, ...], float]:
        return self._keyed.get(metric, {})

    def of_pods(self, metric: str, pods: PodColumns) -> FloatColumn:
        each = map(pods.pod, range(pods.size))
        return np.array([self.value(metric, (one.namespace, one.name)) for one in each], float)

    def pairs(
        self, metric: str, ends: tuple[CodeColumn, CodeColumn], dictionary: Dictionary
    ) -> FloatColumn:
        texts = dictionary.texts
        found = [
            np.nan if min(codes) < 0 else self.value(metric, (texts[codes[0]], texts[codes[1]]))
            for codes in zip(*(each.tolist() for each in ends), strict=True)
        ]
        return np.array(found, float)

    def column(self, metric: str) -> FloatColumn:
        return self._column(self._values.get(metric, {}))

    def age(self, metric: str) -> FloatColumn:
        return self._now - self._column(self._sampled.get(metric, {}))

    def _column(self, by_name: Mapping[str, float]) -> FloatColumn:
        assert self._nodes is not None
        column = np.full(self._nodes.size, np.nan)
        for name, value in by_name.items():
            row = self._nodes.row(name)
            if row >= 0:
                column[row] = value
        return column
