"""Samples of metrics go in as they come; columns aligned with the node table come out at once.

Nothing here asks for anything: `PrometheusRefresher` does. Between two changes a `view` costs a
microsecond; after one, columns are made anew when they are first read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from dsl.plan import MetricSpec
from engine.cache import Cache
from engine.clock import Clock
from engine.framework import snapshot
from engine.objects import Node
from engine.signals.samples import (
    Key,
    Match,
    NodeDirectory,
    Pause,
    Samples,
    Series,
    Slots,
    missing,
)
from engine.signals.spec import (
    CLUSTER,
    DOMAIN_LABELS,
    NODE,
    OBJECT,
    PAIR,
    PROMETHEUS,
    Question,
    SignalStatus,
    question_of,
)
from engine.tasks import give_way, in_thread

_LOG = logging.getLogger(__name__)

_NAN = math.nan
_TRIES = 3
_FULL_NAME: Final = "full name", attrgetter("key")
_BARE_NAME: Final = "bare name", lambda pod: f"/{pod.name}"


class _Epoch(msgspec.Struct):
    """Between two changes: metrics by id, and columns that are filled as they are read."""

    dictionary: snapshot.Dictionary
    nodes: snapshot.NodeColumns
    basis: tuple[object, ...]
    """The nodes by row and by name."""
    metrics: Mapping[str, tuple[MetricSpec, Samples]]
    version: int
    changes: int
    stale_after: float
    columns: dict[str, snapshot.FloatColumn] = {}
    times: dict[str, snapshot.FloatColumn] = {}
    by_code: dict[str, snapshot.FloatColumn] = {}


class SignalView(msgspec.Struct, frozen=True, eq=False):
    """The metric columns of one cycle; a `framework.snapshot.Signals`."""

    _epoch: _Epoch
    _now: float
    version: int
    """New samples, samples that turned stale, other rows; not that ages grow."""

    def column(self, metric: str) -> snapshot.FloatColumn:
        """(N,) the newest value a node; where it is missing or stale the default, else NaN."""
        column = self._epoch.columns.get(metric)
        if column is None:
            found, slots = self._epoch.metrics.get(metric), self._slots(metric)
            if found is None or slots is None:  # no node has a value of it
                column = missing(self._epoch.nodes.size)
            else:
                spec, samples = found
                column = self._fresh(spec, samples, slots)
                if spec.default is not None:
                    column[np.isnan(column)] = spec.default
            column.flags.writeable = False
            self._epoch.columns[metric] = column
        return column

    def age(self, metric: str) -> snapshot.FloatColumn:
        """(N,) seconds since the sample was taken, stale or not; NaN without one."""
        times = self._epoch.times.get(metric)
        if times is None:
            slots = self._slots(metric)
            if slots is None:
                times = missing(self._epoch.nodes.size)
            else:
                times = self._epoch.metrics[metric][1].times[slots]
            self._epoch.times[metric] = times
        age = self._now - times
        np.maximum(age, 0.0, out=age)
        return age

    def value(self, metric: str, key: Key) -> float:
        """The newest value of the cluster, a namespace, a workload, a pod or a pair."""
        if (found := self._named(metric)) is None:
            return _NAN
        spec, samples = found
        return samples.newest(key, self._now - spec.stale_seconds) * spec.scale

    def values(self, metric: str) -> dict[Key, float]:
        """All values of a metric that nodes have not, without those that are missing."""
        found = self._named(metric)
        if found is None or found[0].of in DOMAIN_LABELS:
            return {}
        spec, samples = found
        values = samples.all(self._now - spec.stale_seconds)
        return {key: value * spec.scale for key, value in values.items()}

    def pairs(
        self,
        metric: str,
        ends: tuple[snapshot.CodeColumn, snapshot.CodeColumn],
        dictionary: snapshot.Dictionary,
    ) -> snapshot.FloatColumn:
        """(n,) the newest values of pairs of texts."""
        found = self._named(metric)
        if found is None or found[0].of != PAIR:
            return missing(np.broadcast(*ends).size)
        spec, samples = found
        return self._fresh(spec, samples, samples.slots(dictionary, *ends))

    def of_pods(self, metric: str, pods: snapshot.PodColumns) -> snapshot.FloatColumn:
        """(P,) the newest value of each pod. One look into a table a pod."""
        names, found = pods.text(*_FULL_NAME), self._named(metric)
        if found is None or found[0].of == PAIR:
            return missing(pods.size)
        spec, samples = found
        table = self._epoch.by_code.get(metric)
        if table is None:
            # Linear in the dictionary, and in names that are new to it.
            slots = samples.slots_by_code(self._epoch.dictionary)
            table = self._epoch.by_code[metric] = self._fresh(spec, samples, slots)
        values = table.take(names, mode="clip")
        if samples.without_namespace:
            bare = table.take(pods.text(*_BARE_NAME), mode="clip")
            values = np.where(np.isnan(values), bare, values)
        return values

    # --- inside

    def _slots(self, metric: str) -> Slots | None:
        """(N,) the slot of each row's node or of its domain; None: nodes have no values."""
        epoch = self._epoch
        found = epoch.metrics.get(metric)
        if found is None or not question_of(found[0]).any_label:
            return None
        spec, samples = found
        if spec.of == NODE:
            codes = epoch.nodes.name_codes()
        else:
            codes = epoch.nodes.text(*snapshot.label_column(DOMAIN_LABELS[spec.of]))
        return samples.slots(epoch.dictionary, codes)

    def _fresh(self, spec: MetricSpec, samples: Samples, slots: Slots) -> snapshot.FloatColumn:
        found = samples.fresh(slots, self._now - spec.stale_seconds)
        return found if spec.scale == 1.0 else found * spec.scale

    def _named(self, metric: str) -> tuple[MetricSpec, Samples] | None:
        """A metric that has values by name and its samples; None of any other."""
        found = self._epoch.metrics.get(metric)
        return None if found is None or found[0].of == NODE else found


