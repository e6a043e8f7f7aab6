"""Names that nobody has: what is likely meant by a field, a name, a function or a parameter.

Refuses; decides no type.
"""

import re
from collections.abc import Iterable
from typing import Final

from dsl import syntax as s
from dsl.checker.scope import Refused, Scope, closest
from dsl.diagnostics import Fix
from dsl.foreign_calls import call_for
from dsl.functions import AGGREGATES, FUNCTIONS
from dsl.schema import CATALOGUE, FIELDS
from dsl.source import Span
from dsl.spelling import Spelling, closest_field, field_for
from dsl.types import Kind

_MAX_LISTED: Final = 9
_OWNERS: Final = ("pod", "node", "it", "time")
#: How series of well-known exporters are called.
_SERIES: Final = re.compile(
    r"_(total|bytes|seconds|count|load\d+|ratio|percent|usage)$"
    r"|^(up$|(kube|node|container|kubelet|apiserver|DCGM|machine|process)_)"
)
_YES: Final = ("true", "yes", "on")
_NO: Final = ("false", "no", "off")


def refused(
    scope: Scope, code: str, message: str, place: tuple[Span, Span], found: Spelling | None
) -> Refused:
    """Refuses a name; `place` is where it is told, and what the better one stands for."""
    if found is None:
        return scope.refuse(code, message, place[0])
    if not found.text:
        return scope.refuse(code, message, place[0], found.note)
    fix = Fix(place[1], found.text) if found.sure else None
    help_ = f"{found.note}  {found.text}" if found.note else f"did you mean `{found.text}`?"
    return scope.refuse(code, message, place[0], help_, fix=fix)


def near(name: str, known: Iterable[str], before: str = "") -> Spelling | None:
    """Returns a close name among those that are known."""
    found = closest(name, known)
    return Spelling(f"{before}{found}") if found else None


def no_field(scope: Scope, node: s.Field, name: str, *, has_key: bool) -> Refused:
    """Refuses a path that is no field."""
    written, place = node.path + node.tail, (node.span, node.span)
    message = f"there is no field `{written}`"
    if written in scope.names() and node.key is not None:
        return scope.refuse("P101", f"`{written}` is a value, which has no key", node.span,
                            fix=written)  # fmt: skip
    key = node.key.value if isinstance(node.key, s.Word | s.Text) else None
    found = field_for(written, None if key is not None and key.isdigit() else key)
    if found is not None and found.text != written:
        keyed = found.text in FIELDS and FIELDS[found.text].keyed
        sure = found.sure and not keyed and not found.text.startswith("node.taint ")
        return refused(scope, "P101", message, place, found._replace(sure=sure))
    close = closest_field(name)
    if close is not None:
        keyed = FIELDS[close].keyed
        path, _, last = close.rpartition(".")
        if node.tail:
            # Behind a key only the last word is another.
            tail = Span(node.span.end - len(node.tail), node.span.end)
            better = Spelling(f".{last}", sure=path == node.path)
            return refused(scope, "P101", message, (node.span, tail), better)
        end = node.span.start + len(node.path) if keyed else node.span.end
        better = Spelling(close, sure=keyed == has_key)
        return refused(scope, "P101", message, (node.span, Span(node.span.start, end)), better)
    parent = name.rpartition(".")[0]
    if parent in FIELDS and FIELDS[parent].type.is_number:
        return refused(scope, "P101", message, place, Spelling(parent, sure=not node.tail))
    return scope.refuse("P101", message, node.span, *_listed(name, parent))


def _listed(name: str, parent: str) -> tuple[str, ...]:
    """Returns the few fields of the same owner, else how fields begin."""
    for start in (name, parent):
        inner = [one for one in FIELDS if one.startswith(f"{start}.")]
        if 0 < len(inner) <= _MAX_LISTED:
            return ("there is " + ", ".join(f"`{one}`" for one in inner),)
    owner = name.partition(".")[0]
    if f"{owner}.label" in FIELDS:
        return (f"what Kubernetes does not know stands in a label:  {owner}.label[KEY]",)
    return ("fields start with pod, node, namespace, cluster, time, it or zone",)


def no_name(scope: Scope, node: s.Name, *, in_pods: bool) -> Refused:
    """Refuses a name that nothing has."""
    message = f"no metric, let or field is called `{node.name}`"
    close = closest(node.name, scope.names()) if node.name not in scope.params else None
    if close is not None:
        bundled = close in CATALOGUE and close not in scope.metrics
        more = f" (bundled metric: {CATALOGUE[close].doc})" if bundled else ""
        return scope.refuse("P102", message, node.span, f"did you mean `{close}`?{more}", fix=close)
    better = _meant(scope, node.name, in_pods=in_pods)
    if better is not None:
        return refused(scope, "P102", message, (node.span, node.span), better)
    help_ = f'declare it:  let {node.name} = EXPRESSION   or, if it is a text, write  "{node.name}"'
    if _SERIES.search(node.name):
        help_ = f'a series of Prometheus is  metric {node.name} = promql "{node.name}" by instance'
    return scope.refuse("P102", message, node.span, help_)


def _meant(scope: Scope, name: str, *, in_pods: bool) -> Spelling | None:
    if name in scope.params:
        return Spelling(f"${name}", note="the parameter is")
    for owner in ("it", *_OWNERS) if in_pods else _OWNERS:
        spec = FIELDS.get(f"{owner}.{name}")
        if spec is not None:
            alone = not spec.keyed and spec.type.kind is not Kind.PODS
            # A `day` may be that of the week.
            sure = alone and (in_pods or owner != "it") and name != "day"
            return Spelling(f"{spec.name}[KEY]" if spec.keyed else spec.name, sure=sure)
    if any(one.startswith(f"{name}.") for one in FIELDS):
        field = next(one for one in FIELDS if one.startswith(f"{name}."))
        return Spelling(field, sure=False, note="alone it is no value: name a field of it, as in")
    low = name.lower()
    return Spelling("true" if low in _YES else "false") if low in (*_YES, *_NO) else None


def no_function(scope: Scope, node: s.Call) -> Refused:
    """Refuses a function that is not there, and writes the call as it is here."""
    message = f"there is no function `{node.name}`"
    found = call_for(node.name, [scope.text(one) for one in node.args])
    if found is not None:
        moment = re.fullmatch(r"time\(([\w.]+)\)", found.text)
        if moment is not None and moment[1] in FIELDS and FIELDS[moment[1]].type.kind is Kind.TIME:
            found = found._replace(text=moment[1])  # It is a time already.
        note = found.note or ("write" if found.text else "")
        whole = (node.name_span, node.span)
        return refused(scope, "P106", message, whole, found._replace(note=note))
    close = near(node.name, (*FUNCTIONS, *AGGREGATES))
    if close is None and node.name in scope.names():
        better = Spelling(node.name, note="it is a value: write")
        return refused(scope, "P106", message, (node.name_span, node.span), better)
    return refused(scope, "P106", message, (node.name_span, node.name_span), close)


def no_param(scope: Scope, node: s.Param) -> Refused:
    """Refuses a parameter that nobody declared."""
    message = f"there is no parameter `${node.name}`"
    better = near(node.name, scope.params, "$")
    if node.name in scope.lets or node.name in scope.metrics:
        better = Spelling(node.name, note="it is no parameter: write")
    if better is not None:
        return refused(scope, "P105", message, (node.span, node.span), better)
    return scope.refuse("P105", message, node.span, f"declare it:  param {node.name} = VALUE")
