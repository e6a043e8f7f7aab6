"""What is said about names that are not there, and about values that mean something else.

Refuses and warns; decides no type. Warnings here are about texts that read well and never hold.
"""

import re
from typing import TYPE_CHECKING, Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import elsewhere, meant
from dsl.checker.never import OWNERS_OF_PARAMS
from dsl.checker.scope import RESERVED, Flex, Refused, Scope, Typed, closest, describe
from dsl.checker.texts import CONDITION, beside_flag, has_no_order
from dsl.diagnostics import Fix, Severity
from dsl.functions import FUNCTIONS
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.spelling import (
    ABSENT,
    AGGREGATES,
    NOTHING,
    THERE,
    call_for,
    closest_field,
    field_for,
    field_hint,
    quoted_key,
)
from dsl.types import Kind, Level, Type

if TYPE_CHECKING:
    from dsl.checker.expressions import Typer

_MAX_LISTED: Final = 9
_WARNING: Final = Severity.WARNING
_NO_SCORES: Final = (
    "scores come after all filters and are read only in `prebind` and `postbind`, as `score.total`;"
    " ask here for what the score counts"
)
#: How series of well-known exporters are called.
_SERIES: Final = re.compile(
    r"_(total|bytes|seconds|count|load\d+|ratio|percent|usage)$"
    r"|^(up$|(kube|node|container|kubelet|apiserver|DCGM|machine|process)_)"
)
_NUMBERS: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
)  # fmt: skip
_OF_ANGLES: Final = frozenset(
    {"sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "radians",
     "degrees", "haversine"}
)  # fmt: skip
#: Words of manifests that are no label: what they ask is asked of another thing, or not at all.
#: Without any `s` at their ends.
_OF_KUBERNETES: Final = frozenset(
    {"taint", "toleration", "limit", "request", "ready", "ip", "statu", "spec", "phase", "port",
     "volume", "selector", "container", "condition", "metadata", "env", "addre",
     "addresse", "restart", "image", "allocatable", "capacity", "free", "requested", "pvc", "pod"}
)  # fmt: skip
#: `it.namespace.label.tenant`, `it.namespaceLabels[tenant]`.
_OF_NAMESPACE: Final = re.compile(
    r"(?P<it>it\.)?namespace[._]?(?P<what>[Ll]abel|[Aa]nnotation)s?(?:\.(?P<key>\w+))?"
)
#: Words behind a field, which were written without the blank.
_BEHIND: Final = frozenset({"desc", "asc", "and", "or", "is", "in", "then", "else", "weight"})

# ---- names that are not there


def no_field(scope: Scope, node: s.Field, name: str, *, has_key: bool) -> Refused:
    """Refuses a path that is no field, and says what it is called here."""
    written = node.path + node.tail
    key = node.key.value if isinstance(node.key, s.Word | s.Text) else None
    if key is not None and key.isdigit():
        key = None
    found = field_for(written, key)
    if found is not None and elsewhere.in_sort(scope, node.span):
        # A key of the queue is taken once, so that no age may stand there.
        found = found._replace(text=found.text.removeprefix("now - "))
    hints: list[str]
    fix = None
    if written in ("node.score", "pod.score"):
        return scope.refuse("P101", f"there is no field `{written}`", node.span, _NO_SCORES)
    if written == "namespace.pods":
        help_ = "write  count(cluster.pods where it.namespace == pod.namespace)"
        return scope.refuse("P101", f"there is no field `{written}`", node.span, help_)
    param = _parameter(scope, node)
    if param is not None:
        return param
    if written in scope.names() and node.key is not None:
        return _keyed_value(scope, node, written)
    values = elsewhere.values_of_pods(scope, node)
    if values is not None:
        hints = [values]
    elif found is not None and found.text != written:
        if found.text.startswith("node.taint "):
            hints = [f"write  {found.text}   or   {found.text}=VALUE"]
        else:
            hints = [
                f"{found.note}  {found.text}" if found.note else f"did you mean `{found.text}`?"
            ]
            fix = Fix(node.span, found.text) if found.sure and not _wants_key(found.text) else None
    else:
        hints, fix = _near(node, name, has_key=has_key)
    return scope.refuse("P101", f"there is no field `{written}`", node.span, *hints, fix=fix)


