"""What the memo of classes says is what every plugin says when it is asked anew.

Asked three times: fresh, after a change of the cluster that concerns few, and after it is undone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cycle import decide
from engine.framework.keycolumn import FRACTION, TIE_BITS
from engine.framework.runtime import Framework, PluginError
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo
from tests.builders import Cache
from tests.conformance.adapter import build, framework_of, place, read_pod

STRANGER = {
    "metadata": {"name": "stranger", "namespace": "elsewhere", "uid": "stranger"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]},
}


def check_kept(case: dict[str, Any]) -> None:
    """Raises AssertionError where a decision is not what the plugins say."""
    pods = [read_pod(value) for value in case.get("pods") or [case["pod"]]]
    cache, order = build(case, pods)
    framework = framework_of(case)
    stranger = read_pod(STRANGER)
    for pod in pods:
        first = _said(framework, pod, cache)
        if order:
            cache.add_pod(stranger, order[0])
            _said(framework, pod, cache)
            cache.remove_pod(stranger.uid)
        assert first == _said(framework, pod, cache), "not as before the change"
        decision = decide(pod, cache.snapshot(0.0), framework)
        gated = not framework.pre_enqueue(pod, cache.snapshot(0.0)).ok
        if case["kind"] == "sequence" and decision.node and not gated:
            place(cache, framework, pod, decision.node)


def _said(framework: Framework, pod: PodInfo, cache: Cache) -> Any:
    snapshot = cache.snapshot(0.0)
    decision = decide(pod, snapshot, framework)
    if decision.error is not None:
        return decision.error.code
    fresh = framework.rejections(pod, snapshot)
    rows = np.flatnonzero(snapshot.nodes.present)
    for rejected in (*(one.rows for one in fresh.each), fresh.left_out):
        rows = rows if rejected is None else np.setdiff1d(rows, rejected)
    if fresh.ended is not None or not len(rows):
        assert decision.fit_error == fresh.fit_error(), "memo and plugins reject otherwise"
        return decision.fit_error
    known = framework.class_of(pod, snapshot)
    assert rows.tolist() == framework.candidates(known, pod, snapshot).tolist(), "feasible nodes"
    assert decision.row in rows, "the chosen node is not feasible"
    return rows.tolist(), _scored(framework, pod, snapshot, rows, decision)


def _scored(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, rows: Any, decision: Any
) -> list[float]:
    totals = np.zeros(len(rows))
    try:
        for _, weight, _, normalized in framework.scores(pod, snapshot, rows):
            totals += normalized * weight
    except PluginError:
        return []
    if decision.feasible > 1:  # otherwise nobody scores
        known = framework.class_of(pod, snapshot)
        keys = framework.keys(known, pod, snapshot, rows)
        marks = (keys >> TIE_BITS) / FRACTION  # what all nodes have may be left out
        assert np.array_equal(marks - marks.max(), totals - totals.max()), "totals of the memo"
        assert decision.feasible == len(rows), "number of feasible nodes"
        assert decision.total == totals.max(), "total of the chosen node"
        assert totals[rows == decision.row] == totals.max(), "the chosen node is not among the best"
    found: list[float] = totals.tolist()
    return found
