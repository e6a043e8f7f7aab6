"""Queries of Prometheus that cannot work: not whole, or without the label that says of which node.

Looks at brackets, quotes and the outermost aggregation only; where it does not know, it is silent.
"""

import re
from typing import Final

from msgspec import Struct

from dsl import syntax as s
from dsl.checker.scope import Refused, Scope
from dsl.diagnostics import Fix, Severity
from dsl.plan import MetricSpec

_PAIRS: Final = {"(": ")", "[": "]", "{": "}"}
_STRING: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`|#[^\n]*", re.DOTALL)
_QUOTE: Final = re.compile(r"[\"'`]")
#: Labels that are looked for where a metric does not say which one names the node.
_BY_DEFAULT: Final = ("node", "instance", "kubernetes_node")
#: Labels that say what a node or a sample is, and never which node.
_OF_NO_NODE: Final = frozenset({
    "instance_type", "node_type", "machine_type", "mountpoint", "device", "fstype", "interface",
    "container", "image", "job", "cpu", "mode", "core", "quantile", "phase", "status", "condition",
    "reason", "resource", "service", "endpoint", "deployment", "statefulset", "daemonset",
    "replicaset", "team", "app", "env", "environment", "severity", "alertname", "prometheus",
    "nodepool", "node_pool", "nodegroup", "arch", "os", "pool", "architecture", "owner_kind",
    "priority_class", "persistentvolumeclaim", "modelName", "gpu", "partition",
})  # fmt: skip
#: What a metric is by, written as several.
_PLURALS: Final = {
    f"{one}s": one
    for one in (
        "node",
        "instance",
        "zone",
        "region",
        "rack",
        "namespace",
        "workload",
        "pod",
        "cluster",
    )
}
_GROUPING: Final = r"(?:\s*\b(?P<{0}>by|without)\s*\((?P<{0}s>[^()]*)\))?"
#: Aggregations whose result has only the labels that it groups by.
_AGGREGATION: Final = re.compile(
    r"(?P<name>sum|avg|min|max|count|group|stddev|stdvar|quantile)"
    + _GROUPING.format("a")
    + r"\s*(?P<open>\()",
    re.IGNORECASE,
)
_BEHIND: Final = re.compile(_GROUPING.format("b") + r"\s*", re.IGNORECASE)
_NUMBER: Final = r"\s*-?\d[\d.eE]*\s*"
_OPERATOR: Final = r"(?:[-+*/%^]|[=!<>]=|<|>)"
_SCALED: Final = re.compile(rf"{_OPERATOR}{_NUMBER}\Z|\A{_NUMBER}{_OPERATOR}")


class _Grouped(Struct, frozen=True):
    """The labels of a result: these alone, or all but these."""

    labels: frozenset[str]
    without: bool
    #: Where the name of the aggregation ends.
    at: int


def odd_query(scope: Scope, node: s.MetricDecl, spec: MetricSpec) -> None:
    """Refuses a query that is not whole; warns of one whose result names no node."""
    written = node.arguments[0] if node.arguments else None
    if spec.source != "promql" or not isinstance(written, s.Text):
        return
    if not spec.query.strip():
        raise scope.refuse(
            "P111",
            f"the query of `{node.name}` is empty",
            written.span,
            'name a series, for example  promql "node_load1"',
        )
    # What a parameter puts in is none of the query's own.
    bare = _bare(written.value)
    quote = _QUOTE.search(bare)
    if quote is not None:
        what = f"the quote `{quote[0]}` is opened and never closed in this query"
        raise scope.refuse("P111", what, written.span, "close it, or leave it out")
    fault, mended = _brackets(written.value, bare)
    if fault:
        raise _not_whole(scope, written, fault, mended)
    bare = _bare(spec.query)
    if _QUOTE.search(bare) is None and not _brackets(spec.query, bare)[0]:
        _names_none(scope, node, spec, bare)
    _by_no_node(scope, node, spec)


def _bare(query: str) -> str:
    """Returns a query without its strings and comments, of the same length."""
    return _STRING.sub(lambda found: "_" * len(found[0]), query)


def _not_whole(scope: Scope, written: s.Text, fault: str, mended: str) -> Refused:
    inside = scope.source.slice(written.span)
    as_it_is = inside[1:-1] == written.value
    text = f"{inside[:1]}{mended}{inside[-1:]}"
    return scope.refuse(
        "P111",
        f"{fault} in this query",
        written.span,
        f"write  promql {text}" if as_it_is else "close each bracket by one of its kind",
        fix=Fix(written.span, text) if as_it_is else None,
    )