def _keyed_value(scope: Scope, node: s.Field, written: str) -> Refused:
    """Refuses `load[5m]`: a range belongs into a query, and a metric is its newest value."""
    message = f"`{written}` is a value, which has no key"
    entry = scope.metrics.get(written)
    if entry is not None and entry.spec is not None and entry.spec.of == "pair":
        shown = ", ".join(one.upper() for one in entry.spec.keys)
        help_ = f"a metric of pairs is asked for each of its labels:  {written}({shown})"
        return scope.refuse("P101", message, node.span, help_)
    help_ = f"write  {written}   and the range in the query of a metric"
    return scope.refuse("P101", message, node.span, help_, fix=written)


def _parameter(scope: Scope, node: s.Field) -> Refused | None:
    """Refuses `input.parameters.zone` and `var.zone`, which are parameters in other languages."""
    owner, _, name = node.path.rpartition(".")
    if node.key is not None or node.tail or owner.rpartition(".")[2] not in OWNERS_OF_PARAMS:
        return None
    if owner.partition(".")[0] not in OWNERS_OF_PARAMS:
        return None
    known, let = name in scope.params, name in scope.names()
    better = f"${name}" if known else name if let else ""
    new = f"{name}_value" if name in RESERVED else name
    help_ = f"declare it above:  param {new}: string = VALUE   and write here  ${new}"
    if owner == "variables":
        help_ = f"declare it above:  let {new} = EXPRESSION   and write here  {new}"
    return scope.refuse(
        "P101",
        f"there is no field `{node.path}`",
        node.span,
        f"write  {better}" if better else help_,
        fix=better or None,
    )


def _wants_key(text: str) -> bool:
    return text in FIELDS and FIELDS[text].keyed


def _near(node: s.Field, name: str, *, has_key: bool) -> tuple[list[str], Fix | None]:
    found = _OF_NAMESPACE.fullmatch(name)
    if found is not None:
        owner = f"{found['it'] or ''}namespace.{found['what'].lower()}"
        key = node.key.value if isinstance(node.key, s.Word | s.Text) else found["key"] or "KEY"
        better = f"{owner}[{quoted_key(key)}]"
        sure = has_key != (found["key"] is not None) and not node.tail
        return [f"did you mean `{better}`?"], Fix(node.span, better) if sure else None
    near = closest_field(name)
    if near is not None:
        keyed = FIELDS[near].keyed
        if node.tail:
            # Behind a key only the last word is another.
            path, _, last = near.rpartition(".")
            tail = Span(node.span.end - len(node.tail), node.span.end)
            return [f"did you mean `{near}`?"], Fix(tail, f".{last}") if path == node.path else None
        path_span = Span(node.span.start, node.span.start + len(node.path))
        span = path_span if keyed else node.span
        return [f"did you mean `{near}`?"], Fix(span, near) if keyed == has_key else None
    told = field_hint(node.path)
    if told is not None:
        return [told], None
    parent = name.rpartition(".")[0]
    for start in (name, parent):
        inner = [one for one in FIELDS if one.startswith(f"{start}.")]
        few = "." in start or f"{start}.label" not in FIELDS
        if few and 0 < len(inner) <= _MAX_LISTED:
            return ["there is " + ", ".join(f"`{one}`" for one in inner)], None
    return _of_unknown(node, name)


