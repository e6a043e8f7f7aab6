"""Our decisions against kube-scheduler 1.37.1's recorded ones. Zero differences, nowhere."""

from __future__ import annotations

import pytest

from tests.conformance.adapter import answer
from tests.conformance.compare import DATA, check, read
from tests.conformance.kept import check_kept
from tests.effort import sizes

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
    "kubernetes": 1105,
}
"""Suites about plugins that exist, and their cases: none of them may be restricted."""
RESTRICTED = {"adversarial": 1, "extra": 3}
"""Cases in which a missing plugin has a part. May only shrink."""


@pytest.mark.parametrize("every", sizes(8, 1))
@pytest.mark.parametrize("suite", sorted(p.name.partition(".")[0] for p in DATA.glob("*.jsonl.gz")))
def test_suite_has_no_differences(suite: str, every: int) -> None:
    report = check(suite, every=every)
    print(report)
    assert not report.errors
    assert not report.differing
    assert len(report.restricted) <= RESTRICTED.get(suite, 0)
    assert report.cases == -(-OWN.get(suite, report.cases * every) // every)


@pytest.mark.parametrize("every", sizes(40, 10))
@pytest.mark.parametrize("suite", ["mix-1", "spread", "interpod", "nominated", "sequence", "found"])
def test_memo_says_what_plugins_say(suite: str, every: int) -> None:
    for vector in read(suite, every if suite != "found" else 1):
        if vector["case"]["kind"] != "hint":
            check_kept(vector["case"])


def test_a_node_that_a_pre_filter_leaves_out_is_not_taken_for_its_nomination() -> None:
    """A stated difference: here kube-scheduler takes n4, for only NodeName's Filter says no."""
    spec = {"containers": [], "nodeName": "n2"}
    nominated = {"metadata": {"name": "p"}, "spec": spec, "status": {"nominatedNodeName": "n4"}}
    node = {"kind": "Node", "metadata": {"name": "n4"}, "status": {"allocatable": {"pods": "9"}}}
    profile = {"plugins": {"filter": {"disabled": [{"name": "NodeName"}]}}}
    got = answer({"kind": "cycle", "objects": [node], "pod": nominated, "profile": profile})
    assert (got["feasible"], got["rejectedBy"]) == ([], ["NodeName"])


def test_filters_and_scores_have_what_comes_before_them_whatever_a_profile_turns_off() -> None:
    """A stated difference: kube-scheduler fails the pods of most of these plugins."""
    off = {"disabled": [{"name": "*"}]}
    for vector in read("mix-1", 25):
        case = vector["case"]
        with_, without = dict(case.get("profile") or {}), dict(case.get("profile") or {})
        without["plugins"] = {**with_.get("plugins", {}), "preFilter": off, "preScore": off}
        assert answer({**case, "profile": without}) == answer({**case, "profile": with_})
