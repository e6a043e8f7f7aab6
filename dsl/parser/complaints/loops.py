"""Loops of Python and groups of PromQL within a statement, and the aggregates they are here."""

import re
from typing import Final

from dsl.parser.place import Place, Refusal
from dsl.schema import FIELDS

#: What only a query has: a range of time, the labels of a series.
_OF_QUERY: Final = re.compile(
    r"[A-Za-z_]\w*[ \t]*(?:\{[^{}\n]*\}[ \t]*)?\[[ \t]*\d+(?:ms|[smhdwy])[\w:]*\]"
    r"|[A-Za-z_]\w*\{[^{}\n]*=[^{}\n]*\}"
)
_CALL: Final = re.compile(
    r"(?<![\w.$])[A-Za-z_]\w*[ \t]*(?:(?:by|without)[ \t]*\([^()]*\)[ \t]*)?"
    r"\((?:[^()]*,)?[ \t]*\Z"
)
_BY: Final = re.compile(r"[ \t]*\b(?:by|without)[ \t]*\(([^()]*)\)")


def query(place: Place) -> Refusal | None:
    """`100 - sum(rate(x{a="b"}[5m])) by (node)`: the whole query, in the metric it belongs to."""
    if place.keyword == "metric":
        return None
    found = next(
        (one for one in _OF_QUERY.finditer(place.bare) if one.start() <= place.start), None
    )
    if found is None:
        return None
    start, end = _around(place, *found.span())
    if (start, end) == found.span() or place.start > end:
        return None
    text = place.text[start:end]
    key = re.search(r"\bby[ \t]*\([ \t]*(\w+)[ \t]*\)", place.bare[start:end])
    quote = "'" if '"' in text else '"'
    return place.at(
        start, end, "P014", "a query of Prometheus stands in a metric",
        f"write above  metric NAME = promql {quote}{text}{quote} by {key[1] if key else 'node'}"
        "   and here  NAME",
    )  # fmt: skip


def _around(place: Place, start: int, end: int) -> tuple[int, int]:
    """Returns the calls around a stretch, each with the grouping before or behind its bracket."""
    while True:
        call = _CALL.search(place.bare[:start])
        close = place.closing(place.bare.rindex("(", 0, start)) if call is not None else -1
        if call is None or close < end:
            return start, end
        start, end = call.start(), close + 1
        by = _BY.match(place.bare, end)
        end = by.end() if by is not None else end


def loop(place: Place, found: re.Match[str]) -> Refusal:
    """`count(...)` or `any(...)` for a loop over pods; the words of its condition as written."""
    condition = _of_item(place.text[found.start(3) : found.end(3)] if found[3] else "", found[1])
    values = re.search(
        rf"\b(sum|max|min|avg|median)\([ \t]*\[?[ \t]*({found[1]}\.[^()]*?)[ \t]*\Z",
        place.text[: found.start()],
    )
    if values is not None:
        value, over = _of_item(values[2], found[1]), f" over {found[2]}"
        if found[2] == "nodes":
            # What is said of a node is said of the candidates, without naming them.
            plain = value.removeprefix("it.")
            value, over = (f"node.{plain}" if f"node.{plain}" in FIELDS else plain), " over nodes"
        where = f" where {condition}" if condition else ""
        return place.at(
            found.start(), found.end(), "P001",
            f"there are no loops here: `{place.text[found.start() : found.end()]}`",
            f"write  {values[1]}({value}{over}{where})",
        )  # fmt: skip
    head = re.search(rf"\b(any|all)\((.*?)\bfor[ \t]+{found[1]}\b", place.text)
    if head is not None:
        condition = condition or _of_item(head[2].strip(), found[1])
    text = place.text[found.start() : found.end()]
    where = f" where {condition}" if condition else ""
    name = head[1] if head is not None else "count"
    return place.at(
        found.start(), found.end(), "P001", f"there are no loops here: `{text}`",
        f"write  {name}({found[2]}{where})",
    )  # fmt: skip


def _of_item(condition: str, name: str) -> str:
    """Returns a condition about a loop's variable as one about `it`."""
    parts = re.split(r"(\"[^\"]*\"|'[^']*')", condition)
    for at in range(0, len(parts), 2):
        text = re.sub(rf"\b{name}\.", "it.", parts[at])
        text = re.sub(r"\bit\.metadata\.", "it.", text)
        parts[at] = re.sub(r"\bit\.(label|annotation)s?\.(\w+)", r"it.\1[\2]", text)
    return "".join(parts)


def grouped(place: Place, found: re.Match[str], by: re.Match[str]) -> Refusal:
    """`max by (node) (load)`; a query of Prometheus is kept whole."""
    end = place.start + by.end()
    if by[2] is None:
        opened = re.compile(r"[ \t]*\(").match(place.bare, end)
        if opened is not None and place.closing(opened.end() - 1) > 0:
            end = place.closing(opened.end() - 1) + 1
    whole = place.text[found.start() : end]
    message = f"nothing is grouped here: `{found[1]}` is taken of all candidates"
    if re.search(r"\[[ \t]*\d+(ms|[smhdwy])|\{", whole):
        quote = "'" if '"' in whole else '"'
        by_what = re.search(r"\w+", by.group()[len(by[1]) :])
        key = by_what.group() if by_what is not None and by[1] == "by" else "node"
        return place.at(
            found.start(), end, "P014", message,
            f"write above  metric NAME = promql {quote}{whole}{quote} by {key}",
        )  # fmt: skip
    inner = place.text[found.start(2) : found.end(2)] if found[2] else by[2] or "(x)"
    better = f"{found[1]}{inner}"
    return place.instead((found.start(), place.start + by.end()), "P014", message, better)