def _brackets(query: str, bare: str) -> tuple[str, str]:
    """Returns what is wrong with the brackets of a query, and the query with all of them."""
    still_open: list[str] = []
    fault = ""
    out: list[str] = []
    for sign, written in zip(bare, query, strict=True):
        if sign in _PAIRS:
            still_open.append(sign)
        elif sign in _PAIRS.values():
            if sign not in [_PAIRS[one] for one in still_open]:
                fault = fault or f"`{sign}` closes nothing"
                continue
            while _PAIRS[still_open[-1]] != sign:
                fault = fault or f"`{still_open[-1]}` is not closed before the next `{sign}`"
                out.append(_PAIRS[still_open.pop()])
            still_open.pop()
        out.append(written)
    if still_open:
        fault = fault or f"`{still_open[-1]}` is never closed"
    return fault, "".join(out) + "".join(_PAIRS[one] for one in reversed(still_open))


# ---- labels


def _by_no_node(scope: Scope, node: s.MetricDecl, spec: MetricSpec) -> None:
    """Warns of `by instance_type`: no node is called so."""
    clause = next((one for one in node.clauses if one.name == "metric_by"), None)
    word = clause.values[0] if clause is not None else None
    if spec.source != "promql" or spec.of != "node" or not isinstance(word, s.Word):
        return
    one = _PLURALS.get(word.value)
    if one is not None and not re.search(rf"\b{word.value}\b", spec.query):
        scope.report(
            "P228",
            f"this is by a label called `{word.value}`, which would name the node",
            word.span,
            f"did you mean  by {one}?",
            fix=Fix(word.span, one),
            severity=Severity.WARNING,
        )
        return
    label = word.value.removeprefix("label_").removeprefix("exported_")
    if label not in _OF_NO_NODE:
        return
    scope.warn(
        "P228",
        f"`{word.value}` names no node, so no node has a value of this metric",
        word.span,
        "group the query by the label with the node's name, and write  by node   or   by instance",
        "one value for many nodes is written  by zone, by region, by rack   or   by cluster",
    )


def _names_none(scope: Scope, node: s.MetricDecl, spec: MetricSpec, bare: str) -> None:
    if spec.of == "cluster":
        return
    wanted = (spec.by or "",) if spec.of == "node" else spec.keys
    by_default = spec.of == "node" and spec.by is None
    found = _grouped(bare)
    if found is None:
        return
    known = _BY_DEFAULT if by_default else wanted
    there = [one for one in known if (one in found.labels) != found.without]
    if there if by_default else len(there) == len(known):
        return
    missing = _BY_DEFAULT[1] if by_default else next(one for one in wanted if one not in there)
    written = node.arguments[0]
    inside = scope.source.slice(written.span)
    help_, fix = _kept(found, missing, spec), None
    if not found.labels and inside[1:-1] == spec.query:
        labels = missing if by_default else ", ".join(wanted)
        query = f"{spec.query[: found.at]} by ({labels}){_spaced(spec.query[found.at :])}"
        text = f"{inside[:1]}{query}{inside[-1:]}"
        help_, fix = f"write  promql {text}", Fix(written.span, text)
    owner = spec.of
    scope.report(
        "P228",
        f"the result of this query has no label `{missing}`, so it names no {owner}",
        written.span,
        help_,
        fix=fix,
        severity=Severity.WARNING,
    )


def _kept(found: _Grouped, missing: str, spec: MetricSpec) -> str:
    """Returns how the label that is missing is kept."""
    if found.without:
        return f"leave `{missing}` out of the brackets behind `without`"
    named = sorted(found.labels)
    if spec.of == "node" and len(named) == 1 and re.search(r"node|instance|host", named[0]):
        return f"write behind the query  by {named[0]}"
    return f"group by it, too:  by ({', '.join([*named, missing])})"


def _spaced(text: str) -> str:
    return text if text.startswith(" ") else f" {text}"


def _grouped(bare: str) -> _Grouped | None:
    """Returns what labels the result of an aggregation has; None for any other query."""
    low, high = 0, len(bare)
    while True:
        low += len(bare[low:high]) - len(bare[low:high].lstrip())
        high -= len(bare[low:high]) - len(bare[low:high].rstrip())
        text = bare[low:high]
        scaled = _SCALED.search(text)
        if scaled is not None and scaled.end() == len(text):
            high = low + scaled.start()
        elif scaled is not None:
            low += scaled.end()
        elif text.startswith("(") and _closing(text, 0) == len(text) - 1:
            low, high = low + 1, high - 1
        else:
            break
    found = _AGGREGATION.match(text)
    if found is None:
        return None
    end = _closing(text, found.start("open"))
    behind = _BEHIND.fullmatch(text, end + 1)
    if behind is None:
        return None
    word = found["a"] or behind["b"] or "by"
    listed = found["as"] if found["a"] else behind["bs"]
    labels = frozenset(one.strip() for one in (listed or "").split(",") if one.strip())
    return _Grouped(labels, word.lower() == "without", low + found.end("name"))


def _closing(text: str, at: int) -> int:
    """Returns where the bracket at a place is closed; all are."""
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] in _PAIRS) - (text[place] in _PAIRS.values())
        if depth == 0:
            return place
    return len(text)
