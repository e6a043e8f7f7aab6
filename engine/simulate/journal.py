"""Decisions written down with everything they were made from, and made again from that.

A journal is JSON Lines: its format, then every change of the cache, every change of the metric
columns, every bundle of rules, every decision, in their order. Replaying it drives the same cache,
plugins and cycle, and compares what comes out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, get_type_hints

import msgspec
import numpy as np

from engine.cache import Cache
from engine.clock import ManualClock
from engine.cycle import conclude, decide
from engine.framework.acting import Acted, Point
from engine.framework.decision import Decision, Placed
from engine.framework.frameworks import Frameworks
from engine.framework.opinion import Opinion
from engine.framework.runtime import Framework
from engine.framework.searchprogress import SLICE_RUNS, SearchProgress, UnfinishedError
from engine.framework.snapshot import FloatColumn, Snapshot, Waiting
from engine.kube.resources import STRUCTS
from engine.objects import Pod, from_builtins
from engine.ondemand import FinishedPod
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.simulate.lab import Lab
from engine.simulate.samples import Columns, Samples, Values

_LOG = logging.getLogger(__name__)

FORMAT: Final = 7
_MOST_OF_LINE: Final = 256 << 20
"""Bytes: a device is no journal, and has no end."""


class Entry(msgspec.Struct, omit_defaults=True):
    """One line of a journal; `what` says which of the other fields are set."""

    what: str
    format: int = 0
    args: list[Any] | None = None
    pod: Pod | None = None
    name: str = ""
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
    slices: int = 0
    opinion: Opinion | None = None
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
        self._ended = False
        self.cache = RecordingCache(self.write)
        self.write(Entry("journal", format=FORMAT))

    def write(self, entry: Entry) -> None:
        """Appends a line; once that fails, nothing more: who is recorded goes on."""
        if self._ended:
            return
        line = self._encode(entry) + b"\n"
        why = "No space left on device"
        try:
            self._ended = self._out.write(line) < len(line)
        except OSError as failed:
            self._ended, why = True, failed.strerror or str(failed)
        if self._ended:
            _LOG.warning("The journal ends here: it cannot be written: %s", why)

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
        entry = _decision_line(decision)
        entry.pod, entry.now = decision.pod.pod, snapshot.now
        entry.nominated = None if decision.rescue is None else decision.rescue.nominated
        entry.as_member, entry.opinion = placed.as_member, decision.opinion
        entry.slices = placed.slices if placed.slices > 1 else 0
        self.write(entry)

    def sliced(
        self, pod: PodInfo, snapshot: Snapshot, opinion: Opinion | None, slices: int
    ) -> None:
        """A cycle has decided nothing yet; see `placement.SlicesObserver`."""
        self._signals_of(snapshot)
        self.write(Entry("slice", pod=pod.pod, now=snapshot.now, opinion=opinion, slices=slices))

    def _by_name(self, column: FloatColumn) -> dict[str, float]:
        nodes = self.cache.nodes
        rows = ((name, nodes.row(name)) for name in nodes.names())
        return {name: float(column[row]) for name, row in rows if not np.isnan(column[row])}


# ---- what is done to a cache ---------------------------------------------------------------------

_APPLIED: Final[dict[str, Callable[[Cache, Sequence[Any]], object]]] = {}
"""What is done again, with these arguments, for a line that has the name of a method."""


def _plain(kind: object, value: object) -> object:
    """An argument as a line has it; an object of any kind says of which it is."""
    if isinstance(value, Waiting):
        return value.pod.pod, value.node, value.since, sorted(value.plugins)
    if isinstance(value, PodInfo):
        return value.pod
    if isinstance(value, frozenset):
        return sorted(value)
    return (type(value).__name__, value) if kind is Any else value


def _read(kind: Any, value: Any) -> Any:  # noqa: ANN401 - what is of that kind
    if kind is Waiting:
        pod, node, since, plugins = value
        return Waiting(_pod(from_builtins(Pod, pod)), node, since, frozenset(plugins))
    if kind in (PodInfo, FinishedPod):
        return _pod(from_builtins(Pod if kind is PodInfo else kind, value))
    if kind is float and value is None:  # JSON has no other word for a time that is not known
        return math.nan
    if kind is Any:
        name, value = value
        kind = STRUCTS.get(name)
        if kind is None:
            raise ValueError(f"no kind is called {name!r}")
    return from_builtins(kind, value)


def _pod(pod: Pod | None) -> PodInfo:
    if pod is None:
        raise ValueError("the pod is missing")
    return make_pod_info(pod)


class RecordingCache(Cache):
    """A cache that writes down what is done to it."""

    def __init__(self, write: Callable[[Entry], None]) -> None:
        super().__init__()
        self.write = write


def _record(done: Callable[..., object]) -> None:
    """A method of the cache is done again by `_APPLIED`, and by the recording one written before.

    The line has the name of the method and its arguments in order.
    """
    name = done.__name__
    kinds = [*get_type_hints(done).values()][:-1]
    if done is Cache.set_finished:
        kinds[0] = FinishedPod
    least = len(kinds) - len(done.__defaults__ or ())

    def method(cache: RecordingCache, *args: object, **kwargs: object) -> object:
        cache.write(Entry(name, args=[*map(_plain, kinds, (*args, *kwargs.values()))]))
        return done(cache, *args, **kwargs)

    def again(cache: Cache, args: Sequence[Any]) -> object:
        if not least <= len(args) <= len(kinds):
            raise ValueError(f"{name} has {len(args)} arguments, not {least}")
        return done(cache, *map(_read, kinds, args))

    setattr(RecordingCache, name, method)
    _APPLIED[name] = again


for _done in (
    *(Cache.add_node, Cache.remove_node, Cache.set_namespace, Cache.remove_namespace),
    *(Cache.set_object, Cache.remove_object, Cache.assume_object, Cache.restore_object),
    *(Cache.assume, Cache.forget, Cache.add_pod, Cache.remove_pod, Cache.carry, Cache.wait),
    *(Cache.wait_no_more, Cache.nominate, Cache.withdraw, Cache.evicts, Cache.attend),
    *(Cache.set_queued, Cache.remove_queued, Cache.set_finished, Cache.remove_finished),
    Cache.expire,
):
    _record(_done)


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
        for number, line in enumerate(iter(partial(lines.readline, _MOST_OF_LINE), b""), 1):
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
    """A journal read so far: its cluster in a lab, in which nothing happens but what it says."""

    def __init__(self, frameworks_of: FrameworksOf, watch: Watcher) -> None:
        self._watch = watch
        self._frameworks_of = frameworks_of
        self._samples = Samples()
        self._lab: Lab | None = None
        self.report = ReplayReport()
        self._decode = msgspec.json.Decoder(Entry).decode
        self._decided: dict[str, Decision] = {}
        self._progress: dict[str, SearchProgress] = {}

    def take(self, number: int, line: bytes) -> None:
        """The next line.

        Raises:
            ValueError, LookupError: it does not follow from those before.
        """
        entry = self._decode(line)
        if (entry.what == "journal") != (number == 1):
            raise ValueError("a journal has its format in the first line and only there")
        match entry.what:
            case "journal":
                if entry.format != FORMAT:
                    raise ValueError(f"this version reads format {FORMAT}, not {entry.format}")
            case "rules":
                rules = self._frameworks_of(entry.files or {}, entry.settings or {})
                there = self.report.cache
                self._lab = Lab(rules, clock=ManualClock(), signals=self._samples, cache=there)
            case "signals":
                self.report.metrics.update(entry.signals or {})
                self._samples.replace(entry.signals or {}, entry.sampled or {}, entry.values or {})
            case "decision":
                self._decide(number, entry)
            case "slice":
                pod, snapshot, framework = self._asked(entry)
                # A search before this one may have come to no decision.
                known = None if entry.slices == 1 else self._progress[pod.uid]
                progress = self._progress[pod.uid] = known or SearchProgress(SLICE_RUNS)
                with suppress(UnfinishedError):
                    conclude(pod, snapshot, framework, entry.opinion, progress)
            case "reserve" | "permit" | "act":
                self._act(number, entry)
            case what if what in _APPLIED:
                _APPLIED[what](self.report.cache, entry.args or ())
            case what:
                raise ValueError(f"nothing is called {what!r}")

    def _asked(self, entry: Entry) -> tuple[PodInfo, Snapshot, Framework]:
        """The pod of a line, the cluster as of then, and who decided."""
        if self._lab is None:
            raise ValueError("a decision before any rules")
        pod = _pod(entry.pod)
        self._lab.clock = ManualClock(entry.now)
        return pod, self._lab.snapshot(), self._lab.frameworks.of(pod)

    def _decide(self, number: int, entry: Entry) -> None:
        pod, snapshot, framework = self._asked(entry)
        self._watch(number, pod, snapshot, framework)
        progress = self._progress.pop(pod.uid, None) if entry.slices else None
        decision = decide(pod, snapshot, framework) if entry.as_member else None
        while decision is None:
            with suppress(UnfinishedError):  # only where it is no longer as it was
                decision = conclude(pod, snapshot, framework, entry.opinion, progress)
        was = _told(entry)
        now = _told(_decision_line(decision))
        self.report.decisions += 1
        if decision.node is not None:
            self._decided[pod.uid] = decision
        if was == now:
            self.report.equal += 1
        else:
            self.report.differences.append(f"line {number}: {pod.key}: was {was}, now {now}")

    def _act(self, number: int, entry: Entry) -> None:
        """What plugins say of a pod on its node."""
        pod, snapshot, framework = self._asked(entry)
        decision = self._decided.get(pod.uid)
        if decision is None:
            raise ValueError("an action on a pod before any decision")
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


def _decision_line(decision: Decision) -> Entry:
    """What is compared of a decision."""
    rescue = decision.rescue
    return Entry(
        "decision",
        bundle=decision.bundle,
        chosen=decision.node,
        total=decision.total,
        feasible=decision.feasible,
        message=decision.message,
        victims=None if rescue is None else [one.pod.key for one in rescue.evictions] or None,
    )


def _told(one: Entry) -> tuple[object, ...]:
    return one.chosen, one.total, one.feasible, one.message, one.bundle, one.victims
