"""Tests in a fork: the child runs them and tells of each by a pipe, the parent waits and judges.

Time is the processor's, of the child alone: a busy machine makes no mutant look like a hang.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pytest
from _pytest.runner import runtestprotocol

#: What a test may take: so long, and so many times what it takes when it is traced.
AT_LEAST = 2.0
TIMES = 12.0
#: Without a word for so long by the clock on the wall, a child waits for something.
PATIENCE = 180.0
MEMORY = 6 << 30


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    #: A test did not end: as good as killed.
    TIMEOUT = "timeout"
    #: All tests that run it passed.
    SURVIVED = "survived"
    #: No test runs it.
    UNCOVERED = "uncovered"
    #: The time for it was over before all tests had run.
    BUDGET = "budget"
    #: It could not be put in place.
    ERROR = "error"

    @property
    def is_open(self) -> bool:
        return self not in (Outcome.KILLED, Outcome.TIMEOUT)


@dataclass(frozen=True)
class Verdict:
    """What became of it, and the test that says so."""

    outcome: Outcome
    test: str = ""


class Pipe:
    """The child's end: one line for each test that starts, one for the end."""

    def __init__(self, end: int) -> None:
        self._end = end

    def starts(self, test: str) -> None:
        os.write(self._end, f"{test}\n".encode())

    def ends(self, outcome: Outcome, test: str = "") -> None:
        """Tells the verdict, and ends the child without any of Python's goodbyes."""
        said = test.replace("\n", " ")
        os.write(self._end, f"\0{outcome.value} {said}\n".encode())
        os._exit(0)


def passes(item: pytest.Item, after: pytest.Item | None = None) -> bool:
    """Runs one test with its fixtures."""
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=after))


def run(
    pipe: Pipe, items: Sequence[pytest.Item], seconds: Callable[[str], float], budget: float
) -> None:
    """In the child: runs tests until one fails or the time is over; never returns."""
    started = time.process_time()
    for item, after in zip(items, (*items[1:], None), strict=False):
        if time.process_time() - started > budget:
            pipe.ends(Outcome.BUDGET)
        pipe.starts(item.nodeid)
        # The signal's default is to end the process, whatever the code of C is doing.
        signal.setitimer(signal.ITIMER_PROF, AT_LEAST + TIMES * seconds(item.nodeid))
        if not passes(item, after):
            pipe.ends(Outcome.KILLED, item.nodeid)
    pipe.ends(Outcome.SURVIVED)


def fork() -> tuple[int, int]:
    """Returns the child's id and the end of the pipe to read; in the child 0 and that to write."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    os.close(reader)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    return 0, writer


def watch(child: int, reader: int) -> Verdict:
    """Waits for a child's verdict; one that ends without is killed by the test it was in."""
    test, verdict, rest = "", None, b""
    while verdict is None:
        if not select.select([reader], [], [], PATIENCE)[0]:
            verdict = Verdict(Outcome.TIMEOUT, test)
            break
        data = os.read(reader, 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"\0"):
                word, _, of = line[1:].decode().partition(" ")
                verdict = Verdict(Outcome(word), of)
            else:
                test = line.decode()
    os.close(reader)
    if verdict is not None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if verdict is None:
        hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
        verdict = Verdict(Outcome.TIMEOUT if hung else Outcome.KILLED, test)
    return verdict
