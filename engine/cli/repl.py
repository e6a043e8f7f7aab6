"""`berth repl`: expressions in, values out, until the end of the input."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from msgspec.structs import replace

from dsl.diagnostics import Diagnostic, Fix, Label, render
from dsl.evaluate import check_declarations, declaration_name, understand
from dsl.functions import AGGREGATES, FUNCTIONS
from dsl.parser import Parser
from dsl.schema import FIELDS
from dsl.source import Span, make_source
from engine.cli.eval import properties, read_metrics, read_time, value_lines, values_of
from engine.cli.manifests import Objects

_PROMPT: Final = "berth> "
_HELP: Final = """\
An expression is answered with its value, and on every node if it reads one:
  node.cpu.free - pod.cpu
  let share = node.cpu.requested/node.cpu.allocatable   also param and metric; share*100 works then
Commands:
  :node FILE, :pod FILE      read manifests; the first pod without a node is the one to place
  :metric NAME[@NODE]=VALUE  a sample of a metric
  :now TIME                  the time of the cycle, such as 2025-03-01T10:00:00Z
  :type EXPRESSION           type, unit, level and what is read
  :help, :quit
Fields and functions come by the tab key; `berth explain WORD` says what one is."""
_WORDS: Final = ("help", "quit")
"""Commands that go without a colon: no name of the language is one of them."""
_STATEMENT: Final = re.compile(r"[A-Za-z]+( to)?:")
_DECLARES: Final = ("let", "param", "metric")


@dataclass(slots=True)
class Session:
    """What was declared and read so far; `answer` is all that a terminal needs."""

    parser: Parser
    color: bool = False
    over: bool = False
    objects: Objects = field(default_factory=Objects)
    declared: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, str | None], str] = field(default_factory=dict)
    now: str | None = None

    def answer(self, line: str) -> str:
        """What a line says back. Never raises for what stands in it."""
        line = line.strip()
        if not line or line.startswith("#"):
            return ""
        try:
            if line.startswith(":") or line in _WORDS:
                return "\n".join(self._command(line.removeprefix(":")))
            if line.split(maxsplit=1)[0] in _DECLARES and self._is_declaration(line):
                return "\n".join(self._declare(line))
            if _STATEMENT.match(line):
                return "rules belong in a file, for `berth check`; write their expressions here"
            return "\n".join(self._evaluate(line))
        except click.ClickException as wrong:
            return wrong.format_message()

    # ---- expressions and declarations

    def _evaluate(self, line: str, *, only_type: bool = False) -> Iterator[str]:
        declared = "".join(f"{one}\n" for one in self.declared.values())
        understood, found = understand(self.parser, line, declarations=declared, name="line")
        if found:
            yield self._shown(found, declared)
        if understood is None:
            return
        if only_type:
            yield from (f"{name:<6} {words}" for name, words in properties(understood))
            return
        now = read_time(self.now)
        values = values_of(understood, self.objects, self.samples, now, ":")
        yield from value_lines(understood, values)

    def _is_declaration(self, line: str) -> bool:
        # `let` alone, or `metric > 3`, is an expression with an error of its own.
        return "=" in line or declaration_name(self.parser, line) is not None

    def _declare(self, line: str) -> Iterator[str]:
        name = declaration_name(self.parser, line)
        kept = {key: text for key, text in self.declared.items() if key != name}
        declared = "".join(f"{one}\n" for one in kept.values())
        found = check_declarations(self.parser, line, declarations=declared)
        if found:
            yield self._shown(found, declared)
        if name is not None and not any(one.is_error for one in found):
            self.declared = {**kept, name: line}

    def _shown(self, found: tuple[Diagnostic, ...], declared: str) -> str:
        told = [_of_line(one, len(declared)) for one in found]
        return render(told, color=self.color).rstrip()

    # ---- commands

    def _command(self, line: str) -> Iterator[str]:
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        known: dict[str, Callable[[str], Iterator[str]]] = {
            "help": lambda _: iter([_HELP]),
            "node": self._read,
            "pod": self._read,
            "metric": self._metric,
            "now": self._now,
            "type": lambda text: self._evaluate(text, only_type=True),
            "quit": self._quit,
        }
        if word not in known:
            raise click.ClickException(f"there is no command :{word}; see :help")
        return known[word](rest)

    def _read(self, rest: str) -> Iterator[str]:
        try:
            paths = shlex.split(rest)
        except ValueError as wrong:
            raise click.ClickException(f"{rest}: {wrong}") from wrong
        if not paths:
            raise click.ClickException("name a file:  :node nodes.yaml")
        for path in paths:
            self.objects.read(Path(path))
        pod = self.objects.pod
        yield f"{len(self.objects.nodes)} nodes; to place: {'no pod' if pod is None else pod.key}"

    def _metric(self, rest: str) -> Iterator[str]:
        self.samples |= read_metrics((rest,), self.objects)
        return iter(())

    def _now(self, rest: str) -> Iterator[str]:
        read_time(rest)
        self.now = rest
        return iter(())

    def _quit(self, _: str) -> Iterator[str]:
        self.over = True
        return iter(())


def _of_line(one: Diagnostic, before: int) -> Diagnostic:
    """The finding as one about the line that was typed, which is line 1.

    A finding that also shows a declaration counts the lines of all that were declared.
    """
    spans = [one.span, *(label.span for label in one.labels)]
    if not before or min(span.start for span in spans) < before:
        return one

    def moved(span: Span) -> Span:
        return Span(span.start - before, span.end - before)

    return replace(
        one,
        source=make_source(one.source.name, one.source.text[before:]),
        span=moved(one.span),
        labels=tuple(Label(moved(label.span), label.text) for label in one.labels),
        fix=None if one.fix is None else Fix(moved(one.fix.span), one.fix.text),
    )


@click.command("repl", help="Evaluate expressions interactively.")
def command() -> None:
    """Reads lines until the end of the input."""
    session = Session(Parser(), color=sys.stdout.isatty())
    asking = sys.stdin.isatty()
    if asking:
        _complete()
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


def _complete() -> None:
    """Names of fields, functions and aggregates by the tab key, where the terminal can."""
    try:
        import readline
    except ImportError:
        return
    words = [*FIELDS, *(f"{name}(" for name in (*FUNCTIONS, *AGGREGATES))]

    def complete(text: str, state: int) -> str | None:
        there = [one for one in words if one.startswith(text)]
        return there[state] if state < len(there) else None

    readline.set_completer_delims(" \t\n()[]+-*/<>=!,")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
