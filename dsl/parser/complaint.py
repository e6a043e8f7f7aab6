"""Why a statement could not be read, in policy words.

Works on text and names of terminals only; knows no parser.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dsl.diagnostics import Diagnostic, Fix, Label
from dsl.source import SourceFile, Span


@dataclass(frozen=True, slots=True)
class Refusal:
    """A finding whose places count from the start of the statement's text."""

    code: str
    message: str
    start: int
    end: int
    label: str = ""
    helps: tuple[str, ...] = ()
    fix: str | None = None

    def diagnostic(self, source: SourceFile, base: int, size: int) -> Diagnostic:
        """Returns the finding with its place in the file."""
        span = Span(min(base + self.start, size), min(base + self.end, size))
        fix = Fix(span, self.fix) if self.fix is not None else None
        return Diagnostic(
            self.code, self.message, source, span, label=self.label, helps=self.helps, fix=fix
        )


def complain(text: str, start: int, end: int, accepts: frozenset[str], kind: str) -> Refusal:
    """Names what is wrong at a place of a statement."""
    return Refusal("P001", f"`{text[start:end]}` does not fit here", start, end)
