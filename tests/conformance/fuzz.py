"""Random cases put to kube-scheduler's own libraries and to our engine: zero differences.

    ORACLE=path python -m tests.conformance.fuzz [--cases N] [--seed FIRST] [--found FILE]

The oracle is a program that answers the cases on standard input (JSON Lines) on standard output,
in the protocol of the recorded suites. It also brings the objects into the form in which an API
server stores them (`echo`); ours is asked with that form. A case that differs is shrunk: objects,
fields and list items are dropped as long as it still differs in the same place.

`reached.txt` lists what the cases have to reach in the oracle's answers, 100 times each in 20,000.
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.adapter import answer
from tests.conformance.compare import COMPARE, Difference, Report
from tests.conformance.drawn import Json, draw_case
from tests.conformance.kept import check_kept

HOW = (
    "fuzz-parity needs ORACLE=path of a Go program that links kube-scheduler 1.37.1's own libraries"
    " and answers the recorded suites' cases line by line (tests/cluster/binaries.py builds Go"
    " programs from pinned modules: such a program, its go.mod beside it, builds the same way)"
)
LIST = Path(__file__).parent / "reached.txt"
OFTEN, OUT_OF = 100, 20_000
AGAIN = 20
"""How often a case that differs is asked again: where kube-scheduler takes what a map has first,
one of its answers is ours."""
KEPT = {
    "id",
    "kind",
    "apiVersion",
    "pod",
    "pods",
    "objects",
    "name",
    "namespace",
    "containers",
    "spec",
}
KEPT |= {"metadata", "persistentVolumeClaim", "claimName", "topologyKey", "operator", "nodeName"}
ECHOED = ("objects", "pod", "pods", "event")


class Oracle:
    """The oracle as a process; asked one case at a time."""

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, case: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**case, "echo": True}) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Json:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the oracle ended")
        found: Json = json.loads(line)
        return found

    def ask(self, case: Json) -> Json:
        self.send(case)
        return self.receive()


def stored(case: Json, want: Json) -> Json:
    """The case in the form in which an API server would have stored it, as the oracle used it."""
    out = {**case, **{key: want[key] for key in ECHOED if want.get(key) is not None}}
    if want.get("event"):
        out["event"] = {**case["event"], **want["event"]}
    return out


def judge(case: Json, want: Json) -> list[Difference] | None:
    """Where we differ; None if the case says nothing: refused, or by chance of the oracle's."""
    if "error" in want or want.get("unstable") or want.get("pdbOrderMatters"):
        return None
    got = answer(stored(case, want))
    if "error" in got:
        return [(re.sub(r"[\d.]+", "#", f"error {got['error']}")[:60], None, got["error"])]
    found = list(COMPARE[case["kind"]](case, want, got, Report("fuzz")))
    try:
        check_kept(stored(case, want))
    except AssertionError as fault:
        found.append((f"kept {fault}"[:60].replace(".", ""), "as when asked anew", "otherwise"))
    return found


# ---- shrinking -----------------------------------------------------------------------------------


def shrink(case: Json, oracle: Oracle, place: str, seconds: float = 60.0) -> Json:
    """The smallest case found that differs in the same place."""
    until = time.monotonic() + seconds

    def differs(one: Json) -> bool:
        try:
            found = judge(one, oracle.ask(one))
        except (KeyError, TypeError, IndexError):  # not a case any more
            return False
        return bool(found) and any(kind_of(path) == place for path, _, _ in found or ())

    again = True
    while again and time.monotonic() < until:
        again = False
        for path in sorted(paths(case), key=lambda one: (len(one), one != ("profile",))):
            smaller = without(case, path)
            if smaller is not None and time.monotonic() < until and differs(smaller):
                case, again = smaller, True
    return case


def kind_of(path: str) -> str:
    """What a difference is about: not which node or step."""
    first, *rest = path.split(".")
    return ".".join([first, *rest[:1]] if first in ("score", "filter") else [first, *rest[1:2]])


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Everything that could be dropped; of a list from the end, so the rest keeps its place."""
    keys = list(value) if isinstance(value, dict) else range(len(value))[::-1]
    for key in keys:
        if key not in KEPT and (at or key != "event") and (at != ("pods",) or len(value) > 1):
            yield (*at, key)
        if isinstance(value[key], dict | list):
            yield from paths(value[key], (*at, key))


def without(case: Json, path: tuple[Any, ...]) -> Json | None:
    """A copy without what is at the path; None if it is gone already."""
    out = json.loads(json.dumps(case))
    inner = out
    try:
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return dict(out)


# ---- what was reached ----------------------------------------------------------------------------


def reached(want: Mapping[str, Any]) -> set[str]:
    """What the oracle's answer went through, in the words of the list."""
    out = {f"{want['kind']} asked"}
    for flag in ("gated", "schedulerError", "eligible", "clearsNomination", "requeue"):
        out |= {f"{want['kind']} {flag}"} if want.get(flag) else set()
    out |= {f"enqueue {p} {plain(s)}" for p, s in want.get("preEnqueue", {}).items()}
    before = want.get("preFilter") or {}
    out |= {f"prefilter {p} {plain(s)}" for p, s in before.get("plugins", {}).items()}
    out |= {"prefilter nodes"} if before.get("nodes") is not None else set()
    for plugin, nodes in want.get("filter", {}).items():
        for status in nodes.values():
            out |= {f"filter {plugin} {status[0]} {plain([r])}" for r in status[1:]}
    for plugin, given in want.get("score", {}).items():
        marks = set(given["normalized"])
        out |= {f"score {plugin} {m}" for m in marks & {0, 100}}
        out |= {f"score {plugin} between"} if marks - {0, 100} else set()
        out |= {f"score {plugin} differs"} if len(marks) > 1 else set()
    for point in ("preFilter", "preScore"):
        out |= {f"skip {point} {p}" for p in (want.get(point) or {}).get("skip", ())}
    if nominated := want.get("nominatedNode"):
        out.add(f"nominated {'used' if nominated['used'] else 'not used'}")
    out |= {f"hint {plugin} {said.split(':')[0]}" for plugin, said in want.get("hints", {}).items()}
    out |= {f"event {event}" for event in want.get("events", ())}
    if text := want.get("postFilterMessage"):
        out |= {
            f"preempt {re.sub('[0-9]+', '#', part)}" for part in re.split(", |: ", text.rstrip("."))
        }
    for one in want.get("candidates", {}).values():
        out.add(f"preempt {'violates' if one['pdbViolations'] else 'keeps'} budgets")
    out |= {"preempt tied"} if len(want.get("tied", ())) > 1 else set()
    for step in want.get("steps", ()):
        out.add(f"step {'placed' if step['chosen'] else 'left out'}")
    return out


