"""Samples of metrics go in as they come; columns aligned with the node table come out at once.

Nothing here asks for anything: `PrometheusRefresher` does. Between two changes a `view` costs a
microsecond; after one, columns are made anew when they are first read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from cachetools import TTLCache
from numpy.typing import NDArray

from engine.clock import Clock
from engine.framework.snapshot import FloatColumn, NodeColumns
from engine.objects import Node
from engine.signals.directory import NodeDirectory
from engine.signals.spec import Question, SignalSpec, SignalStatus

_LOG = logging.getLogger(__name__)

_RETIRED = 64
_RETIRED_SECONDS = 600.0
_UNMATCHED_KEPT = 20_000
_PAUSE_EVERY = 256
_NAN = math.nan


class NodeTable(Protocol):
    """What a view is aligned with; `engine.cache.Cache` is one."""

    @property
    def nodes(self) -> NodeColumns:
        """The node table."""
        ...

    @property
    def layout(self) -> int:
        """Changes when rows are added or reused."""
        ...


class Series(NamedTuple):
    """One series of an answer: the texts that may name its node, its value and its time."""

    names: tuple[str, ...]
    value: float
    time: float


@dataclass(frozen=True, slots=True)
class Matched:
    """An answer with its series assigned to slots; made by `SignalStore.match`."""

    slots: NDArray[np.intp]
    values: FloatColumn
    times: FloatColumn
    unmatched: Sequence[Series]
    series: int
    duplicates: int
    directory_version: int


def _missing(size: int) -> FloatColumn:
    return np.full(size, _NAN)


@dataclass(slots=True)
class _Samples:
    """The newest sample of each slot. The last element is always NaN: it stands for slot -1."""

    values: FloatColumn = field(default_factory=lambda: _missing(1))
    times: FloatColumn = field(default_factory=lambda: _missing(1))
    unmatched: Sequence[Series] = ()
    directory_version: int = -1
    series: int = 0
    duplicates: int = 0
    error: str = ""

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` slots and the one after."""
        have = self.values.size
        if have <= capacity:
            room = max(capacity + 1, 2 * have) - have
            self.values = np.concatenate((self.values, _missing(room)))
            self.times = np.concatenate((self.times, _missing(room)))


class _Epoch:
    """Columns between two changes; `columns` and `times` are filled as they are read."""

    __slots__ = (
        "changes",
        "columns",
        "directory_version",
        "layout",
        "nodes",
        "slots",
        "stale_after",
        "times",
        "version",
    )

    def __init__(self, nodes: NodeColumns, layout: int, slots: NDArray[np.intp]) -> None:
        self.nodes = nodes
        self.layout = layout
        self.slots = slots
        self.version = 0
        self.changes = -1
        self.directory_version = -1
        self.stale_after = math.inf
        self.columns: dict[str, FloatColumn] = {}
        self.times: dict[str, FloatColumn] = {}


class SignalView:
    """The metric columns of one cycle; a `framework.snapshot.Signals`."""

    __slots__ = ("_epoch", "_now", "_store", "version")

    def __init__(self, store: SignalStore, epoch: _Epoch, now: float) -> None:
        self._store = store
        self._epoch = epoch
        self._now = now
        self.version = epoch.version
        """New samples, samples that turned stale, other rows; not that ages grow."""

    def column(self, metric: str) -> FloatColumn:
        """(N,) the newest value a node; where it is missing or stale the default, else NaN."""
        column = self._epoch.columns.get(metric)
        if column is None:
            column = self._store.make_column(metric, self._epoch, self._now)
        return column

    def age(self, metric: str) -> FloatColumn:
        """(N,) seconds since the sample was taken, stale or not; NaN without one."""
        times = self._epoch.times.get(metric)
        if times is None:
            times = self._store.make_times(metric, self._epoch)
        age = self._now - times
        np.maximum(age, 0.0, out=age)
        return age


