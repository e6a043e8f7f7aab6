"""Samples of metrics go in as they come; columns aligned with the node table come out at once.

Nothing here asks for anything: `PrometheusRefresher` does. Between two changes a `view` costs a
microsecond; after one, columns are made anew when they are first read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from cachetools import TTLCache
from numpy.typing import NDArray

from engine.clock import Clock
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import (
    CodeColumn,
    Dictionary,
    FloatColumn,
    NodeColumns,
    PodColumns,
    label_column,
)
from engine.objects import Node
from engine.signals.directory import NodeDirectory
from engine.signals.pairs import PairMatch, PairSamples
from engine.signals.samples import (
    PAUSE_EVERY,
    KeyedMatch,
    KeyedSamples,
    Samples,
    Series,
    missing,
)
from engine.signals.spec import (
    CLUSTER,
    DOMAIN_LABELS,
    NODE,
    PAIR,
    PROMETHEUS,
    Question,
    SignalSpec,
    SignalStatus,
)

__all__ = ["Matched", "NodeTable", "Series", "SignalStore", "SignalView"]

_LOG = logging.getLogger(__name__)

_RETIRED = 64
_RETIRED_SECONDS = 600.0
_RETIRED_SLOTS = 50_000
_UNMATCHED_KEPT = 20_000
_NAN = math.nan
_NOBODY: Final = np.empty(0, np.intp)


def _full_name(pod: PodInfo) -> str:
    return f"{pod.namespace}/{pod.name}"


def _bare_name(pod: PodInfo) -> str:
    return f"/{pod.name}"


_FULL_NAME: Final = "full name", _full_name
_BARE_NAME: Final = "bare name", _bare_name


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

    @property
    def dictionary(self) -> Dictionary:
        """The texts behind its codes."""
        ...


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


Match = Matched | KeyedMatch | PairMatch
"""An answer with its series assigned, to be stored."""


@dataclass(slots=True)
class _NodeSamples(Samples):
    """The samples of a metric of nodes, and series that had no node yet."""

    left: Sequence[Series] = ()
    directory_version: int = -1


class _Epoch:
    """Columns between two changes; `columns` and `times` are filled as they are read."""

    __slots__ = (
        "changes",
        "columns",
        "dictionary",
        "directory_version",
        "domains",
        "layout",
        "nodes",
        "slots",
        "stale_after",
        "tables",
        "times",
        "version",
    )

    def __init__(self, cache: NodeTable, slots: NDArray[np.intp]) -> None:
        self.nodes = cache.nodes
        self.layout = cache.layout
        self.dictionary = cache.dictionary
        self.slots = slots
        self.domains: dict[str, tuple[list[str | None], NDArray[np.intp]]] = {}
        self.version = 0
        self.changes = -1
        self.directory_version = -1
        self.stale_after = math.inf
        self.columns: dict[str, FloatColumn] = {}
        self.times: dict[str, FloatColumn] = {}
        self.tables: dict[str, FloatColumn] = {}


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

    def value(self, metric: str, key: tuple[str, ...]) -> float:
        """The newest value of the cluster, a namespace, a workload, a pod or a pair."""
        return self._store.value(metric, key, self._now)

    def values(self, metric: str) -> dict[tuple[str, ...], float]:
        """All values of a metric that nodes have not, without those that are missing."""
        return self._store.values(metric, self._now)

    def pairs(
        self, metric: str, ends: tuple[CodeColumn, CodeColumn], dictionary: Dictionary
    ) -> FloatColumn:
        """(n,) the newest values of pairs of texts."""
        return self._store.pairs(metric, ends, dictionary, self._now)

    def of_pods(self, metric: str, pods: PodColumns) -> FloatColumn:
        """(P,) the newest value of each pod. One look into a table a pod."""
        table = self._epoch.tables.get(metric)
        if table is None:
            table = self._store.make_table(metric, self._epoch, self._now)
        values = table.take(pods.text(*_FULL_NAME), mode="clip")
        if self._store.without_namespace(metric):
            bare = table.take(pods.text(*_BARE_NAME), mode="clip")
            values = np.where(np.isnan(values), bare, values)
        return values


class SignalStore:
    """The samples of all metrics in use.

    Single owner: the event loop; only `match` may run in another thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._specs: dict[str, SignalSpec] = {}
        self._entries: dict[Question, Samples] = {}
        # Metrics that no policy reads now: a bundle that comes back finds its data.
        self._retired: TTLCache[Question, Samples] = TTLCache(
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
            gone = self._entries.pop(question)
            if gone.values.size <= _RETIRED_SLOTS:
                self._retired[question] = gone
        for question in wanted - self._entries.keys():
            kept = question in self._retired
            made = self._retired.pop(question) if kept else _samples_of(question)
            self._entries[question] = made
        self._changes += 1

    def questions(self, source: str = PROMETHEUS) -> Mapping[Question, float]:
        """What a source has to be asked, and how often in seconds."""
        every: dict[Question, float] = {}
        for spec in self._specs.values():
            question = spec.question
            if question.source != source:
                continue
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
            if isinstance(samples, _NodeSamples) and slot < samples.values.size - 1:
                samples.values[slot] = samples.times[slot] = _NAN

    # --- samples

    def match(
        self,
        question: Question,
        answer: Sequence[Series],
        pause: Callable[[], None] = lambda: None,
    ) -> Match:
        """Finds whose each series is; of several for one the largest value counts.

        Changes nothing, so it may run outside the event loop; `pause` is called every few hundred
        series, to let that go on.
        """
        samples = self._entries.get(question)
        if isinstance(samples, KeyedSamples):
            return samples.match(question, answer, pause)
        if isinstance(samples, PairSamples):
            return samples.match(answer, pause)
        return self._match_nodes(answer, pause)

    def _match_nodes(
        self, answer: Sequence[Series], pause: Callable[[], None] = lambda: None
    ) -> Matched:
        version = self._directory.version
        best: dict[int, Series] = {}
        unmatched: list[Series] = []
        duplicates = 0
        find = self._directory.find
        for number, series in enumerate(answer):
            if not number % PAUSE_EVERY:
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
        self,
        question: Question,
        answer: Sequence[Series],
        matched: Match | None = None,
    ) -> None:
        """Takes in an answer: who it does not name keeps the sample until it is stale.

        `matched` is what `match` made of it elsewhere; it is made again where that no longer holds.
        """
        samples = self._entries.get(question)
        if samples is None:
            return
        if matched is None or not self._holds(samples, matched):
            matched = self.match(question, answer)
        if matched.duplicates and not samples.duplicates:
            _LOG.warning("P603: metric %s: %s", self.names(question), _too_many(question, matched))
        if samples.error:
            _LOG.info("metric %s: answered again", self.names(question))
        samples.error = ""
        samples.series = matched.series
        samples.duplicates = matched.duplicates
        self._store(samples, matched)
        self._changes += 1

    def replace(self, question: Question, answer: Sequence[Series]) -> None:
        """Takes in all that there is: who the answer does not name has no value any more."""
        samples = self._entries.get(question)
        if samples is not None:
            self._entries[question] = _samples_of(question)
            self._entries[question].duplicates = samples.duplicates
            self.ingest(question, answer)

    def _holds(self, samples: Samples, matched: Match) -> bool:
        if isinstance(matched, KeyedMatch):
            return isinstance(samples, KeyedSamples) and samples.holds(matched)
        if isinstance(matched, PairMatch):
            return isinstance(samples, PairSamples) and samples.holds(matched)
        # INVARIANT: slots are stored under the directory that they were found in, as a slot may
        # be another node's in the next one.
        return (
            isinstance(samples, _NodeSamples)
            and matched.directory_version == self._directory.version
        )

    def fail(self, question: Question, error: str) -> bool:
        """A question was not answered: samples stay. True if it had been answered before."""
        samples = self._entries.get(question)
        if samples is None:
            return False
        first = not samples.error
        samples.error = error
        return first

    def _store(self, samples: Samples, matched: Match) -> None:
        if isinstance(matched, KeyedMatch):
            assert isinstance(samples, KeyedSamples)
            samples.take(matched, self._clock.time())
            return
        if isinstance(matched, PairMatch):
            assert isinstance(samples, PairSamples)
            samples.take(matched, self._clock.time())
            return
        assert isinstance(samples, _NodeSamples)
        samples.grow(self._directory.capacity)
        if matched.slots.size:
            # Our clock decides how old a sample is; one from the future is from now.
            times = np.minimum(matched.times, self._clock.time())
            samples.values[matched.slots] = matched.values
            samples.times[matched.slots] = times
        samples.left = matched.unmatched
        samples.unmatched = len(matched.unmatched)
        samples.directory_version = matched.directory_version

    def _match_again(self, samples: _NodeSamples) -> None:
        """Nodes came or got addresses since the answer: looks at what had no node."""
        if samples.left and samples.directory_version != self._directory.version:
            self._store(samples, self._match_nodes(samples.left))

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
        if (
            old is not None
            and old.layout == cache.layout
            and old.nodes is cache.nodes
            and old.directory_version == self._directory.version
        ):
            epoch = _Epoch(cache, old.slots)
            epoch.domains = old.domains
        else:
            epoch = _Epoch(cache, self._align(cache.nodes))
        for samples in self._entries.values():
            if isinstance(samples, _NodeSamples):
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
        """Makes the column of a view; what no node has a value of is missing everywhere."""
        spec = self._specs.get(metric)
        slots = _NOBODY if spec is None else self._slots(spec, epoch)
        if spec is None or slots is _NOBODY:
            column = missing(epoch.slots.size)
        else:
            samples = self._entries[spec.question]
            column = samples.values[slots]
            if spec.scale != 1.0:
                column *= spec.scale
            column[~(samples.times[slots] >= now - spec.stale_seconds)] = _NAN
            if spec.default is not None:
                column[np.isnan(column)] = spec.default
        column.flags.writeable = False
        epoch.columns[metric] = column
        return column

    def make_times(self, metric: str, epoch: _Epoch) -> FloatColumn:
        """Makes the times behind a view's ages."""
        spec = self._specs.get(metric)
        slots = _NOBODY if spec is None else self._slots(spec, epoch)
        if spec is None or slots is _NOBODY:
            times = missing(epoch.slots.size)
        else:
            times = self._entries[spec.question].times[slots]
        epoch.times[metric] = times
        return times

    def value(self, metric: str, key: tuple[str, ...], now: float) -> float:
        """The value of a view."""
        spec = self._specs.get(metric)
        samples = None if spec is None else self._entries[spec.question]
        if spec is not None and isinstance(samples, KeyedSamples):
            return samples.newest(key, now - spec.stale_seconds) * spec.scale
        if spec is not None and isinstance(samples, PairSamples):
            left, right = key
            return samples.newest(left, right, now - spec.stale_seconds) * spec.scale
        return _NAN

    def values(self, metric: str, now: float) -> dict[tuple[str, ...], float]:
        """The values of a view; none of a metric of nodes or their domains."""
        spec = self._specs.get(metric)
        samples = None if spec is None else self._entries[spec.question]
        if spec is not None and isinstance(samples, PairSamples):
            pairs = samples.pairs(now - spec.stale_seconds)
            return {key: value * spec.scale for key, value in pairs.items()}
        if spec is None or spec.of in DOMAIN_LABELS or not isinstance(samples, KeyedSamples):
            return {}
        values = samples.values * spec.scale
        good = samples.times >= now - spec.stale_seconds
        return {key: float(values[slot]) for key, slot in samples.places.items() if good[slot]}

    def pairs(
        self,
        metric: str,
        ends: tuple[CodeColumn, CodeColumn],
        dictionary: Dictionary,
        now: float,
    ) -> FloatColumn:
        """The values of pairs of a view."""
        spec = self._specs.get(metric)
        samples = None if spec is None else self._entries[spec.question]
        if spec is None or not isinstance(samples, PairSamples):
            return missing(np.broadcast(*ends).size)
        since = now - spec.stale_seconds
        return samples.column(*ends, dictionary, since) * spec.scale

    def make_table(self, metric: str, epoch: _Epoch, now: float) -> FloatColumn:
        """Makes a view's values by the codes of the names of pods; see `KeyedSamples.by_code`."""
        spec = self._specs.get(metric)
        samples = None if spec is None else self._entries[spec.question]
        if spec is None or not isinstance(samples, KeyedSamples):
            table = missing(1)
        else:
            table = samples.by_code(epoch.dictionary, now - spec.stale_seconds) * spec.scale
        epoch.tables[metric] = table
        return table

    def without_namespace(self, metric: str) -> bool:
        """Whether some values of a metric are of a name in any namespace."""
        spec = self._specs.get(metric)
        samples = None if spec is None else self._entries[spec.question]
        return isinstance(samples, KeyedSamples) and samples.without_namespace

    def _slots(self, spec: SignalSpec, epoch: _Epoch) -> NDArray[np.intp]:
        """(N,) the slot of each row's node or of its domain; `_NOBODY`: nodes have no values."""
        if spec.of == NODE:
            return epoch.slots
        samples = self._entries[spec.question]
        if spec.of not in DOMAIN_LABELS or not isinstance(samples, KeyedSamples):
            return _NOBODY
        texts, rows = self._domains(spec.of, epoch)
        places = samples.places
        found = [-1 if one is None else places.get((one,), -1) for one in texts]
        return np.array(found, np.intp)[rows]

    def _domains(self, of: str, epoch: _Epoch) -> tuple[list[str | None], NDArray[np.intp]]:
        """The names of all domains, None for none, and (N,) which of them each row has."""
        known = epoch.domains.get(of)
        if known is None:
            codes, rows = np.unique(
                epoch.nodes.text(*label_column(DOMAIN_LABELS[of])), return_inverse=True
            )
            texts = epoch.dictionary.texts
            names = [None if code < 0 else texts[code] for code in codes.tolist()]
            known = epoch.domains[of] = names, rows
        return known

    # --- reports

    def status(self) -> tuple[SignalStatus, ...]:
        """How each metric is, by id."""
        now = self._clock.time()
        return tuple(self._status(self._specs[key], now) for key in sorted(self._specs))

    def _status(self, spec: SignalSpec, now: float) -> SignalStatus:
        samples = self._entries[spec.question]
        known = samples.times[~np.isnan(samples.times)]
        matched = int(known.size)
        if spec.of in DOMAIN_LABELS and isinstance(samples, KeyedSamples):
            domains = self._directory.domains(spec.of)
            matched = sum((domain,) in samples.places for domain in domains)
        return SignalStatus(
            id=spec.id,
            name=spec.name or spec.id,
            query=spec.query,
            series=samples.series,
            matched=matched,
            unmatched=samples.unmatched,
            duplicates=samples.duplicates,
            age_seconds=max(0.0, now - float(known.max())) if known.size else None,
            error=samples.error,
        )


def _samples_of(question: Question) -> Samples:
    if question.of == NODE:
        return _NodeSamples()
    return PairSamples() if question.of == PAIR else KeyedSamples()


def _too_many(question: Question, matched: Match) -> str:
    """What is told of series that are more than those whose values they are."""
    if question.of == CLUSTER:
        return (
            f"the cluster has one value and the answer {matched.series} series, so it is missing;"
            " let the query give one, as with sum(...) or avg(...)"
        )
    return (
        f"{matched.duplicates} series more than {question.of}s;"
        f" the largest of each {question.of} is used"
    )
