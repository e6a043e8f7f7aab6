"""What a running scheduler remembers of a pod, in words, and how asking it can fail."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from engine.cli import main
from engine.cli.explain_recorded import lines_of

HEAD = {"pod": "shop/web", "at": "2026-01-01T00:00:00.000+00:00", "bundle": "abc", "nodes": 5}


def test_a_pod_that_has_its_node():
    scores = [{"plugin": "home", "score": 50.0, "weight": 2.0}]
    rejected = [{"plugin": "home", "reasons": ["no (home.policy:1)"], "nodes": 2}]
    best = [{"node": "n1", "total": 100.0, "scores": scores}]
    record = {**HEAD, "node": "n1", "feasible": 3, "rejected": rejected, "best": best}
    assert list(lines_of(record)) == [
        "shop/web, as decided at 2026-01-01T00:00:00.000+00:00 by bundle abc",
        "  goes to n1: 3 of 5 nodes can take it",
        "      2 rejected by home: no (home.policy:1)",
        "       100 n1: home 50 x 2",
    ]


def test_a_pod_that_waits_for_others_to_go():
    record = {**HEAD, "message": "0/5 nodes", "nominated": "n2", "evicts": ["shop/low"]}
    assert list(lines_of(record))[1:] == [
        "  0/5 nodes",
        "  is promised n2; goes once these are gone:",
        "    shop/low",
    ]


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ({"queue": "unschedulable", "attempts": 1}, "waits in the queue unschedulable, tried once"),
        ({"queue": "gated", "attempts": 0, "by": "gate", "for": "not yet (gate.policy:1)"},
         "is held by gate and not tried: not yet (gate.policy:1)"),
        ({"queue": "waiting", "attempts": 2, "node": "n1", "since": "noon", "for": "go"},
         "waits on node n1 since noon: go"),
    ],
)  # fmt: skip
def test_a_pod_that_waits_says_where_first(waits, said):
    assert list(lines_of({"pod": "shop/web", "waits": waits})) == [f"shop/web {said}"]
    bound = {**HEAD, "node": "n1", "feasible": 3, "binding": {"outcome": "gone", "why": "404"}}
    first, _, _, last = lines_of({**bound, "waits": waits})
    assert first == f"shop/web {said}"
    assert last == "  its binding: gone: 404"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["pod", "a/b", "--scheduler", "http://x"],
            1,
            "http://x is not a scheduler's address",
        ),
        (
            ["pod", "a/b", "--scheduler", "https://127.0.0.1:9"],
            1,
            "cannot be asked: connection refused\n",
        ),
        (["node", "n", "--scheduler", "https://127.0.0.1:9"], 2, "--scheduler explains pods only"),
    ],
)
def test_what_cannot_be_asked_is_said(words, code, said):
    result = CliRunner().invoke(main, ["explain", *words])
    assert (result.exit_code, said in result.output) == (code, True), result.output
