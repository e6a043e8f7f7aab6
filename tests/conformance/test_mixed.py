"""What `mixed` reads from a journal, and says of pods left pending."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.journal.recorder import Entry, RecordingCache
from tests.builders import changed, make_node, make_pod
from tests.conformance.mixed import Retold, too_many


@pytest.mark.parametrize(
    ("ours", "first", "second", "many", "said"),
    [
        (4, 8, 8, 180, False),
        (8, 8, 8, 180, False),
        (11, 8, 8, 180, False),
        (12, 8, 8, 180, True),
        (9, 8, 8, 10, False),
        (10, 8, 8, 10, True),
        (17, 4, 10, 180, True),
    ],
)
def test_only_more_pending_pods_than_both_runs_explain_are_a_fault(
    ours: int, first: int, second: int, many: int, *, said: bool
) -> None:
    assert too_many(ours, first, second, many) is said


def test_each_change_of_the_cache_that_a_decision_rests_on_is_retold() -> None:
    written: list[Entry] = []
    cache = RecordingCache(written.append)
    cache.add_node(make_node("n1"))
    there, bound, waits, asks = (make_pod(name) for name in ("there", "bound", "waits", "asks"))

    def decided() -> None:
        written.append(Entry("decision", pod=asks.pod, chosen="n1"))

    cache.add_pod(there, "n1")
    cache.assume(bound, "n1", 1.0)
    cache.nominate(waits, "n1", 3)
    cache.nominate(asks, "n1", 3)
    decided()
    cache.carry(changed(there.pod, metadata={"deletion_timestamp": "2026-01-01T00:00:00Z"}))
    cache.forget(bound.uid)
    cache.withdraw(waits.uid)
    cache.withdraw(asks.uid)
    decided()
    cache.remove_pod(there.uid)
    decided()

    pods = [
        {"metadata": {"name": name, "namespace": "default"}, "spec": {}}
        for name in ("there", "bound", "waits", "asks")
    ]
    lines = map(msgspec.json.encode, written)
    cases = [case for case, _ in Retold([], pods).decisions(lines)]
    running = {"phase": "Running"}
    promised = {"nominatedNodeName": "n1"}
    assert [case["pod"].get("status") for case in cases] == [promised, None, None]
    first, second, third = (
        {name: one for name, *one in map(_told, case["objects"])} for case in cases
    )
    assert first == {
        "there": [False, "n1", running],
        "bound": [False, "n1", running],
        "waits": [False, None, promised],
    }
    [[going, node, status]] = second.values()
    assert (going, node, status["phase"]) == (True, "n1", "Running")
    assert third == {}


def _told(item: dict[str, Any]) -> tuple[str, bool, str | None, dict[str, Any]]:
    said = item["metadata"]
    going = "deletionTimestamp" in said
    return said["name"], going, item["spec"].get("nodeName"), item["status"]