class SignalStore:
    """The samples of all metrics in use.

    Single owner: the event loop; only `match` may run in another thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._specs: dict[str, SignalSpec] = {}
        self._entries: dict[Question, _Samples] = {}
        # Metrics that no policy reads now: a bundle that comes back finds its data.
        self._retired: TTLCache[Question, _Samples] = TTLCache(
            _RETIRED, _RETIRED_SECONDS, timer=clock.monotonic
        )
        self._directory = NodeDirectory()
        self._epoch: _Epoch | None = None
        self._changes = 0
        self._version = 0

    # --- configuration and nodes

    def set_specs(self, specs: Iterable[SignalSpec]) -> None:
        """Replaces the metrics in use; those whose question stays keep their samples."""
        self._specs = {spec.id: spec for spec in specs}
        wanted = {spec.question for spec in self._specs.values()}
        for question in [q for q in self._entries if q not in wanted]:
            self._retired[question] = self._entries.pop(question)
        for question in wanted - self._entries.keys():
            kept = question in self._retired
            self._entries[question] = self._retired.pop(question) if kept else _Samples()
        self._changes += 1

    def questions(self) -> Mapping[Question, float]:
        """What has to be asked, and how often in seconds."""
        every: dict[Question, float] = {}
        for spec in self._specs.values():
            question = spec.question
            every[question] = min(every.get(question, math.inf), spec.every_seconds)
        return every

    def names(self, question: Question) -> str:
        """The metrics that a question serves, for logs."""
        served = {s.name or s.id for s in self._specs.values() if s.question == question}
        return ", ".join(sorted(served))

    def nodes_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came (`old` None), changed, or went (`new` None).

        New nodes are also found by `view`; changes of labels and addresses only here.
        """
        if new is not None:
            self._directory.put(new)
        elif old is not None:
            self._remove(old.metadata.name)

    def _remove(self, name: str) -> None:
        slot = self._directory.remove(name)
        if slot < 0:
            return
        for samples in (*self._entries.values(), *self._retired.values()):
            if slot < samples.values.size - 1:
                samples.values[slot] = samples.times[slot] = _NAN

    # --- samples

    def match(self, answer: Sequence[Series], pause: Callable[[], None] = lambda: None) -> Matched:
        """Finds the node of each series; of several for one node the largest value counts.

        Reads the directory only, so it may run outside the event loop; `pause` is called every few
        hundred series, to let that go on.
        """
        version = self._directory.version
        best: dict[int, Series] = {}
        unmatched: list[Series] = []
        duplicates = 0
        find = self._directory.find
        for number, series in enumerate(answer):
            if not number % _PAUSE_EVERY:
                pause()
            for name in series.names:
                slot = find(name)
                if slot >= 0:
                    break
            else:
                unmatched.append(series)
                continue
            known = best.get(slot)
            if known is not None:
                duplicates += 1
                if known.value >= series.value:
                    continue
            best[slot] = series
        count = len(best)
        return Matched(
            slots=np.fromiter(best, np.intp, count),
            values=np.fromiter((s.value for s in best.values()), np.float64, count),
            times=np.fromiter((s.time for s in best.values()), np.float64, count),
            unmatched=unmatched[:_UNMATCHED_KEPT],
            series=len(answer),
            duplicates=duplicates,
            directory_version=version,
        )

    def ingest(
        self, question: Question, answer: Sequence[Series], matched: Matched | None = None
    ) -> None:
        """Takes in an answer: nodes that it does not name keep their sample until it is stale.

        `matched` is what `match` made of it elsewhere; it is made again if nodes changed since.
        """
        samples = self._entries.get(question)
        if samples is None:
            return
        # INVARIANT: slots are stored under the directory that they were found in, as a slot may
        # be another node's in the next one.
        if matched is None or matched.directory_version != self._directory.version:
            matched = self.match(answer)
        if matched.duplicates and not samples.duplicates:
            _LOG.warning(
                "P603: metric %s: %d series more than nodes; the largest of each node is used",
                self.names(question),
                matched.duplicates,
            )
        if samples.error:
            _LOG.info("metric %s: answered again", self.names(question))
        samples.error = ""
        samples.series = matched.series
        samples.duplicates = matched.duplicates
        self._store(samples, matched)
        self._changes += 1

    def fail(self, question: Question, error: str) -> bool:
        """A question was not answered: samples stay. True if it had been answered before."""
        samples = self._entries.get(question)
        if samples is None:
            return False
        first = not samples.error
        samples.error = error
        return first

    def _store(self, samples: _Samples, matched: Matched) -> None:
        samples.grow(self._directory.capacity)
        if matched.slots.size:
            # Our clock decides how old a sample is; one from the future is from now.
            times = np.minimum(matched.times, self._clock.time())
            samples.values[matched.slots] = matched.values
            samples.times[matched.slots] = times
        samples.unmatched = matched.unmatched
        samples.directory_version = matched.directory_version

    def _match_again(self, samples: _Samples) -> None:
        """Nodes came or got addresses since the answer: looks at what had no node."""
        if samples.unmatched and samples.directory_version != self._directory.version:
            self._store(samples, self.match(samples.unmatched))

    # --- columns

    def view(self, cache: NodeTable, now: float) -> SignalView:
        """The columns as of `now`, aligned with the rows of `cache.nodes`."""
        epoch = self._epoch
        if (
            epoch is None
            or epoch.changes != self._changes
            or epoch.layout != cache.layout
            or epoch.directory_version != self._directory.version
            or now > epoch.stale_after
            or epoch.nodes is not cache.nodes
        ):
            epoch = self._renew(cache, now)
        return SignalView(self, epoch, now)

    def _renew(self, cache: NodeTable, now: float) -> _Epoch:
        old = self._epoch
        nodes, layout = cache.nodes, cache.layout
        version = self._directory.version
        if (
            old is not None
            and old.layout == layout
            and old.nodes is nodes
            and old.directory_version == version
        ):
            epoch = _Epoch(nodes, layout, old.slots)
        else:
            epoch = _Epoch(nodes, layout, self._align(nodes))
        for samples in self._entries.values():
            self._match_again(samples)
            samples.grow(self._directory.capacity)
        epoch.stale_after = self._next_stale(now)
        epoch.changes = self._changes
        epoch.directory_version = self._directory.version
        self._version += 1
        epoch.version = self._version
        self._epoch = epoch
        return epoch

    def _align(self, nodes: NodeColumns) -> NDArray[np.intp]:
        """(N,) the slot of each row, -1 where it holds no node."""
        directory = self._directory
        slots = np.full(nodes.size, -1, np.intp)
        rows = np.flatnonzero(nodes.present).tolist()
        for row in rows:
            name = nodes.name(row)
            slot = directory.slot(name)
            if slot < 0:
                directory.put(nodes.node(row))
                slot = directory.slot(name)
            slots[row] = slot
        if len(directory) > 2 * len(rows) + _RETIRED:
            for name in [n for n in directory.names() if nodes.row(n) < 0]:
                self._remove(name)
        return slots

    def _next_stale(self, now: float) -> float:
        """When the first of the samples that are good now turns stale."""
        soonest = math.inf
        for spec in self._specs.values():
            times = self._entries[spec.question].times
            fresh = times[times >= now - spec.stale_seconds]
            if fresh.size:
                soonest = min(soonest, float(fresh.min()) + spec.stale_seconds)
        return soonest

    def make_column(self, metric: str, epoch: _Epoch, now: float) -> FloatColumn:
        """Makes the column of a view; an unknown metric is missing everywhere."""
        spec = self._specs.get(metric)
        if spec is None:
            column = _missing(epoch.slots.size)
        else:
            samples = self._entries[spec.question]
            column = samples.values[epoch.slots]
            if spec.scale != 1.0:
                column *= spec.scale
            times = samples.times[epoch.slots]
            column[~(times >= now - spec.stale_seconds)] = _NAN
            if spec.default is not None:
                column[np.isnan(column)] = spec.default
        column.flags.writeable = False
        epoch.columns[metric] = column
        return column

    def make_times(self, metric: str, epoch: _Epoch) -> FloatColumn:
        """Makes the times behind a view's ages."""
        spec = self._specs.get(metric)
        if spec is None:
            times = _missing(epoch.slots.size)
        else:
            times = self._entries[spec.question].times[epoch.slots]
        epoch.times[metric] = times
        return times

    # --- reports

    def status(self) -> tuple[SignalStatus, ...]:
        """How each metric is, by id."""
        now = self._clock.time()
        return tuple(self._status(self._specs[key], now) for key in sorted(self._specs))

    def _status(self, spec: SignalSpec, now: float) -> SignalStatus:
        samples = self._entries[spec.question]
        known = samples.times[~np.isnan(samples.times)]
        return SignalStatus(
            id=spec.id,
            query=spec.query,
            series=samples.series,
            matched=int(known.size),
            unmatched=len(samples.unmatched),
            duplicates=samples.duplicates,
            age_seconds=max(0.0, now - float(known.max())) if known.size else None,
            error=samples.error,
        )
