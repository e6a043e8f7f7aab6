"""Text of a policy file becomes the tree as written, or diagnostics; the only door to Lark.

Each statement is cut out and parsed alone, so one broken line hides no other. Never raises on
any text. A `Parser` is a value; its tables are built when first needed.
"""

from collections.abc import Iterator

from dsl.diagnostics import Diagnostic, Fix, Severity
from dsl.parser.build import StatementReader
from dsl.parser.layout import Chunk, cut
from dsl.parser.tests import parse_test
from dsl.source import SourceFile, Span, TextProblem
from dsl.syntax import Broken, Expr, Lexeme, Statement

__all__ = ["Parser", "problem_diagnostic"]


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
        """Builds the tables now (about half a second) instead of at the first statement."""
        self._reader.warm()

    def statements(
        self, source: SourceFile
    ) -> Iterator[tuple[Statement | None, tuple[Diagnostic, ...]]]:
        """Yields each statement of a file with its findings, in order."""
        chunks, problems = cut(source)
        for problem in problems:
            yield None, (problem_diagnostic(source, problem),)
        for chunk in chunks:
            yield self._statement(source, chunk)

    def expression(self, source: SourceFile, span: Span) -> tuple[Expr | None, Diagnostic | None]:
        """Reads the text under a span as one expression."""
        tree, problems = self._reader.expression(source, span)
        return tree, problems[0] if problems else None

    def lexemes(
        self, source: SourceFile, *, tests: bool = False
    ) -> tuple[tuple[tuple[Lexeme, ...], ...], tuple[Diagnostic, ...]]:
        """Returns the words of each statement of a policy, or of a policy test; or findings."""
        # The builders refuse more than the grammar: escapes, holes of messages, limits.
        if tests:
            found = list(parse_test(source, self._reader)[1])
        else:
            found = [one for _, findings in self.statements(source) for one in findings]
        read = []
        for chunk in cut(source)[0] if not found else ():
            words, refused = self._reader.lexemes(
                source, chunk.span, "testfile" if tests else "start"
            )
            found.extend(refused)
            read.append(words)
        return (() if found else tuple(read)), tuple(found)

    def _statement(
        self, source: SourceFile, chunk: Chunk
    ) -> tuple[Statement, tuple[Diagnostic, ...]]:
        statement, found = self._reader.statement(source, chunk.span)
        if statement is None:
            statement = Broken(chunk.span, chunk.declares)
        return statement, tuple(found)
