"""The versioned store: revisions, history, and what is forgotten."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.embedded.errors import ApiError
from engine.embedded.store import Store, revision_of


def make_store(history: int = 100) -> Store:
    return Store(clock=ManualClock(), random=Random(1), history=history)


def item(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "Thing", "metadata": {"name": name}, **fields}


def test_one_counter_orders_all_collections() -> None:
    store = make_store()
    first = store.add("a", ("", "x"), item("x"))
    second = store.add("b", ("", "y"), item("y"))
    third = store.put("a", ("", "x"), first | {"field": 1})
    fourth = store.remove("b", ("", "y"))
    revisions = [revision_of(one) for one in (first, second, third, fourth)]
    assert revisions == sorted(set(revisions))
    assert store.revision == revisions[-1]


def test_identity_is_seeded_and_time_is_passed_in() -> None:
    one, other = make_store(), make_store()
    mine = one.add("a", ("", "x"), item("x"))["metadata"]
    assert mine == other.add("a", ("", "x"), item("x"))["metadata"]
    assert mine["creationTimestamp"] == "2025-03-01T10:00:00Z"
    assert one.now(after_seconds=61) == "2025-03-01T10:01:01Z"


@pytest.mark.parametrize("count", [9, 10, 11, 20, 21, 45])
def test_history_is_bounded_and_never_skips(count: int) -> None:
    store = make_store(history=10)
    for number in range(count):
        store.add("a", ("", str(number)), item(str(number)))
    collection = store.collection("a")
    kept = collection.since(collection.floor)
    assert len(kept) == min(count, 10)
    assert [revision_of(change.now) for change in kept] == list(
        range(collection.floor + 1 if collection.floor else 2, store.revision + 1)
    )
    if collection.floor:
        with pytest.raises(ApiError, match="too old resource version") as refusal:
            collection.since(collection.floor - 1)
        assert refusal.value.status()["code"] == 410


def test_listeners_hear_of_changes_while_they_listen() -> None:
    store = make_store()
    heard: list[int] = []
    with store.collection("a").listening(lambda: heard.append(store.revision)):
        store.add("a", ("", "x"), item("x"))
        store.add("b", ("", "x"), item("x"))
    store.remove("a", ("", "x"))
    assert len(heard) == 1
