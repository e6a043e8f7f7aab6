"""Writes decisions down with everything they were made from.

A journal is JSON Lines: its format, the settings (as rules without any policy), then every change
of the cache, every change of the metric columns, every bundle of rules, every decision, in order.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Final, get_type_hints

import msgspec
import numpy as np

from engine.cache import Cache
from engine.framework.acting import Acted
from engine.framework.decision import Decision, Placed
from engine.framework.opinion import Opinion
from engine.framework.snapshot import FloatColumn, Snapshot, Waiting
from engine.objects import Pod, from_builtins
from engine.objects.ondemand import FinishedPod
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.simulate.samples import Columns, Values

_LOG = logging.getLogger(__name__)

FORMAT: Final = 7


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
        entry = decision_line(decision)
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


def decision_line(decision: Decision) -> Entry:
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


# ---- what is done to a cache ---------------------------------------------------------------------

Structs = Mapping[str, type[Any]]
"""By the name of a kind, what its objects are decoded into."""
APPLIED: Final[dict[str, Callable[[Cache, Sequence[Any], Structs], object]]] = {}
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


def _read(structs: Structs, kind: Any, value: Any) -> Any:  # noqa: ANN401 - what is of that kind
    if kind is Waiting:
        pod, node, since, plugins = value
        return Waiting(make_pod_info(from_builtins(Pod, pod)), node, since, frozenset(plugins))
    if kind in (PodInfo, FinishedPod):
        return make_pod_info(from_builtins(Pod if kind is PodInfo else kind, value))
    if kind is float and value is None:  # JSON has no other word for a time that is not known
        return math.nan
    if kind is Any:
        name, value = value
        kind = structs.get(name)
        if kind is None:
            raise ValueError(f"no kind is called {name!r}")
    return from_builtins(kind, value)


class RecordingCache(Cache):
    """A cache that writes down what is done to it."""

    def __init__(self, write: Callable[[Entry], None]) -> None:
        super().__init__()
        self.write = write


def _record(done: Callable[..., object]) -> None:
    """A method of the cache is done again by `APPLIED`, and by the recording one written before.

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

    def again(cache: Cache, args: Sequence[Any], structs: Structs) -> object:
        if not least <= len(args) <= len(kinds):
            raise ValueError(f"{name} has {len(args)} arguments, not {least}")
        return done(cache, *map(partial(_read, structs), kinds, args))

    setattr(RecordingCache, name, method)
    APPLIED[name] = again


for _done in (
    *(Cache.add_node, Cache.remove_node, Cache.set_namespace, Cache.remove_namespace),
    *(Cache.set_object, Cache.remove_object, Cache.assume_object, Cache.restore_object),
    *(Cache.assume, Cache.forget, Cache.add_pod, Cache.remove_pod, Cache.carry, Cache.wait),
    *(Cache.wait_no_more, Cache.nominate, Cache.withdraw, Cache.evicts, Cache.attend),
    *(Cache.set_queued, Cache.remove_queued, Cache.set_finished, Cache.remove_finished),
    Cache.expire,
):
    _record(_done)