def plain(status: list[str]) -> str:
    """Reasons without names and numbers."""
    return re.sub(r'"[^"]*"|\d+', "#", " ".join(status))


def wanted() -> tuple[list[str], list[str]]:
    """The list's patterns, and those that no case can reach, each with its reason."""
    lines = [line for line in LIST.read_text().splitlines() if line and line[0] != "#"]
    never = [line for line in lines if line.startswith("unreachable ")]
    return [line for line in lines if line not in never], never


def rare(counts: Counter[str], cases: int) -> list[str]:
    """What of the list was reached less often than its share of the cases."""
    least = OFTEN * cases // OUT_OF
    out = []
    for pattern in wanted()[0]:
        times = sum(n for token, n in counts.items() if fnmatch.fnmatchcase(token, pattern))
        if times < max(1, least):
            out.append(f"{times} {pattern}")
    return out


# ---- the run -------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description="our decisions against kube-scheduler's")
    parser.add_argument("--cases", type=int, default=OUT_OF)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--show", type=int, default=5, help="so many differences are shrunk")
    parser.add_argument("--found", type=Path, help="shrunk vectors are added to this file")
    parser.add_argument("--all", action="store_true", help="print how often everything was reached")
    given = parser.parse_args()
    if not os.environ.get("ORACLE"):
        print(HOW, file=sys.stderr)
        return 2
    return run(given, Oracle(os.environ["ORACLE"]))


def run(given: argparse.Namespace, oracle: Oracle) -> int:
    counts: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    until = time.monotonic() + given.seconds
    ahead = draw_case(given.seed)
    oracle.send(ahead)
    for seed in range(given.seed, given.seed + given.cases):
        if time.monotonic() > until:
            break
        case, want = ahead, oracle.receive()
        ahead = draw_case(seed + 1)
        oracle.send(ahead)  # it thinks while we do
        found = judge(case, want)
        if found is None:
            asked["unsaid"] += 1
            counts.update([f"refused: {want['error'][:70]}"] if "error" in want else [])
            continue
        asked[case["kind"]] += 1
        counts.update(reached(want))
        if not found:
            continue
        oracle.receive()
        by_chance = any(not judge(case, oracle.ask(case)) for _ in range(AGAIN))
        oracle.send(ahead)
        if by_chance:
            asked["by chance"] += 1
            continue
        asked["differ"] += 1
        place = kind_of(found[0][0])
        seen[place] += 1
        print(f"seed {seed} differs in {sorted({kind_of(p) for p, _, _ in found})}", flush=True)
        if seen[place] == 1 and len(seen) <= given.show:
            oracle.receive()
            show(shrink(case, oracle, place), oracle, given.found)
            oracle.send(ahead)
    print(dict(asked))
    for line in rare(counts, sum(asked[kind] for kind in COMPARE)):
        print("too rare:", line)
    for line in wanted()[1]:
        print(line)
    for token, number in sorted(counts.items()) if given.all else ():
        print(f"{number:6} {token}")
    return 1 if asked["differ"] else 0


def show(case: Json, oracle: Oracle, into: Path | None) -> None:
    want = oracle.ask(case)
    for path, theirs, ours in judge(case, want) or ():
        print(f"   {path}\n      want {theirs}\n      got  {ours}")
    print("  ", json.dumps(case), flush=True)
    if into is not None:
        record(case, want, into)


def record(case: Json, want: Json, into: Path) -> None:
    """Adds a vector to a suite: the case as stored, the answer without what it echoes."""
    vector = {
        "case": stored(case, want),
        "expect": {k: v for k, v in want.items() if k not in ECHOED},
    }
    old = gzip.decompress(into.read_bytes()) if into.exists() else b""
    into.write_bytes(gzip.compress(old + json.dumps(vector).encode() + b"\n", mtime=0))


if __name__ == "__main__":
    sys.exit(main())
