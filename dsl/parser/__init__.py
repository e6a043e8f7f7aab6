"""Text of a policy or of a test file becomes the tree as written, or diagnostics.

The only door to Lark. Each statement is cut out and parsed alone, so one broken line hides no
other. Never raises on any text. A `Parser` is a value; its tables are built when first needed.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from lark import Token

from dsl.diagnostics import Diagnostic
from dsl.parser.automaton import Automaton
from dsl.parser.build import _Builder
from dsl.parser.expressions import Raw, StopError
from dsl.parser.layout import cut, too_deep, too_long
from dsl.parser.lexemes import lexemes_of
from dsl.parser.lines import declares, other_language
from dsl.parser.statements import is_statement
from dsl.parser.tables import load_tables
from dsl.parser.testfile import outside_of_test, test_statement
from dsl.source import SourceFile, Span
from dsl.syntax import Broken, Expr, Lexeme, Statement, TestStatement

#: The words of each statement that was read.
Kept = list[tuple[Lexeme, ...]]
#: A start symbol of the grammar, and what turns Lark's tree into ours.
_How = tuple[str, Callable[[_Builder, Raw], Any]]
_STATEMENT: Final[_How] = "start", lambda builder, tree: builder.statement(tree.children[0])
_TEST: Final[_How] = "testfile", test_statement
#: A line that only closes brackets.
_CLOSES: Final = re.compile(r"[\s})\];,]+(?:#[^\n]*+\s*+)*+")  # possessive: linear
#: Wrong statements of a file of which it is tried what may be meant: each costs many readings.
_MAX_TRIED: Final = 40


class Parser:
    """Reads policies and their tests; holds the tables of the grammar."""

    def __init__(self) -> None:
        self._loaded: Automaton | None = None
        self._wrong = 0

    def warm(self) -> None:
        """Makes now, in a twentieth of a second, what is made when a statement needs it."""
        self._automaton().warm()

    def _automaton(self) -> Automaton:
        if self._loaded is None:
            self._loaded = Automaton(load_tables())
        return self._loaded

    def statements(
        self, source: SourceFile, keep: Kept | None = None
    ) -> Iterator[tuple[Statement | None, tuple[Diagnostic, ...]]]:
        """Yields each statement of a file with its findings; `keep` gets the words of each."""
        self._wrong = 0
        chunks, problems = cut(source)
        known = [is_statement(source.slice(chunk)) for chunk in chunks]
        other = None if all(known) else other_language(source, "policy")
        for problem in [*problems, *([] if other is None else [other])]:
            yield None, (problem,)
        broken = False
        for chunk, ours in zip(chunks, known, strict=True):
            closes = broken and _CLOSES.fullmatch(source.text, chunk.start, chunk.end)
            if not ours and (other is not None or closes):
                # It is of the other language, or of the line before: no mistake of its own.
                yield _broken(source, chunk), ()
                continue
            statement, found = self._built(source, chunk, _STATEMENT, keep)
            broken = bool(found)
            yield statement or _broken(source, chunk), tuple(found)

    def whole(
        self, source: SourceFile, keep: Kept | None = None
    ) -> tuple[tuple[Statement, ...], list[Diagnostic]]:
        """Returns the statements of a file that could be read, and all findings."""
        read = list(self.statements(source, keep))
        statements = tuple(one for one, _ in read if one is not None)
        return statements, [one for _, findings in read for one in findings]

    def tests(
        self, source: SourceFile, keep: Kept | None = None
    ) -> tuple[tuple[TestStatement, ...], list[Diagnostic]]:
        """Returns the statements of a test file that could be read, and all findings."""
        self._wrong = 0
        chunks, found = cut(source)
        statements: list[TestStatement] = []
        behind = False
        for chunk in chunks:
            early = outside_of_test(source, chunk, behind=behind)
            behind = behind or source.slice(chunk).startswith("test")
            made, findings = (None, [early]) if early else self._built(source, chunk, _TEST, keep)
            found.extend(findings)
            statements.extend([] if made is None else [made])
        other = other_language(source, "test") if found else None
        return ((), [other]) if other is not None else (tuple(statements), found)

    def expression(
        self, source: SourceFile, span: Span, text: str | None = None
    ) -> tuple[Expr | None, list[Diagnostic]]:
        """Reads the text under a span as an expression; `text` replaces it (escapes read)."""
        long = too_long(source, span) if text is None else None
        if long is not None:
            return None, [long]
        how: _How = "expr", _Builder.expr
        return self._built(source, span, how, text=source.slice(span) if text is None else text)

    def lexemes(
        self, source: SourceFile, *, tests: bool = False
    ) -> tuple[tuple[tuple[Lexeme, ...], ...], tuple[Diagnostic, ...]]:
        """Returns the words of each statement of a policy, or of a policy test; or findings."""
        # The builders refuse more than the grammar: escapes, holes of messages, limits.
        words: Kept = []
        _, found = (self.tests if tests else self.whole)(source, words)
        return ((), tuple(found)) if found else (tuple(words), ())

    def _built(
        self,
        source: SourceFile,
        span: Span,
        how: _How,
        keep: Kept | None = None,
        text: str | None = None,
    ) -> tuple[Any, list[Diagnostic]]:
        """Reads the text under a span; with None there is at least one finding."""
        start, make = how
        deep = too_deep(source, span)
        if deep is not None:
            return None, [deep]
        if text is None:
            text = source.slice(span).removesuffix("\n") + "\n"
        words: list[Token] | None = None if keep is None else []
        tree, stop = self._automaton().read(text, start, words)
        if stop is not None:
            # What is known of other languages is loaded when something is wrong, not before.
            from dsl.parser.repair import findings  # noqa: PLC0415 - see above

            self._wrong += 1
            tries = self._wrong <= _MAX_TRIED
            refused = findings(self._automaton(), text, start, stop, tries=tries)
            return None, [one.diagnostic(source, span.start) for one in refused]
        assert tree is not None
        if keep is not None and words is not None:
            keep.append(lexemes_of(tree, words, span.start))
        builder = _Builder(self.expression, source, span.start)
        try:
            made = make(builder, tree)
        except StopError:
            made = None
        return (None if builder.found else made), builder.found


def _broken(source: SourceFile, chunk: Span) -> Broken:
    return Broken(chunk, declares(source.slice(chunk)))