def _of_unknown(node: s.Field, name: str) -> tuple[list[str], Fix | None]:
    """Returns what to do about a path that nobody knows: another word or owner, a label."""
    roots = {one.split(".", 1)[0] for one in FIELDS}
    root = name.split(".", 1)[0]
    if root not in roots and name == f"{root}.nodes" and node.key is None:
        return [f'the nodes of one label are  nodes_in("{root}")'], None
    if root not in roots:
        return ["fields start with pod, node, namespace, cluster, time, it or zone"], None
    glued = next(
        (one for one in FIELDS if name.startswith(one) and name[len(one) :] in _BEHIND), ""
    )
    if glued:
        return [f"a blank is missing:  {glued} {name[len(glued) :]}"], Fix(
            node.span, f"{glued} {name[len(glued) :]}"
        )
    word = re.sub(r"[_-]", "", node.path.rpartition(".")[2]).lower()
    parent = name.rpartition(".")[0]
    if parent in FIELDS and FIELDS[parent].type.is_number:
        return [f"did you mean `{parent}`?"], Fix(node.span, parent) if not node.tail else None
    parts = [one for one in FIELDS if one.startswith(f"{root}.") and word in one.split(".")]
    if f"{root}.{word}" in parts:
        return [f"did you mean `{root}.{word}`?"], None
    if parts and parent == root:
        return ["there is " + ", ".join(f"`{one}`" for one in parts)], None
    other = {"pod": "node", "node": "pod"}.get(root, "")
    of_other = f"{other}.{name.partition('.')[2]}"
    if of_other in FIELDS:
        what = "the pod is on no node yet; the one asked has" if root == "pod" else "the pod has"
        return [f"{what}  {of_other}" + "[KEY]" * FIELDS[of_other].keyed], None
    if f"{root}.label" in FIELDS and word.rstrip("s") not in _OF_KUBERNETES:
        key = node.path.rpartition(".")[2] if node.key is None else "KEY"
        asked = re.fullmatch(r"(?:is|has)_?([A-Za-z]\w*)", key)
        if asked is not None:
            label = f"{root}.label {asked[1].lower()}"
            return [f"what Kubernetes does not know stands in a label:  {label}"], None
        return [
            "what Kubernetes does not know stands in a label or annotation:"
            f"  {root}.label[{key}]   or   number({root}.label[{key}])"
        ], None
    return [], None


def slashed_key(scope: Scope, node: s.Chain) -> None:
    """Refuses `pod.label.app.kubernetes.io/name`, which reads as a division."""
    first = node.operands[0]
    text = scope.source.slice(node.span)
    if set(node.operators) != {"/"} or not isinstance(first, s.Field):
        return
    found = re.fullmatch(r"(\w+)\.labels?\.([\w./-]+)", text)
    if first.path in FIELDS or found is None:
        return
    better = f"{found[1]}.label[{found[2]}]"
    raise scope.refuse(
        "P101",
        "the key of a label stands in brackets",
        node.span,
        f"write  {better}",
        fix=better,
    )


def no_name(scope: Scope, node: s.Name, *, in_pods: bool) -> Refused:
    """Refuses a name that nothing has, and says which field or parameter may be meant."""
    name = node.name
    message = f"no metric, let or field is called `{name}`"
    if name in scope.params:
        better = f"${name}"
        help_ = f"did you mean the parameter `{better}`?"
        return scope.refuse("P102", message, node.span, help_, fix=better)
    told = elsewhere.outcome(scope, node) or _of_results(scope, node)
    if told is not None:
        return scope.refuse("P102", message, node.span, told)
    week = elsewhere.weekdays(scope, node)
    if week is not None:
        # The second word of a range is told of with the first.
        whole = Span(node.span.start, node.span.end + len("-fri"))
        return (
            scope.refuse("P102", "days stand in a list", whole, f"write  {week}", fix=week)
            if week
            else Refused()
        )
    aggregate = elsewhere.variable(scope, node)
    if aggregate:
        what = "there are no variables here: each of the pods is called `it`"
        return scope.refuse("P102", what, node.span, f"write  {aggregate}")
    if name in ("pod", "node", "it", "cluster", "group", "quota"):
        field = next(one for one in FIELDS if one.startswith(f"{name}."))
        return scope.refuse(
            "P102", f"`{name}` alone is no value", node.span, f"name a field of it: {field}"
        )
    owners = ("it", "pod", "node", "time") if in_pods else ("pod", "node", "it", "time")
    found = next((f"{one}.{name}" for one in owners if f"{one}.{name}" in FIELDS), None)
    found = "node.label" if name == "label" and not in_pods else found
    found = elsewhere.pods(scope, node) or found
    if found is not None:
        alone = not FIELDS[found].keyed and FIELDS[found].type.kind is not Kind.PODS
        fix = found if alone and (in_pods or not found.startswith("it.")) else None
        meant_by = f"{found}[KEY]" if FIELDS[found].keyed else found
        return scope.refuse("P102", message, node.span, f"did you mean `{meant_by}`?", fix=fix)
    low = name.lower()
    if low in ("true", "yes", "on", "false", "no", "off"):
        better = "true" if low in ("true", "yes", "on") else "false"
        return scope.refuse("P102", message, node.span, f"write  {better}", fix=better)
    if name.lower() in _NUMBERS:
        number = str(_NUMBERS.index(name.lower()))
        return scope.refuse("P102", message, node.span, f"write  {number}", fix=number)
    if _SERIES.search(name):
        help_ = (
            f'for a series of Prometheus write above  metric {name} = promql "{name}" by instance'
        )
        return scope.refuse("P102", message, node.span, help_)
    return scope.refuse(
        "P102",
        message,
        node.span,
        f'declare it:  let {name} = EXPRESSION   or, if it is a text, write  "{name}"',
    )


