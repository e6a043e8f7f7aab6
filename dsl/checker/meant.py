"""What is right and says something else than it seems to: texts, patterns, hours, queue keys.

Warns only; each of these has another form that says the same and is not warned of.
"""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Scope, Typed
from dsl.diagnostics import Fix, Severity
from dsl.functions import number_text
from dsl.plan import MetricSpec
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.spelling import quoted_key
from dsl.types import DURATION, show

_WARNING: Final = Severity.WARNING
#: The first and the last number of fields that begin again after it, and where that is.
_ENDS: Final = {
    "time.hour": (0, 23, "midnight"),
    "time.minute": (0, 59, "midnight"),
    "time.day": (1, 31, "the end of the month"),
    "time.month": (1, 12, "the end of the year"),
}
_BRACED: Final = re.compile(r"\{\s*(\$?[a-z_][\w.]*(?:\[[\w./-]+\])?)\s*\}")
_TWICE: Final = re.compile(r"(?<!\{)\{\{\s*\.?(\$?[a-z_][\w.]*(?:\[[\w./-]+\])?)\s*\}\}(?!\})")
_HOLE: Final = re.compile(r"(?<!\{)\{[^{}]*\}(?!\})")
_OF_SHELLS: Final = re.compile(
    r"\$\{\s*([a-z_][\w.]*(?:\[[\w./-]+\])?)\s*\}|\$\(\s*([a-z_][\w.]*(?:\[[\w./-]+\])?)\s*\)"
)
_DOLLAR: Final = re.compile(r"(?<![\\$])\$([A-Za-z_]\w*)")


#: Words of other languages; `none` is one that people do give to labels.
_NO_LABEL: Final = frozenset({"null", "NULL", "nil", "None", "undefined"})


def nothing_of_label(scope: Scope, node: s.LabelTest) -> None:
    """Warns of `node.label pool != null`, which compares with the text `null`."""
    value = node.value
    if not isinstance(value, s.Word) or value.value not in {*_NO_LABEL, "missing", "present"}:
        return
    if node.operator not in ("=", "==", "!="):
        return
    there = (node.operator == "!=") != (value.value == "present")
    better = "present" if there else "missing"
    read = f"{node.path}[{scope.text(node.key)}]"
    scope.report(
        "P317",
        f"`{value.value}` is an ordinary word here",
        value.span,
        f"write  {read} is {better}",
        f'for the word itself write  "{value.value}"',
        fix=Fix(node.span, f"{read} is {better}"),
        severity=_WARNING,
    )


def begins_only(scope: Scope, left: str, operand: Typed, node: s.Expr, pattern: str) -> None:
    """Warns of `matches "^nginx-"`: a pattern fits the whole text or not at all."""
    if not isinstance(node, s.Text):
        return
    body = pattern.removeprefix("^")
    plain = re.fullmatch(r"[\w./-]+", body) is not None
    named = isinstance(operand, ir.Read) and operand.field in ("pod.name", "node.name")
    if re.fullmatch(r"[\w-]*[A-Za-z0-9-]\*", pattern):
        quote = scope.source.slice(node.span)[:1]
        scope.warn(
            "P317",
            f"`*` repeats the sign before it here: `{pattern}` ends with any number of"
            f" `{pattern[-2]}`",
            node.span,
            f"write  {left} like {quote}{pattern}{quote}"
            f"   or   {left} matches {quote}{pattern[:-1]}.*{quote}",
        )
        return
    if not plain or not (pattern.startswith("^") or (named and body.endswith("-"))):
        return
    quote = scope.source.slice(node.span)[:1]
    scope.report(
        "P317",
        "`matches` looks at the whole text, and this pattern has an end of its own",
        node.span,
        f"write  {left} starts with {quote}{body}{quote}"
        f"   or   {left} matches {quote}{pattern}.*{quote}",
        f"for this text alone write  {left} is {quote}{body}{quote}",
        severity=_WARNING,
    )


