"""Cuts a file into statements: one starts in column 1, outside of `\"\"\"` texts and comments.

Knows lines and quotes, not the grammar.
"""

import re
from bisect import bisect_left
from itertools import pairwise
from typing import Final

from dsl.diagnostics import Diagnostic
from dsl.source import (
    MAX_DEPTH,
    MAX_STATEMENTS,
    MAX_TOKENS,
    MAX_TOKENS_OF_STATEMENT,
    QUOTED,
    SourceFile,
    Span,
    blanked,
)

_TOKEN: Final = re.compile(rf"{QUOTED}|#[^\n]*|[\w.]+|[^\w\s]")


def cut(source: SourceFile) -> tuple[list[Span], list[Diagnostic]]:
    """Returns the statements of a file, each up to the next, and what is wrong with its layout."""
    text = source.text
    bare = blanked(text)
    starts = [found.start() for found in re.finditer(r"^\S", bare, re.MULTILINE)]
    limit = _limits(source, text, starts)
    if limit is not None:
        return [], [limit]
    problems = []
    head = bare[: starts[0]] if starts else bare
    if head.strip():
        first = len(head) - len(head.lstrip())
        span = Span(first, first + len(head[first:].split(maxsplit=1)[0]))
        message = "the first statement is indented, so there is nothing it could continue"
        help_ = "remove the leading spaces: a statement starts in column 1"
        problems.append(Diagnostic("P012", message, source, span, helps=(help_,)))
    return [Span(*ends) for ends in pairwise([*starts, len(text)])], problems


def _limits(source: SourceFile, text: str, starts: list[int]) -> Diagnostic | None:
    places = _words(text, Span(0, len(text)))
    for found, most, what in (
        (starts, MAX_STATEMENTS, "statements"),
        (places, MAX_TOKENS, "words and signs"),
    ):
        if len(found) > most:
            message = f"the file has more than {most:,} {what}"
            return _limit(source, found[most], message, "split the file")
    ends = pairwise([*starts, len(text)])
    long = (_too_long(source, places, Span(*one)) for one in ends)
    return next((one for one in long if one is not None), None)


def _words(text: str, span: Span) -> list[int]:
    found = (one.start() for one in _TOKEN.finditer(text, span.start, span.end))
    return [one for one in found if text[one] != "#"]


def _limit(source: SourceFile, at: int, message: str, help_: str) -> Diagnostic:
    return Diagnostic("P006", message, source, Span(at, at + 1), helps=(help_,))


def _too_long(source: SourceFile, places: list[int], span: Span) -> Diagnostic | None:
    first = bisect_left(places, span.start) + MAX_TOKENS_OF_STATEMENT
    if first >= len(places) or places[first] >= span.end:
        return None
    message = f"this statement has more than {MAX_TOKENS_OF_STATEMENT:,} words and signs"
    help_ = "write several: what two filters demand both must hold, and scores are added"
    return _limit(source, places[first], message, help_)


def too_long(source: SourceFile, span: Span) -> Diagnostic | None:
    """Returns what is said of an expression of its own that has too many words."""
    return _too_long(source, _words(source.text, span), span)


def too_deep(source: SourceFile, span: Span) -> Diagnostic | None:
    """Returns what is said of brackets that are nested more than can be read."""
    at = deepest(source.slice(span))
    return None if at is None else nested(source, span.start + at)


def deepest(text: str) -> int | None:
    """Returns where brackets of a text are nested more than can be read."""
    depth = 0
    for found in re.finditer(r"[(\[)\]]", blanked(text)):
        depth += 1 if found.group() in "([" else -1
        if depth > MAX_DEPTH:
            return found.start()
    return None


def nested(source: SourceFile, at: int) -> Diagnostic:
    """Refuses what is nested too deep."""
    message = f"this is nested more than {MAX_DEPTH} levels deep"
    return _limit(source, at, message, "give parts of it a name with `let`")
