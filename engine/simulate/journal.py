"""Decisions written down with everything they were made from, and made again from that.

A journal is JSON Lines: its format, then every change of the cache, every change of the metric
columns, every bundle of rules, every decision, in their order. Replaying it drives the same cache,
plugins and cycle, and compares what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Concatenate, Final, ParamSpec, TypeVar

import msgspec
import numpy as np

from engine.cache import Cache
from engine.cycle import conclude, decide
from engine.framework.acting import Acted, Point
from engine.framework.decision import Decision, Placed
from engine.framework.frameworks import Frameworks
from engine.framework.opinion import Opinion
from engine.framework.podinfo import PodInfo, make_pod_info
from engine.framework.runtime import Framework
from engine.framework.snapshot import (
    CodeColumn,
    Dictionary,
    FloatColumn,
    NodeColumns,
    PodColumns,
    QueueTimes,
    Snapshot,
    Waiting,
    value_of_each,
    value_of_each_pair,
)
from engine.kube.resources import STRUCTS
from engine.objects import Namespace, Node, Pod, from_builtins
from engine.ondemand import FinishedPod

FORMAT: Final = 5
"""2: objects of other kinds than Node, Pod and Namespace; nominations, and what assumed pods carry.
3: who waits in permit.
4: what stands beside nodes: the queue, pods that have finished; what plugins said of pods on nodes.
5: what extenders said of a pod.
"""
_T = TypeVar("_T")
_P = ParamSpec("_P")
Columns = dict[str, dict[str, float]]
"""metric id -> node name -> value; nodes without a value are left out."""
Values = dict[str, list[tuple[list[str], float]]]
"""metric id -> what it has values of but nodes: the cluster's key is empty; and the values."""


class Entry(msgspec.Struct, omit_defaults=True):
    """One line of a journal; `what` says which of the other fields are set."""

    what: str
    format: int = 0
    node: Node | None = None
    namespace: Namespace | None = None
    pod: Pod | None = None
    kind: str = ""
    object: dict[str, Any] | None = None
    name: str = ""
    uid: str = ""
    files: dict[str, str] | None = None
    settings: dict[str, str] | None = None
    signals: Columns | None = None
    sampled: Columns | None = None
    values: Values | None = None
    now: float = 0.0
    bundle: str = ""
    chosen: str | None = None
    total: float = 0.0
    feasible: int = 0
    message: str = ""
    nominated: str | None = None
    victims: list[str] | None = None
    as_member: bool = False
    opinion: Opinion | None = None
    names: list[str] | None = None
    times: QueueTimes | None = None
    plugins: list[str] | None = None
    waited: float = 0.0
    said: list[str] | None = None


