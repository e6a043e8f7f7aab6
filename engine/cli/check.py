"""`berth check`: policy files in, diagnostics out, exit 1 on errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dsl.diagnostics import Diagnostic

_LEAST_NODES, _LEAST_PODS = 1_000, 20_000


@click.command("check", help="Check policy files and say what is wrong with them.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    show_default=True,
    help="How to print diagnostics.",
)
@click.option("--deny-warnings", is_flag=True, help="Exit 1 on warnings too.")
@click.option("--chain", is_flag=True, help="The files work together in one scheduler.")
@click.option("--nodes", type=click.IntRange(1), help="Nodes to bound the cost for.")
@click.option("--pods", type=click.IntRange(1), help="Running pods to bound the cost for.")
@click.option(
    "--inventory",
    "stock_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What the cluster has, as `berth inventory` writes it.",
)
def command(
    files: tuple[Path, ...],
    style: str,
    nodes: int | None,
    pods: int | None,
    stock_file: Path | None,
    *,
    chain: bool,
    deny_warnings: bool,
) -> None:
    """Checks each file on its own, or all as one chain."""
    # The language is imported by the commands that need it: it costs what `version` should not.
    import policies  # noqa: PLC0415
    from dsl.analysis import Size  # noqa: PLC0415
    from dsl.compiler import Compiler  # noqa: PLC0415
    from dsl.diagnostics import Severity  # noqa: PLC0415

    stock = None if stock_file is None else _inventory(stock_file)
    actual = (0, 0) if stock is None else (stock.nodes, stock.pods)
    size = Size(nodes or max(2 * actual[0], _LEAST_NODES), pods or max(2 * actual[1], _LEAST_PODS))
    texts = {str(path): _read(path) for path in files}
    compiler = Compiler()
    usable = {name: policies.text(name) for name in policies.names()}
    usable |= {Path(name).stem: text.decode("utf-8", "replace") for name, text in texts.items()}
    groups: list[Mapping[str, bytes]] = (
        [texts] if chain else [{name: text} for name, text in texts.items()]
    )
    diagnostics = [
        _milder(one)
        for group in groups
        for one in compiler.compile(group, size=size, stock=stock, bundled=usable).diagnostics
    ]
    _print(diagnostics, style)
    errors = sum(one.is_error for one in diagnostics)
    warnings = sum(one.severity is Severity.WARNING for one in diagnostics)
    if style == "text":
        click.echo(_summary(len(texts), errors, warnings), err=True)
    if errors or (deny_warnings and warnings):
        sys.exit(1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failed:
        raise click.ClickException(f"{path}: cannot be read: {failed.strerror}") from failed


def _inventory(path: Path) -> Any:  # noqa: ANN401 - see engine.cli
    import json  # noqa: PLC0415 - see engine.cli

    from dsl.analysis import read_inventory  # noqa: PLC0415 - see engine.cli

    try:
        return read_inventory(json.loads(_read(path)))
    except ValueError as wrong:
        raise click.ClickException(f"{path}: not an inventory: {wrong}") from wrong


def _milder(one: Diagnostic) -> Diagnostic:
    """A parameter without value is an error where a scheduler loads the file, here a note."""
    from dataclasses import replace  # noqa: PLC0415 - see engine.cli

    from dsl.diagnostics import Severity  # noqa: PLC0415 - see engine.cli

    return replace(one, severity=Severity.NOTE) if one.code == "P104" else one


def _print(diagnostics: list[Diagnostic], style: str) -> None:
    from dsl.diagnostics import render, to_json  # noqa: PLC0415 - see engine.cli
    from engine.cli.formats import to_github, to_sarif  # noqa: PLC0415 - see engine.cli

    if style == "json":
        click.echo(to_json(diagnostics))
    elif style == "sarif":
        click.echo(to_sarif(diagnostics))
    elif diagnostics and style == "github":
        click.echo(to_github(diagnostics))
    elif diagnostics:
        click.echo(render(diagnostics, color=sys.stdout.isatty()), nl=False)


def _summary(files: int, errors: int, warnings: int) -> str:
    def counted(number: int, word: str) -> str:
        return f"{number} {word}{'' if number == 1 else 's'}"

    found = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    return f"{counted(files, 'file')} checked: {found if errors or warnings else 'all good'}"
