"""Choices between values: `if` without its parts, `CASE`, `a ? b : c`.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from typing import Final

from dsl.parser.complaints.place import LAST_VALUE, Place
from dsl.parser.refusal import Refusal


def choice(place: Place) -> Refusal | None:
    """`if a then b` in a filter, `100 if a else 0`, `case when a then b end`."""
    if place.kind == "end" and "ELSE" in place.accepts:
        found = re.match(r"(\w+[ \t]*:[ \t]*)if\b[ \t]*(.*?)[ \t]*\bthen\b[ \t]*", place.bare)
        if found is not None and place.keyword in (
            "filter",
            "require",
            "forbid",
            "gate",
            "reserve",
        ):
            left = place.text[found.start(2) : found.end(2)]
            span = (found.end(1), found.end())
            return Refusal(
                "P014", "a rule for some pods is written with `->`", found.end(1),
                found.end(1) + 2, helps=(f"write  {left} -> ...",), fix=f"{left} -> ", fix_at=span,
            )  # fmt: skip
        at = place.bare.rfind("then", 0, place.start)
        return Refusal(
            "P009", "this `if` has no `else`", at, at + 4, helps=("end it with  else 0",),
            fix=" else 0", fix_at=(place.start, place.start),
        )  # fmt: skip
    if place.met == "if":
        found = re.match(r"if[ \t]+(.*?)[ \t]+else[ \t]+(\S+)", place.text[place.start :])
        value = LAST_VALUE.search(place.before)
        if found is not None and value is not None:
            first = place.text[value.start() : value.end()]
            better = f"if {found[1]} then {first} else {found[2]}"
            span = (value.start(), place.start + found.end())
            if place.mends(*span, better):
                return place.instead(span, "P014", "`if` stands in front", better)
    return _case(place)


#: A `CASE` that holds no other.
_INNERMOST: Final = re.compile(r"\bcase\b((?:(?!\bcase\b)[\s\S])*?)\bend\b", re.IGNORECASE)
_PARTS: Final = re.compile(r"\b(when|then|else)\b", re.IGNORECASE)


def _case(place: Place) -> Refusal | None:
    """`CASE WHEN a THEN b WHEN c THEN d ELSE e END`, `CASE x WHEN 'a' THEN b END`."""
    head = re.search(r"(?i)\bcase\b", place.bare)
    if head is None or head.start() > place.start:
        return None
    text, bare = place.text[head.start() :], place.bare[head.start() :]
    while (found := _INNERMOST.search(bare)) is not None:
        marks = list(_PARTS.finditer(bare, *found.span(1)))
        if not re.fullmatch(
            "(when then )+(else )?", "".join(f"{one[1].lower()} " for one in marks)
        ):
            return None
        better = _chosen(found, marks, text)
        if found.start() == 0:
            span = (head.start(), len(place.text) - len(bare) + found.end())
            what = "a choice is written with `if`"
            if place.mends(*span, better):
                return place.instead(span, "P014", what, better)
            return place.at(*span, "P014", what, "write  if CONDITION then A else B")
        before, behind = slice(found.start()), slice(found.end(), None)
        text = f"{text[before]}({better}){text[behind]}"
        bare = f"{bare[before]}({'_' * len(better)}){bare[behind]}"
    return None


def _chosen(case: re.Match[str], marks: list[re.Match[str]], text: str) -> str:
    """Returns the choice that a `CASE` of a text is."""
    stops = [one.start() for one in marks[1:]] + [case.end(1)]
    parts = [text[one.end() : stop].strip() for one, stop in zip(marks, stops, strict=True)]
    asked = text[case.start(1) : marks[0].start()].strip()
    last = parts.pop() if len(parts) % 2 else "0"
    choices = zip(parts[::2], parts[1::2], strict=True)
    return "".join(f"if {_asked(asked, one)} then {value} else " for one, value in choices) + last


def _asked(what: str, value: str) -> str:
    """Returns the condition of a `WHEN`, which is a value where something stands behind `CASE`."""
    if not what:
        return value
    sign = "is" if value[:1].isalpha() or value[:1] in "\"'" else "=="
    return f"{what} {sign} {value}"


_NO_OPERANDS: Final = frozenset(
    {"then", "else", "and", "or", "not", "in", "is", "like", "contains"}
)


def no_then(place: Place) -> Refusal | None:
    """`if node.label zone=a 100 else 0`."""
    if "THEN" not in place.accepts or place.kind == "end" or place.met in _NO_OPERANDS:
        return None
    rest = re.search(r"\b(then|else)\b", place.behind)
    if rest is None:
        rest = re.search(r"$", place.behind) if place.met[:1].isdigit() else None
    if rest is None or rest[0] == "then" or not re.match(r"[\w$(\"]", place.met):
        return None
    if not place.mends(place.start, place.start, "then "):
        return None
    choice = place.text[place.start : place.start + rest.start()].strip()
    return Refusal(
        "P001", "`then` is missing in front of this", place.start, place.end,
        helps=(f"write  if ... then {choice} else {'...' if rest[0] else 0}",), fix="then ",
        fix_at=(place.start, place.start),
    )  # fmt: skip


def ternary(place: Place, start: int) -> Refusal:
    """`a ? b : c`."""
    head = re.match(r"(?:(?:let|param)[ \t]+\w+[^=\n]*=|\w+[ \t]*:)[ \t]*", place.text)
    arrow = place.bare.rfind("->", 0, start)
    first = arrow + 2 if arrow >= 0 else head.end() if head is not None else 0
    first += len(place.text[first:]) - len(place.text[first:].lstrip())
    colon = place.bare.find(":", start)
    end = place.line(start)[1]
    shown = "if A then B else C"
    fix = None
    if colon > 0 and place.bare.count("?", start, end) == 1:
        condition = place.text[first:start].strip()
        yes, no = place.text[start + 1 : colon].strip(), place.text[colon + 1 : end].strip()
        shown = f"if {condition} then {yes} else {no}"
        fix = shown if place.mends(first, end, shown) else None
    return Refusal(
        "P014", "`?` is not an operator here", start, start + 1, helps=(f"write  {shown}",),
        fix=fix, fix_at=(first, end),
    )  # fmt: skip
