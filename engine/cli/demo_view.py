"""How the demo looks. Decides nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Final

from rich.console import Console
from rich.padding import Padding
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


_COLUMNS: Final = ("node", "label", "bandwidth", "nginx pods", "other pods")
_MEGA: Final = 1e6
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

    def loads(self, loads: Sequence[Load]) -> None:
        """Where many pods went."""
        table = Table(*_COLUMNS, box=None, pad_edge=False, padding=(0, 2))
        for load in loads:
            label = "test=test" if load.test else ""
            bandwidth = f"{load.bandwidth / _MEGA:.1f} MB/s"
            table.add_row(load.node, label, bandwidth, str(load.nginx), str(load.others))
        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))
        self._console.line()

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
