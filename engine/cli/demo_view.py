"""How the demo looks: a live picture on a terminal, plain lines when piped. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Row:
    """A pod, its node, and each rule's part in that."""

    pod: str
    node: str
    why: tuple[str, ...]


class View(Protocol):
    """What the story shows."""

    def step(self, text: str) -> None:
        """The next step begins."""
        ...

    def code(self, text: str) -> None:
        """A policy, or what the checker says of one."""
        ...

    def row(self, row: Row) -> None:
        """A pod was placed."""
        ...

    def progress(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A progress bar; the value is called with how many more are done."""
        ...

    def summary(self, facts: Mapping[str, str]) -> None:
        """How it went."""
        ...


def _columns(row: Row) -> tuple[str, str, str]:
    return f"{row.pod:<24}", f"{row.node:<10}", "; ".join(row.why)


class PlainView:
    """Lines without colour or movement."""

    def __init__(self) -> None:
        self._steps = 0

    def step(self, text: str) -> None:
        """See `View.step`."""
        self._steps += 1
        click.echo(f"{'' if self._steps == 1 else chr(10)}{self._steps}. {text}")

    def code(self, text: str) -> None:
        """See `View.code`."""
        for line in text.splitlines():
            click.echo(f"     {line}".rstrip())

    def row(self, row: Row) -> None:
        """See `View.row`."""
        pod, node, why = _columns(row)
        click.echo(f"   {pod} -> {node} {why}".rstrip())

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[int], None]]:
        """See `View.progress`: quarters are enough."""
        done = shown = 0

        def advance(more: int) -> None:
            nonlocal done, shown
            done += more
            if done * 4 // total > shown:
                shown = done * 4 // total
                click.echo(f"   {done} of {total} bound")

        yield advance

    def summary(self, facts: Mapping[str, str]) -> None:
        """See `View.summary`."""
        click.echo("\nAll of it happened, checked against the cluster's own state.")
        for name, fact in facts.items():
            click.echo(f"   {name:<16} {fact}")


class LiveView:
    """A terminal's table and progress bar."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._steps = 0

    def step(self, text: str) -> None:
        """See `View.step`."""
        self._steps += 1
        self._console.print()
        self._console.print(Text(f"{self._steps}. ", style="bold cyan") + Text(text, style="bold"))

    def code(self, text: str) -> None:
        """See `View.code`."""
        for line in text.splitlines():
            style = {"-": "red", "+": "green", "e": "bold red"}.get(line[:1], "yellow")
            self._console.print(Text(f"     {line}", style=style))

    def row(self, row: Row) -> None:
        """See `View.row`."""
        pod, node, why = _columns(row)
        self._console.print(
            Text("   ") + Text(pod) + Text(" → ") + Text(node, style="green"),
            Text(why, style="dim"),
        )

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[int], None]]:
        """See `View.progress`."""
        columns = (TextColumn("  "), BarColumn(40), MofNCompleteColumn(), TextColumn("pods bound"))
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task("", total=total)
            yield lambda more: bar.advance(task, more)

    def summary(self, facts: Mapping[str, str]) -> None:
        """See `View.summary`."""
        self._console.print()
        self._console.print(
            Text("All of it happened, checked against the cluster's own state.", style="bold green")
        )
        table = Table.grid(padding=(0, 3))
        for name, fact in facts.items():
            table.add_row(Text(f"   {name}"), Text(fact, style="bold"))
        self._console.print(table)
