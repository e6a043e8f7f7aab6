"""Queries of Prometheus: without quotes, within a rule, or where another source is named.

Each attempt looks for one habit; a replacement that is proposed has been tried where that is
possible: the statement can be read further with it.
"""

import re
from typing import Final

from dsl.parser.complaints.place import Place
from dsl.parser.refusal import Refusal
from dsl.spelling import closest

#: What ends a query that stands without quotes: clauses of the metric.
_METRIC_CLAUSES: Final = re.compile(
    r"(?:[ \t]+(?:by[ \t]+\w+|(?:every|stale|default|unit)[ \t]+\S+))*[ \t]*\Z"
)


def query_of(line: str) -> tuple[str, str]:
    """Returns the query that a line starts with, and the clauses of the metric behind it."""
    found = _METRIC_CLAUSES.search(line)
    end = found.start() if found is not None else len(line)
    return line[:end].rstrip(), line[end:].rstrip()


def in_quotes(query: str) -> str:
    """Returns a query as a text."""
    return f"'{query}'" if '"' in query else f'"{query}"'


#: Words for a query.
_QUERIES: Final = ("promql", "query", "prometheus", "prom", "promsql", "rate", "series", "metric")


def source(place: Place) -> Refusal | None:
    """`metric bw = rate(...)`, `metric bw = query "..."`."""
    found = re.match(r"metric[ \t]+(\w+)[ \t]*=[ \t]*", place.text)
    if found is None or place.start != found.end():
        return None
    line = place.text[place.start : place.line(place.start)[1]].strip()
    named = re.match(
        r"(?:from[ \t]+)?(?:(\w+)[ \t]*)?=?[ \t]*(?:\([ \t]*)?(\"[^\"]*\"|'[^']*')(?:[ \t]*\))?",
        line,
    )
    message = "a metric says where its values come from: promql, annotation, usage or object"
    if named is not None and named[1] and closest(named[1], _QUERIES) is None:
        end = place.start + named.end(1)
        what = (
            f"there is no source `{named[1]}`: values come from promql, annotation, usage, object"
        )
        return place.at(
            place.start, end, "P001", what, "what Prometheus scrapes is asked by promql"
        )
    bare = query_of(line)[0]
    query = named[2] if named is not None else in_quotes(bare)
    end = place.start + (named.end() if named is not None else len(bare))
    return place.instead((place.start, end), "P001", message, f"promql {query}")


def in_metric(place: Place, line: str) -> Refusal:
    """`promql rate(x[5m])`, `promql = "x"`: the query of a metric wants its quotes."""
    called = re.match(r"[(=:][ \t]*(\"[^\"\n]*\"|'[^'\n]*')(?:[ \t]*\))?", line)
    if called is not None:
        end = place.start + called.end()
        gap = "" if place.text[place.start - 1].isspace() else " "
        return Refusal(
            "P001", "a query stands right behind `promql`", place.start, end,
            helps=(f"write  promql {called[1]}",), fix=gap + called[1],
        )  # fmt: skip
    query, clauses = query_of(line)
    better = in_quotes(query)
    return Refusal(
        "P001", "a query stands in quotes", place.start, place.start + len(query),
        helps=(f"write  promql {better}{clauses}",), fix=better,
    )  # fmt: skip


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


def within_rule(place: Place) -> Refusal | None:
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
    end = place.start + len(by.group().rstrip())
    topology = re.search(r"\bby[ \t]*\([ \t]*(?:node\.)?(zone|region|rack)[ \t]*\)", by.group())
    if topology is not None and re.match(r"\([ \t]*node\.", inner):
        # The nodes of a domain are a set of their own.
        better = f"{found[1]}({inner[1:-1].strip()} over {topology[1]}.nodes)"
        what = "the nodes of a domain are a set of their own"
        return place.instead((found.start(), end), "P014", what, better)
    by_node = re.search(
        r"\bby[ \t]*\([ \t]*(?:node|instance|pod|kubernetes_node)[ \t]*\)", by.group()
    )
    better = f"{found[1]}{inner}"
    if by_node is None:
        # Of the groups nothing would be left: the rule would mean something else.
        help_ = f"without the groups it is  {better}"
        return place.at(found.start(), end, "P014", message, help_)
    return place.instead((found.start(), end), "P014", message, better)
