"""Reads of fields, metrics and lists as closures over a frame."""

from collections.abc import Callable
from operator import methodcaller
from typing import Any, Protocol

import numpy as np

from dsl import ir
from dsl.lower import pods, texts
from dsl.lower.frame import Frame, Run, Value, once
from dsl.schema import AMOUNTS, FIELDS, request_unit
from dsl.types import MISSING, READERS, Kind, Level, scale_of
from dsl.world import Dictionary, World

#: Domains of an expression: rows of nodes, pods on those rows, all pods, groups of all pods.
ROWS, ITS, ALL, GROUPS = "rows", "its", "all", "groups"


class Building(Protocol):
    """Who builds the closures of the parts of an expression."""

    def build(self, node: ir.Expr, domain: str = ROWS) -> Run:
        """Returns the closure of a part in a domain."""

    def coded(self, node: ir.Expr, domain: str = ROWS) -> Run:
        """Returns the same, with codes for texts."""


def frame_count(domain: str) -> Callable[[Frame], int]:
    """Returns how many values an array of a domain has."""
    if domain == ROWS:
        return lambda frame: frame.count
    if domain == ITS:
        return lambda frame: len(frame.pods()[1])
    return pods.count_all


# ---- reads


def _column(field: str, key: str | None, kind: Kind) -> Callable[[World], Value]:
    """Returns what gives the column of a field of nodes or of `it`."""
    owner = "pod" if field.startswith("it.") else "node"
    return methodcaller(f"{owner}_{READERS.get(kind, 'number')}", field, key)


def _pods_of(frame: Frame, domain: str) -> Value:
    return pods.all_pods(frame)[0] if domain == ALL else frame.pods()[0]


def node_read(field: str, key: str | None, kind: Kind) -> Run:
    """Returns the read of a field on the rows of the frame."""
    column = _column(field, key, kind)
    return once((field, key), lambda frame: frame.take(column(frame.world)))


def it_read(field: str, key: str | None, kind: Kind, domain: str) -> Run:
    """Returns the read of a field of pods, or of the nodes they are on."""
    of_its_node, column = field.startswith("node."), _column(field, key, kind)

    def read(frame: Frame) -> Value:
        chosen = _pods_of(frame, domain)
        rows = frame.world.pod_node[chosen] if of_its_node else chosen
        return column(frame.world)[rows]

    return once((field, key, domain), read)


def pod_read(field: str, key: str | None, kind: Kind) -> Run:
    """Returns the read of a field of the pod to place."""
    if kind is Kind.LIST:
        return lambda frame: frame.subject.texts(field)
    read = methodcaller(READERS.get(kind, "number"), field, key)
    return lambda frame: read(frame.subject)


def container_read(node: ir.ContainerRead) -> Run:
    """Returns the read of a field of the container in question."""
    field, key = node.field, node.key
    if node.type.kind is Kind.TEXT:
        return lambda frame: frame.subject.container_text(frame.container, field)
    return lambda frame: frame.subject.container_number(frame.container, field, key)


def metric_read(node: ir.Metric, domain: str) -> Run:
    """Returns the read of a metric at its level."""
    name, age = node.id, node.age
    if node.of == "cluster":
        return lambda frame: float(frame.world.cluster_metric(name))
    if node.level is Level.POD:
        return lambda frame: float(frame.subject.metric(name))
    of_pods = node.level is Level.IT

    def metric(frame: Frame) -> Value:
        world = frame.world
        if of_pods:
            return world.pod_metric(name)[_pods_of(frame, domain)]
        return frame.take(world.metric_age(name) if age else world.metric(name))

    return once(("metric", name, age, domain), metric)


# ---- keys that are computed


