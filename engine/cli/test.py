"""`berth test`: policy tests in, verdicts out; exit 0 passed, 1 failed, 2 files not usable."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import policies
from engine.cli import options
from engine.cli.refusals import Unusable, of_file
from engine.policytests.running import Runner, as_json, as_junit, as_text, find_files
from engine.text.display import plain


@click.command("test", help="Run policy tests: .policytest files, or all below a folder.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--deny-skipped", is_flag=True, help="Fail tests in which no rule applies to the pod."
)
@click.option("--coverage", is_flag=True, help="Report which rules rejected, passed and scored.")
@options.FORMAT
@click.option("--junit", type=options.WRITTEN, help="Write the results as JUnit XML, too.")
def command(
    paths: tuple[Path, ...], style: str, junit: Path | None, *, coverage: bool, deny_skipped: bool
) -> None:
    """Runs the tests of all paths; without one, of the working folder."""
    places = paths or (Path(),)
    runner = Runner(Path(policies.__file__).parent, deny_skipped=deny_skipped)
    try:
        files = list(dict.fromkeys(find_files(places)))
    except FileNotFoundError as failed:
        raise Unusable(f"{failed} does not exist") from failed
    if not files:
        listed = ", ".join(str(one) for one in places)
        raise Unusable(f"there is no .policytest file in {listed}")
    for path in files:
        runner.run(path)
    report = runner.report
    told = (as_json if style == "json" else as_text)(report, coverage=coverage)
    click.echo(plain(told, len(told), keep="\n"))
    if junit is not None:
        with of_file(junit, "written", Unusable):
            junit.write_bytes(as_junit(report))
    sys.exit(report.exit_code)
