"""Which tests run which lines, how long each takes, and whether it passes."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from tests.mutants.operators import Mutant

Run = Callable[[pytest.Item], bool]


class Traced(NamedTuple):
    """What a test did: traced, it takes two or three times as long as without."""

    seconds: float
    passed: bool
    lines: dict[str, list[int]]
    """By file, from the root."""


class Covering:
    """The tests of each line."""

    def __init__(self, tests: dict[str, Traced]) -> None:
        self._tests = tests
        self._by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        for test, known in tests.items():
            for path, lines in known.lines.items():
                for line in lines:
                    self._by_line[path, line].add(test)

    def of(self, mutant: Mutant) -> set[str]:
        """The tests that run its lines."""
        first, last = mutant.lines
        lines = range(first, last + 1)
        return set().union(*[self._by_line.get((mutant.path, one), ()) for one in lines])

    def seconds(self, test: str) -> float:
        return self._tests[test].seconds

    def passes(self, test: str) -> bool:
        """A test that did not pass while it was traced can judge no mutant."""
        return self._tests[test].passed


def trace(root: Path, paths: Iterable[str], items: Sequence[pytest.Item], run: Run) -> str:
    """Runs the tests, and returns what they run as JSON: for a fork, as it fills caches."""
    files = {str(root / path): path for path in paths}
    tracer, found = Tracer(files), {}
    for item in items:
        started = time.process_time()
        tracer.start()
        passed = run(item)
        tracer.stop()
        lines = {files[file]: sorted(seen) for file, seen in tracer.seen.items() if seen}
        found[item.nodeid] = Traced(time.process_time() - started, passed, lines)
    return json.dumps(found)


def covering_of(traced: str) -> Covering:
    """What `trace` found."""
    return Covering({test: Traced(*known) for test, known in json.loads(traced).items()})


class Tracer:
    """The lines of some files that are run between start and stop."""

    def __init__(self, files: Iterable[str]) -> None:
        self.seen: dict[str, set[int]] = {file: set() for file in files}

    def start(self) -> None:
        for lines in self.seen.values():
            lines.clear()
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        lines = self.seen.get(frame.f_code.co_filename)
        if lines is None:
            return None
        lines.add(frame.f_lineno)

        def ran(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            lines.add(frame.f_lineno)
            return ran

        return ran
