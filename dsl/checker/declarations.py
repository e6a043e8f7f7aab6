"""What a file declares: names, `param` lines and their values, and `metric` lines."""

import hashlib
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final, cast

from dsl import ir
from dsl import syntax as s
from dsl import types as t
from dsl.checker.literals import read_number, read_seconds, read_value, settle
from dsl.checker.names import fixed_text
from dsl.checker.scope import (
    RESERVED,
    Flex,
    MetricEntry,
    ParamValue,
    Refused,
    Scope,
    Typed,
    attempt,
)
from dsl.checker.typer import Typer
from dsl.making import constant
from dsl.nearest import called, closest
from dsl.plan import DOMAINS, OF_NODES, MetricSpec
from dsl.quantities import to_float
from dsl.schema import UNIT_WORDS, MetricDefinition, stale_by_default
from dsl.source import MAX_DEPTH, Span


def declare_name(scope: Scope, name: str, span: Span) -> None:
    """Refuses a name that is reserved or already taken in this file."""
    if name in RESERVED:
        scope.broken.add(name)
        message = f"`{name}` is a word of the language"
        raise scope.refuse("P103", message, span, f"call it for example {name}_value")
    if name in scope.lets or name in scope.params or name in scope.metrics:
        scope.broken.add(name)
        help_ = "params, lets and metrics share their names"
        raise scope.refuse("P109", f"`{name}` is declared twice", span, help_)


def declare_param(scope: Scope, node: s.ParamDecl, given: ParamValue | None) -> None:
    """Declares a parameter; its value is the configured one, else the default."""
    declare_name(scope, node.name, node.name_span)
    scope.params[node.name] = None
    if node.default is None and given is None:
        message = f"the parameter `{node.name}` has no value"
        help_ = f"give it a default:  param {node.name}: {node.kind or 'string'} = VALUE"
        raise scope.refuse("P104", message, node.name_span, help_)
    written = node.default if given is None else _given(node, given)
    assert written is not None
    scope.params[node.name] = value = _param_value(scope, node, written)
    span = node.default.span if node.default is not None else node.name_span
    if node.bounds is not None:
        kind = node.kind or "number"
        sizes = [_worth(_typed_value(scope, kind, one)) for one in node.bounds]
        floor, size, ceiling = sizes[0], _worth(value), sizes[1]
        if not all(isinstance(one, float | Fraction) for one in (floor, size, ceiling)):
            raise scope.refuse("P111", "`from ... to` is for numbers and durations", node)
        if not floor <= size <= ceiling:
            low, high = (scope.text(one) for one in node.bounds)
            message = f"the value of `{node.name}` is not from {low} to {high}"
            raise scope.refuse("P111", message, span)
    if node.choices is not None:
        allowed = [_worth(_param_value(scope, node, one)) for one in node.choices.items]
        texts = [text_of(scope, one) for one in node.choices.items]
        if _worth(value) not in allowed and not (isinstance(value, Flex) and value.text in texts):
            message = f"the value of `{node.name}` is none of its choices"
            raise scope.refuse("P111", message, span, f"it is one of {', '.join(texts)}")


def _given(node: s.ParamDecl, given: ParamValue) -> s.Text | s.Word | s.Words:
    span = node.name_span
    if isinstance(given, tuple | list):
        return s.Words(span, tuple(s.Text(span, str(one)) for one in given))
    if isinstance(given, bool):
        return s.Text(span, "true" if given else "false")
    # Without a type it is read as the default is: bare, unless that is in quotes.
    bare = isinstance(given, int | float) or not isinstance(node.default, s.Text)
    return s.Word(span, str(given)) if bare else s.Text(span, str(given))


def text_of(scope: Scope, node: s.Expr) -> str:
    """Returns a value as it is written, without quotes."""
    match node:
        case s.Word() | s.Text():
            return node.value
        case s.Percent():
            return node.text
        case _:
            message = "the value of a parameter is a plain word, number or text"
            raise scope.refuse("P111", message, node)


def _param_value(scope: Scope, node: s.ParamDecl, written: s.Expr) -> Typed:
    span = written.span
    if not isinstance(written, s.Words):
        if node.is_list:
            raise scope.refuse("P111", f"`{node.name}` is a list", span, "write [a, b]")
        kind = node.kind or ("string" if isinstance(written, s.Text) else "")
        return _typed_value(scope, kind, written)
    if node.kind and not node.is_list:
        raise scope.refuse("P111", f"`{node.name}` is a {node.kind}, not a list", span)
    if node.kind in ("", "string"):
        return constant(span, tuple(text_of(scope, one) for one in written.items), t.TEXTS)
    numbers: list[float] = []
    units = set()
    for item in written.items:
        solid = settle(scope, _typed_value(scope, node.kind, item), t.PLAIN)
        if not isinstance(solid, ir.Const) or not isinstance(solid.value, float):
            help_ = "a list is of string, number, quantity, duration or time"
            raise scope.refuse("P111", f"there is no list of {node.kind}", item, help_)
        numbers.append(solid.value)
        units.add(solid.type.unit)
    unit = units.pop() if len(units) == 1 else None
    return constant(span, tuple(numbers), t.Type(t.Kind.LIST, unit, t.Kind.NUMBER))


def _typed_value(scope: Scope, kind: str, written: s.Expr) -> Typed:
    text, span = text_of(scope, written), written.span
    value = read_value(kind, text, span)
    if value is None:
        examples = {"duration": "30s, 5m or 1h", "time": '"2025-03-01T10:00:00Z"', "bool": "true"}
        helps = (f"write for example {examples[kind]}",) if kind in examples else ()
        raise scope.refuse("P111", f"`{text}` is not a {kind}", span, *helps)
    return value


def _worth(value: Typed) -> Any:  # noqa: ANN401 - whatever a parameter may be
    """Returns what makes two values equal, however they are written: `60s` is `1m`."""
    return value.exact if isinstance(value, Flex) else getattr(value, "value", None)


#: The core group has no name; these are what it is called.
_SECRET: Final = frozenset({"/secrets", "core/secrets", "v1/secrets"})
_PARAM_IN_QUERY: Final = re.compile(r"\$(\$|[A-Za-z_]\w*|)")
_EVERY: Final = 15.0
_PERCENT: Final = 0.01
#: Labels that hold the name of a domain of nodes: `zone`, `topology_kubernetes_io_zone`.
_OF_DOMAIN: Final = re.compile(rf"(?:\w*_)?({'|'.join(DOMAINS)})")
_LEVELS: Final = ("cluster", "namespace", "workload", "pod")
#: Names are unique within a namespace, so the label of that may be written, too.
_NAMED: Final = ("workload", "pod")
_PAIR: Final = 2
#: Labels that name the node where there is no `by`.
_NODE_LABELS: Final = ("node", "instance", "kubernetes_node")
#: Characters of a query that is looked into.
_MAX_QUERY: Final = 4096
_QUOTED: Final = re.compile(r"'(?:\\.|[^'])*'|\"(?:\\.|[^\"])*\"|`[^`]*`|#.*")
_BY: Final = re.compile(r"\bby\s*\(([^()]*)\)")
#: What stands in parentheses that hold no others, and in front of it.
_INNER: Final = re.compile(r"(?<!\w)(\w*+) ?(by\[[^][]*+\])? ?\(([^()]*+)\) ?(by\[[^][]*+\])?")
#: What makes one series of several.
_SUMS: Final = (
    "sum", "avg", "min", "max", "count", "stddev", "stdvar", "quantile", "group",
)  # fmt: skip
_NO_CLAUSES: Final = {
    "from_annotation": ("metric_by", "metric_every"),
    "from_object": ("metric_every",),
}
_USAGE: Final = {"cpu": t.CORES, "memory": t.BYTES}
#: Words of others for a unit.
_SAME_UNITS: Final = called(
    {"bytes": "b byte kb mb gb kib mib gib", "seconds": "s sec second ms minutes hours",
     "cores": "core cpu cpus m millicores", "percent": "% percentage"}
)  # fmt: skip


def find_metric(scope: Scope, name: str) -> MetricEntry | None:
    """Returns a metric of the file, the configuration or the catalogue, which is read then."""
    entry = scope.metrics.get(name)
    if entry is None and name in scope.catalogue:
        definition = scope.catalogue[name]
        entry = MetricEntry(name, metric_spec(name, definition), definition.unit)
        scope.metrics[name] = entry
    if entry is not None and entry.spec is not None:
        scope.used[name] = entry.spec
    return entry


def metric_spec(
    name: str, definition: MetricDefinition, source: str = "promql", words: tuple[str, ...] = ()
) -> MetricSpec:
    """Returns a metric ready to be asked for; equal sources have equal ids.

    `words` say whose values they are; of a query its definition does.
    """
    unit, by = _unit_word(definition.unit), definition.by
    words = tuple(map(str.strip, by.split(","))) if by else words
    of, keys = owner_of(words)
    scale = t.scale_of(definition.unit) * (_PERCENT if definition.percent else 1.0)
    if source == "annotation":
        # The key stands last, as it may hold anything.
        id_ = f"annotation:{definition.stale_seconds!r}:{scale!r}:{definition.query}"
    else:
        every, stale = definition.every_seconds, definition.stale_seconds
        facts = (definition.query, by, every, stale, unit, definition.percent, of, *keys)
        digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
        id_ = f"{source}:{of}:{digest}"
    return MetricSpec(
        id=id_,
        name=name,
        query=definition.query,
        by=by if of == "node" else None,
        every_seconds=definition.every_seconds,
        stale_seconds=definition.stale_seconds,
        default=definition.default,
        unit=unit,
        scale=scale,
        source=source,
        of=of,
        keys=() if by is not None and of == "node" else keys,
    )


def owner_of(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Returns whose values a metric `by` these words has, and the labels that say whose one is."""
    if not words:
        return "node", ()
    if len(words) == _PAIR:
        return words[1] if words[0] == "namespace" and words[1] in _NAMED else "pair", words
    domain = _OF_DOMAIN.fullmatch(words[0])
    if domain is not None:
        return domain[1], words
    return words[0] if words[0] in _LEVELS else "node", words


def _unit_word(unit: t.Unit) -> str:
    word = "bytes" if unit.byte == 1 else "cores" if unit.core == 1 else ""
    return f"{word}/s" if unit.second == -1 else "seconds" if unit.second == 1 else word


def declare_metric(typer: Typer, node: s.MetricDecl) -> None:
    """Declares a metric of the file."""
    declare_name(typer, node.name, node.name_span)
    entry = MetricEntry(node.name, None, t.PLAIN)
    typer.metrics[node.name] = entry
    clauses: dict[str, s.Clause] = typer.clauses(node.clauses)
    source = node.source.removeprefix("from_")
    unit, percent = _unit(typer, clauses.get("metric_unit"))
    texts = _texts(typer, node)
    if source == "usage":
        if texts[0] not in _USAGE:
            message = f"there is no usage of `{texts[0]}`"
            help_ = "write  usage cpu   or   usage memory"
            raise typer.refuse("P111", message, node.arguments[0], help_)
        unit, percent = _USAGE[texts[0]], False
        if "metric_unit" in clauses:
            message = f"the usage of {texts[0]} is in {unit}"
            raise typer.refuse("P209", message, clauses["metric_unit"])
    entry.unit = unit
    by = clauses.get("metric_by")
    words = tuple(one.value for one in by.values) if by is not None else ()
    if by is not None and len(words) > _PAIR:
        raise typer.refuse("P209", "`by` takes one label, or the two of a pair", by)
    for word in by.values if by is not None else ():
        near = word.value.lower().removesuffix("s")
        known = near != word.value and near in (*OF_NODES, *_LEVELS)
        if known and not re.search(rf"\b{word.value}\b", texts[0]):
            message = f"`{word.value}` is the name of a label here, and says nothing of a {near}"
            typer.warn("P317", message, word, fix=near)
    # What is wrong with both is told of both.
    every = attempt(_seconds, typer, clauses.get("metric_every"), "every", _EVERY)
    longest = stale_by_default(every or _EVERY)
    stale = _seconds(typer, clauses.get("metric_stale"), "stale", longest)
    if every is None:
        raise Refused
    definition = MetricDefinition(
        query="#".join(texts),
        by=", ".join(words) or None if source == "promql" else None,
        every_seconds=every,
        stale_seconds=stale,
        default=_default(typer, clauses.get("metric_default"), unit, percent=percent),
        unit=unit,
        percent=percent,
    )
    _fits_source(typer, node, clauses, texts[0], owner_of(words)[0])
    if source == "promql" and len(texts[0]) <= _MAX_QUERY:
        _odd_query(typer, node.arguments[0], texts[0], words)
    entry.spec = metric_spec(node.name, definition, source, words)
    guilty = clauses.get("metric_stale")
    if guilty is not None and source in ("promql", "usage") and stale < every:
        message = f"`{node.name}` is stale before it is asked for again: it is missing in between"
        typer.warn("P226", message, guilty, f"write  stale {t.show(2 * every, t.DURATION)}")


_COUNTER: Final = re.compile(r"\b\w+_(?:bytes|octets|packets|requests|seconds)_total\b")
_OVER_TIME: Final = re.compile(r"rate|increase|delta|deriv|changes|resets|absent|count|time")


def _kept(found: re.Match[str]) -> str:
    """Returns of a sum the labels that it keeps, of all else what stands in it."""
    return found[2] or found[4] or "by[]" if found[1] in _SUMS else f" {found[3]} "


def _odd_query(scope: Scope, place: s.Expr, query: str, words: tuple[str, ...]) -> None:
    """Warns of a counter as it is, and of `sum by (namespace) (x)` by node: none names a node."""
    counter = _COUNTER.search(query)
    if counter is not None and _OVER_TIME.search(query) is None:
        message = f"`{counter[0]}` only grows: it tells what has been, not what is now"
        scope.warn("P317", message, place, f"write  rate({counter[0]}[5m])")
    bare, labels = _QUOTED.sub("", query), words or _NODE_LABELS
    bare = _BY.sub(r"by[\1]", bare)
    for _ in range(MAX_DEPTH):
        bare = _INNER.sub(_kept, " ".join(bare.split()))
    rest = re.sub(r"by\[[^][]*\]", "", bare)
    kept = any(one.endswith(labels) for one in re.findall(r"\w+", bare))
    if rest == bare or re.search(r"[A-Za-z_(]", rest) or words == ("cluster",) or kept:
        return
    message = f"this query drops the label `{labels[0]}`: no series says whose value it is"
    scope.warn("P228", message, place, f"write  max by ({labels[0]}) (...)")


def _texts(typer: Typer, node: s.MetricDecl) -> list[str]:
    """Returns the query, the key, `cpu` or `memory`, or the kind of object and its field."""
    return [
        _query(typer, one)
        if node.source == "promql" and isinstance(one, s.Text)
        else fixed_text(typer, one)
        for one in node.arguments
    ]


def _fits_source(
    scope: Scope, node: s.MetricDecl, clauses: Mapping[str, s.Clause], kind: str, of: str
) -> None:
    """Refuses what a source does not have, and clauses that it has no use for."""
    for name in _NO_CLAUSES.get(node.source, ()):
        if name in clauses:
            message = f"a metric from an {node.source[5:]} has no `{name.removeprefix('metric_')}`"
            raise scope.refuse("P209", message, clauses[name], "leave it out")
    if node.source == "from_usage" and of not in ("node", "pod"):
        raise scope.refuse("P209", "there is usage of nodes and of pods", node)
    if node.source != "from_object":
        return
    if kind.count("/") != 1:
        message = f"`{kind}` is not a kind of objects"
        help_ = 'write the group and the plural:  object "apps/deployments" field "spec.replicas"'
        raise scope.refuse("P111", message, node.arguments[0], help_)
    if kind in _SECRET:
        message = (
            "Secrets are read by no policy: messages and annotations would tell what is in them"
        )
        help_ = "put what rules may know into a ConfigMap or a label"
        raise scope.refuse("P111", message, node.arguments[0], help_)
    if "metric_stale" in clauses:
        message = "an object is never stale, so this says nothing"
        scope.warn("P226", message, clauses["metric_stale"], "leave it out")
    if of in DOMAINS:
        message = f"an object is found by its name, and none is that of a {of}"
        raise scope.refuse("P209", message, clauses["metric_by"], "write  by name")


def _seconds(scope: Scope, clause: s.Clause | None, word: str, otherwise: float) -> float:
    if clause is None:
        return otherwise
    seconds = read_seconds(scope, clause.values[0], word)
    if seconds <= 0:
        raise scope.refuse("P111", f"`{word}` must be longer than nothing", clause)
    return seconds


def _default(scope: Scope, clause: s.Clause | None, unit: t.Unit, *, percent: bool) -> float | None:
    if clause is None:
        return None
    written = clause.values[0]
    text = text_of(scope, written)
    number = read_number(text, written.span)
    if number is None:
        help_ = "without `default` the value is missing where there is no sample"
        raise scope.refuse("P111", f"`{text}` is not a number", written, help_)
    solid = settle(scope, number, unit)
    if solid.type != t.number_of(unit) or not isinstance(solid, ir.Const):
        raise scope.refuse("P203", f"the default of this metric is in {unit}", written)
    assert isinstance(solid.value, float)
    if percent and isinstance(number, Flex) and number.sort == "plain" and solid.value > 1:
        message = f"the samples are shares from 0 to 1 here, and `{text}` is far above"
        scope.warn("P222", message, written, fix=f"{text}%")
    return solid.value


def _unit(scope: Scope, clause: s.Clause | None) -> tuple[t.Unit, bool]:
    """Returns the unit of a metric, and whether its samples are percentages."""
    word = scope.text(clause).removeprefix("unit").strip() if clause is not None else ""
    base, _, per = word.partition("/")
    if clause is not None and per not in ("", "s"):
        message = f"a metric may be per second, not per `{per}`"
        raise scope.refuse("P203", message, clause, f"write {base}/s")
    near = _SAME_UNITS.get(base.lower()) or closest(base, UNIT_WORDS)
    if clause is not None and base not in UNIT_WORDS and near is not None:
        help_ = f"write unit {near}{'/s' * bool(per)}, multiplied in the query where it is another"
        raise scope.refuse("P203", f"`{word}` is not a unit", clause, help_)
    unit = UNIT_WORDS.get(base, t.PLAIN)
    return unit.times(t.Unit(second=1), -1) if per else unit, base == "percent"


def _query(scope: Scope, query: s.Text) -> str:
    def put_in(found: re.Match[str]) -> str:
        name = found.group(1)
        if name == "$":
            return "$"
        if name not in scope.params and name not in scope.broken:
            message = f"there is no parameter `${name}`"
            raise scope.refuse("P105", message, query, "a dollar itself is written $$")
        value = scope.params.get(name)
        if value is None or name in scope.broken:
            raise Refused
        return _quoted(scope, value, query.span)

    if not query.value.strip():
        help_ = 'name a series, for example  promql "node_load1"'
        raise scope.refuse("P111", "this query is empty", query, help_)
    signs = re.sub(r"[^][(){}]", "", _QUOTED.sub("", query.value[:_MAX_QUERY]))
    while signs != (signs := re.sub(r"\(\)|\[\]|\{\}", "", signs)):
        pass
    # What a parameter puts in may hold the partner.
    if signs and "$" not in query.value and len(query.value) <= _MAX_QUERY:
        wrong = "is never closed" if signs[0] in "([{" else "closes nothing"
        raise scope.refuse("P111", f"in this query `{signs[0]}` {wrong}", query)
    return _PARAM_IN_QUERY.sub(put_in, query.value)


def _quoted(scope: Scope, value: Typed, span: Span) -> str:
    if isinstance(value, Flex):
        return t.number_text(to_float(cast("Fraction", value.exact)))
    assert isinstance(value, ir.Const)
    plain = value.value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, str):
        return re.sub(r"""[\\"']""", r"\\\g<0>", plain).replace("\n", "\\n")
    if isinstance(plain, float):
        if value.type != t.DURATION:
            return t.number_text(plain)
        # There are no fractions there.
        return t.show(plain, t.DURATION) if plain == int(plain) else f"{round(plain * 1000)}ms"
    if isinstance(plain, tuple) and value.type.element is t.Kind.TEXT:
        return "|".join(re.escape(str(one)) for one in plain)
    raise scope.refuse("P105", "a list of numbers cannot stand in a query", span)