class Recorder:
    """Writes a journal. `cache` is the recording cache to use; `placed` is an observer."""

    def __init__(self, out: BinaryIO, signal_ids: Callable[[], tuple[str, ...]]) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode
        self._signal_ids = signal_ids
        self._signals: object = None
        self.cache = RecordingCache(self.write)
        self.write(Entry("journal", format=FORMAT))

    def write(self, entry: Entry) -> None:
        """Appends a line."""
        self._out.write(self._encode(entry) + b"\n")

    def rules(self, bundle: str, files: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """These rules are in force from here on."""
        self.write(Entry("rules", bundle=bundle, files=dict(files), settings=dict(settings)))
        self._signals = None

    def acted(self, acted: Acted) -> None:
        """Plugins were asked about a pod on its node."""
        self._signals_of(acted.snapshot)
        self.write(
            Entry(
                acted.point.value,
                pod=acted.pod.pod,
                name=acted.node,
                now=acted.snapshot.now,
                waited=acted.waited,
                plugins=list(acted.only) or None,
                said=list(acted.words),
            )
        )

    def _signals_of(self, snapshot: Snapshot) -> None:
        version = snapshot.signals.version
        if version != self._signals:
            self._signals = version
            columns: Columns = {}
            sampled: Columns = {}
            values: Values = {}
            for metric in self._signal_ids():
                columns[metric] = self._by_name(snapshot.signals.column(metric))
                sampled[metric] = self._by_name(snapshot.now - snapshot.signals.age(metric))
                keyed = snapshot.signals.values(metric)
                if keyed:
                    values[metric] = [(list(key), value) for key, value in keyed.items()]
            self.write(Entry("signals", signals=columns, sampled=sampled, values=values or None))

    def placed(self, placed: Placed) -> None:
        """A decision was made; see `scheduler.Observer`."""
        snapshot, decision = placed.snapshot, placed.decision
        self._signals_of(snapshot)
        self.write(
            Entry(
                "decision",
                pod=decision.pod.pod,
                now=snapshot.now,
                bundle=decision.bundle,
                chosen=decision.node,
                total=decision.total,
                feasible=decision.feasible,
                message=decision.message,
                nominated=None if decision.rescue is None else decision.rescue.nominated,
                victims=_victims(decision),
                as_member=placed.as_member,
                opinion=decision.opinion,
            )
        )

    def _by_name(self, column: FloatColumn) -> dict[str, float]:
        nodes = self.cache.nodes
        rows = ((name, nodes.row(name)) for name in nodes.names())
        return {name: float(column[row]) for name, row in rows if not np.isnan(column[row])}


def _written(
    done: Callable[Concatenate[Any, _P], _T], line: Callable[_P, Entry]
) -> Callable[Concatenate[Any, _P], _T]:
    """A method of the cache, of which a line is written before it is done."""

    def method(cache: RecordingCache, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        cache.write(line(*args, **kwargs))
        return done(cache, *args, **kwargs)

    return method


def _object_line(what: str, item: Any) -> Entry:  # noqa: ANN401 - any struct with metadata
    return Entry(what, kind=type(item).__name__, object=msgspec.to_builtins(item))


def _wait_line(waiting: Waiting) -> Entry:
    plugins = sorted(waiting.plugins)
    return Entry(
        "waits", pod=waiting.pod.pod, name=waiting.node, now=waiting.since, plugins=plugins
    )


def _assume_line(pod: PodInfo, node_name: str, at: float = math.nan) -> Entry:
    # Zero is left out of a line, and means that no time is known.
    return Entry("assume", pod=pod.pod, name=node_name, now=0.0 if math.isnan(at) else at)


class RecordingCache(Cache):
    """A cache that writes down what is done to it; `_APPLIED` reads the lines."""

    def __init__(self, write: Callable[[Entry], None]) -> None:
        super().__init__()
        self.write = write

    add_node = _written(Cache.add_node, lambda node: Entry("node", node=node))
    update_node = _written(Cache.update_node, lambda node: Entry("node", node=node))
    remove_node = _written(Cache.remove_node, lambda name: Entry("node gone", name=name))
    set_namespace = _written(
        Cache.set_namespace, lambda namespace: Entry("namespace", namespace=namespace)
    )
    remove_namespace = _written(
        Cache.remove_namespace, lambda name: Entry("namespace gone", name=name)
    )
    set_object = _written(Cache.set_object, lambda item: _object_line("object", item))
    remove_object = _written(
        Cache.remove_object, lambda kind, key: Entry("object gone", kind=kind, name=key)
    )
    assume_object = _written(Cache.assume_object, lambda item: _object_line("object assumed", item))
    restore_object = _written(
        Cache.restore_object,
        lambda kind, key, resource_version: Entry(
            "object restored", kind=kind, name=key, uid=resource_version
        ),
    )
    assume = _written(Cache.assume, _assume_line)
    forget = _written(Cache.forget, lambda uid: Entry("forget", uid=uid))
    add_pod = _written(
        Cache.add_pod, lambda pod, node_name: Entry("pod", pod=pod.pod, name=node_name)
    )
    remove_pod = _written(Cache.remove_pod, lambda uid: Entry("pod gone", uid=uid))
    carry = _written(Cache.carry, lambda pod: Entry("carries", pod=pod))
    wait = _written(Cache.wait, _wait_line)
    wait_no_more = _written(Cache.wait_no_more, lambda uid: Entry("waits no more", uid=uid))
    nominate = _written(
        Cache.nominate, lambda pod, node_name: Entry("nominated", pod=pod.pod, name=node_name)
    )
    withdraw = _written(Cache.withdraw, lambda uid: Entry("nomination gone", uid=uid))
    attend = _written(Cache.attend, lambda to: Entry("attends", names=sorted(to)))
    set_queued = _written(
        Cache.set_queued, lambda pod, times: Entry("queued", pod=pod.pod, times=times)
    )
    remove_queued = _written(Cache.remove_queued, lambda uid: Entry("queued no more", uid=uid))
    set_finished = _written(
        Cache.set_finished,
        lambda pod, at: Entry("finished", object=msgspec.to_builtins(pod.pod), now=at),
    )
    remove_finished = _written(Cache.remove_finished, lambda uid: Entry("finished gone", uid=uid))
    expire = _written(Cache.expire, lambda now: Entry("time", now=now))


class _RecordedSignals:
    """Metrics as a journal has them."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._values: Columns = {}
        self._sampled: Columns = {}
        self._keyed: dict[str, dict[tuple[str, ...], float]] = {}
        self.version = 0
        self.now = 0.0

    def replace(self, values: Columns, sampled: Columns, keyed: Values) -> None:
        self._values = values
        self._sampled = sampled
        self._keyed = {
            metric: {tuple(key): value for key, value in each} for metric, each in keyed.items()
        }
        self.version += 1

    def value(self, metric: str, key: tuple[str, ...]) -> float:
        known = self._keyed.get(metric, {})
        return known.get(key, known.get(("", *key[1:]), math.nan))

    def values(self, metric: str) -> Mapping[tuple[str, ...], float]:
        return self._keyed.get(metric, {})

    def of_pods(self, metric: str, pods: PodColumns) -> FloatColumn:
        return value_of_each(self, metric, pods)

    def pairs(
        self, metric: str, ends: tuple[CodeColumn, CodeColumn], dictionary: Dictionary
    ) -> FloatColumn:
        return value_of_each_pair(self, metric, ends, dictionary)

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
    cut: bool = False
    """Whether the journal ends within a line."""
    metrics: set[str] = field(default_factory=set)
    """The ids of those that it has answers about."""
    cache: Cache = field(default_factory=Cache)
    """The cache as it was at the journal's end."""


FrameworksOf = Callable[[Mapping[str, str], Mapping[str, str]], Frameworks]
"""(files, settings) of a bundle -> the frameworks that were in force."""
Watcher = Callable[[int, PodInfo, Snapshot, Framework], None]
"""Told of each decision before it is made again: the line, the pod, and who decides on what."""


def replay(
    path: Path, frameworks_of: FrameworksOf, watch: Watcher = lambda *_: None
) -> ReplayReport:
    """Makes every decision of a journal again from what it was made from.

    A last line without its end was cut off when the writer was killed: it is left out.

    Raises:
        ValueError: the file is no journal; the message names the line.
    """
    again = _Replay(frameworks_of, watch)
    number = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if number > 1 and not line.endswith(b"\n"):
                again.report.cut = True
                break
            try:
                again.take(number, line)
            except (ValueError, LookupError) as wrong:
                reason = str(wrong).partition("\n")[0]
                raise ValueError(f"{path}:{number}: not a line of a journal: {reason}") from wrong
    if not number:
        raise ValueError(f"{path}: is empty, a journal has a first line")
    return again.report


class _Replay:
    """A journal read so far."""

    def __init__(self, frameworks_of: FrameworksOf, watch: Watcher) -> None:
        self.report = ReplayReport()
        self._watch = watch
        self._frameworks_of = frameworks_of
        self._frameworks: Frameworks | None = None
        self._signals = _RecordedSignals(self.report.cache.nodes)
        self._decode = msgspec.json.Decoder(Entry).decode
        self._decided: dict[str, Decision] = {}

    def take(self, number: int, line: bytes) -> None:
        """The next line.

        Raises:
            ValueError, LookupError: it does not follow from those before.
        """
        entry = self._decode(line)
        if (entry.what == "journal") != (number == 1):
            raise ValueError("a journal has its format in the first line, and only there")
        match entry.what:
            case "journal":
                if not 1 <= entry.format <= FORMAT:
                    raise ValueError(f"this version reads format {FORMAT}, not {entry.format}")
            case "rules":
                self._frameworks = self._frameworks_of(entry.files or {}, entry.settings or {})
            case "signals":
                self.report.metrics.update(entry.signals or {})
                self._signals.replace(entry.signals or {}, entry.sampled or {}, entry.values or {})
            case "decision":
                self._decide(number, entry)
            case "reserve" | "permit" | "act":
                self._act(number, entry)
            case what if what in _APPLIED:
                _APPLIED[what](self.report.cache, entry)
            case what:
                raise ValueError(f"nothing is called {what!r}")

    def _decide(self, number: int, entry: Entry) -> None:
        if self._frameworks is None:
            raise ValueError("a decision before any rules")
        pod = _pod(entry)
        self._signals.now = entry.now
        snapshot = self.report.cache.snapshot(entry.now, self._signals)
        framework = self._frameworks.of(pod)
        self._watch(number, pod, snapshot, framework)
        if entry.as_member:
            decision = decide(pod, snapshot, framework)
        else:
            decision = conclude(pod, snapshot, framework, entry.opinion)
        was: tuple[object, ...] = (entry.chosen, entry.total, entry.feasible, entry.message)
        was += (entry.bundle, entry.victims)
        now: tuple[object, ...] = (
            decision.node,
            decision.total,
            decision.feasible,
            decision.message,
        )
        now += (decision.bundle, _victims(decision))
        self.report.decisions += 1
        if decision.node is not None:
            self._decided[pod.uid] = decision
        if was == now:
            self.report.equal += 1
        else:
            self.report.differences.append(f"line {number}: {pod.key}: was {was}, now {now}")

    def _act(self, number: int, entry: Entry) -> None:
        """What plugins say of a pod on its node."""
        pod = _pod(entry)
        decision = self._decided.get(pod.uid)
        if self._frameworks is None or decision is None:
            raise ValueError("something is done about a pod before any decision")
        self._signals.now = entry.now
        snapshot = self.report.cache.snapshot(entry.now, self._signals)
        framework = self._frameworks.of(pod)
        if entry.what == Point.RESERVE.value:
            said = framework.reserve(pod, snapshot, entry.name).words
        elif entry.what == Point.PERMIT.value:
            only = entry.plugins or ()
            said = framework.permit(pod, snapshot, entry.name, entry.waited, only).words
        else:
            said = framework.act(pod, snapshot, decision).words
            del self._decided[pod.uid]
        was = tuple(entry.said or ())
        if was != said:
            self.report.differences.append(f"line {number}: {pod.key}: was {was}, now {said}")


def _victims(decision: Decision) -> list[str] | None:
    """The pods to evict, if any."""
    rescue = decision.rescue
    return None if rescue is None else [one.pod.key for one in rescue.evictions] or None


def _object(entry: Entry) -> Any:  # noqa: ANN401 - a struct of the kind that is named
    struct = STRUCTS.get(entry.kind)
    if struct is None:
        raise ValueError(f"no kind is called {entry.kind!r}")
    return from_builtins(struct, _needed(entry.object))


def _needed(value: _T | None) -> _T:
    if value is None:
        raise ValueError("the object is missing")
    return value


def _pod(entry: Entry) -> PodInfo:
    return make_pod_info(_needed(entry.pod))


def _waiting(entry: Entry) -> Waiting:
    return Waiting(_pod(entry), entry.name, entry.now, frozenset(entry.plugins or ()))


def _finished(entry: Entry) -> PodInfo:
    return make_pod_info(from_builtins(FinishedPod, _needed(entry.object)))


#: What is done to the cache for a line that is neither a decision nor about rules or metrics.
_APPLIED: Final[Mapping[str, Callable[[Cache, Entry], object]]] = MappingProxyType(
    {
        "node": lambda cache, one: cache.add_node(_needed(one.node)),
        "node gone": lambda cache, one: cache.remove_node(one.name),
        "namespace": lambda cache, one: cache.set_namespace(_needed(one.namespace)),
        "namespace gone": lambda cache, one: cache.remove_namespace(one.name),
        "object": lambda cache, one: cache.set_object(_object(one)),
        "object gone": lambda cache, one: cache.remove_object(one.kind, one.name),
        "object assumed": lambda cache, one: cache.assume_object(_object(one)),
        "object restored": lambda cache, one: cache.restore_object(one.kind, one.name, one.uid),
        "assume": lambda cache, one: cache.assume(_pod(one), one.name, one.now or math.nan),
        "forget": lambda cache, one: cache.remove_pod(one.uid),
        "pod": lambda cache, one: cache.add_pod(_pod(one), one.name),
        "pod gone": lambda cache, one: cache.remove_pod(one.uid),
        "carries": lambda cache, one: cache.carry(_needed(one.pod)),
        "waits": lambda cache, one: cache.wait(_waiting(one)),
        "waits no more": lambda cache, one: cache.wait_no_more(one.uid),
        "nominated": lambda cache, one: cache.nominate(_pod(one), one.name),
        "nomination gone": lambda cache, one: cache.withdraw(one.uid),
        "attends": lambda cache, one: cache.attend(frozenset(_needed(one.names))),
        "queued": lambda cache, one: cache.set_queued(_pod(one), _needed(one.times)),
        "queued no more": lambda cache, one: cache.remove_queued(one.uid),
        "finished": lambda cache, one: cache.set_finished(_finished(one), one.now),
        "finished gone": lambda cache, one: cache.remove_finished(one.uid),
        "time": lambda cache, one: cache.expire(one.now),
    }
)
