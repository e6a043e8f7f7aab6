"""Test files run: what was found of each test and which rules were seen, as text, JSON and XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from dsl.codes import become
from dsl.compiler import Compiler
from dsl.diagnostics import Diagnostic, render
from dsl.parser import Parser
from dsl.plan import RuleBase, SortRule
from dsl.policytest.reading import Case, Expected, Suite, read_suite
from dsl.source import Span
from engine.framework.runtime import PluginError
from engine.policy.folder import ENDING, TESTS
from engine.policy.plugin import place_of
from engine.policytests.answers import Answers, holds_anyhow, judge
from engine.policytests.looks import OUTCOMES, looks, values_of_rules
from engine.policytests.policies import CannotJudgeError, Found, Library, Used
from engine.policytests.scene import Scene
from engine.text.display import plain
from engine.text.files import bytes_in

PASSED: Final = "passed"
FAILED: Final = "failed"
ERROR: Final = "error"
_COUNTED: Final = ((PASSED, "passed"), (FAILED, "failed"), (ERROR, "could not be run"))


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
    """All results, and in how many tests each rule had each outcome; keys are ids of rules.

    `untouched` counts the tests that passed though no rule applied to their pod.
    """

    untouched: int = 0
    results: list[Result] = field(default_factory=list)
    coverage: dict[str, tuple[RuleBase, Counter[str]]] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0: all passed; 1: there are failures; 2: something could not be used."""
        if self.count(ERROR) or not self.results:
            return 2
        return 1 if self.count(FAILED) else 0

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
            suite = read_suite(str(path), bytes_in(path), self._reader)
        except OSError as failed:
            self._cannot(path, f"{path} cannot be read: {failed.strerror or failed}\n")
            return
        found = self._library.find(suite, path.parent) if suite.ok else suite.diagnostics
        if isinstance(found, tuple):
            line = min(one.source.position(one.span.start)[0] for one in found)
            self._cannot(path, render(found), line)
            return
        results = [(case, *self._case(suite, case, found, path.parent)) for case in suite.cases]
        outcomes = {(outcome, message) for _, outcome, message in results}
        if len(results) > 1 and len(outcomes) == 1 and results[0][1] == ERROR:
            # What is wrong with all tests alike is wrong with what they share.
            self._cannot(path, results[0][2])
            return
        for case, outcome, message in results:
            line = suite.source.position(case.span.start)[0]
            self.report.results.append(Result(str(path), case.name, line, outcome, message))

    def _cannot(self, path: Path, message: str, line: int = 1) -> None:
        self.report.results.append(Result(str(path), "", line, ERROR, message))

    def _case(self, suite: Suite, case: Case, found: Found, folder: Path) -> tuple[str, str]:
        if not case.expected:
            return FAILED, "this test expects nothing: write what must hold after `expect`"
        used = self._library.arrange(suite, found, case)
        if case.expected[0].name == "error":
            return _refusal(case.expected[0], used)
        if not isinstance(used, Used):
            return ERROR, render(used)
        try:
            return self._judged(suite, case, Answers(partial(Scene, case, used, folder)))
        except (CannotJudgeError, PluginError) as failed:
            about = Span(case.span.start, case.span.start + len("test"))
            return ERROR, render((Diagnostic("P704", str(failed), suite.source, about),))

    def _judged(self, suite: Suite, case: Case, answers: Answers) -> tuple[str, str]:
        for rule in answers.rules:
            answers.seen[rule.id] = {one.outcome for one in looks(rule, answers)} - {""}
            _, there = self.report.coverage.setdefault(rule.id, (rule, Counter()))
            there.update(answers.seen[rule.id])
        failures: list[str] = []
        for expected in case.expected:
            failure = judge(expected, answers) or holds_anyhow(expected, answers)
            if failure is not None:
                failures.append(f"{suite.source.name}:{expected.line}: {expected.text}")
                failures += failure.message, *values_of_rules(answers, failure.nodes, expected)
        failures += [f"{suite.source.name}:{at}: {said}" for at, said in answers.scene.unread]
        # Rules of the queue's order have no left side; they count where an order is expected.
        said = {one.name for one in case.expected}
        asked = [one for one in answers.rules if "order" in said or not isinstance(one, SortRule)]
        untouched = answers.rules and "skipped" not in said and not any(map(answers.applies, asked))
        if untouched and self._deny_skipped:
            failures.append(f"no rule applies to {answers.scene.pod.key}")
        self.report.untouched += bool(untouched and not failures)
        return (FAILED, "\n".join(failures)) if failures else (PASSED, "")


