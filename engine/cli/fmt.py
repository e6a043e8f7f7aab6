"""`berth fmt`: policies and their tests in the one style; exit 2 on errors, 1 with `--check`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Final

import click

from dsl.diagnostics import Diagnostic, render
from dsl.files import read_source
from dsl.formatter import Formatted, format_source
from dsl.parser import Parser
from engine.policy.folder import ENDING, TESTS
from engine.text.files import bytes_in

_STDIN: Final = "-"


class _FileError(click.ClickException):
    """A file that cannot be read or written; 1 is for files that would change."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One file: what it holds, and what it should.

    Attributes:
        new: None if the file is to be left as it is.
    """

    name: str
    old: bytes
    new: bytes | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def changes(self) -> bool:
        return self.new is not None and self.new != self.old


@click.command("fmt", help="Format policies and their tests.")
@click.argument("paths", nargs=-1, metavar="[PATHS|-]")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@click.option(
    "--stdin-name",
    default="stdin.policy",
    show_default=True,
    help="File name of what `-` reads; that of a policy test ends in .policytest.",
)
def command(paths: tuple[str, ...], stdin_name: str, *, check: bool, diff: bool) -> None:
    """Formats files, folders (this one if none is named) or the standard input."""
    parser = Parser()
    outcomes = []
    for path in _files(paths or (".",)):
        outcome = _format(parser, path, stdin_name)
        outcomes.append(outcome)
        if outcome.diagnostics:
            click.echo(render(outcome.diagnostics, color=sys.stderr.isatty()), err=True)
        if diff and outcome.changes:
            click.echo(_difference(outcome), nl=False)
        elif check and outcome.changes:
            click.echo(outcome.name)
        if not check and not diff:
            _write(path, outcome)
    if _STDIN not in paths or check or diff:
        click.echo(_summary(outcomes, written=not check and not diff), err=True)
    if any(outcome.diagnostics for outcome in outcomes):
        sys.exit(2)
    if check and any(outcome.changes for outcome in outcomes):
        sys.exit(1)


def _files(paths: tuple[str, ...]) -> Iterator[str]:
    """Yields each file once; folders with all below them, but for hidden ones."""
    seen = set()
    for path in paths:
        found = [path]
        if path != _STDIN and Path(path).is_dir():
            below = sorted(one for one in Path(path).rglob("*") if one.suffix in (ENDING, TESTS))
            parts = ((one, one.relative_to(path).parts) for one in below if one.is_file())
            found = [str(one) for one, each in parts if not any(p.startswith(".") for p in each)]
        for one in found:
            if one not in seen:
                seen.add(one)
                yield one


def _format(parser: Parser, path: str, stdin_name: str) -> _Outcome:
    name = stdin_name if path == _STDIN else path
    try:
        old = bytes_in(path)
    except OSError as failed:
        raise _FileError(f"{path}: cannot be read: {failed.strerror}") from failed
    source, problems = read_source(name, old)
    lexemes = partial(parser.lexemes, tests=name.endswith(TESTS))
    formatted = Formatted(None, problems) if problems else format_source(source, lexemes)
    new = formatted.text.encode("utf-8") if formatted.text is not None else None
    return _Outcome(name, old, new, formatted.diagnostics)


def _write(path: str, outcome: _Outcome) -> None:
    if path == _STDIN:
        if not outcome.diagnostics:
            click.echo(outcome.old if outcome.new is None else outcome.new, nl=False)
    elif outcome.new is not None and outcome.changes:
        try:
            Path(path).write_bytes(outcome.new)
        except OSError as failed:
            raise _FileError(f"{path}: cannot be written: {failed.strerror}") from failed


def _difference(outcome: _Outcome) -> str:
    """Returns a unified diff; a file with errors has none."""
    # Lines end at line feeds only; `str.splitlines` knows more ends than the language.
    old, new = (
        StringIO((data or b"").decode("utf-8"), newline="\n").readlines()
        for data in (outcome.old, outcome.new)
    )
    shown = []
    for line in difflib.unified_diff(old, new, outcome.name, outcome.name):
        end = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
        shown.append(line + end)
    return "".join(shown)


def _summary(outcomes: list[_Outcome], *, written: bool) -> str:
    errors = sum(bool(outcome.diagnostics) for outcome in outcomes)
    changed = sum(outcome.changes for outcome in outcomes)
    counts = {
        "formatted" if written else "would change": changed,
        "left as they were" if written else "in style": len(outcomes) - changed - errors,
        "with errors": errors,
    }
    told = [
        f"{many} file{'' if many == 1 else 's'} {what}" for what, many in counts.items() if many
    ]
    return ", ".join(told) or "no files"
