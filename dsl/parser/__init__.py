"""Text of a policy file becomes the tree as written, or diagnostics; the only door to Lark.

Each statement is cut out and parsed alone, so one broken line hides no other. Never raises on
any text. A `Parser` is a value; its tables are built when first needed.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dsl.diagnostics import Diagnostic, Fix, Severity
from dsl.parser.build import Kept, StatementReader
from dsl.parser.complaints.headings import declares
from dsl.parser.complaints.openings import continued, foreign, is_closing, is_ours, wrong_language
from dsl.parser.layout import Chunk, cut
from dsl.parser.tests import parse_test
from dsl.source import SourceFile, Span, TextProblem
from dsl.syntax import Broken, Expr, Lexeme, Statement

__all__ = ["Parser", "problem_diagnostic"]

#: Lines in column 1 that may belong to the statement above them.
_MAX_RUN_ON: Final = 8


def problem_diagnostic(source: SourceFile, problem: TextProblem) -> Diagnostic:
    """Turns a finding about the bare text into a diagnostic."""
    return Diagnostic(
        code=problem.code,
        message=problem.message,
        source=source,
        span=problem.span,
        severity=Severity.ERROR,
        helps=(problem.help,) if problem.help else (),
        fix=Fix(problem.span, problem.fix) if problem.fix is not None else None,
    )


class Parser:
    """Reads policy files; holds the tables of the grammar."""

    def __init__(self) -> None:
        self._reader = StatementReader()

    def warm(self) -> None:
        """Makes now, in a twentieth of a second, what is made when a statement needs it."""
        self._reader.warm()

    def statements(
        self, source: SourceFile, keep: Kept | None = None
    ) -> Iterator[tuple[Statement | None, tuple[Diagnostic, ...]]]:
        """Yields each statement of a file with its findings, in order.

        Args:
            source: the file.
            keep: gets the words of each statement that can be read.
        """
        chunks, problems = cut(source)
        for problem in problems:
            yield None, (problem_diagnostic(source, problem),)
        alien = ""
        skip = 0
        lost = broken = False
        for at, chunk in enumerate(chunks):
            text = source.slice(chunk.span)
            language = None if is_ours(text) else foreign(text)
            if skip:
                skip -= 1
            elif language is not None and not alien:
                alien = language
                refusal = wrong_language(text, language)
                found = refusal.diagnostic(source, chunk.span.start, len(source.text))
                yield Broken(chunk.span, declares(text)), (found,)
            elif (alien and not is_ours(text)) or (broken and is_closing(text, lost=lost)):
                # What follows the first line of another language is no mistake of its own, nor is
                # what closes a bracket of a line that could not be read.
                yield Broken(chunk.span, declares(text)), ()
            else:
                skip = self._run_on(source, chunks[at:])
                if skip:
                    broken = True
                    lines = chunks[at + 1 : at + 1 + skip]
                    yield (
                        Broken(chunk.span, declares(text)),
                        tuple(continued(source, chunk.span, one.span) for one in lines),
                    )
                else:
                    lost = not is_ours(text)
                    statement, findings = self._statement(source, chunk, keep)
                    broken = bool(findings)
                    yield statement, findings

    def _run_on(self, source: SourceFile, chunks: Sequence[Chunk]) -> int:
        """Returns how many lines in column 1 continue the first statement: they want indenting."""
        first = source.slice(chunks[0].span)
        if not is_ours(first):
            return 0
        text = first.rstrip()
        for count, chunk in enumerate(chunks[1 : 1 + _MAX_RUN_ON], 1):
            line = source.slice(chunk.span)
            if is_ours(line) or foreign(line) is not None:
                return 0
            text += f"\n  {line.rstrip()}"
            if self._reader.reads(f"{text}\n"):
                return count
        return 0

    def expression(self, source: SourceFile, span: Span) -> tuple[Expr | None, Diagnostic | None]:
        """Reads the text under a span as one expression."""
        tree, problems = self._reader.expression(source, span)
        return tree, problems[0] if problems else None

    def lexemes(
        self, source: SourceFile, *, tests: bool = False
    ) -> tuple[tuple[tuple[Lexeme, ...], ...], tuple[Diagnostic, ...]]:
        """Returns the words of each statement of a policy, or of a policy test; or findings."""
        # The builders refuse more than the grammar: escapes, holes of messages, limits.
        words: Kept = []
        if tests:
            found = list(parse_test(source, self._reader, words)[1])
        else:
            found = [one for _, findings in self.statements(source, words) for one in findings]
        return ((), tuple(found)) if found else (tuple(words), ())

    def _statement(
        self, source: SourceFile, chunk: Chunk, keep: Kept | None
    ) -> tuple[Statement, tuple[Diagnostic, ...]]:
        statement, found = self._reader.statement(source, chunk.span, keep)
        if statement is None:
            statement = Broken(chunk.span, declares(source.slice(chunk.span)))
        return statement, tuple(found)
