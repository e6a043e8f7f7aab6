"""Text of a policy file becomes the tree as written, or diagnostics; the only door to Lark.

Each statement is cut out and parsed alone, so one broken line hides no other. Never raises on
any text. A `Parser` is a value; its tables are built when first needed.
"""

from collections.abc import Iterator

from dsl.diagnostics import Diagnostic
from dsl.parser.build import Kept, StatementReader
from dsl.parser.layout import cut, too_long
from dsl.parser.statements import is_statement
from dsl.parser.tests import parse_test
from dsl.source import SourceFile, Span
from dsl.syntax import Broken, Expr, Lexeme, Statement


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
        """Yields each statement of a file with its findings; `keep` gets the words of each."""
        self._reader.begin()
        chunks, problems = cut(source)
        for problem in problems:
            yield None, (problem,)
        alien = broken = False
        for chunk in chunks:
            known = is_statement(source.slice(chunk))
            stray = None if known else _stray(source, chunk, alien=alien, broken=broken)
            if stray is not None:
                alien = alien or bool(stray[1])
                yield stray
                continue
            statement, found = self._reader.statement(source, chunk, keep)
            broken = bool(found)
            yield statement or _broken(source, chunk), tuple(found)

    def whole(self, source: SourceFile) -> tuple[tuple[Statement, ...], list[Diagnostic]]:
        """Returns the statements of a file that could be read, and all findings."""
        read = list(self.statements(source))
        statements = tuple(one for one, _ in read if one is not None)
        return statements, [one for _, findings in read for one in findings]

    def expression(self, source: SourceFile, span: Span) -> tuple[Expr | None, Diagnostic | None]:
        """Reads the text under a span as one expression."""
        long = too_long(source, span)
        if long is not None:
            return None, long
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


# ---- lines that are no statements: what is known of them is loaded when there is one


def _broken(source: SourceFile, chunk: Span) -> Broken:
    from dsl.parser.lines import declares  # noqa: PLC0415 - see above

    return Broken(chunk, declares(source.slice(chunk)))


def _stray(
    source: SourceFile, chunk: Span, *, alien: bool, broken: bool
) -> tuple[Broken, tuple[Diagnostic, ...]] | None:
    """Returns what is said of a line that no statement is, None where reading has to tell.

    What follows the first line of another language, an `alien`, is no mistake of its own, nor is
    what closes a bracket of a line that is `broken`.
    """
    from dsl.foreign.languages import language_of  # noqa: PLC0415 - see above
    from dsl.parser import lines  # noqa: PLC0415 - see above

    text = source.slice(chunk)
    if lines.is_ours(text):
        return None
    language = None if alien else language_of(text)
    if language is not None:
        refusal = lines.wrong_language(language, 0, len(text.split(maxsplit=1)[0]))
        found = refusal.diagnostic(source, chunk.start, len(source.text))
        return _broken(source, chunk), (found,)
    return (_broken(source, chunk), ()) if alien or (broken and lines.is_closing(text)) else None
