"""How the demo looks: a live picture on a terminal, plain lines when piped. Decides nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Final, Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Row:
    """A pod, its node, and each rule's part in that."""

    pod: str
    node: str
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """A node during the burst: its label, its bandwidth in bytes/s, its pods."""

    node: str
    test: bool
    bandwidth: float
    nginx: int
    others: int


ShowBurst = Callable[[int, Sequence[Load]], None]
"""Called with how many pods are bound so far, and the nodes."""
_COLUMNS: Final = ("node", "label", "bandwidth", "nginx pods", "other pods")
_MEGA: Final = 1e6
_FRAMES: Final = 12
_PICTURE_WIDTH: Final = 140
_FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def _cells(load: Load) -> tuple[str, str, str, str, str]:
    label = "test=test" if load.test else ""
    bandwidth = f"{load.bandwidth / _MEGA:.1f} MB/s"
    return load.node, label, bandwidth, str(load.nginx), str(load.others)


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

    def burst(self, total: int) -> AbstractContextManager[ShowBurst]:
        """Many pods at once: how many are bound, and where they went."""
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
    def burst(self, total: int) -> Iterator[ShowBurst]:
        """See `View.burst`: a line a quarter, and a table of the nodes at the end."""
        last: Sequence[Load] = ()
        shown = 0

        def show(bound: int, loads: Sequence[Load]) -> None:
            nonlocal last, shown
            last = loads
            if bound * 4 // total > shown:
                shown = bound * 4 // total
                click.echo(f"   {bound} of {total} bound")

        yield show
        rows = [_COLUMNS, *map(_cells, last)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            click.echo(f"   {line}".rstrip())

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
    def burst(self, total: int) -> Iterator[ShowBurst]:
        """See `View.burst`: a live table with a progress bar under it."""
        columns = (TextColumn("  "), BarColumn(40), MofNCompleteColumn(), TextColumn("pods bound"))
        bar = Progress(*columns, console=self._console, auto_refresh=False)
        task = bar.add_task("", total=total)
        with Live(console=self._console, refresh_per_second=_FRAMES) as live:

            def show(bound: int, loads: Sequence[Load]) -> None:
                table = Table(*_COLUMNS, box=None, pad_edge=False, padding=(0, 2))
                for load in loads:
                    table.add_row(*_cells(load))
                bar.update(task, completed=bound)
                live.update(Group(Padding(table, (0, 0, 0, 3)), bar))

            yield show
        if not self._console.is_terminal:
            self._console.line()  # a terminal gets it from Live

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


def recording_console() -> Console:
    """A terminal that shows nothing and can be drawn afterwards."""
    return Console(
        record=True,
        file=StringIO(),
        width=_PICTURE_WIDTH,
        color_system="truecolor",
        highlight=False,
    )


def drawn(console: Console, title: str) -> str:
    """What a recording console was shown, as SVG; fonts are the viewer's, nothing is fetched."""
    return _FONT_FACE.sub("", console.export_svg(title=title, unique_id="berth"))
