"""Worlds and pods whose every value is drawn from a seed when it is asked for.

Each row has a seed of its own, so that one row can change and the others stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import count

import numpy as np

from dsl.schema import AMOUNTS, FIELDS
from dsl.types import BYTES, CORES, MISSING, SECONDS, Kind, is_missing
from tests.dsl.worlds import Columns, Texts

NOW = 1_740_823_200.0
WORDS = ("web", "db", "a-1", "Web", "", "x.y/z", "7", "2Gi", "30%", "n-12", "1m30s")
TIMES = (NOW, NOW - 1.0, NOW - 300.0, NOW - 86_400.5, NOW + 60.0)
WORD_TIMES = ("2025-03-01T10:00:00Z", "2025-03-01T11:00:00+02:00")
#: Keys of labels and other maps that have values; other keys are missing.
KEYS = ("k", "app", "weird key", "web", "db", "a-1", "n-1", "cpu", "memory", "nvidia.com/gpu")
NUMBERS = (0.0, 1.0, -1.0, 2.0, 3.0, 0.1, 0.3, 1e-9, 7.5, 100.0, 2000.0, 2.0**53, 1e300, -1e308)
WHOLE = (0.0, 1.0, 3.0, 100.0, 250.0, 500.0, 1000.0, 4001.0, 8000.0, -300.0)
SIZES = (0.0, 1.0, 2048.0, 2.0**20, 2.0**30, 3e9, -4096.0)
_AMOUNTS = {CORES: WHOLE, BYTES: SIZES, SECONDS: (0.0, 0.5, 60.0, 90.0, 300.0, 7200.0)}
_GENERATIONS = count(1)
_EMPTY = ""


def pick(choices, *of):
    """One of the choices, always the same for the same seed, field and key."""
    digest = blake2b(repr(of).encode(), digest_size=8).digest()
    return choices[int.from_bytes(digest, "little") % len(choices)]


def _texts(spec):
    words = spec.words or (*WORDS, *WORD_TIMES)
    return (*words, None, None, None) if spec.optional else words


def _numbers(spec):
    found = TIMES if spec.type.kind is Kind.TIME else NUMBERS
    found = _AMOUNTS.get(spec.type.unit, found) if spec.type.is_number else found
    if spec.name in AMOUNTS:
        found = (*WHOLE, *SIZES)
    return (*found, MISSING, MISSING, MISSING) if spec.optional else found


def value_of(field, key, seed):
    """The value of a field for the row, pod or cluster of a seed."""
    spec = FIELDS[field]
    if spec.type.kind is Kind.TEXT:
        unknown = spec.keyed and key not in KEYS
        return None if unknown else pick(_texts(spec), field, key, seed)
    if spec.type.kind is Kind.BOOL:
        return pick((True, False), field, key, seed)
    if spec.name in AMOUNTS and key not in KEYS:
        return MISSING if spec.optional else 0.0
    if spec.type.kind is Kind.LIST:
        return tuple(pick(WORDS, field, n, seed) for n in range(pick((0, 1, 2, 3), field, seed)))
    return pick(_numbers(spec), field, key, seed)


def sample_of(name, of, seed):
    """A sample of a metric; missing at times."""
    return pick((*NUMBERS, MISSING, MISSING, MISSING), "metric", name, of, seed)


@dataclass(frozen=True)
class Rows:
    """What there is: the seed of each node row (empty: no node), seed and node row of each pod."""

    nodes: tuple[str, ...]
    pods: tuple[tuple[str, int], ...]
    seed: str
    tables: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()

    def touched(self, rows: Sequence[int], seed: str) -> "Rows":
        """The same with other values in these node rows and in the pods there."""
        changed = set(rows)
        nodes = tuple(
            f"{seed}/{row}" if row in changed and one != _EMPTY else one
            for row, one in enumerate(self.nodes)
        )
        there = [row for row in changed if nodes[row] != _EMPTY]
        places = (-1, *there)
        pods = tuple(
            (f"{seed}/pod {at}", pick(places, seed, at))
            if place in changed or (place == -1 and pick((True, False), seed, "new", at))
            else (own, place)
            for at, (own, place) in enumerate(self.pods)
        )
        return replace(self, nodes=nodes, pods=pods)


class RandomWorld(Columns):
    """Implements `dsl.plan.World`."""

    def __init__(self, rows: Rows, dictionary=None, now=NOW, before=None):
        self._before = before
        self.rows = rows
        self.now = now
        self.generation = next(_GENERATIONS)
        self.dictionary = dictionary or Texts()
        self.nodes = len(rows.nodes)
        self.present = self._frozen([one != _EMPTY for one in rows.nodes], np.bool_)
        self.pod_node = self._frozen([place for _, place in rows.pods], np.int32)
        self._columns = {}
        self._tables = {}

    def after(self, rows: Sequence[int], seed: str):
        """The world after changes of some rows."""
        before = self.generation, np.array(sorted(rows), np.intp)
        return RandomWorld(self.rows.touched(rows, seed), self.dictionary, self.now, before)

    def changed_since(self, generation, *, samples):
        known = self._before is not None and self._before[0] == generation and not samples
        return self._before[1] if known else None

    def pod_table(self, table):
        if table not in self._tables:
            pods = dict(self.rows.tables)[table]
            rows = replace(self.rows, pods=pods)
            self._tables[table] = RandomWorld(rows, self.dictionary, self.now)
        return self._tables[table]

    def _code(self, text):
        return -1 if text is None else self.dictionary.code(text)

    def _column(self, field, key, kind):
        found = self._columns.get((field, key))
        if found is None:
            rows = [seed for seed, _ in self.rows.pods] if field[:3] == "it." else self.rows.nodes
            # Columns hold their default in a row without a node, whatever it was before.
            empty = {np.int32: -1, np.bool_: False}.get(kind, MISSING)
            values = [value_of(field, key, seed) if seed else empty for seed in rows]
            if kind is np.int32:
                values = [one if one == -1 else self._code(one) for one in values]
            found = self._columns[field, key] = self._frozen(values, kind)
        return found

    def node_number(self, field, key):
        return self._column(field, key, np.float64)

    def node_text(self, field, key):
        return self._column(field, key, np.int32)

    def node_flag(self, field, key):
        return self._column(field, key, np.bool_)

    pod_number, pod_text, pod_flag = node_number, node_text, node_flag

    def node_texts(self, field):
        rows = self.rows.nodes
        return self._lists([value_of(field, None, seed) if seed else () for seed in rows])

    def node_column(self, field, asked):
        if FIELDS[field].type.kind is Kind.BOOL:
            values = [bool(seed) and pick((True, False), field, asked, seed) for seed in self._all]
            return self._frozen(values, np.bool_)
        values = [pick(SIZES, field, asked, seed) if seed else MISSING for seed in self._all]
        return self._frozen(values, np.float64)

    @property
    def _all(self):
        return self.rows.nodes

    def _samples(self, name, of, seeds):
        values = [sample_of(name, of, seed) if seed else MISSING for seed in seeds]
        return self._frozen(values, np.float64)

    def metric(self, name):
        return self._samples(name, "value", self._all)

    def metric_age(self, name):
        ages = self._samples(name, "age", self._all)
        return self._frozen(np.abs(ages), np.float64)

    def cluster_metric(self, name):
        return sample_of(name, "cluster", self.rows.seed)

    def pod_metric(self, name):
        return self._samples(name, "pod", [seed for seed, _ in self.rows.pods])

    def pair(self, name, left, right):
        return sample_of(name, (left, right), self.rows.seed)

    def cycle_number(self, field):
        if field == "cluster.nodes":
            return float(self.present.sum())
        if field in ("time.hour", "time.minute"):
            return float(pick(range(24), field, self.rows.seed))
        if field in ("time.day", "time.month"):
            return float(pick(range(1, 13), field, self.rows.seed))
        # What the whole cluster has changes with any of its rows.
        return value_of(field, None, repr(self.rows))

    def cycle_text(self, field):
        return value_of(field, None, self.rows.seed)


class RandomPod:
    """Implements `dsl.plan.Subject`."""

    def __init__(self, seed: str):
        self._seed = seed

    def number(self, field, key):
        return value_of(field, key, self._seed)

    def text(self, field, key):
        return value_of(field, key, self._seed)

    def flag(self, field, key):
        return value_of(field, key, self._seed)

    def texts(self, field):
        if field == "pod.containers":
            return tuple(f"c{place}" for place in range(self.containers))
        return value_of(field, None, self._seed)

    def pairs(self, field):
        found = [(key, value_of(field, key, self._seed)) for key in sorted(KEYS)]
        return tuple((key, one) for key, one in found if not is_missing(one))

    def asks(self, field):
        return pick((b"one", b"other", ("web",), ()), "asks", field, self._seed)

    def metric(self, name):
        return sample_of(name, "subject", self._seed)

    @property
    def containers(self):
        return pick((0, 1, 2, 3), "containers", self._seed)

    def container_number(self, place, field, key):
        return value_of(f"it.{field}", key, f"{self._seed}/container {place}")

    def container_text(self, place, field):
        return value_of(f"it.{field}", None, f"{self._seed}/container {place}")
