"""Builders of worlds and pods for tests: columns from plain dictionaries."""

from collections.abc import Mapping, Sequence
from copy import copy
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


class Columns:
    """What all worlds of tests do alike: frozen columns, lists, pairs, the pods of a row."""

    def pods_on(self, row):
        return np.flatnonzero(self.pod_node == row)

    def pair_column(self, name, left, right):
        texts = self.dictionary.texts
        ends = zip(left.tolist(), right.tolist(), strict=True)
        values = [
            MISSING if min(one) < 0 else self.pair(name, texts[one[0]], texts[one[1]])
            for one in ends
        ]
        return np.array(values, np.float64)

    @staticmethod
    def _frozen(values, kind):
        column = np.array(values, kind)
        column.flags.writeable = False
        return column

    def _lists(self, lists):
        starts = np.cumsum([0, *map(len, lists)]).astype(np.intp)
        codes = [self.dictionary.code(one) for each in lists for one in each]
        return starts, np.array(codes, np.int32)


class FakeWorld(Columns):
    """A world whose nodes and pods are dictionaries of `field` or `field[key]` to value.

    A node may have `metrics`: name to value; a pod has `on`: the row of its node (-1: unused row).
    A node that is None is an empty row. A list (`node.images`) is a tuple. `tables` are the pods
    of other sets: `queue`, `nominated`, `finished`. `given` holds metrics by name: a number for
    the cluster, or numbers by pair.
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
        tables: Mapping[str, Sequence[Mapping]] | None = None,
        given: Mapping | None = None,
    ):
        self._tables = dict(tables or {})
        self._given = dict(given or {})
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

    def pod_table(self, table):
        other = copy(self)
        other._pods = self._tables.get(table, ())
        other.pod_node = np.array([pod["on"] for pod in other._pods], np.int32)
        return other

    def changed_since(self, generation, *, samples):
        return None

    def node_texts(self, field):
        return self._lists([node.get(field, ()) for node in self._nodes])

    def node_column(self, field, asked):
        if field == "node.eligible":
            rows = [asked in (None, node.get("node.label[k]")) for node in self._nodes]
            return self._frozen(rows, np.bool_)
        images = [node.get("node.images", ()) for node in self._nodes]
        missing = [sum(one not in here for one in asked or ()) for here in images]
        return self._frozen(missing, np.float64)

    def cluster_metric(self, name):
        return float(self._given.get(self._metric_names.get(name, name), MISSING))

    def pod_metric(self, name):
        name = self._metric_names.get(name, name)
        rows = [pod.get("metrics", {}) for pod in self._pods]
        return self._frozen([float(row.get(name, MISSING)) for row in rows], np.float64)

    def pair(self, name, left, right):
        found = self._given.get(self._metric_names.get(name, name), {})
        return float(found.get((left, right), MISSING))

    def _numbers(self, rows, name):
        default = _ALWAYS.get(name.split(".", 1)[1], MISSING) if "." in name else MISSING
        return self._frozen([float(row.get(name, default)) for row in rows], np.float64)

    def _texts(self, rows, name):
        codes = [-1 if row.get(name) is None else self.dictionary.code(row[name]) for row in rows]
        return self._frozen(codes, np.int32)

    def _flags(self, rows, name):
        return self._frozen([bool(row.get(name, False)) for row in rows], np.bool_)

    def node_number(self, field, key):
        return self._numbers(self._nodes, field_name(field, key))

    def node_text(self, field, key):
        return self._texts(self._nodes, field_name(field, key))

    def node_flag(self, field, key):
        return self._flags(self._nodes, field_name(field, key))

    def metric(self, name):
        name = self._metric_names.get(name, name)
        rows = [node.get("metrics", {}) for node in self._nodes]
        return self._frozen([float(row.get(name, MISSING)) for row in rows], np.float64)

    def metric_age(self, name):
        name = self._metric_names.get(name, name)
        rows = [node.get("ages", {}) for node in self._nodes]
        return self._frozen([float(row.get(name, MISSING)) for row in rows], np.float64)

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
        self._metric_names = {}

    def knows(self, plan):
        """Tells the pod which metric ids the plan's metrics have."""
        self._metric_names = {spec.id: spec.name for spec in plan.metrics}
        return self

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

    def pairs(self, field):
        start = f"{field}["
        found = [(k[len(start) : -1], v) for k, v in self._fields.items() if k.startswith(start)]
        return tuple(sorted(found))

    def asks(self, field):
        if field == "node.eligible":
            return self._fields.get("pod.node_selector[k]")
        return tuple(self._fields.get("pod.images", ()))

    def metric(self, name):
        name = self._metric_names.get(name, name)
        return float(self._fields.get("metrics", {}).get(name, MISSING))

    @property
    def containers(self):
        return len(self._fields.get("pod.containers", ()))

    def _container(self, place, field, key, default):
        return self._fields["pod.containers"][place].get(field_name(field, key), default)

    def container_number(self, place, field, key):
        return float(self._container(place, field, key, 0.0 if field == "request" else MISSING))

    def container_text(self, place, field):
        return self._container(place, field, None, None)

    def texts(self, field):
        if field == "pod.containers":
            return tuple(one["name"] for one in self._fields.get(field, ()))
        return tuple(self._fields.get(field, ()))

    def flag(self, field, key):
        return bool(self._fields.get(field_name(field, key), False))


__all__ = ["FIELDS", "FakePod", "FakeWorld", "Texts"]
