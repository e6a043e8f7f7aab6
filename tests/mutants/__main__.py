"""`python -m tests.mutants [FILES]`: would a test notice a small change of this code?

Without files: plan, lowering, reference, what turns with the clock and what is said of a rejection.
Linux only, as it forks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tests.mutants.operators import mutants_of
from tests.mutants.results import Equivalent, Report
from tests.mutants.sessions import Plan, in_functions

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).parent / "equivalent.txt"
TARGETS = ("dsl/plan.py", "dsl/turns.py", "dsl/reasons.py", "dsl/reference.py", "dsl/lower/*.py")
TESTS = (
    "tests/mutants/each_text.py", "tests/spec", "tests/dsl",
    "tests/properties/test_several_evaluators.py", "tests/engine/cli/test_explain_pods.py",
    "tests/properties/test_language_evaluators.py", "tests/properties/test_told_alike.py",
)  # fmt: skip
#: Seconds for one mutant, and for one test of it.
BUDGET, LONGEST = 20.0, 20.0
OPTIONS = (
    "-qq", "--no-summary", "--assert=plain", "--tb=native", "--capture=no",
    "-m", "not slow and not cluster",
    "-p", "no:cacheprovider", "-p", "no:logging",
    "-p", "no:unraisableexception", "-p", "no:threadexception",
)  # fmt: skip


def check(
    root: Path, files: Sequence[str], tests: Sequence[str], equivalent: Path, *, argued: bool
) -> Report:
    """Runs the mutants of some files; those that are argued equivalent only if asked."""
    judged = Equivalent(equivalent)
    read = {path: mutants_of(root, path) for path in files}
    plan = Plan(
        root=root,
        trees={path: tree for path, (tree, _) in read.items()},
        mutants={
            path: [one for one in some if argued or not judged.reason(one)]
            for path, (_, some) in read.items()
        },
        results={},
        budget=BUDGET,
        longest=LONGEST,
    )
    in_functions(plan, [*OPTIONS, f"--rootdir={root}", *tests])
    return Report({path: some for path, (_, some) in read.items()}, plan.results, judged)


@click.command(help=__doc__.partition("\n")[0])
@click.argument("files", nargs=-1)
@click.option("--argued", is_flag=True, help="also run what is argued equivalent")
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, hidden=True)
@click.option("--tests", multiple=True, default=TESTS, hidden=True)
@click.option("--equivalent", type=click.Path(path_type=Path), default=EQUIVALENT, hidden=True)
def main(
    files: tuple[str, ...], argued: bool, root: Path, tests: tuple[str, ...], equivalent: Path
) -> None:
    root = root.resolve()
    usual = [str(one.relative_to(root)) for each in TARGETS for one in sorted(root.glob(each))]
    report = check(root, files or usual, tests, equivalent, argued=argued)
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
