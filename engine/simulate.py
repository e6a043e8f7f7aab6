"""Decisions written down with everything they were made from, and made again from that.

A journal is JSON Lines: every change of the cache, every change of the metric columns, every bundle
of rules, every decision, in their order. Replaying it drives the same cache, plugins and cycle, and
compares what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np

from engine.cache import Cache
from engine.cycle import decide
from engine.framework.decision import Placed
from engine.framework.podinfo import PodInfo, make_pod_info
from engine.framework.runtime import Framework
from engine.framework.snapshot import FloatColumn, NodeColumns
from engine.objects import Namespace, Node, Pod

FORMAT: Final = 1
Columns = dict[str, dict[str, float]]
"""metric id -> node name -> value; nodes without a value are left out."""


class Entry(msgspec.Struct, omit_defaults=True):
    """One line of a journal; `what` says which of the other fields are set."""

    what: str
    node: Node | None = None
    namespace: Namespace | None = None
    pod: Pod | None = None
    name: str = ""
    uid: str = ""
    files: dict[str, str] | None = None
    settings: dict[str, str] | None = None
    signals: Columns | None = None
    sampled: Columns | None = None
    now: float = 0.0
    bundle: str = ""
    chosen: str | None = None
    total: float = 0.0
    feasible: int = 0
    message: str = ""


class Recorder:
    """Writes a journal. `cache` is the recording cache to use; `placed` is an observer."""

    def __init__(self, out: BinaryIO, signal_ids: Callable[[], tuple[str, ...]]) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode
        self._signal_ids = signal_ids
        self._signals: object = None
        self.cache = RecordingCache(self.write)

    def write(self, entry: Entry) -> None:
        """Appends a line."""
        self._out.write(self._encode(entry) + b"\n")

    def rules(self, bundle: str, files: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """These rules are in force from here on."""
        self.write(Entry("rules", bundle=bundle, files=dict(files), settings=dict(settings)))
        self._signals = None

    def placed(self, placed: Placed) -> None:
        """A decision was made; see `scheduler.Observer`."""
        snapshot, decision = placed.snapshot, placed.decision
        version = snapshot.signals.version
        if version != self._signals:
            self._signals = version
            values: Columns = {}
            sampled: Columns = {}
            for metric in self._signal_ids():
                values[metric] = self._by_name(snapshot.signals.column(metric))
                sampled[metric] = self._by_name(snapshot.now - snapshot.signals.age(metric))
            self.write(Entry("signals", signals=values, sampled=sampled))
        message = ""
        if decision.fit_error is not None:
            message = decision.fit_error.message()
        elif decision.error is not None:
            message = " ".join(decision.error.reasons)
        self.write(
            Entry(
                "decision",
                pod=decision.pod.pod,
                now=snapshot.now,
                bundle=decision.bundle,
                chosen=decision.node,
                total=decision.total,
                feasible=decision.feasible,
                message=message,
            )
        )

    def _by_name(self, column: FloatColumn) -> dict[str, float]:
        nodes = self.cache.nodes
        rows = ((name, nodes.row(name)) for name in nodes.names())
        return {name: float(column[row]) for name, row in rows if not np.isnan(column[row])}


class RecordingCache(Cache):
    """A cache that writes down what is done to it."""

    def __init__(self, write: Callable[[Entry], None]) -> None:
        super().__init__()
        self._write = write

    def add_node(self, node: Node) -> None:
        """See `Cache.add_node`."""
        self._write(Entry("node", node=node))
        super().add_node(node)

    def update_node(self, node: Node) -> None:
        """See `Cache.update_node`."""
        self._write(Entry("node", node=node))
        super().update_node(node)

    def remove_node(self, name: str) -> None:
        """See `Cache.remove_node`."""
        self._write(Entry("node gone", name=name))
        super().remove_node(name)

    def set_namespace(self, namespace: Namespace) -> None:
        """See `Cache.set_namespace`."""
        self._write(Entry("namespace", namespace=namespace))
        super().set_namespace(namespace)

    def remove_namespace(self, name: str) -> None:
        """See `Cache.remove_namespace`."""
        self._write(Entry("namespace gone", name=name))
        super().remove_namespace(name)

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """See `Cache.assume`."""
        self._write(Entry("assume", pod=pod.pod, name=node_name))
        super().assume(pod, node_name)

    def forget(self, uid: str) -> bool:
        """See `Cache.forget`."""
        self._write(Entry("forget", uid=uid))
        return super().forget(uid)

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        """See `Cache.add_pod`."""
        self._write(Entry("pod", pod=pod.pod, name=node_name))
        super().add_pod(pod, node_name)

    def remove_pod(self, uid: str) -> None:
        """See `Cache.remove_pod`."""
        self._write(Entry("pod gone", uid=uid))
        super().remove_pod(uid)


class _RecordedSignals:
    """Metric columns as a journal has them."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._values: Columns = {}
        self._sampled: Columns = {}
        self.version = 0
        self.now = 0.0

    def replace(self, values: Columns, sampled: Columns) -> None:
        self._values = values
        self._sampled = sampled
        self.version += 1

    def column(self, metric: str) -> FloatColumn:
        return self._column(self._values.get(metric, {}))

    def age(self, metric: str) -> FloatColumn:
        return self.now - self._column(self._sampled.get(metric, {}))

    def _column(self, by_name: Mapping[str, float]) -> FloatColumn:
        column = np.full(self._nodes.size, np.nan)
        for name, value in by_name.items():
            row = self._nodes.row(name)
            if row >= 0:
                column[row] = value
        return column


