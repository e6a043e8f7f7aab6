"""`berth fmt`: policies and their tests in the one style; exit 2 on errors, 1 with `--check`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Final

import click

from dsl.diagnostics import Diagnostic, render
from dsl.files import read_source
from dsl.formatter import format_source
from dsl.parser import Parser
from engine.cli.refusals import Unusable, of_file
from engine.policy.folder import ENDING, TESTS
from engine.text.display import takes_color
from engine.text.files import bytes_in

_STDIN: Final = "-"


@click.command("fmt", help="Format policies and their tests.")
@click.argument("paths", nargs=-1, metavar="[PATHS|-]")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
def command(paths: tuple[str, ...], *, check: bool, diff: bool) -> None:
    """Formats files, folders (this one if none is named) or the standard input."""
    parser = Parser()
    changed = "would change" if check or diff else "formatted"
    counts = dict.fromkeys((changed, "in style", "with errors"), 0)
    for path in _files(paths or (".",)):
        with of_file(path, "read", Unusable):
            old = bytes_in(path)
        new, found = _formatted(parser, path, old)
        counts["with errors" if found else "in style" if new == old else changed] += 1
        if found:
            click.echo(render(found, color=takes_color(sys.stderr)), err=True)
        elif diff and new != old:
            click.echo(_difference(path, old, new), nl=False)
        elif check and new != old:
            click.echo(path)
        elif not (check or diff):
            _write(path, old, new)
    if _STDIN not in paths or check or diff:
        told = [
            f"{many} file{'' if many == 1 else 's'} {of}" for of, many in counts.items() if many
        ]
        click.echo(", ".join(told) or "no files", err=True)
    if counts["with errors"]:
        sys.exit(2)
    if check and counts[changed]:
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


def _formatted(parser: Parser, path: str, old: bytes) -> tuple[bytes, tuple[Diagnostic, ...]]:
    """What a file should hold; or what it holds, and why it is left as it is."""
    source, problems = read_source("stdin.policy" if path == _STDIN else path, old)
    if problems:
        return old, problems
    made = format_source(source, partial(parser.lexemes, tests=path.endswith(TESTS)))
    return old if made.text is None else made.text.encode("utf-8"), made.diagnostics


def _write(path: str, old: bytes, new: bytes) -> None:
    if path == _STDIN:
        click.echo(new, nl=False)
    elif new != old:
        with of_file(path, "written", Unusable):
            Path(path).write_bytes(new)


def _difference(name: str, *texts: bytes) -> str:
    # Lines end at line feeds only; `str.splitlines` knows more ends than the language.
    old, new = (StringIO(text.decode("utf-8"), newline="\n").readlines() for text in texts)
    shown = []
    for line in difflib.unified_diff(old, new, name, name):
        end = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
        shown.append(line + end)
    return "".join(shown)
