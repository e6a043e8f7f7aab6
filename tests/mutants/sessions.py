"""A pytest session that runs mutants, each put into the functions that stand, in a fork of it."""

from __future__ import annotations

import ast
import functools
import gc
import os
import sys
import tempfile
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutants.covering import Covering, covering_of, trace
from tests.mutants.forks import Outcome, Pipe, Verdict, fork, passes, run, watch
from tests.mutants.operators import Mutant
from tests.mutants.results import Results

#: So many of the tests that killed last in a function are tried first.
NEAR = 8
Functions = Mapping[tuple[str, int], Sequence[types.FunctionType]]


@dataclass
class Plan:
    """What is to be run, and what is known."""

    root: Path
    #: The trees and the mutants to run, by file.
    trees: Mapping[str, ast.Module]
    mutants: Mapping[str, Sequence[Mutant]]
    results: Results
    #: Seconds for all tests of one mutant, and for one test.
    budget: float
    longest: float
    covering: Covering = field(default_factory=lambda: Covering({}))
    kills: Counter[str] = field(default_factory=Counter)
    #: Whether a test that has killed passes when nothing is changed: what it reads may be newer
    #: than what was traced.
    sound: dict[str, bool] = field(default_factory=dict)
    #: The tests that killed in a function, the last one first.
    near: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def usable(self, items: Iterable[pytest.Item]) -> dict[str, pytest.Item]:
        return {
            one.nodeid: one for one in items
            if self.covering.passes(one.nodeid) and self.sound.get(one.nodeid, True)
            and self.covering.seconds(one.nodeid) <= self.longest
        }  # fmt: skip

    def order(self, mutant: Mutant, tests: Collection[str]) -> list[str]:
        """Those that killed here first; then of each module its quickest in turn.

        In turn, for a test of values finds what no text of a hundred quicker ones does.
        """
        near = [one for one in self.near[mutant.path, mutant.name] if one in tests][:NEAR]
        modules: dict[str, list[str]] = defaultdict(list)
        for one in sorted(set(tests) - set(near), key=self._weight):
            modules[one.partition("::")[0]].append(one)
        rounds = zip_longest(*modules.values())
        return near + [one for each in rounds for one in each if one is not None]

    def _weight(self, test: str) -> tuple[float, str]:
        return (self.covering.seconds(test) + 0.003) / (1 + self.kills[test]), test

    def note(self, mutant: Mutant, verdict: Verdict) -> None:
        if not verdict.outcome.is_open and verdict.test:
            near = self.near[mutant.path, mutant.name]
            if verdict.test in near:
                near.remove(verdict.test)
            near.insert(0, verdict.test)
            self.kills[verdict.test] += 1
        self.results[mutant] = verdict


class FixedSeeds:
    """Properties try the same examples each time; the first that fails is enough, however large.

    What a property says of itself goes before: one that shrinks may come to its limit of time.
    """

    def pytest_configure(self) -> None:
        settings.register_profile(
            "mutants", derandomize=True, database=None, deadline=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate],
            report_multiple_bugs=False,
        )  # fmt: skip
        settings.load_profile("mutants")


