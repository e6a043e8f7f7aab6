"""Our decisions against kube-scheduler 1.37.1's recorded ones. Zero differences, nowhere."""

from __future__ import annotations

import pytest

from tests.conformance.compare import DATA, check, read
from tests.conformance.kept import check_kept

OWN = {
    "nodename": 120,
    "unschedulable": 120,
    "taints": 250,
    "nodeaffinity": 350,
    "fit": 400,
    "spread": 400,
    "interpod": 400,
    "volumes": 393,
    "hint": 400,
    "sequence": 80,
    "preempt": 400,
    "nominated": 250,
    "ports": 200,
    "balanced": 250,
    "images": 200,
}
"""Suites about plugins that exist, and their cases: none of them may be restricted."""
RESTRICTED = {"adversarial": 1, "extra": 3}
"""Cases in which a missing plugin has a part. May only shrink."""


@pytest.mark.parametrize("suite", sorted(p.name.partition(".")[0] for p in DATA.glob("*.jsonl.gz")))
def test_suite_has_no_differences(suite: str) -> None:
    report = check(suite)
    print(report)
    assert not report.errors
    assert not report.differing
    assert len(report.restricted) <= RESTRICTED.get(suite, 0)
    assert report.cases == OWN.get(suite, report.cases)


@pytest.mark.parametrize("suite", ["mix-1", "spread", "interpod", "nominated", "sequence", "found"])
def test_memo_says_what_plugins_say(suite: str) -> None:
    for vector in list(read(suite))[:: 10 if suite != "found" else 1]:
        if vector["case"]["kind"] != "hint":
            check_kept(vector["case"])
