"""How the demo looks: live on a terminal, the last state where it is piped. Decides nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
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
_PIPED_WIDTH: Final = 1000
_PICTURE_WIDTH: Final = 140
_FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class View:
    """What the story shows, on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps = 0

    def step(self, text: str) -> None:
        """The next step begins."""
        before = "\n" if self._steps else ""
        self._steps += 1
        self._console.print(
            Text.assemble(before, (f"{self._steps}. ", "bold cyan"), (text, "bold"))
        )

    def code(self, text: str) -> None:
        """A policy, or what the checker says of one."""
        for line in text.splitlines():
            style = {"-": "red", "+": "green", "e": "bold red"}.get(line[:1], "yellow")
            self._console.print(Text(f"     {line}", style))

    def row(self, row: Row) -> None:
        """A pod was placed."""
        node, why = (f"{row.node:<10}", "green"), ("; ".join(row.why), "dim")
        self._console.print(Text.assemble(f"   {row.pod:<24} -> ", node, " ", why))

    @contextmanager
    def burst(self, total: int) -> Iterator[ShowBurst]:
        """Many pods at once: a table of where they went, and under it how many are bound."""
        bound = TextColumn("{task.completed:.0f} of {task.total:.0f} bound")
        bar = Progress(
            TextColumn("  "), BarColumn(40), bound, console=self._console, auto_refresh=False
        )
        task = bar.add_task("", total=total)
        with Live(console=self._console, refresh_per_second=_FRAMES) as live:

            def show(bound: int, loads: Sequence[Load]) -> None:
                table = Table(*_COLUMNS, box=None, pad_edge=False, padding=(0, 2))
                for load in loads:
                    label = "test=test" if load.test else ""
                    bandwidth = f"{load.bandwidth / _MEGA:.1f} MB/s"
                    table.add_row(load.node, label, bandwidth, str(load.nginx), str(load.others))
                bar.update(task, completed=bound)
                live.update(Group(Padding(table, (0, 0, 0, 3), expand=False), bar))

            yield show
        if not self._console.is_terminal:
            self._console.line()  # a terminal gets it from Live

    def summary(self, facts: Mapping[str, str]) -> None:
        """How it went."""
        done = "\nAll of this happened, as the state of the cluster confirms."
        self._console.print(Text(done, "bold green"))
        for name, fact in facts.items():
            self._console.print(Text.assemble(f"   {name:<16} ", (fact, "bold")))


def console(*, plain: bool) -> Console:
    """That of the process; plain lines even on a terminal if they are wanted."""
    if plain or not sys.stdout.isatty():
        return Console(highlight=False, force_terminal=False, width=_PIPED_WIDTH)
    return Console(highlight=False)


def recording_console() -> Console:
    """A terminal that shows nothing and can be drawn afterwards."""
    return Console(
        record=True,
        file=StringIO(),
        width=_PICTURE_WIDTH,
        color_system="truecolor",
        highlight=False,
    )


def drawn(console: Console) -> str:
    """What a recording console was shown, as SVG; fonts are the viewer's, nothing is fetched."""
    return _FONT_FACE.sub("", console.export_svg(title="make demo", unique_id="berth"))