def _refusal(expected: Expected, used: Used | tuple[Diagnostic, ...]) -> tuple[str, str]:
    wanted = expected.names[0]
    if isinstance(used, Used):
        return FAILED, f"{expected.text}\nthe policy is accepted"
    codes = sorted({one.code for one in used})
    if new := [one for one in become(wanted) if one in codes]:
        return PASSED, "" if wanted in codes else f"{wanted} is {new[0]} now"
    return FAILED, f"{expected.text}\nthe policy is refused with {', '.join(codes)}\n{render(used)}"


# ---- the report


def as_text(report: Report, *, coverage: bool) -> str:
    """What people read: each failure whole, then the count."""
    parts = [_failure(one) for one in report.results if one.outcome != PASSED]
    if coverage:
        parts.append("\n".join(_table(report)))
    told = [f"{n} {words}" for outcome, words in _COUNTED if (n := report.count(outcome))]
    if report.untouched:
        told[0] += f" ({report.untouched} of them where no rule applied)"
    parts.append(", ".join(told) or "0 passed")
    return "\n\n".join(parts)


def _failure(result: Result) -> str:
    head = f"{result.outcome.upper()} {result.file}:{result.line}"
    head += f' "{result.test}"' if result.test else ""
    body = "\n".join(f"  {line}".rstrip() for line in result.message.rstrip().splitlines())
    return f"{head}\n{body}"


def _table(report: Report) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("rule", *OUTCOMES, "")]
    for rule, outcomes in report.coverage.values():
        counts = [str(outcomes[name] or "-") for name in OUTCOMES]
        rows.append((place_of(rule), *counts, plain(rule.text, 60)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for place, *cells, text in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=False))
        yield "  ".join((place.ljust(widths[0]), *numbers, text)).rstrip()


def as_json(report: Report, *, coverage: bool) -> str:
    """What programs read: a list of results; with coverage an object that has it as `tests`."""
    tests = [asdict(one) for one in report.results]
    rules = [
        {"rule": key, "place": place_of(rule), "text": rule.text}
        | {name: outcomes[name] for name in OUTCOMES}
        for key, (rule, outcomes) in report.coverage.items()
    ]
    return json.dumps({"tests": tests, "coverage": rules} if coverage else tests, indent=2)


def as_junit(report: Report) -> bytes:
    """What build servers read."""
    root = ET.Element("testsuites", _counts(report.results))
    for file, group in groupby(report.results, key=lambda one: one.file):
        results = list(group)
        suite = ET.SubElement(root, "testsuite", {"name": file, **_counts(results)})
        for one in results:
            name = _clean(one.test) or "the file"
            attributes = {"name": name, "classname": file, "file": file, "line": str(one.line)}
            case = ET.SubElement(suite, "testcase", attributes)
            if one.outcome != PASSED:
                tag, first = one.outcome.replace(FAILED, "failure"), one.message.split("\n", 1)[0]
                said = ET.SubElement(case, tag, {"message": _clean(first)})
                said.text = _clean(one.message)
    ET.indent(root)
    made: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return made


def _counts(results: list[Result]) -> dict[str, str]:
    outcomes = [one.outcome for one in results]
    return {
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count(FAILED)),
        "errors": str(outcomes.count(ERROR)),
    }


def _clean(text: str) -> str:
    return plain(text, len(text), keep="\n\t")
