"""`python -m tests.mutants [FILES]`: would a test notice a small change of this code?

Without files: plan, lowering, reference, what turns with the clock and what is said of a rejection.
Linux only, as it forks. Results and what each test runs are kept in `.mutants`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tests.mutants.covering import Covering
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.results import Equivalent, Report, Results
from tests.mutants.sessions import Plan, in_functions

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).parent / "equivalent.txt"
TARGETS = ("dsl/plan.py", "dsl/turns.py", "dsl/words.py", "dsl/reference.py", "dsl/lower/*.py")
TESTS = (
    "tests/mutants/each_text.py", "tests/spec", "tests/dsl",
    "tests/properties/test_several_evaluators.py",
    "tests/properties/test_language_evaluators.py", "tests/properties/test_told_alike.py",
)  # fmt: skip
#: These measure time.
UNSTEADY = ("_are_short", "_end_soon", "_soon[")
#: Seconds for one mutant and for one test of it: at length, and at first.
THOROUGH, QUICK = (20.0, 20.0), (3.0, 0.2)
OPTIONS = (
    "-qq", "--no-summary", "--assert=plain", "--tb=native", "--capture=no",
    "-m", "not slow and not cluster",
    "-p", "no:cacheprovider", "-p", "no:logging",
    "-p", "no:unraisableexception", "-p", "no:threadexception",
)  # fmt: skip


@dataclass(frozen=True)
class Project:
    """Where everything is; a test has one of its own."""

    root: Path
    tests: Sequence[str]
    equivalent: Path

    @property
    def kept(self) -> Path:
        folder = self.root / ".mutants"
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        return folder


@dataclass(frozen=True)
class Runs:
    """What is run of a file."""

    #: Not what was killed before, in a function whose text is the same.
    only_open: bool
    #: Also what is argued equivalent: a test may have disproved the judgement.
    argued: bool
    quick: bool


def check(project: Project, files: Sequence[str], runs: Runs) -> Report:
    """Runs the mutants of some files, and returns what is known of them then."""
    kept, equivalent = project.kept, Equivalent(project.equivalent)
    results = Results(kept / "results.jsonl")
    covering = Covering(project.root, targets(project.root, files), kept / "coverage.json")
    read = {path: mutants_of(project.root, path) for path in files}

    def wanted(mutant: Mutant) -> bool:
        if equivalent.reason(mutant):
            return runs.argued
        return not (runs.only_open and is_killed(mutant))

    def is_killed(mutant: Mutant) -> bool:
        known, function = results.of(mutant), covering.around(mutant)
        same = known is not None and known.function == (function.digest if function else "")
        return known is not None and same and not known.outcome.is_open

    budget, longest = QUICK if runs.quick else THOROUGH
    plan = Plan(
        root=project.root,
        trees={path: tree for path, (tree, _) in read.items()},
        mutants={path: [one for one in some if wanted(one)] for path, (_, some) in read.items()},
        covering=covering,
        results=results,
        budget=budget,
        longest=longest,
        unsteady=UNSTEADY,
    )
    options = [*OPTIONS, f"--rootdir={project.root}"]
    in_functions(plan, [*options, *project.tests])
    plan.results = results = Results(kept / "results.jsonl")
    return Report({path: some for path, (_, some) in read.items()}, results, equivalent)


def targets(root: Path, files: Sequence[str]) -> list[str]:
    """The files whose lines are traced: the usual ones, so that what is kept serves later runs."""
    found = [path for one in TARGETS for path in sorted(root.glob(one))]
    return list(dict.fromkeys([*(str(one.relative_to(root)) for one in found), *files]))


@click.command(help=__doc__.partition("\n")[0])
@click.argument("files", nargs=-1)
@click.option("--only-open", is_flag=True, help="leave out what was killed before")
@click.option("--argued", is_flag=True, help="also run what is argued equivalent")
@click.option("--quick", is_flag=True, help="a few seconds a mutant, and no long tests")
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, hidden=True)
@click.option("--tests", multiple=True, default=TESTS, hidden=True)
@click.option("--equivalent", type=click.Path(path_type=Path), default=EQUIVALENT, hidden=True)
def main(
    files: tuple[str, ...],
    only_open: bool,
    argued: bool,
    quick: bool,
    root: Path,
    tests: tuple[str, ...],
    equivalent: Path,
) -> None:
    project = Project(root.resolve(), tests, equivalent)
    report = check(project, files or targets(project.root, ()), Runs(only_open, argued, quick))
    print(report.table())
    for mutant, outcome in report.open:
        place = f"{mutant.path}:{mutant.line}: {mutant.name or 'module'}"
        print(f"{place}: {mutant.source}  [{mutant.what}] {outcome}")
    for mutant, test in report.killed_though_argued:
        print(f"{mutant.path}:{mutant.line}: argued equivalent, but {test} fails: {mutant.what}")
    stale = report.equivalent.stale(one for some in report.mutants.values() for one in some)
    for path, name, source, what in stale:
        print(f"{path}: {name}: argued equivalent, but no more there: {source} [{what}]")
    sys.exit(bool(report.open or report.killed_though_argued or stale))


if __name__ == "__main__":
    main()
