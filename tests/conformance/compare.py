"""Compares our answers with kube-scheduler's recorded ones. No tolerance: numbers, codes and texts.

Only what the real one says nothing by is compared otherwise: reasons of a status, `feasible`,
`rejectedBy`, `skip` and `events` as sets, scores by node name, internal errors by being there.

Where a plugin that we do not have has a part in what a whole answer says, those fields of that case
are left out, its entries too, and the case is counted as restricted.

    python -m tests.conformance.compare [SUITE ...]
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from engine.framework.defaults import DEFAULT_WEIGHTS
from engine.kube.resources import STRUCTS
from tests.conformance import preempting
from tests.conformance.adapter import answer

DATA = Path(__file__).parent / "data"
OURS = frozenset(DEFAULT_WEIGHTS)
WHOLE = ("rejectedFirst", "feasible", "message", "rejectedBy", "schedulerError")
MISSING = "(missing)"
Difference = tuple[str, Any, Any]


@dataclass
class Report:
    """What became of one suite."""

    suite: str
    cases: int = 0
    compared: int = 0
    restricted: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    differing: dict[str, list[Difference]] = field(default_factory=dict)
    values: int = 0

    def __str__(self) -> str:
        return (
            f"{self.suite}: {self.cases} cases, {self.compared} compared ({self.values} values), "
            f"{len(self.differing)} differ, {len(self.restricted)} restricted, "
            f"{len(self.errors)} failed"
        )


def read(suite: str, every: int = 1) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / f"{suite}.jsonl.gz", "rt") as lines:
        yield from map(json.loads, islice(lines, 0, None, every))


def check(
    suite: str, kinds: Sequence[str] = ("cycle", "hint", "preempt", "sequence"), *, every: int = 1
) -> Report:
    """Asks our side about every case of the suite that is of these kinds, or each so many."""
    report = Report(suite)
    for vector in read(suite, every):
        case, want = vector["case"], vector["expect"]
        report.cases += 1
        if case["kind"] not in kinds:
            continue
        got = answer(case)
        report.compared += 1
        if "error" in got:
            report.errors.append(f"{case['id']}: {got['error']}")
            continue
        compare = COMPARE[case["kind"]]
        found = list(compare(case, want, got, report))
        if found:
            report.differing[case["id"]] = found
    return report


# ---- cycle -----------------------------------------------------------------------------------


def compare_cycle(
    case: Mapping[str, Any], want: Mapping[str, Any], got: Mapping[str, Any], report: Report
) -> Iterator[Difference]:
    restricted = is_restricted(case, want)
    if restricted:
        report.restricted.append(case["id"])
    a, b = comparable(want, want, restricted), comparable(got, want, restricted)
    report.values += leaves(a)
    yield from differences("", a, b)


def is_restricted(case: Mapping[str, Any], want: Mapping[str, Any]) -> bool:
    """True if a plugin that we do not have decides part of the whole answer."""
    pre = want["preFilter"]
    plugins = {*want["filter"], *pre["plugins"], *want["rejectedFirst"].values()}
    plugins |= set(want.get("rejectedBy", ())) | set(want["preEnqueue"])
    if pre["status"] and pre["status"][1]:
        plugins.add(pre["status"][1])
    plugins |= set(re.findall(r'plugin "(\w+)"', want.get("message", "")))
    return bool(plugins - OURS) or unscored(want)


def unscored(want: Mapping[str, Any]) -> bool:
    """True if a score plugin failed where the real one does not need it: of one feasible node."""
    return len(want["feasible"]) == 1 and not want["score"]


def comparable(
    answer: Mapping[str, Any], want: Mapping[str, Any], restricted: bool
) -> dict[str, Any]:
    """An answer in the form in which two are equal exactly when they say the same."""
    pre = answer["preFilter"]
    out: dict[str, Any] = {
        "nodes": answer["nodes"],
        "preEnqueue": ours(answer["preEnqueue"]),
        "gated": answer.get("gated", False),
        "filter": {
            plugin: {node: status(s) for node, s in nodes.items()}
            for plugin, nodes in ours(answer["filter"]).items()
        },
        "preFilter.plugins": {p: status(s) for p, s in ours(pre["plugins"]).items()},
    }
    # A node that only a missing plugin rejects may be the one that was promised: then no other is
    # scored.
    same = answer.get("nominatedNode") == want.get("nominatedNode")
    if (want["score"] and same) or not restricted:
        out["score"] = scores(answer, want["feasible"], restricted)
    if restricted:
        return out
    out["preFilter.nodes"] = sorted(pre["nodes"]) if pre["nodes"] is not None else None
    out["preFilter.status"] = status(pre["status"])
    out["preFilter.skip"] = sorted(set(pre["skip"]) & OURS)
    out["preScore.skip"] = sorted(set(answer["preScore"]["skip"]) & OURS)
    out["preScore.status"] = status(answer["preScore"]["status"])
    for name in WHOLE:
        out[name] = answer.get(name, MISSING)
    if answer.get("schedulerError"):
        out["message"] = "(internal)"
    out["total"] = dict(zip(answer["feasible"], answer.get("total", ()), strict=False))
    out["best"] = answer.get("best", MISSING)
    for name in ("feasible", "rejectedBy", "best"):
        if out[name] != MISSING:
            out[name] = sorted(out[name])
    return out


def ours(by_plugin: Mapping[str, Any]) -> dict[str, Any]:
    return {plugin: value for plugin, value in by_plugin.items() if plugin in OURS}


def status(given: Sequence[str] | None) -> Any:
    """Code and the set of reasons; of an internal error only the code."""
    if not given:
        return None
    return given[0] if given[0] == "Error" else (given[0], tuple(sorted(given[1:])))


def scores(answer: Mapping[str, Any], nodes: Sequence[str], restricted: bool) -> dict[str, Any]:
    """Per plugin the weight and what each node got; normalised only over the same nodes."""
    out: dict[str, Any] = {}
    feasible = answer["feasible"]
    for plugin, given in ours(answer["score"]).items():
        raw = dict(zip(feasible, given["raw"], strict=True))
        out[plugin] = {
            "weight": given["weight"],
            "raw": {node: raw.get(node, MISSING) for node in nodes},
        }
        if not restricted:
            out[plugin]["normalized"] = dict(zip(feasible, given["normalized"], strict=True))
    return out


# ---- hint ------------------------------------------------------------------------------------


def compare_hint(
    case: Mapping[str, Any], want: Mapping[str, Any], got: Mapping[str, Any], report: Report
) -> Iterator[Difference]:
    a, b = comparable_hint(want), comparable_hint(got)
    if case["event"]["resource"] not in ("Pod", "Node", *STRUCTS):
        # These reach no plugin of ours yet.
        report.restricted.append(case["id"])
        del a["events"], b["events"]
    report.values += leaves(a)
    yield from differences("", a, b)


def comparable_hint(answer: Mapping[str, Any]) -> dict[str, Any]:
    matched = ours(answer["matchedEvents"])
    return {
        "events": sorted(set(answer["events"])),
        # The queue takes an error for Queue, and our hints say it so.
        "hints": {
            plugin: "Queue" if said.startswith("error: ") else said
            for plugin, said in ours(answer["hints"]).items()
        },
        "matchedEvents": {plugin: sorted(m.split(",")) for plugin, m in matched.items()},
        "unconditional": sorted(set(answer["unconditional"]) & OURS),
    }


# ---- sequence ------------------------------------------------------------------------------------


def compare_sequence(
    case: Mapping[str, Any], want: Mapping[str, Any], got: Mapping[str, Any], report: Report
) -> Iterator[Difference]:
    report.values += sum(map(leaves, want["steps"]))
    steps = zip(want["steps"], got["steps"], strict=True)
    for number, (theirs, ours) in enumerate(steps):
        internal = {"message": "(internal)"} if theirs.get("schedulerError") else {}
        same = {**ours, **internal} if ours.get("schedulerError") else ours
        yield from differences(f"steps.{number}", {**theirs, **internal}, same)


# ---- preempt ---------------------------------------------------------------------------------


def compare_preempt(
    case: Mapping[str, Any], want: Mapping[str, Any], got: Mapping[str, Any], report: Report
) -> Iterator[Difference]:
    report.values += leaves(dict(want))
    yield from preempting.compare_preempt(dict(want), dict(got))


COMPARE = {
    "cycle": compare_cycle,
    "hint": compare_hint,
    "preempt": compare_preempt,
    "sequence": compare_sequence,
}

# ---- both ------------------------------------------------------------------------------------


def differences(path: str, want: Any, got: Any) -> Iterator[Difference]:
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted({*want, *got}):
            inner = f"{path}.{key}" if path else key
            yield from differences(inner, want.get(key, MISSING), got.get(key, MISSING))
    elif want != got:
        yield path, want, got


def leaves(value: Any) -> int:
    return sum(map(leaves, value.values())) if isinstance(value, dict) else 1


def main(suites: Sequence[str]) -> int:
    different = 0
    for suite in suites or sorted(p.name.partition(".")[0] for p in DATA.glob("*.jsonl.gz")):
        report = check(suite)
        print(report)
        for text in report.errors[:3]:
            print("   failed", text)
        for case, found in list(report.differing.items())[:6]:
            for path, want, got in found[:4]:
                print(f"   {case}: {path}\n      want {want}\n      got  {got}")
        different += len(report.differing) + len(report.errors)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
