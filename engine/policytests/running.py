"""Test files run: what was found of each test, and which rules were seen at work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from dsl.codes import become
from dsl.compiler import Compiler
from dsl.diagnostics import Diagnostic, render
from dsl.parser import Parser
from dsl.plan import SortRule
from dsl.policytest import NOT_FOUND, Case, Expected, Suite, read_suite
from dsl.source import MAX_BYTES, Span
from engine.framework.runtime import PluginError
from engine.policy.folder import ENDING, TESTS
from engine.policy.podreads import UnreadFieldError
from engine.policytests.answers import Answers
from engine.policytests.judging import judge
from engine.policytests.objects import FixtureError
from engine.policytests.policies import CannotJudgeError, Found, Library, Used, unknown_parameter
from engine.policytests.rules import RuleCoverage, outcomes, values_of_rules
from engine.policytests.samples import unread_metrics
from engine.policytests.scene import Scene
from engine.policytests.unread import unread_attributes

PASSED: Final = "passed"
FAILED: Final = "failed"
ERROR: Final = "error"
#: No object of a cluster is larger: etcd takes 1.5 MiB.
_MAX_MANIFEST: Final = 2 << 20

#: What is so wherever no rule says otherwise, and the rules that could.
_NEEDED: Final = {
    ("victims",): ("preempts", "quotas"),
    ("nominated",): ("preempts", "quotas"),
    ("permit", "allow"): ("permits", "reserves", "gangs"),
}

_DECLARED: Final = re.compile(r"param[ \t]+([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one test; a file that cannot be used has one result without a name."""

    file: str
    test: str
    line: int
    outcome: str
    message: str = ""


@dataclass(slots=True)
class Report:
    """All results, and the rules that were seen; keys are file and number of the rule.

    `untouched` counts the tests that passed though no rule applied to their pod.
    """

    untouched: int = 0
    results: list[Result] = field(default_factory=list)
    coverage: dict[str, RuleCoverage] = field(default_factory=dict)
    warnings: list[Diagnostic] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0: all passed; 1: there are failures; 2: something could not be used."""
        outcomes = {one.outcome for one in self.results}
        if ERROR in outcomes or not self.results:
            return 2
        return 1 if FAILED in outcomes else 0

    def count(self, outcome: str) -> int:
        """How many tests came out so."""
        return sum(one.outcome == outcome for one in self.results)


def find_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The test files of paths: files themselves but for policies, of folders all below them.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    for path in paths:
        if path.is_dir():
            yield from sorted(one for one in path.rglob(f"*{TESTS}") if one.is_file())
        elif not path.exists():
            raise FileNotFoundError(str(path))
        elif path.suffix != ENDING:
            yield path


class Runner:
    """Runs test files; policies and the tables of the grammar are kept between them."""

    def __init__(
        self,
        bundled: Path | None,
        compiler: Compiler | None = None,
        reader: Parser | None = None,
        *,
        deny_skipped: bool = False,
    ) -> None:
        self._deny_skipped = deny_skipped
        self._library = Library(bundled, compiler)
        self._reader = reader or Parser()
        self.report = Report()

    def run(self, path: Path) -> None:
        """Runs one file. Never raises for what is in it."""
        try:
            # One byte over the limit of the language is enough to be told of it.
            data = _read(path, MAX_BYTES + 1)
        except OSError as failed:
            self._cannot(path, f"{path} cannot be read: {failed.strerror or failed}\n")
            return
        suite = read_suite(str(path), data, self._reader)
        if not suite.ok:
            self._cannot(path, render(suite.diagnostics), suite.diagnostics)
            return
        self.report.warnings.extend(suite.diagnostics)
        found = self._library.find(suite, path.parent)
        if isinstance(found, Diagnostic):
            self._cannot(path, render((found,)), (found,))
            return
        results = [(case, *self._case(suite, case, found, path.parent)) for case in suite.cases]
        outcomes = {(outcome, message) for _, outcome, message in results}
        if len(results) > 1 and len(outcomes) == 1 and results[0][1] == ERROR:
            # What is wrong with all tests alike is wrong with what they share.
            self._cannot(path, results[0][2])
            return
        for case, outcome, message in results:
            self.report.results.append(Result(str(path), case.name, case.line, outcome, message))

    def _cannot(self, path: Path, message: str, found: tuple[Diagnostic, ...] = ()) -> None:
        line = min((one.source.position(one.span.start)[0] for one in found), default=1)
        self.report.results.append(Result(str(path), "", line, ERROR, message))

    def _case(self, suite: Suite, case: Case, found: Found, folder: Path) -> tuple[str, str]:
        if not case.expected:
            return FAILED, "this test expects nothing: write what must hold after `expect`"
        unknown = unknown_parameter(suite, case, found)
        if unknown is not None:
            return ERROR, render((unknown,))
        used = self._library.arrange(found, case)
        if case.wants_error:
            return _refusal(case.expected[0], used)
        if not isinstance(used, Used):
            return ERROR, render(_where_given(one, suite, case) for one in used)
        if case is suite.cases[0]:
            self.report.warnings.extend(unread_attributes(suite, used))
        scene = partial(Scene, case, used, partial(_text, folder))
        try:
            return self._judged(suite, case, Answers(scene))
        except (FixtureError, CannotJudgeError, PluginError) as failed:
            return ERROR, render((_about(suite, case, str(failed)),))
        except UnreadFieldError as fault:
            return ERROR, f"this version has nothing to read for {fault} yet"

    def _judged(self, suite: Suite, case: Case, answers: Answers) -> tuple[str, str]:
        for rule in answers.rules:
            there = self.report.coverage.setdefault(rule.id, RuleCoverage.of(rule))
            answers.seen[rule.id] = outcomes(rule, answers)
            there.outcomes.update(answers.seen[rule.id])
        failures: list[str] = []
        for expected in case.expected:
            failure = judge(expected, answers)
            if failure is None:
                continue
            values = values_of_rules(answers, failure.nodes, expected)
            text = f"{suite.source.name}:{expected.line}: {expected.text}\n{failure.message}"
            failures.append(f"{text}\n{values}" if values else text)
        failures.extend(_nobody_asked(suite, case, answers))
        failures.extend(unread_metrics(suite, answers.scene.samples, answers.scene.plans))
        untouched = _nothing_matched(case, answers)
        if untouched and self._deny_skipped:
            failures.append(f"no rule applies to {answers.scene.pod.key}")
        self.report.untouched += untouched and not failures
        return (FAILED, "\n".join(failures)) if failures else (PASSED, "")


def _text(folder: Path, name: str) -> str:
    try:
        data = _read(folder / name, _MAX_MANIFEST + 1)
        if len(data) > _MAX_MANIFEST:
            raise FixtureError(
                f"{name} is larger than {_MAX_MANIFEST >> 20} MiB: keep what the test needs of it"
            )
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as failed:
        why = failed.strerror or str(failed) if isinstance(failed, OSError) else "it is not UTF-8"
        raise FixtureError(
            f"{name} cannot be read: {why} (paths start at the test file)"
        ) from failed


def _read(path: Path, size: int) -> bytes:
    """At most so many bytes of a regular file; a device or a pipe might never end.

    Raises:
        OSError: it is no file, or it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise OSError(f"it is {'a folder' if path.is_dir() else 'not a regular file'}")
    with path.open("rb") as file:
        return file.read(size)


