"""What is said of a statement that cannot be read. Data only."""

from msgspec import Struct

from dsl.diagnostics import Diagnostic, Fix
from dsl.source import SourceFile, Span


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

    def diagnostic(self, source: SourceFile, base: int) -> Diagnostic:
        """Returns the finding with its place in the file."""
        message, size = self.message, len(source.text)
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
