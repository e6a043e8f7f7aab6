"""Which test runs which lines of which function.

What was found is kept: of a test whose module has not changed, nothing is traced again. Lines are
counted from the first of their function, so that edits elsewhere in a file leave them right.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.mutants.operators import Mutant

Run = Callable[[pytest.Item], bool]


def digest(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]


@dataclass(frozen=True)
class Function:
    """A function of a module, or a method of its classes; functions inside it are parts of it."""

    #: File and name: `dsl/plan.py::Plan.stopped`.
    key: str
    first: int
    last: int
    #: Of its text.
    digest: str


def functions_of(root: Path, path: str) -> list[Function]:
    text = (root / path).read_text(encoding="utf-8")
    lines, found = text.splitlines(), []

    def walk(body: list[ast.stmt], names: tuple[str, ...]) -> None:
        for one in body:
            if isinstance(one, ast.ClassDef):
                walk(one.body, (*names, one.name))
            elif isinstance(one, ast.FunctionDef):
                first = min([one.lineno, *(each.lineno for each in one.decorator_list)])
                last = one.end_lineno or first
                own = digest("\n".join(lines[first - 1 : last]))
                found.append(Function(f"{path}::{'.'.join((*names, one.name))}", first, last, own))

    walk(ast.parse(text).body, ())
    return found


class Covering:
    """The tests of each line, and how long each test takes; kept in a file of JSON."""

    def __init__(self, root: Path, paths: Sequence[str], file: Path) -> None:
        self.functions = {path: functions_of(root, path) for path in paths}
        self._root, self._file = root, file
        self._tests: dict[str, dict[str, Any]] = {}
        #: The digest of each function when its lines were last traced.
        self._traced: dict[str, str] = {}
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            self._tests, self._traced = kept["tests"], kept["functions"]
        self._modules: dict[Path, str] = {}
        self._by_line: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for test, known in self._tests.items():
            for key, lines in known["lines"].items():
                for line in lines:
                    self._by_line[key][line].append(test)

    def again(self) -> Covering:
        """As it is kept now: a fork may have traced more."""
        return Covering(self._root, list(self.functions), self._file)

    def around(self, mutant: Mutant) -> Function | None:
        for one in self.functions[mutant.path]:
            if one.first <= mutant.line <= one.last:
                return one
        return None

    def of(self, mutant: Mutant) -> set[str]:
        """The tests that run its lines; of a changed function, those that run any of it."""
        function = self.around(mutant)
        traced = self._traced.get(function.key) if function is not None else None
        if function is None or traced is None:
            return self.of_file(mutant.path)
        by_line = self._by_line.get(function.key, {})
        lines: Iterable[int] = by_line
        if traced == function.digest:
            first, last = mutant.lines
            lines = range(first - function.first, last - function.first + 1)
        return {test for line in lines for test in by_line.get(line, ())}

    def of_file(self, path: str) -> set[str]:
        keys = [one.key for one in self.functions[path]]
        some = [tests for key in keys for tests in self._by_line.get(key, {}).values()]
        return {test for tests in some for test in tests}

    def seconds(self, test: str) -> float:
        """How long a test takes while it is traced: two or three times as long as without."""
        known = self._tests.get(test)
        return known["seconds"] if known is not None else 0.1

    def passes(self, test: str) -> bool:
        """Whether it passed while it was traced; a test that did not can judge no mutant."""
        known = self._tests.get(test)
        return known is None or known["passed"]

    def unknown(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """The tests that are new, or whose module has changed."""
        return [
            one for one in items
            if self._tests.get(one.nodeid, {}).get("module") != self._module(one)
        ]  # fmt: skip

    def _module(self, item: pytest.Item) -> str:
        if item.path not in self._modules:
            self._modules[item.path] = digest(item.path.read_text(encoding="utf-8"))
        return self._modules[item.path]

    def trace(self, items: Sequence[pytest.Item], run: Run) -> None:
        """Runs the tests and keeps what they run. For a fork: it fills caches of what is tested."""
        place: dict[str, dict[int, tuple[str, int]]] = {}
        for path, functions in self.functions.items():
            at = place[str(self._root / path)] = {}
            for one in functions:
                self._traced[one.key] = one.digest
                at |= {line: (one.key, line - one.first) for line in range(one.first, one.last + 1)}
        tracer = Tracer(place)
        for item in items:
            started = time.process_time()
            tracer.start()
            passed = run(item)
            tracer.stop()
            seconds = round(time.process_time() - started, 4)
            lines: dict[str, list[int]] = defaultdict(list)
            for file, seen in tracer.seen.items():
                for line in seen & place[file].keys():
                    key, relative = place[file][line]
                    lines[key].append(relative)
            self._tests[item.nodeid] = {
                "seconds": seconds, "passed": passed, "module": self._module(item), "lines": lines,
            }  # fmt: skip
        kept = {"tests": self._tests, "functions": self._traced}
        self._file.write_text(json.dumps(kept), encoding="utf-8")


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
