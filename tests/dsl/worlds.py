"""Builders of worlds and pods for tests: columns from plain dictionaries."""

from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np

from dsl.schema import FIELDS
from dsl.types import MISSING

_GENERATIONS = count(1)
_ALWAYS = {"priority": 0.0, "cpu": 0.0, "memory": 0.0, "storage": 0.0, "gpu": 0.0, "attempts": 0.0}


class Texts:
    """A dictionary of texts that only grows."""

    def __init__(self):
        self.texts = []
        self._codes = {}

    def code(self, text):
        found = self._codes.get(text)
        if found is None:
            found = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return found

    def find(self, text):
        return self._codes.get(text, -1)


def field_name(field, key):
    return field if key is None else f"{field}[{key}]"


class FakeWorld:
    """A world whose nodes and pods are dictionaries of `field` or `field[key]` to value.

    A node may have `metrics`: name to value; a pod has `on`: the row of its node (-1: unused row).
    A node that is None is an empty row. Metrics are found by the name before the id's `:`.
    """

    def __init__(
        self,
        nodes: Sequence[Mapping | None],
        pods: Sequence[Mapping] = (),
        *,
        now=1_740_823_200.0,
        cycle: Mapping | None = None,
        metrics: Mapping[str, str] | None = None,
        dictionary=None,
    ):
        self.generation = next(_GENERATIONS)
        self._nodes = [node or {} for node in nodes]
        self._pods = pods
        self.nodes = len(nodes)
        self.present = np.array([node is not None for node in nodes], np.bool_)
        self.now = now
        self.dictionary = dictionary or Texts()
        self.pod_node = np.array([pod["on"] for pod in pods], np.int32)
        self._cycle = dict(cycle or {})
        self._metric_names = dict(metrics or {})

    def knows(self, plan):
        """Tells the world which metric ids the plan's metrics have."""
        for spec in plan.metrics:
            self._metric_names[spec.id] = spec.name
        return self

    def _numbers(self, rows, name):
        default = _ALWAYS.get(name.split(".", 1)[1], MISSING) if "." in name else MISSING
        return self._freeze(np.array([float(row.get(name, default)) for row in rows], np.float64))

    def _texts(self, rows, name):
        codes = [-1 if row.get(name) is None else self.dictionary.code(row[name]) for row in rows]
        return self._freeze(np.array(codes, np.int32))

    def _flags(self, rows, name):
        return self._freeze(np.array([bool(row.get(name, False)) for row in rows], np.bool_))

    @staticmethod
    def _freeze(column):
        column.flags.writeable = False
        return column

    def node_number(self, field, key):
        return self._numbers(self._nodes, field_name(field, key))

    def node_text(self, field, key):
        return self._texts(self._nodes, field_name(field, key))

    def node_flag(self, field, key):
        return self._flags(self._nodes, field_name(field, key))

    def metric(self, name):
        name = self._metric_names.get(name, name)
        rows = [node.get("metrics", {}) for node in self._nodes]
        return self._freeze(np.array([float(row.get(name, MISSING)) for row in rows], np.float64))

    def metric_age(self, name):
        name = self._metric_names.get(name, name)
        rows = [node.get("ages", {}) for node in self._nodes]
        return self._freeze(np.array([float(row.get(name, MISSING)) for row in rows], np.float64))

    def pod_number(self, field, key):
        return self._numbers(self._pods, field_name(field, key))

    def pod_text(self, field, key):
        return self._texts(self._pods, field_name(field, key))

    def pod_flag(self, field, key):
        return self._flags(self._pods, field_name(field, key))

    def cycle_number(self, field):
        return float(self._cycle.get(field, MISSING))

    def cycle_text(self, field):
        return self._cycle.get(field)


class FakePod:
    """A pod to place: a dictionary of `field` or `field[key]` to value."""

    def __init__(self, **fields):
        self._fields = {name.replace("__", "."): value for name, value in fields.items()}

    @classmethod
    def of(cls, fields: Mapping):
        pod = cls()
        pod._fields = dict(fields)
        return pod

    def number(self, field, key):
        default = _ALWAYS.get(field.removeprefix("pod."), MISSING)
        if field == "pod.request":
            default = 0.0
        return float(self._fields.get(field_name(field, key), default))

    def text(self, field, key):
        return self._fields.get(field_name(field, key))

    def texts(self, field):
        return tuple(self._fields.get(field, ()))

    def flag(self, field, key):
        return bool(self._fields.get(field_name(field, key), False))


__all__ = ["FIELDS", "FakePod", "FakeWorld", "Texts"]
