"""Where reading stopped, and what is said about it. Data only."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from dsl.diagnostics import Diagnostic, Fix
from dsl.source import SourceFile, Span

#: How a call of another language is written here, by its name and the texts of its arguments: the
#: text or nothing, whether it is sure, and what there is to know.
Meant = Callable[[str, Sequence[str]], tuple[str, bool, str]]


class Refusal(Struct, frozen=True):
    """A finding whose places count from the start of the statement's text.

    Attributes:
        fix: what to write instead of the place, or of `fix_at` where that is another one.
        continues: the word of the statement that an indented line continues.
    """

    code: str
    message: str
    start: int
    end: int
    label: str = ""
    helps: tuple[str, ...] = ()
    fix: str | None = None
    fix_at: tuple[int, int] | None = None
    continues: str = ""

    @property
    def repair(self) -> tuple[int, int, str] | None:
        """Where to write what, if that is known."""
        if self.fix is None:
            return None
        start, end = self.fix_at or (self.start, self.end)
        return start, end, self.fix

    def diagnostic(self, source: SourceFile, base: int, size: int) -> Diagnostic:
        """Returns the finding with its place in the file."""
        message = self.message
        if self.continues:
            line = source.position(base)[0]
            message += f" `{self.continues}` of line {line}"
        span = Span(min(base + self.start, size), min(base + self.end, size))
        fix = None
        if self.repair is not None:
            start, end, text = self.repair
            fix = Fix(Span(min(base + start, size), min(base + end, size)), text)
        return Diagnostic(
            self.code, message, source, span, label=self.label, helps=self.helps, fix=fix
        )


class Halt(Struct, frozen=True):
    """Where reading stopped, as the grammar tells it; `Place` is that with what stands there.

    Attributes:
        text: the statement, or an expression alone.
        start: where reading stopped.
        end: where what was met there ends.
        accepts: what the grammar would have taken.
        kind: what was met, as the grammar calls it; `end` and `character` besides.
        alone: whether the text is an expression, not a statement.
        of_test: whether it is a statement of a test file.
        read: says how far a text can be read, where somebody knows.
        spelt: the words and signs that the grammar's names stand for.
        meant: says how a call of another language is written here.
        fits: says what the grammar would have taken at an earlier place.
    """

    text: str
    start: int
    end: int
    accepts: frozenset[str]
    kind: str
    alone: bool = False
    of_test: bool = False
    read: Callable[[str], int] | None = None
    spelt: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    meant: Meant | None = None
    fits: Callable[[int], frozenset[str]] | None = None
