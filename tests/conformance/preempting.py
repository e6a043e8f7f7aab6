"""`preempt` cases: a cycle, then what DefaultPreemption would do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.cycle import conclude
from engine.framework.decision import NO_NODES, PostFilterResult, Rejections
from engine.framework.runtime import Framework, PluginError
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code
from engine.plugins.default_preemption import (
    NAME,
    DefaultPreemption,
    best_of,
    ineligible,
    potential_rows,
)
from engine.pods.podinfo import PodInfo
from tests.builders import Cache

Answer = dict[str, Any]


def preempt(pod: PodInfo, cache: Cache, framework: Framework) -> Answer:
    """The answer, but for the order of nodes; of equal ones the first by name is chosen."""
    snapshot = cache.snapshot(0.0)
    out: Answer = {"feasible": [], "eligible": None, "candidates": {}}
    out |= {"chosen": None, "nominated": None, "postFilterMessage": None}
    if not framework.pre_enqueue(pod, snapshot).ok:
        return {**out, "gated": True}
    decision = conclude(pod, snapshot, framework)
    if decision.error is not None:
        out["feasible"] = _fitting(framework, pod, snapshot)
        return {**out, "schedulerError": True, "message": decision.message}
    if decision.node is not None:
        known = framework.class_of(pod, snapshot)
        rows = framework.candidates(known, pod, snapshot)
        if known.keys.feasible and pod.pod.status.nominated_node_name == decision.node:
            rows = np.array([decision.row])
        return {**out, "feasible": [snapshot.nodes.name(int(row)) for row in rows]}
    assert decision.fit_error is not None
    assert decision.rejections is not None
    if not decision.fit_error.nodes:
        return {**out, "message": NO_NODES}
    out["message"] = decision.fit_error.message()
    out["rejectedBy"] = sorted(decision.fit_error.plugins)
    rescue = decision.rescue
    # None: the profile has no PostFilter.
    out["postFilterMessage"] = None if rescue is None else rescue.message
    if rescue is not None and rescue.status.code is Code.ERROR:
        out["schedulerError"] = True
    out["eligible"] = _eligible(pod, snapshot, framework, decision.rejections)
    if rescue is None or not out["eligible"]:
        return out
    rows = potential_rows(snapshot, decision.rejections)
    out["potentialNodes"] = sorted(map(snapshot.nodes.name, rows.tolist()))
    if decision.rejections.ended is None:
        _search(out, pod, snapshot, framework, rows, rescue)
    elif rescue.nominated is not None:
        out["clearsNomination"] = True
    return out


def _eligible(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, rejections: Rejections
) -> bool | None:
    """None where the profile has no DefaultPreemption."""
    asked = any(name == NAME and one.post_filter for name, one in framework.plugins)
    return not ineligible(pod, snapshot, rejections) if asked else None


def _search(
    out: Answer,
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    rows: Any,
    rescue: PostFilterResult,
) -> None:
    """Who would go from each node, and which is chosen."""
    plans = DefaultPreemption().plan(pod, snapshot, rows, framework.trial(pod, snapshot))
    names = [snapshot.nodes.name(int(row)) for row in rows]
    for at in np.flatnonzero(plans.helps).tolist():
        victims = [one.key for one in plans.victims(at)]
        violations = int(plans.violations[at])
        out["candidates"][names[at]] = {"victims": victims, "pdbViolations": violations}
    best = best_of(plans).tolist()
    if not best:
        out["clearsNomination"] = rescue.nominated == ""
        return
    chosen = names[best[0]]
    assert rescue.nominated == chosen
    assert [one.pod.key for one in rescue.evictions] == [v.key for v in plans.victims(best[0])]
    out["chosen"] = out["nominated"] = chosen
    if len(best) > 1:
        out["tied"] = [names[at] for at in best]


def _fitting(framework: Framework, pod: PodInfo, snapshot: Snapshot) -> list[str]:
    """The nodes that fit although the cycle failed; if it failed by scores, there are some."""
    try:
        rows = framework.candidates(framework.class_of(pod, snapshot), pod, snapshot)
    except PluginError:
        return []
    return [snapshot.nodes.name(int(row)) for row in rows]


def compare_preempt(want: Answer, got: Answer) -> Iterator[tuple[str, Any, Any]]:
    """What differs; of nodes that are equal by all rules any is right."""
    for name in ("gated", "schedulerError", "eligible", "clearsNomination", "candidates"):
        if want.get(name) != got.get(name):
            yield name, want.get(name), got.get(name)
    for name in ("feasible", "rejectedBy", "potentialNodes", "tied"):
        a, b = sorted(want.get(name) or ()), sorted(got.get(name) or ())
        if a != b:
            yield name, a, b
    texts = () if want.get("schedulerError") else ("message", "postFilterMessage")
    if got.get("chosen") in want.get("tied", ()):
        texts = ("message",)
    elif want.get("chosen") != got.get("chosen"):
        yield "chosen", want.get("chosen"), got.get("chosen")
    for name in texts:
        if want.get(name) != got.get(name):
            yield name, want.get(name), got.get(name)