def _about(suite: Suite, case: Case, message: str) -> Diagnostic:
    """A finding about a whole test, at its first line."""
    start = case.span.start
    end = suite.source.text.find("\n", start)
    return Diagnostic(NOT_FOUND, message, suite.source, Span(start, end if end > 0 else start + 1))


def _where_given(finding: Diagnostic, suite: Suite, case: Case) -> Diagnostic:
    """A finding about the value of a parameter, at the place that gives it."""
    source = finding.source
    line = source.line(source.position(finding.span.start)[0])
    declared = _DECLARED.match(line)
    if declared is None or finding.code != "P111":
        return finding
    places = {name: span for use in suite.uses for name, span in use.places.items()}
    places |= {name: span for name, (_, span) in case.params.items()}
    place = places.get(declared[1])
    if place is None:
        return finding
    helps = (*finding.helps, f"the policy has  {line.strip()}")
    return Diagnostic(finding.code, finding.message, suite.source, place, helps=helps)


def _refusal(expected: Expected, used: Used | tuple[Diagnostic, ...]) -> tuple[str, str]:
    wanted = expected.names[0]
    if isinstance(used, Used):
        return FAILED, f"{expected.text}\nthe policy is accepted"
    codes = sorted({one.code for one in used})
    if wanted in codes:
        return PASSED, ""
    new = [one for one in become(wanted) if one in codes]
    if new:
        return PASSED, f"{wanted} is {new[0]} now"
    return FAILED, f"{expected.text}\nthe policy is refused with {', '.join(codes)}\n{render(used)}"


def _nothing_matched(case: Case, answers: Answers) -> bool:
    """Whether no rule has a part in a test, which does not say so itself."""
    said = any(one.name == "skipped" for one in case.expected)
    # Rules of the queue's order have no left side; they count where an order is expected.
    sorts = any(one.name == "order" for one in case.expected)
    asked = [one for one in answers.rules if sorts or not isinstance(one, SortRule)]
    return bool(answers.rules) and not said and not any(map(answers.applies, asked))


def _nobody_asked(suite: Suite, case: Case, answers: Answers) -> Iterator[str]:
    """An expectation that no policy could break, for want of a rule of its kind."""
    for expected in case.expected:
        points = _NEEDED.get((expected.name, *expected.names))
        if points and not any(getattr(plan, one) for plan in answers.scene.plans for one in points):
            listed = " or ".join(f"`{one.removesuffix('s')}:`" for one in points)
            yield (
                f"{suite.source.name}:{expected.line}: {expected.text}\n"
                f"no policy used here has a {listed}, so this holds whatever they say"
            )
