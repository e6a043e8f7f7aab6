"""Text of a policy file becomes the tree as written, or diagnostics; the only door to Lark.

Each statement is cut out and parsed alone, so one broken line hides no other. Never raises on
any text. A `Parser` is a value; its tables are built when first needed.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dsl.diagnostics import Diagnostic, of_text
from dsl.parser.build import Kept, StatementReader
from dsl.parser.layout import Chunk, cut, too_long
from dsl.parser.refusal import Meant
from dsl.parser.statements import is_statement
from dsl.parser.tests import parse_test
from dsl.source import SourceFile, Span
from dsl.syntax import Broken, Expr, Lexeme, Statement

#: Lines in column 1 that may belong to the statement above them.
_MAX_RUN_ON: Final = 8


class Parser:
    """Reads policy files; holds the tables of the grammar."""

    def __init__(self, meant: Meant | None = None) -> None:
        """Makes a parser; `meant` says how calls of other languages are written here."""
        self._reader = StatementReader(meant)

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
        self._reader.begin()
        chunks, problems = cut(source)
        for problem in problems:
            yield None, (of_text(source, problem),)
        skip = tail = 0
        alien = lost = broken = False
        for at, chunk in enumerate(chunks):
            if skip:
                skip -= 1
                if tail:
                    # Its line was told of with the one that it belongs to.
                    tail -= 1
                    yield _broken(source, chunk), ()
                continue
            if at + 1 < len(chunks) and source.slice(chunks[at + 1].span)[0] in "}-":
                tail, chunk = _with_tail(source, chunks[at:])
                skip = tail
            text = source.slice(chunk.span)
            if not is_statement(text):
                stray = _stray(source, chunk, alien=alien, lost=lost, broken=broken)
                if stray is not None:
                    alien = alien or bool(stray[1])
                    yield stray
                    continue
            run_on = 0 if skip else self._run_on(source, chunks[at:])
            if run_on:
                skip = run_on
                broken = True
                yield _run_together(source, chunks[at : at + 1 + skip])
            else:
                lost = not _is_ours(text)
                statement, findings = self._statement(source, chunk, keep)
                broken = bool(findings)
                yield statement, findings

    def _run_on(self, source: SourceFile, chunks: Sequence[Chunk]) -> int:
        """Returns how many lines in column 1 continue the first statement: they want indenting."""
        first = source.slice(chunks[0].span)
        if not _is_ours(first):
            return 0
        text = first.rstrip()
        for count, chunk in enumerate(chunks[1 : 1 + _MAX_RUN_ON], 1):
            line = source.slice(chunk.span)
            if _is_ours(line) or _is_foreign(line):
                return 0
            text += f"\n  {line.rstrip()}"
            if self._reader.reads(f"{text}\n"):
                return count
        return 0

    def expression(self, source: SourceFile, span: Span) -> tuple[Expr | None, Diagnostic | None]:
        """Reads the text under a span as one expression."""
        long = too_long(source.text, span)
        if long is not None:
            return None, of_text(source, long)
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
            statement = _broken(source, chunk)
        return statement, tuple(found)


# ---- lines that are no statements: what is known of them is loaded when there is one


def _is_ours(text: str) -> bool:
    if is_statement(text):
        return True
    from dsl.parser.lines import is_ours  # noqa: PLC0415 - see above

    return is_ours(text)


def _with_tail(source: SourceFile, chunks: Sequence[Chunk]) -> tuple[int, Chunk]:
    """Returns how many lines of list items or braces belong to the first, and it with them."""
    from dsl.parser.lines import tail  # noqa: PLC0415 - see above

    count = tail([source.slice(one.span) for one in chunks])
    return count, Chunk(Span(chunks[0].span.start, chunks[count].span.end))


def _is_foreign(text: str) -> bool:
    from dsl.parser.lines import foreign  # noqa: PLC0415 - see above

    return foreign(text) is not None


def _broken(source: SourceFile, chunk: Chunk) -> Broken:
    from dsl.parser.lines import declares  # noqa: PLC0415 - see above

    return Broken(chunk.span, declares(source.slice(chunk.span)))


def _stray(
    source: SourceFile, chunk: Chunk, *, alien: bool, lost: bool, broken: bool
) -> tuple[Broken, tuple[Diagnostic, ...]] | None:
    """Returns what is said of a line that no statement is, None where reading has to tell.

    `alien`: a line of another language has been met; `lost`, `broken`: the line before was no
    statement, or could not be read.
    """
    from dsl.parser import lines  # noqa: PLC0415 - see above

    text = source.slice(chunk.span)
    ours = lines.is_ours(text)
    language = None if ours or alien else lines.foreign(text)
    if language is not None:
        refusal = lines.wrong_language(language, 0, len(text.split(maxsplit=1)[0]))
        found = refusal.diagnostic(source, chunk.span.start, len(source.text))
        return _broken(source, chunk), (found,)
    if (alien and not ours) or (broken and lines.is_closing(text, lost=lost)):
        # What follows the first line of another language is no mistake of its own, nor is
        # what closes a bracket of a line that could not be read.
        return _broken(source, chunk), ()
    return None


def _run_together(
    source: SourceFile, chunks: Sequence[Chunk]
) -> tuple[Broken, tuple[Diagnostic, ...]]:
    """Returns what is said of a statement that goes on in column 1."""
    from dsl.parser.lines import continued  # noqa: PLC0415 - see above

    first, *rest = chunks
    return _broken(source, first), tuple(continued(source, first.span, one.span) for one in rest)
