"""Loops of Python and groups of PromQL within a statement, and the aggregates they are here."""

import re

from dsl.parser.place import Place, Refusal


def loop(place: Place, found: re.Match[str]) -> Refusal:
    """`count(...)` or `any(...)` for a loop over pods; the words of its condition as written."""
    condition = _of_item(place.text[found.start(3) : found.end(3)] if found[3] else "", found[1])
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
