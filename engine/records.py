"""The newest decisions, kept in a bounded ring for questions about a pod later.

A record is numbers and names, no pods, no columns: some 500 bytes, made in a few microseconds with
every decision. Which plugin and which line gave the best nodes how much costs a look at all nodes,
so it is worked out for as many decisions as fit into a hundredth of the time: all of them in a
quiet cluster, some in a burst. So is what the policies' rules said, for the log line of the
binding. What a record lacks, `berth explain` finds by deciding anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec

from engine.clock import Clock
from engine.explain.scores import Ranking, noted, ranking
from engine.framework.decision import FitError, Placed, Rejections
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind
from engine.framework.frameworks import Frameworks
from engine.framework.runtime import Framework, PluginError, Unfit

MOST: Final = 4096
BEST: Final = 5
"""How many of the best nodes are kept with their scores."""
_SHARE: Final = 100
"""The share of time that goes into scores, as 1/n."""


class Rejected(msgspec.Struct, frozen=True):
    """Nodes that one plugin was the first to reject, for the same reasons."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: int


class Detail(msgspec.Struct, frozen=True):
    """Worked out for some decisions only."""

    ranking: Ranking
    rejected: tuple[Rejected, ...]


class Record(msgspec.Struct, gc=False):
    """One decision; times are in seconds, `at` since the epoch. `samples` counts metrics' answers.

    Exactly one of `node`, `fit_error` and `error` is set, as in `Decision`.
    """

    pod: str
    uid: str
    at: float
    seconds: float
    profile: str
    bundle: str
    generation: int
    samples: int
    evaluated: int
    node: str | None
    feasible: int
    total: float
    fit_error: FitError | None
    error: str
    rejected: tuple[Rejected, ...]
    nominated: str
    victims: tuple[str, ...]
    rescue: str
    detail: Detail | None
    outcome: str = ""
    outcome_why: str = ""


class Records:
    """See the module. `placed` is an observer of decisions, `ended` of what became of bindings."""

    def __init__(
        self,
        frameworks: Callable[[], Framework | Frameworks | None],
        clock: Clock,
        most: int = MOST,
    ) -> None:
        """Keeps `most` records; `frameworks` gives what has just decided."""
        self._frameworks = frameworks
        self._clock = clock
        self._ring: deque[Record] = deque()
        self._most = most
        self._newest: dict[str, Record] = {}
        self._next_detail = 0.0

    def __len__(self) -> int:
        return len(self._ring)

    def placed(self, placed: Placed) -> None:
        """A decision was made; see `scheduler.Observer`."""
        record = _record(placed)
        if record.node is not None and self._clock.monotonic() >= self._next_detail:
            self._work_out(record, placed)
        ring = self._ring
        if len(ring) >= self._most:
            old = ring.popleft()
            if self._newest.get(old.pod) is old:
                del self._newest[old.pod]
        ring.append(record)
        self._newest[record.pod] = record

    def ended(self, effect: Bind, outcome: BindOutcome, why: str) -> None:
        """What became of the binding is known; see `scheduler.OutcomeObserver`."""
        record = self._newest.get(effect.pod.key)
        if record is not None and (record.uid, record.node) == (effect.pod.uid, effect.node):
            record.outcome, record.outcome_why = outcome, why

    def _work_out(self, record: Record, placed: Placed) -> None:
        frameworks = self._frameworks()
        if frameworks is None:
            return
        decision, snapshot = placed.decision, placed.snapshot
        started = self._clock.monotonic()
        framework = frameworks.of(decision.pod)
        record.profile = framework.profile.scheduler_name
        try:
            found = ranking(decision.pod, snapshot, framework, BEST)
            rejected = framework.rejections(decision.pod, snapshot)
            record.detail = Detail(found, _rejected(rejected))
        except (PluginError, Unfit):
            pass  # reported by the framework; the record lacks it
        noted(placed, framework)
        now = self._clock.monotonic()
        self._next_detail = now + (now - started) * _SHARE

    # ---- asked ---------------------------------------------------------------------------------

    def of(self, pod: str) -> dict[str, Any] | None:
        """The newest decision about a pod (`namespace/name`) for JSON; None: it is not kept."""
        record = self._newest.get(pod)
        return None if record is None else as_object(record)

    def newest(self, most: int) -> list[dict[str, Any]]:
        """The newest decisions for JSON, the newest first."""
        return [as_object(one) for one in islice(reversed(self._ring), most)]


def _record(placed: Placed) -> Record:
    decision, snapshot = placed.decision, placed.snapshot
    pod, rescue = decision.pod, decision.rescue
    return Record(
        pod.key,
        pod.uid,
        snapshot.now,
        placed.seconds,
        pod.pod.spec.scheduler_name,
        decision.bundle,
        decision.generation,
        snapshot.signals.version,
        decision.evaluated,
        decision.node,
        decision.feasible,
        decision.total,
        decision.fit_error,
        "" if decision.error is None else " ".join(decision.error.reasons),
        () if decision.rejections is None else _rejected(decision.rejections),
        "" if rescue is None else rescue.nominated or "",
        tuple([one.pod.key for one in rescue.evictions]) if rescue and rescue.evictions else (),
        "" if rescue is None else rescue.message,
        None,
    )


def _rejected(found: Rejections) -> tuple[Rejected, ...]:
    """Counted once for all decisions that share these rejections."""
    known: tuple[Rejected, ...] | None = found.memo.get("records")
    if known is None:
        each = [Rejected(one.plugin, one.status.reasons, len(one.rows)) for one in found.each]
        if found.left_out is not None and len(found.left_out):
            by = " ".join(sorted(found.left_out_by))
            each.append(Rejected(by, (), len(found.left_out)))
        known = found.memo["records"] = tuple(each)
    return known


# ---- told ---------------------------------------------------------------------------------------


def as_object(record: Record) -> dict[str, Any]:
    """A record for JSON; what is not known is left out."""
    told: dict[str, Any] = {
        "pod": record.pod,
        "uid": record.uid,
        "at": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(record.seconds, 6),
        "profile": record.profile,
        "bundle": record.bundle,
        "generation": record.generation,
        "samples": record.samples,
        "nodes": record.evaluated,
    }
    if record.node is not None:
        return told | _placed(record)
    fit_error = record.fit_error
    told["message"] = record.error if fit_error is None else fit_error.told(record.rescue)
    if record.rejected:
        told["rejected"] = msgspec.to_builtins(record.rejected)
    if record.nominated:
        told["nominated"] = record.nominated
    if record.victims:
        told["evicts"] = list(record.victims)
    return told


def _placed(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = {"node": record.node, "feasible": record.feasible, "total": record.total}
    if record.outcome:
        why = {"why": record.outcome_why} if record.outcome_why else {}
        told["binding"] = {"outcome": record.outcome, **why}
    detail = record.detail
    if detail is not None:
        told["ties"] = detail.ranking.ties
        told["best"] = msgspec.to_builtins(detail.ranking.nodes)
        told["rejected"] = msgspec.to_builtins(detail.rejected)
    return told
