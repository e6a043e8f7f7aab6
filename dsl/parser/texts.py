"""Texts that want quotes, have those of another language, or hold what ends them.

Each check looks for one habit and the first that recognises it speaks. A replacement that is
proposed has been tried where that is possible: the statement can be read further with it.
"""

import re

from dsl.parser import misplaced
from dsl.parser.place import CLAUSES, Place, Refusal
from dsl.spelling import closest


def apostrophe(place: Place) -> Refusal | None:
    """`'don't'`: the apostrophe ends the text."""
    before = place.text[: place.start]
    first = re.search(r"'[^'\n]*'\Z", before)
    more = re.match(r"\w[^'\n]*'", place.text[place.start :])
    if first is None or more is None or '"' in first.group() + more.group():
        return None
    span = (first.start(), place.start + more.end())
    inner = place.text[span[0] + 1 : span[1] - 1]
    return place.instead(span, "P001", "the apostrophe ends this text", f'"{inner}"')


def unquoted(place: Place) -> Refusal | None:
    """A text that needs quotes: `nginx:1.25`, `my app`, a message without quotes."""
    before = place.before
    line = place.text[place.start : place.line(place.start)[1]].strip()
    span = (place.start, place.start + len(line))
    if "STRING" in place.accepts and before.endswith(("message", "event")):
        word = "message" if before.endswith("message") else "event"
        line = line.lstrip("=:(").rstrip(")").strip().strip('"')
        better = f'"{line}"'
        return Refusal(
            "P001", f"`{word}` takes a quoted text", *span, helps=(f"write  {word} {better}",),
            fix=better,
        )  # fmt: skip
    if before.endswith("matches") and "STRING" in place.accepts:
        pattern = re.match(r"\S+", place.text[place.start :])
        shown = pattern.group() if pattern else ""
        inner = shown[1:-1] if len(shown) > 1 and shown[0] == shown[-1] == "/" else shown
        span = (place.start, place.start + len(shown))
        return place.instead(span, "P001", "a regular expression stands in quotes", f"'{inner}'")
    if before.endswith("promql") and "STRING" in place.accepts:
        query, clauses = misplaced.query_of(line)
        better = misplaced.in_quotes(query)
        span = (place.start, place.start + len(query))
        return Refusal(
            "P001", "a query stands in quotes", *span, helps=(f"write  promql {better}{clauses}",),
            fix=better,
        )  # fmt: skip
    return _value(place)


def _is_no_text(before: str, more: str) -> bool:
    """Whether what follows a word is a field, or the effect of a taint."""
    field = re.match(r"(pod|node|namespace|it|cluster|zone|time)\.\w", more)
    taint = re.search(r"\.taints?[ \t]+[\w./-]+(=[\w./-]*)?\Z", before)
    return field is not None or taint is not None


def odd_end(place: Place) -> Refusal | None:
    """`nginx_`: a word that no bare word is."""
    word_operator = re.search(
        r"\b(contains|starts with|ends with|is|like)\Z|(?<=\w)=\Z", place.before
    )
    if word_operator is not None and re.fullmatch(r"\w*_", place.met):
        better = f'"{place.met}"'
        return place.refuse(
            "P001",
            f"`{place.met}` needs quotes",
            f"write  {word_operator.group()} {better}",
            fix=better,
        )
    return None


def _value(place: Place) -> Refusal | None:
    before = place.before
    tested = re.search(r"(contains|starts with|ends with|is|is not|like|=)[ \t]+(\S+)\Z", before)
    tested = tested or re.search(r"(?<=\w)(=|!=)([\w./-]+)\Z", before)
    if tested is None or place.kind == "end" or before.endswith(("==", "<=", ">=", "!=")):
        return None
    operator, word = tested.group(1), tested.group(2)
    tail = re.match(r"[^\s()\[\],;]*", place.text[place.start :])
    more = tail.group() if tail else ""
    touching = place.start == tested.end(2) and more != ":"
    if _is_no_text(before, more):
        return None
    if not touching and place.kind not in ("RELOP", "character") and re.fullmatch(
        r"[A-Za-z0-9][\w.-]*", more
    ):  # fmt: skip
        better = f'"{word} {more}"'
        if closest(more, CLAUSES) is None and place.mends(tested.start(2), place.end, better):
            return Refusal(
                "P001", f"`{more}` does not fit here", place.start, place.end,
                helps=(f"a text with blanks:  {operator} {better}",), fix=better,
                fix_at=(tested.start(2), place.end),
            )  # fmt: skip
    if not touching or not more or re.fullmatch(r"\d+(\.\d+)?", word):
        return None
    span = (tested.start(2), place.start + len(more))
    if "*" in more and operator in ("contains", "is", "starts with", "ends with", "like"):
        better = f"like {word}{more}"
        whole = (tested.start(1), span[1])
        if re.fullmatch(r"[\w*?./-]+", f"{word}{more}") and operator != "like":
            return Refusal(
                "P001", f"`{word}{more}` is a pattern", *span, helps=(f"write  {better}",),
                fix=better, fix_at=whole,
            )  # fmt: skip
    better = f'"{word}{more}"'
    if '"' in f"{word}{more}" or not place.mends(*span, better):
        return None
    return Refusal(
        "P001", f"`{word}{more}` needs quotes", *span, helps=(f"write  {operator} {better}",),
        fix=better,
    )  # fmt: skip


def of_python(place: Place) -> Refusal | None:
    """`f"nginx-{node.name}"`: texts of Python."""
    found = re.search(r"(?<![\w.$])[fFrRbu]\Z", place.bare[: place.start])
    text = re.match(r"\"([^\"]*)\"|'([^']*)'", place.text[place.start :])
    if found is None or text is None:
        return None
    span = (found.start(), place.start + text.end())
    inner = text[1] if text[1] is not None else text[2]
    if found.group() not in "fF" or "{" not in inner:
        return place.instead(span, "P001", "a text has no letter before it", text.group())
    parts = [one for one in re.split(r"(\{[^{}]*\})", inner) if one]
    shown = ", ".join(one[1:-1] if one.startswith("{") else f'"{one}"' for one in parts)
    return place.instead(span, "P001", "texts are put together by `join`", f"join({shown})")
