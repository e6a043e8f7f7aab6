"""`berth repl`: expressions in, values out, until the end of the input."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from dsl.diagnostics import render
from dsl.evaluate import understand
from dsl.parser import Parser
from engine.cli.eval import properties, read_metrics, value_lines, values_of
from engine.cli.manifests import Objects
from engine.clock import SystemClock
from engine.text.display import takes_color

_PROMPT: Final = "berth> "
_HELP: Final = """\
An expression is answered with its value, and on every node if it reads one:
  node.cpu.free - pod.cpu
Commands:
  :node FILE, :pod FILE      read manifests; the first pod without a node is the one to place
  :metric NAME[@NODE]=VALUE  a sample of a metric
  :type EXPRESSION           type, unit, level and what is read
  :help, :quit
`berth explain WORD` says what a field or a function is."""
_WORDS: Final = ("help", "quit")
"""Commands that go without a colon: no name of the language is one of them."""
_STATEMENT: Final = re.compile(r"[A-Za-z]+( to)?:|(let|param|metric) .*=")


@dataclass(slots=True)
class Session:
    """What was read so far; `answer` is all that a terminal needs."""

    parser: Parser
    color: bool = False
    over: bool = False
    objects: Objects = field(default_factory=Objects)
    samples: dict[tuple[str, str | None], str] = field(default_factory=dict)

    def answer(self, line: str) -> str:
        """What a line says back. Never raises for what stands in it."""
        line = line.strip()
        if not line or line.startswith("#"):
            return ""
        if _STATEMENT.match(line):
            return "statements belong in a file, for `berth check`; write expressions here"
        is_command = line.startswith(":") or line in _WORDS
        said = self._command(line.removeprefix(":")) if is_command else self._evaluate(line)
        try:
            return "\n".join(said)
        except click.ClickException as wrong:
            return wrong.format_message()

    def _evaluate(self, line: str, *, only_type: bool = False) -> Iterator[str]:
        understood, found = understand(self.parser, line, name="line")
        if found:
            yield render(found, color=self.color).rstrip()
        if understood is None:
            return
        if only_type:
            yield from (f"{name:<6} {words}" for name, words in properties(understood))
            return
        now = SystemClock().time()
        values = values_of(understood, self.objects, self.samples, now, ":")
        yield from value_lines(understood, values)

    def _command(self, line: str) -> Iterator[str]:
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        match word:
            case "help":
                yield _HELP
            case "node" | "pod" if rest:
                self.objects.read(Path(rest))
                pod, nodes = self.objects.pod, len(self.objects.nodes)
                yield f"{nodes} nodes; to place: {'no pod' if pod is None else pod.key}"
            case "metric":
                self.samples |= read_metrics((rest,), self.objects)
            case "type":
                yield from self._evaluate(rest, only_type=True)
            case "quit":
                self.over = True
            case _:
                raise click.ClickException(f"there is no command :{line}; see :help")


@click.command("repl", help="Evaluate expressions interactively.")
def command() -> None:
    """Reads lines until the end of the input."""
    session = Session(Parser(), color=takes_color(sys.stdout))
    asking = sys.stdin.isatty()
    if asking:
        with suppress(ImportError):
            import readline  # noqa: F401 - with it a line can be edited, and older ones come again
        click.echo("Expressions of the policy language; :help says more, :quit ends.")
    while not session.over:
        try:
            line = input(_PROMPT if asking else "")
        except KeyboardInterrupt:
            click.echo()
            continue
        except UnicodeDecodeError as wrong:
            click.echo(f"the line is not UTF-8: {wrong.reason}")
            continue
        except EOFError:
            break
        answer = session.answer(line)
        if answer:
            click.echo(answer)
    if asking:
        click.echo()