class InFunctions(FixedSeeds):
    """Traces the tests, then runs the mutants of functions."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        plan = self._plan
        _warm()
        print(f"tracing {len(session.items)} tests", flush=True)
        with tempfile.NamedTemporaryFile() as file:
            child = os.fork()
            if not child:
                traced = trace(plan.root, plan.mutants, session.items, passes)
                Path(file.name).write_text(traced, encoding="utf-8")
                os._exit(0)
            os.waitpid(child, 0)
            plan.covering = covering_of(Path(file.name).read_text(encoding="utf-8"))
        items = plan.usable(session.items)
        standing = _standing({str(plan.root / path): path for path in plan.mutants})
        gc.collect()
        gc.freeze()
        for path, mutants in plan.mutants.items():
            for one in mutants:
                plan.note(one, self._judge(one, items, standing[path]))
        return True

    def _judge(
        self, mutant: Mutant, items: Mapping[str, pytest.Item], standing: Functions
    ) -> Verdict:
        plan = self._plan
        tests = plan.order(mutant, plan.covering.of(mutant) & items.keys())
        if not tests:
            return Verdict(Outcome.UNCOVERED)
        try:
            code = compiled(plan.trees[mutant.path], mutant, str(plan.root / mutant.path))
        except (SyntaxError, ValueError) as error:
            return Verdict(Outcome.KILLED, f"does not compile: {error}")
        while True:
            sound = [items[one] for one in tests if plan.sound.get(one, True)]
            verdict = self._run(sound, lambda: put(code, standing))
            test = verdict.test
            if verdict.outcome.is_open or test not in items:
                return verdict
            if test not in plan.sound:
                alone = self._run([items[test]], lambda: None)
                plan.sound[test] = alone.outcome is Outcome.SURVIVED
            if plan.sound[test]:
                return verdict

    def _run(self, items: Sequence[pytest.Item], change: Callable[[], None]) -> Verdict:
        child, end = fork()
        if child:
            return watch(child, end)
        pipe = Pipe(end)
        try:
            change()
        except (ValueError, LookupError) as error:
            pipe.ends(Outcome.ERROR, str(error))
        run(pipe, items, self._plan.covering.seconds, self._plan.budget)
        raise AssertionError("the child has ended")


def in_functions(plan: Plan, options: Sequence[str]) -> None:
    """Traces the tests, and runs the mutants of functions."""
    code = pytest.main([*options], plugins=[InFunctions(plan)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.INTERRUPTED):
        raise RuntimeError("the session of tests did not come to its end")


def compiled(tree: ast.Module, mutant: Mutant, file: str) -> types.CodeType:
    """The code of the function around a mutant, in the classes around that; the tree as before."""
    classes, body = [], tree.body
    while True:
        (around,) = (one for one in body if _first_line(one) <= mutant.line <= _last_line(one))
        if not isinstance(around, ast.ClassDef):
            break
        classes.append(around.name)
        body = around.body
    undo = mutant.apply()
    try:
        part: ast.stmt = around
        for name in reversed(classes):
            part = ast.ClassDef(name, [], [], [part], [])
        module = ast.fix_missing_locations(ast.Module([part], []))
        flags = annotations.compiler_flag
        code: types.CodeType = compile(module, file, "exec", flags, dont_inherit=True)
        return code
    finally:
        undo()


def put(code: types.CodeType, standing: Functions) -> None:
    """Gives the functions that stand their new code, those inside others, too."""
    found = False
    for one in _codes(code):
        for function in standing.get((one.co_qualname, one.co_firstlineno), ()):
            function.__code__ = one
            found = True
    if not found:
        raise LookupError("no function takes the new code")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield one
            yield from _codes(one)


def _first_line(one: ast.stmt) -> int:
    if isinstance(one, ast.ClassDef | ast.FunctionDef):
        return min([one.lineno, *(each.lineno for each in one.decorator_list)])
    return one.lineno


def _last_line(one: ast.stmt) -> int:
    return one.end_lineno or one.lineno


def _standing(
    paths: Mapping[str, str],
) -> dict[str, dict[tuple[str, int], list[types.FunctionType]]]:
    """The functions of some files, by name and first line."""
    found: dict[str, dict[tuple[str, int], list[types.FunctionType]]] = {
        path: defaultdict(list) for path in paths.values()
    }
    for one in gc.get_objects():
        if type(one) is types.FunctionType and one.__code__.co_filename in paths:
            code = one.__code__
            found[paths[code.co_filename]][code.co_qualname, code.co_firstlineno].append(one)
    return found


def _warm() -> None:
    """Makes what takes long once for all children, and forgets what the code of today has said."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            for value in list(vars(module).values()):
                if not isinstance(value, type) and callable(getattr(value, "warm", None)):
                    value.warm()
    for one in gc.get_objects():
        if isinstance(one, functools._lru_cache_wrapper):
            one.cache_clear()