def _of_results(scope: Scope, node: s.Name) -> str | None:
    """Returns what to write for `score > 50` in a filter, and for `peers` without a topology."""
    if node.name == "peers":
        behind = scope.source.text[node.span.end :].lstrip(" \t")[:1]
        return "write  peers(zone)" + ("" if behind in tuple("<>=!+-*/") else " > 0")
    if node.name == "victims":
        known = ", ".join(one for one in FIELDS if one.startswith("victims."))
        return f"of all victims `pick` knows  {known}"
    if node.name in ("score", "scores"):
        return _NO_SCORES
    return None


def no_function(scope: Scope, node: s.Call) -> Refused:
    """Refuses a function that is not there, and writes the call as it is here."""
    found = call_for(node.name, [scope.text(one) for one in node.args])
    message = f"there is no function `{node.name}`"
    if found is not None and found.text:
        text = found.text
        moment = re.fullmatch(r"time\(([\w.]+)\)", text)
        if moment is not None and moment[1] in FIELDS and FIELDS[moment[1]].type.kind is Kind.TIME:
            text = moment[1]  # It is a time already.
        fix = Fix(node.span, text) if found.sure else None
        return scope.refuse("P106", message, node.name_span, f"write  {text}", fix=fix)
    if found is not None:
        note = elsewhere.query(scope, node) or found.note
        return scope.refuse("P106", message, node.name_span, note)
    if node.name.lower() in _OF_ANGLES:
        help_ = "there are none of angles: take a metric, or a label or annotation that holds it"
        return scope.refuse("P106", message, node.name_span, help_)
    near = closest(node.name, (*FUNCTIONS, *AGGREGATES))
    spec = FIELDS.get(scope.text(node.args[0])) if len(node.args) == 1 else None
    if node.name == "age" and spec is not None and spec.type.kind is Kind.TIME:
        return scope.refuse("P106", message, node.name_span, f"write  now - {spec.name}")
    if near is None and node.name in scope.names():
        return scope.refuse(
            "P106",
            message,
            node.name_span,
            f"`{node.name}` is a value: write  {node.name}",
            fix=Fix(node.span, node.name),
        )
    hints = [f"did you mean `{near}`?"] if near else []
    return scope.refuse("P106", message, node.name_span, *hints, fix=near)


def bare_word(scope: Scope, node: s.Compare, left: Typed) -> Refused | None:
    """Refuses `== null`, `== True` and words next to a number; None for other words."""
    text = scope.source.slice(node.right.span)
    words = scope.text(node.left)
    whole = Span(node.operator_span.start, node.right.span.end)
    low = text.lower()
    if not isinstance(left, Flex) and left.type.kind is Kind.TEXT and node.operator[0] in "<>":
        what = f"`{node.operator}` does not compare text"
        help_ = has_no_order(scope, left, node.operator)
        return scope.refuse("P201", what, node.left.span, help_)
    owner = meant.same_of_pod(left, text)
    if owner or text in scope.params:
        better = owner or f"${text}"
        what = f"`{better}`" if owner else f"the parameter `{better}`"
        is_text = not isinstance(left, Flex) and left.type.kind is Kind.TEXT
        return scope.refuse(
            "P011",
            f"`{node.operator}` is followed by an expression, and `{text}` is the name of none",
            node.right.span,
            f"did you mean {what}?",
            *([f'for the text write  "{text}"'] if is_text else []),
            fix=better,
        )
    there = low in THERE | {"present"}
    if node.operator in ("==", "!=") and (there or low in NOTHING | ABSENT | {"missing"}):
        better = "is present" if there == (node.operator == "==") else "is missing"
        itself = [] if low in NOTHING else [f'for the word itself write  "{text}"']
        what = f"there is no value `{text}`: what is missing equals nothing"
        if itself:
            what = "whether there is a value is asked by `is present` and `is missing`"
        return scope.refuse(
            "P011",
            what,
            node.right.span,
            f"write  {words} {better}",
            *itself,
            fix=Fix(whole, better),
        )
    if low in ("true", "false"):
        told = _flag_of_text(scope, node, left, low) or _flag_of_number(scope, node, left, low)
        if told is not None:
            return told
        message = f"`{text}` is written in lower case"
        return scope.refuse("P011", message, node.right.span, f"write  {low}", fix=low)
    if not isinstance(left, Flex) and left.type.kind is Kind.TEXT:
        return None
    what = "a plain number" if isinstance(left, Flex) else _described(left.type)
    return scope.refuse(
        "P011",
        f"`{node.operator}` is followed by an expression, and `{text}` is none",
        node.right.span,
        f"`{words}` is {what}, so it is compared with one",
    )


