"""`berth check`: policy files in, diagnostics out, exit 1 on errors."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("check", help="Check policy files and say what is wrong with them.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print diagnostics.",
)
@click.option("--deny-warnings", is_flag=True, help="Exit 1 on warnings too.")
def command(files: tuple[Path, ...], style: str, *, deny_warnings: bool) -> None:
    """Checks each file on its own."""
    # The language is imported by the commands that need it: it costs what `version` should not.
    from dsl.compiler import Compiler  # noqa: PLC0415
    from dsl.diagnostics import Diagnostic, render, to_json  # noqa: PLC0415

    compiler = Compiler()
    diagnostics: list[Diagnostic] = []
    for path in files:
        try:
            text = path.read_bytes()
        except OSError as failed:
            raise click.ClickException(f"{path}: cannot be read: {failed.strerror}") from failed
        diagnostics.extend(compiler.compile({str(path): text}).diagnostics)
    if style == "json":
        click.echo(to_json(diagnostics))
    elif diagnostics:
        click.echo(render(diagnostics, color=sys.stdout.isatty()), nl=False)
    errors = sum(d.is_error for d in diagnostics)
    if style == "text":
        click.echo(_summary(len(files), errors, len(diagnostics) - errors), err=True)
    if errors or (deny_warnings and diagnostics):
        sys.exit(1)


def _summary(files: int, errors: int, warnings: int) -> str:
    def counted(number: int, word: str) -> str:
        return f"{number} {word}{'' if number == 1 else 's'}"

    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    return f"{counted(files, 'file')} checked: {found if errors or warnings else 'all good'}"