class SignalStore:
    """The samples of all metrics in use.

    Single owner: the event loop; only `match` may run in another thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._specs: dict[str, MetricSpec] = {}
        self._asked: Sequence[MetricSpec] = ()
        self._entries: dict[Question, Samples] = {}
        self._directory = NodeDirectory()
        self._epoch: _Epoch | None = None
        self._changes = 0
        self._version = 0

    # --- configuration and nodes

    def set_specs(self, specs: Iterable[MetricSpec], also: Iterable[MetricSpec] = ()) -> None:
        """Replaces the metrics in use; those whose question stays keep their samples.

        `also` are those of rules that may come back: asked for, and read by nobody until then.
        """
        self._specs = {
            # What is watched is known as it is, however long ago it changed.
            spec.id: replace(spec, stale_seconds=math.inf) if spec.source == OBJECT else spec
            for spec in specs
        }
        self._asked = [*self._specs.values(), *also]
        known = self._entries
        self._entries = {
            question: known.get(question) or Samples(question, self._directory)
            for question in dict.fromkeys(question_of(spec) for spec in self._asked)
        }
        self._changes += 1

    def questions(self, source: str = PROMETHEUS) -> Mapping[Question, float]:
        """What a source has to be asked, and how often in seconds."""
        every: dict[Question, float] = {}
        for spec in self._asked:
            if (question := question_of(spec)).source == source:
                every[question] = min(every.get(question, math.inf), spec.every_seconds)
        return every

    def names(self, question: Question) -> str:
        """The metrics that a question serves, for logs."""
        served = {s.name or s.id for s in self._asked if question_of(s) == question}
        return ", ".join(sorted(served))

    def nodes_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came (`old` None), changed, or went (`new` None)."""
        if new is not None:
            self._directory.put(new)
        elif old is not None:
            self._directory.remove(old.metadata.name)
            for samples in self._entries.values():
                samples.forget(old.metadata.name)

    # --- samples

    def match(
        self, question: Question, answer: Iterable[Series], pause: Pause = lambda: None
    ) -> Match:
        """Finds whose each series is; of several for one the largest value counts.

        Changes nothing, so it may run outside the event loop; `pause` is called every few hundred
        series, to let that go on.
        """
        samples = self._entries.get(question) or Samples(question, self._directory)
        return samples.match(answer, pause)

    async def read_in(
        self, question: Question, read: Callable[[], Iterable[Series]], *, whole: bool = False
    ) -> None:
        """Takes in an answer that a thread reads; see `ingest`.

        Where nodes come more quickly than it can be read, the event loop does it in the end.
        """
        for _ in range(_TRIES):
            matched = await in_thread(lambda: self.match(question, read(), give_way))
            samples = self._entries.get(question)
            if samples is None or samples.holds(matched):
                self.ingest(question, (), matched, whole=whole)
                return
        self.ingest(question, read(), whole=whole)

    def ingest(
        self,
        question: Question,
        answer: Iterable[Series],
        matched: Match | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Takes in an answer: who it does not name keeps the sample until it is stale.

        `matched` is what `match` made of it elsewhere; it is made again where that no longer holds.
        Where the answer is the `whole` truth, who it does not name has no value any more.
        """
        samples = self._entries.get(question)
        if samples is None:
            return
        if matched is None or not samples.holds(matched):
            matched = self.match(question, answer)
        if matched.duplicates and not samples.duplicates:
            _LOG.warning("P603: metric %s: %s", self.names(question), _too_many(question, matched))
        if samples.error:
            _LOG.info("metric %s: has an answer again", self.names(question))
        samples.error = ""
        samples.series = matched.series
        samples.duplicates = matched.duplicates
        samples.take(matched, self._clock.time(), whole=whole)
        self._changes += 1

    def fail(self, question: Question, error: str) -> bool:
        """A question was not answered: samples stay. True if it had been answered before."""
        samples = self._entries.get(question)
        if samples is None:
            return False
        first = not samples.error
        samples.error = error
        return first

    # --- columns

    def view(self, cache: Cache, now: float) -> SignalView:
        """The columns as of `now`, aligned with the rows of `cache.nodes`."""
        epoch, basis = self._epoch, (cache.nodes, cache.nodes.layout, self._directory.version)
        if (
            epoch is None
            or (epoch.basis, epoch.changes) != (basis, self._changes)
            or now > epoch.stale_after
        ):
            epoch = self._renew(cache, now)
        return SignalView(epoch, now, epoch.version)

    def _renew(self, cache: Cache, now: float) -> _Epoch:
        for samples in self._entries.values():
            samples.look_again(self._clock.time())
        self._version += 1
        self._epoch = _Epoch(
            dictionary=cache.dictionary,
            nodes=cache.nodes,
            basis=(cache.nodes, cache.nodes.layout, self._directory.version),
            metrics={
                key: (one, self._entries[question_of(one)]) for key, one in self._specs.items()
            },
            version=self._version,
            changes=self._changes,
            stale_after=self._next_stale(now),
        )
        return self._epoch

    def _next_stale(self, now: float) -> float:
        """When the first of the samples that are good now turns stale."""
        soonest = math.inf
        for spec in self._specs.values():
            times = self._entries[question_of(spec)].times
            fresh = times[times >= now - spec.stale_seconds]
            if fresh.size:
                soonest = min(soonest, float(fresh.min()) + spec.stale_seconds)
        return soonest

    # --- reports

    def status(self) -> tuple[SignalStatus, ...]:
        """How each metric is, by id."""
        now = self._clock.time()
        return tuple(self._status(self._specs[key], now) for key in sorted(self._specs))

    def _status(self, spec: MetricSpec, now: float) -> SignalStatus:
        samples = self._entries[question_of(spec)]
        known = samples.times[~np.isnan(samples.times)]
        matched = int(known.size)
        if spec.of in DOMAIN_LABELS:
            domains = filter(None, self._directory.domains(spec.of))
            matched = sum(map(samples.names, domains))
        age = max(0.0, now - float(known.max())) if known.size else None
        return SignalStatus(
            id=spec.id,
            name=spec.name or spec.id,
            query=spec.query,
            series=samples.series,
            matched=matched,
            unmatched=samples.unmatched,
            duplicates=samples.duplicates,
            age_seconds=age,
            missing=age is None or age > spec.stale_seconds,
            error=samples.error,
        )


def _too_many(question: Question, matched: Match) -> str:
    """What is told of series that are more than those whose values they are."""
    if question.of == CLUSTER:
        return (
            f"the answer has {matched.series} series, and the cluster one value, so it is missing;"
            " have the query give one series, as with sum(...) or avg(...)"
        )
    return (
        f"{matched.duplicates} series more than {question.of}s;"
        f" the largest of each {question.of} is used"
    )
