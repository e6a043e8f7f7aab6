"""Cuts a file into statements: one starts in column 1, outside of `\"\"\"` texts and comments.

Knows lines and quotes, not the grammar.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dsl.source import (
    MAX_STATEMENTS,
    MAX_TOKENS,
    MAX_TOKENS_OF_STATEMENT,
    SourceFile,
    Span,
    TextProblem,
    blanked,
)

_TOKEN: Final = re.compile(
    r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\w.]+|[^\w\s]'
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The text of one statement, from its first column to the start of the next."""

    span: Span


def cut(source: SourceFile) -> tuple[list[Chunk], list[TextProblem]]:
    """Returns the statements of a file and what is wrong with its layout."""
    text = source.text
    bare = blanked(text)
    starts = [found.start() for found in re.finditer(r"^\S", bare, re.MULTILINE)]
    limit = _limits(text, starts)
    if limit is not None:
        return [], [limit]
    problems = []
    head = bare[: starts[0]] if starts else bare
    if head.strip():
        first = len(head) - len(head.lstrip())
        end = first + len(head[first:].split(maxsplit=1)[0])
        problems.append(
            TextProblem(
                "P012",
                "the first statement is indented, so there is nothing it could continue",
                Span(first, end),
                "remove the leading spaces: a statement starts in column 1",
            )
        )
    ends = [*starts[1:], len(text)] if starts else []
    chunks = [Chunk(Span(start, end)) for start, end in zip(starts, ends, strict=True)]
    return chunks, problems


def _limits(text: str, starts: list[int]) -> TextProblem | None:
    if len(starts) > MAX_STATEMENTS:
        start = starts[MAX_STATEMENTS]
        message = f"the file has more than {MAX_STATEMENTS:,} statements"
        return TextProblem("P006", message, Span(start, start + 1), "split the file")
    places = [one.start() for one in _TOKEN.finditer(text) if text[one.start()] != "#"]
    if len(places) > MAX_TOKENS:
        at = places[MAX_TOKENS]
        message = f"the file has more than {MAX_TOKENS:,} words and signs"
        return TextProblem("P006", message, Span(at, at + 1), "split the file")
    long = (_too_long(places, Span(*ends)) for ends in pairwise([*starts, len(text)]))
    return next((one for one in long if one is not None), None)


def _too_long(places: list[int], span: Span) -> TextProblem | None:
    first = bisect_left(places, span.start) + MAX_TOKENS_OF_STATEMENT
    if first >= len(places) or places[first] >= span.end:
        return None
    message = f"this statement has more than {MAX_TOKENS_OF_STATEMENT:,} words and signs"
    help_ = "write several: what two filters demand both must hold, and scores are added"
    return TextProblem("P006", message, Span(places[first], places[first] + 1), help_)


def too_long(text: str, span: Span) -> TextProblem | None:
    """Returns what is said of an expression of its own that has too many words."""
    places = [one.start() for one in _TOKEN.finditer(text, span.start, span.end)]
    return _too_long([one for one in places if text[one] != "#"], span)