def past_the_last(scope: Scope, item: ir.Expr, members: s.Range, high: float) -> None:
    """Warns of `time.hour in 22..30`: a day has the hours 0 to 23."""
    ends = _ENDS.get(item.field) if isinstance(item, ir.Read) else None
    if ends is None or not isinstance(item, ir.Read):
        return
    first, last, over = ends
    if high <= last:
        return
    low = scope.text(members.low)
    if low.isdigit() and int(low) > last:
        return  # It holds never, and that is said already.
    beyond = high - last - 1 + first
    forms = [f"{low}..{last}"]
    if first < beyond < last:
        forms.insert(0, f"{low}..{number_text(beyond)}")
    written = "   or   ".join(f"in {one}" for one in forms)
    scope.warn(
        "P210",
        f"`{item.field}` is from {first} to {last},"
        f" and this range goes to {scope.text(members.high)}",
        members.span,
        f"write  {written}" + (f"; a range may go past {over}" if len(forms) > 1 else ""),
    )


def test_as_key(scope: Scope, node: s.Key) -> None:
    """Warns of a queue key that is a test: false comes before true."""
    text = scope.text(node)
    if node.direction != "ascending" or text.split()[-1] == "asc" or not _holds(node.value):
        return
    value = scope.text(node.value)
    better = f"{value} desc"
    helps = [f"write  {better}   or, if that is meant,  {value} asc"]
    if isinstance(node.value, s.In) and isinstance(node.value.members, s.Words):
        better = f"{scope.text(node.value.left)} {scope.text(node.value.members)}"
        helps = [f"write  {better}", f"if the last place is meant, write  {value} asc"]
    scope.report(
        "P224",
        "this puts the pods for which it holds last: false comes before true",
        node.span,
        *helps,
        fix=better,
        severity=_WARNING,
    )


def _holds(node: s.Expr) -> bool:
    """Whether this is a test that says what something is, not what it is not."""
    match node:
        case s.In() | s.Is():
            return not node.negated
        case s.IsMissing():
            return node.negated
        case s.LabelTest():
            return node.operator in ("", "=", "==", "in")
        case s.TextTest():
            return True
        case s.Compare():
            return node.operator != "!="
        case _:
            return False


# ---- texts with holes


def parameter_in_text(scope: Scope, left: str, operator: str, right: ir.Const) -> bool:
    """Warns of `is "web-$pool"`, where no value is put in; False without a parameter in it."""
    text = str(right.value)
    found = [one for one in _DOLLAR.finditer(text) if one[1] in scope.params]
    if not found:
        return False
    whole = found[0][0] == text
    better = text if whole else f"join({', '.join(_parts(text, found, 0))})"
    help_ = f"write  {left} {operator} {better}"
    if operator == "like" and not whole:
        better, help_ = "", "a parameter may be the whole pattern:  like $PATTERN"
    elif operator == "is" and not whole:
        better, help_ = "", f"with `==` and `!=` it is  {left} == {better}"
    elif not whole:
        better = f"({better})"
        help_ = f"write  {left} {operator} {better}"
    scope.report(
        "P317",
        f"`{found[0][0]}` is a part of the text here: no value is put in",
        right.span,
        help_,
        fix=better or None,
        severity=_WARNING,
    )
    return True


def _parts(text: str, holes: list[re.Match[str]], group: int) -> list[str]:
    """Returns a text as arguments of `join`: what stands between the holes, in quotes, and they."""
    parts: list[str] = []
    at = 0
    for one in holes:
        parts.extend([quoted(text[at : one.start()])] if one.start() > at else [])
        parts.append(one[group])
        at = one.end()
    return [*parts, *([quoted(text[at:])] if at < len(text) else [])]


def quoted(text: str) -> str:
    """Returns a text as it is written in double quotes."""
    for sign, written in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\t", r"\t")):
        text = text.replace(sign, written)
    return f'"{text}"'


def not_empty(scope: Scope, left: ir.Read, right: ir.Const) -> None:
    """Warns of `pod.label[app] != ""`, which holds without the label, too."""
    text = left.field if left.key is None else f"{left.field}[{quoted_key(left.key)}]"
    scope.warn(
        "P317",
        f'this holds without `{text}`, too: what is missing is not ""',
        right.span,
        f"write  {text} is present",
        f'for a value that is not empty write  ({text} ?? "") != ""',
    )