def _flag_of_text(scope: Scope, node: s.Compare, left: Typed, low: str) -> Refused | None:
    """Refuses `node.condition[Ready] == True`: its status is one of three words."""
    if isinstance(left, Flex) or left.type.kind is not Kind.TEXT:
        return None
    if node.operator not in ("==", "!="):
        return None
    word = low.capitalize() if isinstance(left, ir.Read) and left.field == CONDITION else low
    better = f'{node.operator} "{word}"'
    return scope.refuse(
        "P011",
        f"`{scope.text(node.left)}` is text, which no flag equals",
        node.right.span,
        f"write  {scope.text(node.left)} {better}",
        fix=Fix(Span(node.operator_span.start, node.right.span.end), better),
    )


def _flag_of_number(scope: Scope, node: s.Compare, left: Typed, low: str) -> Refused | None:
    """Refuses `pod.gpu == True`."""
    if not isinstance(left, Flex) and not left.type.is_number:
        return None
    better = beside_flag(node.operator, holds=low == "true")
    return scope.refuse(
        "P201",
        f"cannot compare {describe(left)} with a condition",
        node.left.span,
        *([f"write  {scope.text(node.left)} {better}"] if better else []),
        label=describe(left),
        fix=Fix(Span(node.operator_span.start, node.right.span.end), better) if better else None,
    )


def _described(kind: Type) -> str:
    return "a condition" if kind.kind is Kind.BOOL else str(kind)


# ---- `x is a or b`

_Test = s.Is | s.TextTest | s.Compare | s.LabelTest


def alternatives(scope: Scope, node: s.Logical) -> None:
    """Refuses `x is a or b`, where `b` alone is no condition."""
    test: _Test | None = None
    refused: Refused | None = None
    for one in node.operands:
        inner = one.operand if isinstance(one, s.Not) else one
        if isinstance(inner, s.Is | s.TextTest | s.Compare | s.LabelTest):
            test = inner
        elif test is not None and _is_value(scope, inner):
            refused = _alternative(scope, node, test, inner)
            if _several(scope, node, test):
                break  # one list of them all is proposed
    if refused is not None:
        raise refused


def _is_value(scope: Scope, node: s.Expr) -> bool:
    if isinstance(node, s.Text | s.Number | s.Percent):
        return True
    known = {*scope.names(), *scope.broken, "it", "now"}
    return isinstance(node, s.Name) and node.name not in known


def _alternative(scope: Scope, node: s.Logical, test: _Test, value: s.Expr) -> Refused:
    text = scope.text(value)
    message = f"`{text}` alone is no condition: each side of `{node.operator}` is a test of its own"
    if text.lower() in _VERDICTS:
        help_ = f"leave `{node.operator} {text}` out: what a rule does not let through, it refuses"
        return scope.refuse("P201", message, value.span, help_)
    if isinstance(value, s.Number) and not re.search(r"\d", scope.text(test).rpartition(" ")[2]):
        help_ = f"for a choice write  if {scope.text(test)} then {text} else 0"
        return scope.refuse("P201", message, value.span, help_)
    several = _several(scope, node, test)
    if several:
        # That one of two is meant by `and` is likely, not sure.
        fix = Fix(node.span, several) if node.operator == "or" else None
        return scope.refuse("P201", message, value.span, f"write  {several}", fix=fix)
    if isinstance(test, s.LabelTest):
        sign = {"in": "=", "not in": "!="}.get(test.operator, test.operator)
        key = f"{scope.text(test.key)}{sign}" if sign else ""
        better = f"{test.path} {key}{text}"
    else:
        negated = isinstance(test, s.Is) and test.negated
        operator = test.operator if not isinstance(test, s.Is) else "is not" if negated else "is"
        # After a symbol a bare word would be a name.
        word = isinstance(value, s.Name) and isinstance(test, s.Compare)
        better = f"{scope.text(test.left)} {operator} " + (f'"{text}"' if word else text)
    return scope.refuse(
        "P201",
        message,
        value.span,
        f"write  {better}",
        fix=better,
    )