@dataclass
class ReplayReport:
    """What a replay found."""

    decisions: int = 0
    equal: int = 0
    differences: list[str] = field(default_factory=list)
    cache: Cache = field(default_factory=Cache)
    """The cache as it was at the journal's end."""


FrameworkOf = Callable[[Mapping[str, str], Mapping[str, str]], Framework]
"""(files, settings) of a bundle -> the framework that was in force."""


def replay(path: Path, framework_of: FrameworkOf) -> ReplayReport:
    """Makes every decision of a journal again from what it was made from.

    Raises:
        ValueError: the file is no journal; the message names the line.
    """
    report = ReplayReport()
    cache = report.cache
    signals = _RecordedSignals(cache.nodes)
    framework: Framework | None = None
    for entry in _entries(path):
        if entry.what == "rules":
            framework = framework_of(entry.files or {}, entry.settings or {})
        elif entry.what == "signals":
            signals.replace(entry.signals or {}, entry.sampled or {})
        elif entry.what == "decision":
            if framework is None or entry.pod is None:
                raise ValueError(f"{path}: a decision without rules or pod")
            _again(entry, make_pod_info(entry.pod), cache, signals, framework, report)
        else:
            _apply(entry, cache)
    return report


def _again(
    entry: Entry,
    pod: PodInfo,
    cache: Cache,
    signals: _RecordedSignals,
    framework: Framework,
    report: ReplayReport,
) -> None:
    signals.now = entry.now
    decision = decide(pod, cache.snapshot(entry.now, signals), framework)
    message = decision.fit_error.message() if decision.fit_error else ""
    if decision.error is not None:
        message = " ".join(decision.error.reasons)
    was = (entry.chosen, entry.total, entry.feasible, entry.message, entry.bundle)
    now = (decision.node, decision.total, decision.feasible, message, decision.bundle)
    report.decisions += 1
    if was == now:
        report.equal += 1
    else:
        report.differences.append(f"{pod.key}: was {was}, now {now}")


def _apply(entry: Entry, cache: Cache) -> None:
    if entry.node is not None:
        cache.add_node(entry.node)
    elif entry.namespace is not None:
        cache.set_namespace(entry.namespace)
    elif entry.what == "node gone":
        cache.remove_node(entry.name)
    elif entry.what == "namespace gone":
        cache.remove_namespace(entry.name)
    elif entry.what == "forget":
        cache.forget(entry.uid)
    elif entry.what == "pod gone":
        cache.remove_pod(entry.uid)
    elif entry.pod is not None and entry.what == "assume":
        cache.assume(make_pod_info(entry.pod), entry.name)
    elif entry.pod is not None:
        cache.add_pod(make_pod_info(entry.pod), entry.name)


def _entries(path: Path) -> Iterator[Entry]:
    decode = msgspec.json.Decoder(Entry).decode
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield decode(line)
            except msgspec.MsgspecError as failed:
                raise ValueError(f"{path}:{number}: not a line of a journal: {failed}") from failed