def same_of_pod(left: Typed, word: str) -> str:
    """Returns `pod.namespace` for the word in `it.namespace == namespace`; "" for other words."""
    if not isinstance(left, ir.Read) or not left.field.endswith(f".{word}"):
        return ""
    field = f"pod.{word}"
    return field if field in FIELDS and left.field != field and not FIELDS[field].keyed else ""


def _known(scope: Scope, inside: str) -> bool:
    """Whether something of this name has a value."""
    if inside.startswith("$"):
        return inside[1:] in scope.params
    name, bracket, _ = inside.partition("[")
    if name in FIELDS:
        return FIELDS[name].keyed == bool(bracket)
    return not bracket and name in scope.names()


def holes_in_value(scope: Scope, key: str, node: s.Expr) -> None:
    """Warns of `annotate k = "{node.name}"`: only messages and events have holes."""
    if not isinstance(node, s.Text):
        return
    found = [one for one in _BRACED.finditer(node.value) if _known(scope, one[1])]
    if not found:
        return
    whole = found[0][1] if found[0][0] == node.value else ""
    better = whole or f"join({', '.join(_parts(node.value, found, 1))})"
    scope.report(
        "P317",
        f"`{found[0][0]}` is written to `{key}` as it stands: only messages and events have holes",
        node.span,
        f"write  {key} = {better}",
        fix=better,
        severity=_WARNING,
    )


def holes_of_others(scope: Scope, span: Span) -> None:
    """Warns of `message "need $pool"` and `"{{limit}}"`, which other languages fill in."""
    written = scope.source.slice(span)
    masked = _HOLE.sub(lambda one: " " * len(one[0]), written)
    for one in _DOLLAR.finditer(masked):
        if one[1] in scope.params and masked[one.start() - 1 : one.start()] != "{":
            _filled(
                scope, Span(span.start + one.start(), span.start + one.end()), one[0], written[:1]
            )
    for one in _OF_SHELLS.finditer(written) if written[:1] == '"' else ():
        if _known(scope, one[1] or one[2]):
            place = Span(span.start + one.start(), span.start + one.end())
            _filled(scope, place, one[1] or one[2])
    for one in _TWICE.finditer(written) if written[:1] == '"' else ():
        if _known(scope, one[1]):
            _filled(scope, Span(span.start + one.start(), span.start + one.end()), one[1])


def _filled(scope: Scope, span: Span, inside: str, quote: str = '"') -> None:
    written = scope.source.slice(span)
    why = "two braces stand for one" if written.startswith("{{") else "no value is put in"
    why = "the sign `$` stays in front of the value" if written.startswith("${") else why
    scope.report(
        "P317",
        f"`{written}` is a part of the text here: {why}",
        span,
        f"write  {{{inside}}}" + ("" if quote == '"' else ", with the message in double quotes"),
        fix=f"{{{inside}}}" if quote == '"' else None,
        severity=_WARNING,
    )


# ---- metrics


def sometimes_stale(scope: Scope, node: s.MetricDecl, spec: MetricSpec) -> None:
    """Warns of a metric that goes stale before it is asked for again."""
    if spec.source not in ("promql", "usage") or spec.stale_seconds >= spec.every_seconds:
        return
    clauses = {one.name: one for one in node.clauses}
    guilty = clauses.get("metric_stale")
    if guilty is None:
        return
    every, stale, longer = (
        show(one, DURATION)
        for one in (spec.every_seconds, spec.stale_seconds, 2 * spec.every_seconds)
    )
    scope.warn(
        "P226",
        f"`{node.name}` is asked for every {every} and is stale after {stale}, so it is missing"
        " part of the time",
        guilty.span,
        f"write  stale {longer}   or longer"
        if "metric_every" in clauses
        else f"write  every {stale}   or less, too",
    )


def is_share(scope: Scope, node: ir.Metric) -> bool:
    """Whether a metric is declared in percent, so that 80 is read as 0.8."""
    entry = scope.metrics.get(node.name)
    clauses = entry.written.clauses if entry is not None and entry.written is not None else ()
    unit = next((one for one in clauses if one.name == "metric_unit"), None)
    return unit is not None and scope.text(unit).removeprefix("unit").strip() == "percent"