#: Words that no rule needs to end with.
_VERDICTS: Final = frozenset({"deny", "allow", "reject", "accept", "permit", "refuse", "block"})


def _several(scope: Scope, node: s.Logical, test: _Test) -> str:
    """`x is not a or b`, `x is a and b`: a list, for a test of each would hold always or never."""
    against = _against(test)
    if against is None or against != (node.operator == "or") or node.operands[0] is not test:
        return ""
    if not all(isinstance(one, s.Name | s.Text) for one in node.operands[1:]):
        return ""
    first = test.value if isinstance(test, s.LabelTest) else test.right
    assert first is not None
    items = ", ".join(scope.text(one) for one in (first, *node.operands[1:]))
    tested = (
        f"{test.path} {scope.text(test.key)}"
        if isinstance(test, s.LabelTest)
        else scope.text(test.left)
    )
    return f"{tested} {'not in' if against else 'in'} [{items}]"


def _against(test: _Test) -> bool | None:
    """Whether a test of one value is one of difference; None where it is of something else."""
    if isinstance(test, s.Is):
        return test.negated
    return {"==": False, "=": False, "!=": True}.get(test.operator)


def quoted_field(scope: Scope, node: s.Expr) -> None:
    """Warns of `"pod.name" contains nginx`, which tests the text and not the field."""
    if isinstance(node, s.Text) and node.value in FIELDS:
        scope.report(
            "P317",
            f"this is the text `{node.value}`, not the field of that name",
            node.span,
            f"write  {node.value}",
            fix=node.value,
            severity=_WARNING,
        )


def raw_braces(scope: Scope, span: Span) -> None:
    """Warns of `'usage {load}'`: single quotes take braces as they stand."""
    meant.holes_of_others(scope, span)
    written = scope.source.slice(span)
    if written[:1] != "'" or re.search(r"\{[a-z_][\w.]*(\[[^\]]*\])?\}", written) is None:
        return
    better = meant.quoted(written[1:-1])
    scope.report(
        "P317",
        "single quotes take braces as they stand, so no value is put in",
        span,
        f"write  {better}",
        fix=better,
        severity=_WARNING,
    )


def listed_words(scope: Scope, node: s.Is | s.TextTest) -> None:
    """Refuses `x is (a or b)`."""
    quoted_field(scope, node.left)
    right = node.right
    if not isinstance(right, s.Logical) or not all(
        isinstance(one, s.Name | s.Text) for one in right.operands
    ):
        return
    words = ", ".join(scope.text(one) for one in right.operands)
    operator = "is" if isinstance(node, s.Is) else node.operator
    left = scope.text(node.left)
    if isinstance(node, s.Is):
        better = f"{left} {'not in' if node.negated else 'in'} [{words}]"
    else:
        each = [f"{left} {operator} {scope.text(one)}" for one in right.operands]
        better = f"({f' {right.operator} '.join(each)})"
    raise scope.refuse(
        "P201",
        f"`{operator}` takes one value",
        right.span,
        f"write  {better}",
        fix=Fix(node.span, better),
    )


