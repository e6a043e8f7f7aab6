"""What it costs to load policies: 80 KB of them, a small file, the import, a process of its own."""

from __future__ import annotations

import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsl.compiler import Compiler
from tests.bench.measure import Measurement

ROOT: Final = Path(__file__).parents[2]

FILES: Final = 15
STATEMENTS: Final = 1350
FIVE: Final = """\
filter: pod.name contains nginx -> node.label test=test
require: node.cpu.requested + pod.cpu <= 80% of node.cpu.allocatable message "no room"
score: 100 - bandwidth/max*100
prefer: node.label disktype=ssd weight 3
filter: pod.label batch=night -> time.hour in 0..6
"""
#: A cluster's policies: how often, and what; `#` is a number, `@` a word.
MIX: Final = (
    (12, "filter: pod.name contains @ -> node.label @=@"),
    (10, "require: node.label @ in [@, @, @] or node.label @=@"),
    (8, "score: 100 - bandwidth/max*100"),
    (8, "prefer: node.label @=@ weight #"),
    (6, "forbid: node.taint @ and not pod.label @=@"),
    (6, "require: node.cpu.requested + pod.cpu <= #% of node.cpu.allocatable"),
    (6, 'filter: pod.gpu > 0 -> node.gpu.free >= pod.gpu\n  message "needs {pod.gpu} GPUs"'),
    (5, "avoid: pod.priority >= # -> node.label @=true weight #"),
    (5, "require: count(node.pods where it.label app=@ and it.priority < #) < #"),
    (4, "score: count(node.pods where it.label @=@) normalize minmax reverse weight #"),
    (4, "filter: pod.namespace in [@, @] -> node.zone == pod.label[@]"),
    (4, "require: node.memory.free >= #Gi and node.cpu.free >= #00m"),
    (3, "score: if node.zone == pod.label[@] then 100 else #"),
    (3, "forbid: now - node.created < #m"),
    (3, "filter: pod.label @=@ -> time.hour in #..23"),
    (2, "spread: over zone weight #"),
    (2, "score: 100 - sum(it.memory over node.pods where it.qos is BestEffort)\n"
        "  / node.memory.allocatable*100"),
    (2, 'require: node.name matches "^@-[0-9]+$" or pod.image starts with "@.example.com/"'),
    (1, "preempt: pod.label @=@ -> victims where it.priority < pod.priority limit #"),
    (1, "gate: pod.annotation @=yes message \"waiting for @\""),
)  # fmt: skip


def policies(statements: int = STATEMENTS, files: int = FILES) -> dict[str, str]:
    """That many statements over several files; the same texts each time."""
    rng = random.Random("policies")
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(200)]
    forms = rng.choices([text for _, text in MIX], [often for often, _ in MIX], k=statements)

    def filled(form: str) -> str:
        form = re.sub("@", lambda _: rng.choice(words), form)
        return re.sub("#", lambda _: str(rng.randint(1, 9)), form)

    lines = [filled(form) for form in forms]
    size = -(-statements // files)
    return {
        f"team-{at:02}.policy": "\n".join(lines[at * size : (at + 1) * size]) + "\n"
        for at in range(files)
    }


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    statements: int = STATEMENTS
    rounds: int = 5
    starts: int = 9


QUICK: Final = Sizes(rounds=3, starts=3)
TOY: Final = Sizes(statements=30, rounds=1, starts=1)


def measure(sizes: Sizes) -> Iterator[Measurement]:
    """All rows, in CPU time, each with what it may take at most."""
    compiler = Compiler()
    compiler.warm()
    files = policies(sizes.statements, min(FILES, sizes.statements))
    size = sum(len(text) for text in files.values()) / 1000

    def load(texts: dict[str, str]) -> Callable[[], object]:
        def once() -> None:
            result = compiler.compile(texts)
            assert result.ok, result.diagnostics

        return once

    took = _cpu_seconds(load(files), sizes.rounds)
    name = f"{sizes.statements:,} statements, {size:.0f} KB in {len(files)} files, to plans"
    yield _within(name, took, 1.0)
    took = _cpu_seconds(load({"five.policy": FIVE}), 20 * sizes.rounds)
    yield _within("5 rules, to plans", took, 0.003)
    yield _within("import dsl beyond lark, numpy, msgspec", _import_seconds(sizes.starts), 0.05)
    check = [Path(sys.executable).parent / "berth", "check", ROOT / "policies/load-aware.policy"]
    yield _within("berth check FILE, whole process", _start_seconds(check, sizes.starts), 0.6)
    peak, least = _peak_mib("compile", sizes), _peak_mib("import", sizes)
    name = f"peak memory of loading {size:.0f} KB: {peak:.0f} MiB, of the import alone {least:.0f}"
    yield Measurement("language", name, {"rss_mib": peak})


def _within(name: str, seconds: float, most: float) -> Measurement:
    return Measurement("language", name, {"us": 1e6 * seconds}, {"us_at_most": round(1e6 * most)})


def _cpu_seconds(call: Callable[[], object], rounds: int) -> float:
    """The median of the thread's CPU time: what else runs on the machine does not count."""
    call()
    taken = []
    for _ in range(rounds):
        began = time.thread_time()
        call()
        taken.append(time.thread_time() - began)
    return statistics.median(taken)


def _import_seconds(times: int) -> float:
    """CPU time of importing the compiler where its dependencies are there already.

    Of the thread: those that NumPy's BLAS starts go on spinning for a while.
    """
    code = (
        "import time, lark, numpy, msgspec; began = time.thread_time(); import dsl.compiler;"
        " print(time.thread_time() - began)"
    )
    return statistics.median(float(_told(code)) for _ in range(times))


def _start_seconds(command: list[Path | str], times: int) -> float:
    """CPU time of a process, the kernel's share included."""
    taken = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(taken)


def _peak_mib(what: str, sizes: Sizes) -> float:
    code = (
        "import resource; from dsl.compiler import Compiler; from tests.bench import compiling;"
        " compiler = Compiler(); compiler.warm();"
        f" {what!r} == 'compile' and compiler.compile(compiling.policies({sizes.statements}));"
        " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    return float(_told(code))


def _told(code: str) -> str:
    """What a Python of its own prints; from the second time on with compiled modules."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout
