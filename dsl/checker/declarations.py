"""`param` and `metric` lines: values of parameters, and what to ask Prometheus for."""

import hashlib
import re
from fractions import Fraction
from typing import Final, cast

from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.checker import meant
from dsl.checker.literals import constant, read_number, read_seconds, settle
from dsl.checker.scope import (
    RESERVED,
    Flex,
    MetricEntry,
    ParamEntry,
    ParamValue,
    Refused,
    Scope,
    Typed,
    closest,
    describe,
)
from dsl.diagnostics import Severity
from dsl.functions import exact_duration, number_text, parse_time, to_float
from dsl.plan import DOMAINS, MetricSpec
from dsl.schema import UNIT_WORDS, MetricDefinition, stale_by_default
from dsl.source import Span
from dsl.spelling import NOTHING
from dsl.types import (
    BOOL,
    BYTES,
    CORES,
    DURATION,
    PLAIN,
    TEXT,
    TEXTS,
    TIME,
    Kind,
    Type,
    Unit,
    number_of,
    scale_of,
    show,
)

#: The core group has no name; these are what it is called.
_SECRET: Final = frozenset({"/secrets", "core/secrets", "v1/secrets"})
_PARAM_IN_QUERY: Final = re.compile(r"\$(\$|[A-Za-z_]\w*|)")
_PERCENT: Final = 0.01
#: Labels that hold the name of a domain of nodes: `zone`, `topology_kubernetes_io_zone`.
_OF_DOMAIN: Final = re.compile(rf"(?:\w*_)?({'|'.join(DOMAINS)})")
_LEVELS: Final = ("cluster", "namespace", "workload", "pod")
#: Names are unique within a namespace, so the label of that may be written, too.
_NAMED: Final = ("workload", "pod")
_PAIR: Final = 2
_USAGE: Final = {"cpu": CORES, "memory": BYTES}
#: Words of others for a unit, and for parts and multiples of one.
_SAME_UNITS: Final = {
    **dict.fromkeys(("b", "byte"), "bytes"),
    **dict.fromkeys(("s", "sec", "secs", "second"), "seconds"),
    **dict.fromkeys(("core", "cpu", "cpus"), "cores"),
    **dict.fromkeys(("%", "percentage"), "percent"),
}
_OTHER_UNITS: Final = {
    **dict.fromkeys(("kb", "mb", "gb", "tb"), "bytes"),
    **dict.fromkeys(("kib", "mib", "gib", "tib", "ki", "mi", "gi"), "bytes"),
    **dict.fromkeys(("ms", "milliseconds", "minutes", "hours"), "seconds"),
    **dict.fromkeys(("m", "millicores"), "cores"),
}


def declare_name(scope: Scope, name: str, span: Span) -> None:
    """Refuses a name that is reserved or already taken in this file."""
    if name in RESERVED:
        scope.broken.add(name)
        raise scope.refuse(
            "P103", f"`{name}` is a word of the language", span, f"call it for example {name}_value"
        )
    if name in scope.lets or name in scope.params or name in scope.metrics:
        scope.broken.add(name)
        raise scope.refuse(
            "P109",
            f"`{name}` is declared twice",
            span,
            "params, lets and metrics share their names: remove one, or give it another name",
        )


# ---- parameters


def declare_param(scope: Scope, node: s.ParamDecl, given: ParamValue | None) -> None:
    """Declares a parameter; its value is the configured one, else the default."""
    declare_name(scope, node.name, node.name_span)
    entry = ParamEntry(node, None)
    scope.params[node.name] = entry
    if node.default is None and given is None:
        raise scope.refuse(
            "P104",
            f"the parameter `{node.name}` has no value",
            node.name_span,
            "give it one in the configuration, or a default:  "
            f"param {node.name}: {node.kind or 'string'} = VALUE",
        )
    if given is not None:
        written = _given(node, given)
        entry.value = _param_value(scope, node, written)
    elif node.default is not None:
        entry.value = _param_value(scope, node, node.default)
    _check_bounds(scope, node, entry)


def _given(node: s.ParamDecl, given: ParamValue) -> s.Text | s.Word | s.Words:
    span = node.name_span
    if isinstance(given, tuple | list):
        return s.Words(span, tuple(s.Text(span, str(one)) for one in given))
    if isinstance(given, bool):
        return s.Text(span, "true" if given else "false")
    # Without a type it is read as the default is: bare, unless that is in quotes.
    bare = isinstance(given, int | float) or not isinstance(node.default, s.Text)
    return s.Word(span, str(given)) if bare else s.Text(span, str(given))


def _text_of(scope: Scope, node: s.Expr) -> str:
    match node:
        case s.Word() | s.Text():
            return node.value
        case s.Percent():
            return node.text
        case _:
            raise scope.refuse(
                "P111", "the value of a parameter is a plain word, number or text", node.span
            )


def _param_value(scope: Scope, node: s.ParamDecl, written: s.Expr) -> Typed:
    if node.is_list or isinstance(written, s.Words):
        return _param_list(scope, node, written)
    text = _text_of(scope, written)
    kind = node.kind
    if not kind:
        quoted = isinstance(written, s.Text)
        number = None if quoted else read_number(text, written.span)
        return number if number is not None else constant(written.span, text, TEXT)
    return _typed_value(scope, kind, text, written)


def _typed_value(scope: Scope, kind: str, text: str, written: s.Expr) -> Typed:
    span = written.span
    if kind == "string":
        return constant(span, text, TEXT)
    if kind in ("number", "quantity"):
        number = read_number(text, span)
        # A number keeps no unit; a quantity may bring one.
        if isinstance(number, Flex) or (number is not None and kind == "quantity"):
            return number
    elif kind == "duration":
        seconds = exact_duration(text)
        if seconds is not None:
            return constant(span, to_float(seconds), DURATION)
    elif kind == "bool" and text in ("true", "false"):
        return constant(span, text == "true", BOOL)
    elif kind == "time":
        moment = parse_time(text)
        if moment == moment:
            return constant(span, moment, TIME)
    hints = {
        "duration": "write for example 30s, 5m or 1h",
        "time": 'write for example "2025-03-01T10:00:00Z"',
        "bool": "write true or false",
    }
    raise scope.refuse(
        "P111", f"`{text}` is not a {kind}", span, *([hints[kind]] if kind in hints else [])
    )


def _param_list(scope: Scope, node: s.ParamDecl, written: s.Expr) -> Typed:
    if not isinstance(written, s.Words):
        raise scope.refuse("P111", f"`{node.name}` is a list", written.span, "write [a, b]")
    if node.kind and not node.is_list:
        raise scope.refuse("P111", f"`{node.name}` is a {node.kind}, not a list", written.span)
    texts = [_text_of(scope, one) for one in written.items]
    if node.kind in ("", "string"):
        return constant(written.span, tuple(texts), TEXTS)
    numbers: list[float] = []
    units = set()
    for text, item in zip(texts, written.items, strict=True):
        value = _typed_value(scope, node.kind, text, item)
        if isinstance(value, Flex) and value.sort == "milli" and value.exact is not None:
            raise _milli_in_list(scope, node, value)
        solid = settle(scope, value, PLAIN)
        if not isinstance(solid, ir.Const) or not isinstance(solid.value, float):
            what = f"there is no list of {node.kind}"
            help_ = "a list is of string, number, quantity, duration or time"
            raise scope.refuse("P111", what, item.span, help_)
        numbers.append(solid.value)
        units.add(solid.type.unit)
    unit = units.pop() if len(units) == 1 else None
    return constant(written.span, tuple(numbers), Type(Kind.LIST, unit, Kind.NUMBER))


def _milli_in_list(scope: Scope, node: s.ParamDecl, value: Flex) -> Refused:
    """Refuses `[500m, 3]`, whose values are read before it is known what they are compared with."""
    plain = number_text(to_float(value.exact or Fraction(0)))
    return scope.refuse(
        "P206",
        f"`{value.text}` is minutes or thousandths, and a `list of {node.kind}` does not say which",
        value.span,
        f"for cores write  {plain}",
        f"for minutes write  param {node.name}: list of duration",
        "a list is of string, number, quantity, duration or time",
        fix=plain,
    )


def _check_bounds(scope: Scope, node: s.ParamDecl, entry: ParamEntry) -> None:
    value = entry.value
    if value is None:
        return
    span = node.default.span if node.default is not None else node.name_span
    if node.bounds is not None:
        low, high = (
            _typed_value(scope, node.kind or "number", _text_of(scope, one), one)
            for one in node.bounds
        )
        sizes = [_size(one) for one in (low, value, high)]
        if any(one is None for one in sizes):
            raise scope.refuse("P111", "`from ... to` is for numbers and durations", node.span)
        floor, size, ceiling = (one or 0.0 for one in sizes)
        if not floor <= size <= ceiling:
            bounds = [scope.text(one) for one in node.bounds]
            raise scope.refuse(
                "P111",
                f"the value of `{node.name}` is not from {bounds[0]} to {bounds[1]}",
                span,
            )
    if node.choices is not None:
        texts = [_text_of(scope, one) for one in node.choices.items]
        text = value.text if isinstance(value, Flex) else _shown(value)
        allowed = [_worth(_param_value(scope, node, one)) for one in node.choices.items]
        if text not in texts and _worth(value) not in allowed:
            near = closest(text, texts)
            raise scope.refuse(
                "P111",
                f"`{node.name}` may not be `{text}`",
                span,
                *([f"did you mean `{near}`?"] if near else []),
                f"it is one of {', '.join(texts)}",
            )


def _worth(value: Typed) -> object:
    """Returns what makes two values equal, however they are written: `60s` is `1m`."""
    if isinstance(value, Flex):
        return value.exact
    return value.value if isinstance(value, ir.Const) else None


def _size(value: Typed) -> float | None:
    if isinstance(value, Flex):
        return None if value.exact is None else to_float(value.exact)
    if isinstance(value, ir.Const) and isinstance(value.value, float):
        return value.value
    return None


def _shown(value: ir.Expr) -> str:
    if isinstance(value, ir.Const):
        return value.value if isinstance(value.value, str) else show(value.value, value.type)
    return ""


# ---- metrics


def metric_spec(name: str, definition: MetricDefinition) -> MetricSpec:
    """Returns a metric ready to be asked for; equal sources have equal ids."""
    unit = _unit_word(definition)
    source = (
        definition.query,
        definition.by or "",
        repr(definition.every_seconds),
        repr(definition.stale_seconds),
        unit,
        str(definition.percent),
    )
    digest = hashlib.sha256("\0".join(source).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    words = tuple(map(str.strip, definition.by.split(","))) if definition.by else ()
    of, keys = owner_of(words)
    spec = MetricSpec(
        id=f"promql:{digest}",
        name=name,
        query=definition.query,
        by=definition.by if of == "node" else None,
        every_seconds=definition.every_seconds,
        stale_seconds=definition.stale_seconds,
        default=definition.default,
        unit=unit,
        scale=scale_of(definition.unit) * (_PERCENT if definition.percent else 1.0),
    )
    return spec if of == "node" else _other_spec(spec, "promql", of, keys)


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


def _unit_word(definition: MetricDefinition) -> str:
    unit = definition.unit
    words = {"bytes": unit.byte, "cores": unit.core}
    word = next((one for one, power in words.items() if power == 1), "")
    if unit.second == -1:
        return f"{word}/s"
    return "seconds" if unit.second == 1 else word


def declare_metric(scope: Scope, node: s.MetricDecl) -> None:
    """Declares a metric of the file."""
    declare_name(scope, node.name, node.name_span)
    entry = MetricEntry(node.name, None, PLAIN, node)
    scope.metrics[node.name] = entry
    clauses: dict[str, s.Clause] = {}
    for clause in node.clauses:
        if clause.name in clauses:
            word = clause.name.removeprefix("metric_")
            raise scope.refuse("P109", f"`{word}` is given twice", clause.span)
        clauses[clause.name] = clause
    unit, percent = _unit(scope, clauses.get("metric_unit"))
    source = node.source.removeprefix("from_")
    if source == "usage":
        unit, percent = _usage_unit(scope, node, clauses.get("metric_unit")), False
    entry.unit = unit
    words = _by(scope, clauses.get("metric_by"))
    of, keys = owner_of(words)
    every, stale = _times(scope, clauses)
    definition = MetricDefinition(
        query=_source_text(scope, node),
        by=", ".join(words) or None if source == "promql" else None,
        every_seconds=every,
        stale_seconds=stale,
        default=_default(scope, clauses.get("metric_default"), unit),
        unit=unit,
        percent=percent,
    )
    spec = metric_spec(node.name, definition)
    if source != "promql":
        _fits_source(scope, node, of)
        spec = _other_spec(spec, source, of, keys)
    entry.spec = spec
    meant.sometimes_stale(scope, node, entry.spec)


def _times(scope: Scope, clauses: dict[str, s.Clause]) -> tuple[float, float]:
    """Reads `every` and `stale`; what is wrong with both is told of both."""
    refused: Refused | None = None
    every = 15.0
    try:
        every = _seconds(scope, clauses.get("metric_every"), "every", every)
    except Refused as stop:
        refused = stop
    stale = _seconds(scope, clauses.get("metric_stale"), "stale", stale_by_default(every))
    if refused is not None:
        raise refused
    return every, stale


def _source_text(scope: Scope, node: s.MetricDecl) -> str:
    """Returns the query, the key, `cpu` or `memory`, or the kind of object and its field."""
    texts = []
    for one in node.arguments:
        if node.source == "promql" and isinstance(one, s.Text):
            texts.append(_query(scope, one))
        elif isinstance(one, s.Param):
            texts.append(_param_text(scope, one))
        else:
            texts.append(_text_of(scope, one))
    if node.source == "from_object" and texts[0].count("/") != 1:
        raise scope.refuse(
            "P111",
            f"`{texts[0]}` is not a kind of objects",
            node.arguments[0].span,
            'write the group and the plural:  object "apps/deployments" field "spec.replicas"',
        )
    if node.source == "from_object" and texts[0] in _SECRET:
        raise scope.refuse(
            "P111",
            "Secrets are read by no policy: messages and annotations would tell what is in them",
            node.arguments[0].span,
            "put what rules may know into a ConfigMap or a label",
        )
    return "#".join(texts)


def _param_text(scope: Scope, node: s.Param) -> str:
    entry = scope.params.get(node.name)
    if entry is None or entry.value is None:
        if entry is not None or node.name in scope.broken:
            raise Refused
        near = closest(node.name, scope.params)
        raise scope.refuse(
            "P105",
            f"there is no parameter `${node.name}`",
            node.span,
            *([f"did you mean `${near}`?"] if near else []),
            fix=f"${near}" if near else None,
        )
    value = entry.value
    if isinstance(value, Flex):
        return value.text
    if isinstance(value, ir.Const) and isinstance(value.value, str):
        return value.value
    raise scope.refuse("P201", f"a key is a text, not {describe(value)}", node.span)


def _usage_unit(scope: Scope, node: s.MetricDecl, clause: s.Clause | None) -> Unit:
    word = _text_of(scope, node.arguments[0])
    unit = _USAGE.get(word)
    if unit is None:
        near = closest(word, _USAGE)
        raise scope.refuse(
            "P111",
            f"there is no usage of `{word}`",
            node.arguments[0].span,
            f"did you mean {near}?" if near else "write  usage cpu   or   usage memory",
        )
    if clause is not None:
        raise scope.refuse("P209", f"the usage of {word} is in {unit}", clause.span)
    return unit


def _by(scope: Scope, clause: s.Clause | None) -> tuple[str, ...]:
    """Returns the words behind `by`."""
    if clause is None:
        return ()
    words = tuple(one.value for one in clause.values if isinstance(one, s.Word))
    if len(words) > _PAIR:
        raise scope.refuse("P209", "`by` takes one label, or the two of a pair", clause.span)
    return words


def _fits_source(scope: Scope, node: s.MetricDecl, of: str) -> None:
    """Refuses clauses that a source has no use for."""
    wrong = {
        "from_annotation": ("metric_by", "metric_every"),
        "from_object": ("metric_every",),
    }.get(node.source, ())
    for clause in node.clauses:
        word = clause.name.removeprefix("metric_")
        if clause.name in wrong:
            reason = "is read from the node" if word == "by" else "is known at once"
            raise scope.refuse(
                "P209", f"a metric from an {node.source[5:]} {reason}; drop `{word}`", clause.span
            )
        if node.source == "from_object" and word == "stale":
            scope.report(
                "P226",
                "an object is known at once and never stale, so this says nothing",
                clause.span,
                "leave it out",
                severity=Severity.WARNING,
            )
    if node.source == "from_usage" and of not in ("node", "pod"):
        raise scope.refuse("P209", "there is usage of nodes and of pods", node.span)
    if node.source == "from_object" and of in DOMAINS:
        raise scope.refuse(
            "P209",
            f"an object is found by its name, and none is that of a {of}",
            next(one.span for one in node.clauses if one.name == "metric_by"),
            "write  by name   for objects that are named like nodes",
        )


def _other_spec(spec: MetricSpec, source: str, of: str, keys: tuple[str, ...]) -> MetricSpec:
    """Returns the spec of a metric that is not one of Prometheus by node."""
    if source == "annotation":
        # The key stands last, as it may hold anything.
        name = f"annotation:{spec.stale_seconds!r}:{spec.scale!r}:{spec.query}"
    else:
        digest = hashlib.sha256("\0".join((spec.id, of, *keys)).encode()).hexdigest()[:12]
        name = f"{source}:{of}:{digest}"
    return replace(spec, id=name, source=source, of=of, keys=keys)


def _seconds(scope: Scope, clause: s.Clause | None, word: str, otherwise: float) -> float:
    if clause is None:
        return otherwise
    seconds = read_seconds(scope, clause.values[0], word)
    if seconds <= 0:
        raise scope.refuse("P111", f"`{word}` must be longer than nothing", clause.span)
    return seconds


def _default(scope: Scope, clause: s.Clause | None, unit: Unit) -> float | None:
    if clause is None:
        return None
    written = clause.values[0]
    if isinstance(written, s.Template):
        raise Refused
    text = _text_of(scope, written)
    number = read_number(text, written.span)
    if number is None:
        none = text.lower() in NOTHING
        help_ = "leave it out: without a sample the value is missing then" if none else ""
        what = f"`{text}` is not a number"
        raise scope.refuse("P111", what, written.span, *([help_] if none else []))
    solid = settle(scope, number, unit)
    if solid.type != number_of(unit) or not isinstance(solid, ir.Const):
        raise scope.refuse("P203", f"the default of this metric is in {unit}", written.span)
    assert isinstance(solid.value, float)
    return solid.value


def _unit(scope: Scope, clause: s.Clause | None) -> tuple[Unit, bool]:
    if clause is None:
        return PLAIN, False
    word = scope.text(clause).removeprefix("unit").strip()
    base, _, per = word.partition("/")
    if per and per != "s":
        raise scope.refuse(
            "P203", f"a metric may be per second, not per `{per}`", clause.span, f"write {base}/s"
        )
    unit = UNIT_WORDS.get(base)
    if unit is not None:
        return unit.times(Unit(second=1), -1) if per else unit, base == "percent"
    scaled = _OTHER_UNITS.get(base.lower())
    near = scaled or _SAME_UNITS.get(base.lower()) or closest(base, UNIT_WORDS)
    if near is not None:
        hint = f"write unit {near}" + ("/s" if per else "")
        if scaled:
            hint += ", and multiply in the query"
        raise scope.refuse("P203", f"`{word}` is not a unit", clause.span, hint)
    return (PLAIN.times(Unit(second=1), -1) if per else PLAIN), False


def _query(scope: Scope, query: s.Text) -> str:
    def put_in(found: re.Match[str]) -> str:
        name = found.group(1)
        if name == "$":
            return "$"
        entry = scope.params.get(name)
        if entry is None:
            if name in scope.broken:
                return ""
            near = closest(name, scope.params)
            hint = f"did you mean `${near}`?" if near else "a dollar itself is written $$"
            raise scope.refuse("P105", f"there is no parameter `${name}`", query.span, hint)
        if entry.value is None:
            raise Refused
        return _quoted(scope, entry.value, query.span)

    return _PARAM_IN_QUERY.sub(put_in, query.value)


def _quoted(scope: Scope, value: Typed, span: Span) -> str:
    if isinstance(value, Flex):
        return number_text(to_float(cast("Fraction", value.exact)))
    assert isinstance(value, ir.Const)
    plain = value.value
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, str):
        return (
            plain.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'").replace("\n", "\\n")
        )
    if isinstance(plain, float):
        if value.type == DURATION:
            return _promql_duration(plain)
        return number_text(plain)
    if value.type.element is Kind.TEXT:
        return "|".join(re.escape(str(one)) for one in plain)
    raise scope.refuse("P105", "a list of numbers cannot stand in a query", span)


def _promql_duration(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    words = []
    for name, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            words.append(f"{count}{name}")
    return "".join(words) or "0s"