def keyed_read(
    node: ir.KeyedRead, key: Run, domain: str, of_subject: Callable[[str, str], Run]
) -> Run:
    """Returns the read of a field whose key `key` gives: one text, or a column of codes.

    `of_subject` makes what reads all that the pod has: where the key is a column.
    """
    field, kind, level = node.field, node.type.kind, FIELDS[node.field].level
    amount = field in AMOUNTS
    if node.level <= Level.POD:
        missing = node.type.missing

        def scalar(frame: Frame) -> Value:
            text = key(frame)
            if text is None:
                return missing
            value = pod_read(field, text, kind)(frame)
            return value / scale_of(request_unit(text)) if amount else value

        return scalar

    def value_for(frame: Frame, text: str) -> Value:
        if level is Level.NODE:
            rows = node_read(field, text, kind)(frame)
            found = rows[frame.pods()[1]] if domain == ITS else rows
        else:
            found = it_read(field, text, kind, domain)(frame)
        return found / scale_of(request_unit(text)) if amount else found

    count = frame_count(domain)
    of_pod = of_subject(field, "pairs") if level is Level.POD else None
    empty = {Kind.TEXT: (-1, np.int32), Kind.BOOL: (False, np.bool_)}.get(kind, (np.nan, float))

    def column(frame: Frame) -> Value:
        codes = key(frame)
        if codes is None:
            return np.full(count(frame), *empty)
        if isinstance(codes, str):
            return value_for(frame, codes)
        if of_pod is not None:
            return _of_pod(node, codes, dict(of_pod(frame)), frame.world.dictionary)
        known = frame.world.dictionary.texts
        return _by_code(codes, empty, lambda code: value_for(frame, known[code]))

    return column


def _of_pod(
    node: ir.KeyedRead, codes: Value, pairs: dict[str, Any], dictionary: Dictionary
) -> Value:
    """Returns what the pod has under a column of keys: codes of texts, or plain numbers."""
    if node.type.kind is Kind.TEXT:
        return texts.combined(pairs.get, [codes], texts.CODE, dictionary)
    # What is not asked for is 0, what is not limited is missing.
    otherwise = MISSING if FIELDS[node.field].optional else 0.0

    def amount(key: str) -> float:
        return float(pairs.get(key, otherwise)) / scale_of(request_unit(key))

    return texts.combined(amount, [codes], texts.FLOAT, dictionary)


def _by_code(codes: Value, empty: tuple[Any, Any], values: Callable[[int], Value]) -> Value:
    """Returns a value for each code, from the column of values of each distinct one."""
    out = np.full(len(codes), *empty)
    for code in np.unique(codes).tolist():
        if code >= 0:
            here = codes == code
            out[here] = values(code)[here]
    return out


# ---- lists of the nodes


def list_lengths(field: str) -> Run:
    """Returns how long the list of each node is."""
    return lambda frame: frame.take(np.diff(frame.world.node_texts(field)[0]).astype(np.float64))


def in_list(field: str, item: Run, domain: str) -> Run:
    """Returns whether the list of each node has a text, one for all or one for each."""

    def rows_with(frame: Frame, code: int) -> Value:
        starts, codes = frame.world.node_texts(field)
        before = np.concatenate(([0], np.cumsum(codes == code)))
        found = frame.take(before[starts[1:]] > before[starts[:-1]])
        return found[frame.pods()[1]] if domain == ITS else found

    def has(frame: Frame) -> Value:
        # The lists are read first: their texts may have no codes before.
        frame.world.node_texts(field)
        value = item(frame)
        if not isinstance(value, np.ndarray):
            code = texts.find(value, frame.world.dictionary)
            return rows_with(frame, code) if code >= 0 else np.zeros(frame.count, np.bool_)
        return _by_code(value, (False, np.bool_), lambda code: rows_with(frame, code))

    return has


# ---- metrics of pairs


def pair_read(node: ir.Pair, left: Run, right: Run) -> Run:
    """Returns the value of a metric for two texts."""
    name = node.id

    if node.level <= Level.POD:

        def scalar(frame: Frame) -> float:
            ends = left(frame), right(frame)
            return MISSING if None in ends else float(frame.world.pair(name, *ends))

        return scalar

    def column(frame: Frame) -> Value:
        world = frame.world
        codes = [texts.code_of(run(frame), world.dictionary) for run in (left, right)]
        return world.pair_column(name, *np.broadcast_arrays(*codes))

    return column
