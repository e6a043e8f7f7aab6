"""The newest decisions, kept in a bounded ring for questions about a pod later.

A record is numbers and texts, no pods, no columns: some 500 bytes and the message, made in a few
microseconds with every decision. Which plugin and which line gave the best nodes how much costs a
look at all nodes, so it is worked out for as many decisions as fit into a hundredth of the time:
all of them in a quiet cluster, some in a burst. So is what the policies' rules said, for the log
line of the binding. What a record lacks, `berth explain` finds by deciding anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec

from engine.clock import Clock
from engine.explain.scores import Scored, noted, ranking
from engine.framework.decision import Placed, Rejections
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind
from engine.framework.runtime import Framework, Frameworks, PluginError, Unfit
from engine.text.display import plain

MOST: Final = 4096
_MESSAGE: Final = 4096
"""Characters of a message, as in Events."""
BEST: Final = 5
"""How many of the best nodes are kept with their scores."""
_SHARE: Final = 100
"""The share of time that goes into scores, as 1/n."""


class Rejected(msgspec.Struct, frozen=True):
    """Nodes that one plugin was the first to reject, for the same reasons."""

    plugin: str
    reasons: tuple[str, ...]
    nodes: int


class Record(msgspec.Struct, gc=False, omit_defaults=True):
    """One decision, as told; times are in seconds. `samples` counts metrics' answers.

    It has a `node` or a `message`. `ties` and `best`, and why a pod with a node could not go to the
    others, are worked out for some decisions only.
    """

    pod: str
    uid: str
    at: float
    """Since the epoch."""
    seconds: float
    profile: str
    bundle: str
    generation: int
    samples: int
    nodes: int
    node: str | None = None
    feasible: int | None = None
    total: float | None = None
    message: str = ""
    rejected: tuple[Rejected, ...] = ()
    nominated: str = ""
    evicts: tuple[str, ...] = ()
    ties: int = 0
    best: tuple[Scored, ...] = ()
    binding: dict[str, str] | None = None


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
            record.binding = {"outcome": outcome, "why": why} if why else {"outcome": outcome}

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
            record.ties, record.best, record.rejected = found.ties, found.nodes, _rejected(rejected)
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
    record = Record(
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
    )
    if decision.node is not None:
        record.feasible, record.total = decision.feasible, decision.total
        return record
    record.message = plain(decision.message, _MESSAGE)
    if decision.rejections is not None:
        record.rejected = _rejected(decision.rejections)
    if rescue is not None:
        record.nominated = rescue.nominated or ""
        record.evicts = tuple([one.pod.key for one in rescue.evictions])
    return record


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


def as_object(record: Record) -> dict[str, Any]:
    """A record for JSON; what is not known is left out."""
    at = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds")
    told: dict[str, Any] = msgspec.to_builtins(record)
    return told | {"at": at, "seconds": round(record.seconds, 6)}