def membership(typer: "Typer", node: s.In) -> None:
    """Refuses `"app" in pod.labels`, `"nginx" in pod.name`, `x in a`, `x in "a, b"`."""
    scope = typer.scope
    members = node.members
    if isinstance(members, s.Field) and isinstance(node.left, s.Text):
        path = members.path.replace("labels", "label").replace("annotations", "annotation")
        spec = FIELDS.get(path.replace("taints", "taint"))
        key = quoted_key(node.left.value)
        better = ""
        if spec is not None and spec.keyed and members.key is None:
            short = spec.name.endswith(("label", "annotation", "taint"))
            better = f"{spec.name} {key}" if short else f"{spec.name}[{key}] is present"
        elif spec is not None and spec.type.kind is Kind.TEXT:
            better = f"{path} contains {scope.text(node.left)}"
        if better:
            better = f"not {better}" if node.negated else better
            raise scope.refuse(
                "P201",
                f"`in` wants a list, and `{scope.text(members)}` is none",
                members.span,
                f"write  {better}",
                fix=Fix(node.span, better),
            )
    if isinstance(members, s.Chain) and re.fullmatch(r"\d+-\d+", scope.text(members)):
        better = scope.text(members).replace("-", "..")
        message = "a range is written with `..`"
        raise scope.refuse("P201", message, members.span, f"write  in {better}", fix=better)
    word = isinstance(members, s.Name) and members.name not in {
        *scope.names(),
        *scope.broken,
    }
    if isinstance(members, s.Text) or word:
        text = members.value if isinstance(members, s.Text) else scope.text(members)
        message = "`in` wants a list, and a list stands in brackets"
        if text.lower() in NOTHING:
            raise scope.refuse("P201", message, members.span, *_no_value(scope, node, text))
        items = ", ".join(quoted_key(one.strip()) for one in text.split(",") if one.strip()) or '""'
        fix = Fix(_with_parentheses(scope, members.span), f"[{items}]")
        raise scope.refuse("P201", message, members.span, f"write  in [{items}]", fix=fix)


def _no_value(scope: Scope, node: s.In, word: str) -> tuple[str, str]:
    left, there = scope.text(node.left), "present" if node.negated else "missing"
    spec = FIELDS.get(left)
    asked = f"whether there is a value is asked by  {left} is {there}"
    if spec is not None and not spec.keyed and not spec.optional:
        asked = f"`{left}` always has a value"
    return asked, f"for the word itself write  in [{quoted_key(word)}]"


def _with_parentheses(scope: Scope, span: Span) -> Span:
    """Returns a stretch with the parentheses around it, which are no part of the tree."""
    text = scope.source.text
    before, behind = text[: span.start].rstrip(" \t"), text[span.end :].lstrip(" \t")
    if not (before.endswith("(") and behind.startswith(")")):
        return span
    return Span(len(before) - 1, len(text) - len(behind) + 1)


# ---- aggregates


def nothing_of_it(scope: Scope, what: str, node: ir.Expr | None) -> None:
    """Warns of a condition or value in an aggregate over pods that asks nothing of them."""
    if node is None or isinstance(node, ir.Const) or node.level is Level.IT:
        return
    reads = [one for one in ir.walk(node) if isinstance(one, ir.Read | ir.KeyedRead)]
    if any(one.level is Level.IT for one in reads):
        return
    for one in ir.walk(node):
        if isinstance(one, ir.Metric) and one.of in ("namespace", "workload"):
            _metric_of_mine(scope, what, node, one)
            return
    mine = next((one for one in reads if one.level is Level.POD), None)
    if mine is None:
        return
    name = "it." + mine.field.removeprefix("pod.")
    known = name in FIELDS
    # What a let reads is written in the let.
    here = mine.span.start in range(node.span.start, node.span.end)
    hint = f"did you mean `{name}`?" if here else f"write it out here, of `{name}`"
    scope.report(
        "P223",
        f"this {what} asks nothing of the pods that are gone through: they are `it`",
        mine.span if here else node.span,
        hint if known else "fields of those pods start with `it.`",
        fix=_renamed(scope, mine.span) if known and here else None,
        severity=_WARNING,
    )


def _metric_of_mine(scope: Scope, what: str, node: ir.Expr, metric: ir.Metric) -> None:
    here = metric.span.start in range(node.span.start, node.span.end)
    scope.report(
        "P223",
        f"this {what} asks nothing of the pods that are gone through: `{metric.name}` is that of"
        f" the {metric.of} of the pod to place",
        metric.span if here else node.span,
        f"a value of each of those pods has a metric  by pod   (in the query, `on ({metric.of})"
        " group_right()` gives it to pods)",
        severity=_WARNING,
    )


def _renamed(scope: Scope, span: Span) -> str:
    return "it." + scope.source.slice(span).removeprefix("pod.")
