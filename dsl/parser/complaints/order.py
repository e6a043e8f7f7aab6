"""Why a statement could not be read, in policy words: the attempts, in their order.

Works on text and on what the grammar would have taken; knows no parser. Each attempt looks for one
kind of mistake and the first that recognises it speaks.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from dsl.parser.complaints import (
    aggregates,
    brackets,
    calls,
    choices,
    clauses,
    commas,
    connectives,
    declarations,
    fields,
    habits,
    labels,
    layouts,
    leftover,
    lists,
    moments,
    numbers,
    openings,
    patterns,
    phrases,
    queries,
    sets,
    signs,
    texts,
)
from dsl.parser.complaints.place import Place, place_of
from dsl.parser.refusal import Halt, Refusal

#: How far around a place of a long statement the checks look.
_WINDOW: Final = 1000
#: Words of helps that stand for those of the author.
_PLACEHOLDER: Final = re.compile(
    r"\b(?:KEY|NAME|VALUE|OTHER|ELSE|CONDITION|QUERY|EXPRESSION|NUMBER|PARAM)\b|\.\.\."
)


def complain(halt: Halt, *, of_test: bool = False) -> Refusal:
    """Names what is wrong where reading stopped; a test file's statement holds no expressions."""
    place = place_of(halt)
    text, start = halt.text, halt.start
    shift = max(0, start - _WINDOW)
    if len(text) > 2 * _WINDOW:
        for check in (brackets.open_text, brackets.unpaired):
            found = check(place)
            if found is not None:
                return found
        # The other checks look back from the place again and again: not over a text of any length.
        place = place_of(
            replace(
                halt,
                text=text[shift : start + _WINDOW],
                start=start - shift,
                end=halt.end - shift,
                alone=halt.alone or shift > 0,
                read=None,
            )
        )
    else:
        shift = 0
    checks = _GENERAL if of_test else _CHECKS
    told = next((one for one in (check(place) for check in checks) if _changes(place, one)), None)
    return _pasteable(told or leftover.unexpected(place), place, text).shifted(shift)


def _pasteable(told: Refusal, place: Place, text: str) -> Refusal:
    """Leaves out a fix that holds a word to be replaced, `label[KEY]`, or cannot be read itself."""
    if told.repair is None:
        return told
    start, end, better = told.repair
    wanted = _PLACEHOLDER.search(better)
    fits = wanted is None or wanted[0] in text
    if fits and place.read is not None:
        fits = place.read(place.text[:start] + better + place.text[end:]) >= start + len(better)
    return told if fits else replace(told, fix=None, fix_at=None)


def _changes(place: Place, told: Refusal | None) -> bool:
    """Whether a check spoke, and does not propose what stands there."""
    if told is None or told.repair is None:
        return told is not None
    start, end, better = told.repair
    return place.text[start:end] != better


#: Attempts for a policy, in the order in which they are tried.
_CHECKS: Final[tuple[Callable[[Place], Refusal | None], ...]] = (
    # quotes without their partner; what they hide makes all else unsure
    phrases.contraction,
    texts.apostrophe,
    brackets.open_text,
    texts.hole,
    # habits that a pattern tells exactly
    sets.looped,
    sets.bare_label,
    habits.known,
    # how the statement begins, and what its lines are
    openings.doubled,
    openings.named,
    layouts.mapping,
    layouts.constraint,
    layouts.listed,
    layouts.items,
    layouts.block,
    clauses.clause_first,
    layouts.clause_colon,
    layouts.indented,
    openings.statement_word,
    declarations.declaration,
    declarations.param,
    declarations.header,
    layouts.same_line,
    # queries, comments, braces and brackets: stretches that are no expression
    queries.within_rule,
    signs.comment,
    signs.braces,
    brackets.unpaired,
    # what a pattern tells, and what must be looked at before it
    labels.labels_compared,
    labels.whose_label,
    moments.between_times,
    moments.clock,
    choices.no_then,
    queries.source,
    patterns.known,
    # values: aggregates, times, numbers, choices, lists
    texts.inner_quotes,
    aggregates.where_or_over,
    moments.moments,
    moments.weekdays,
    numbers.remainder,
    fields.no_dot,
    numbers.beside,
    texts.of_python,
    aggregates.unbracketed,
    choices.choice,
    lists.any_of,
    connectives.joined,
    phrases.glued,
    numbers.number,
    clauses.lone_weight,
    # texts, calls, fields and labels
    texts.odd_start,
    texts.unquoted,
    commas.colon,
    calls.call,
    calls.without_brackets,
    fields.compared,
    calls.index,
    lists.listed,
    labels.label_then_operator,
    labels.value,
    # words in place of others
    phrases.sql_like,
    phrases.twice,
    phrases.again,
    phrases.phrase,
    phrases.upper_case,
    clauses.scale,
    leftover.misspelt,
    # what is left: something is missing, too much, or of another language
    clauses.foreign_clause,
    numbers.side_by_side,
    texts.of_words,
    numbers.times,
    fields.word_after_field,
    fields.dots,
    commas.comma,
    leftover.unfinished,
    signs.signs,
    phrases.word_before,
)
#: Those that hold of a test file too.
_GENERAL: Final[tuple[Callable[[Place], Refusal | None], ...]] = (
    brackets.open_text,
    signs.comment,
    brackets.unpaired,
    numbers.number,
    texts.unquoted,
    leftover.misspelt,
    texts.of_words,
    leftover.unfinished,
)
