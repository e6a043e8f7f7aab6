"""Names that nobody has: what is likely meant by a field, a name, a function or a parameter.

Refuses; decides no type.
"""

import re
from collections.abc import Iterable
from typing import Final

from dsl import syntax as s
from dsl.checker.scope import Refused, Scope, closest
from dsl.diagnostics import Fix
from dsl.foreign.calls import call_for
from dsl.foreign.fields import Spelling, closest_field, field_for
from dsl.functions import AGGREGATES, FUNCTIONS
from dsl.schema import CATALOGUE, FIELDS, POD_SETS
from dsl.source import Span
from dsl.types import Kind

_MAX_LISTED: Final = 9
_OWNERS: Final = ("pod", "node", "it", "time")
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "yes", "on"), "true"),
    **dict.fromkeys(("false", "no", "off"), "false"),
}


def _refused(
    scope: Scope, code: str, message: str, place: tuple[Span, Span], found: Spelling
) -> Refused:
    """Refuses a name; `place` is where it is told, and what the better one stands for."""
    if not found.text:
        return scope.refuse(code, message, place[0], found.note)
    fix = Fix(place[1], found.text) if found.sure else None
    help_ = f"{found.note}  {found.text}" if found.note else f"did you mean `{found.text}`?"
    return scope.refuse(code, message, place[0], help_, fix=fix)


def _near(name: str, known: Iterable[str], before: str = "") -> Spelling | None:
    """Returns a close name among those that are known."""
    found = closest(name, known)
    return Spelling(f"{before}{found}") if found else None


def no_field(scope: Scope, node: s.Field, name: str, *, has_key: bool) -> Refused:
    """Refuses a path that is no field."""
    written, place = node.path + node.tail, node.span
    message = f"there is no field `{written}`"
    if f"pod.{name}" in FIELDS and has_key:
        help_ = f"say whose:  pod.{name}[KEY], node.{name}[KEY]   or, in a set,  it.{name}[KEY]"
        return scope.refuse("P101", message, place, help_)
    of_set, _, field = name.rpartition(".")
    if of_set in POD_SETS and f"it.{field}" in FIELDS:
        help_ = f"each of these pods has its own:  sum(it.{field} over {of_set})"
        return scope.refuse("P101", message, place, help_)
    key = node.key.value if isinstance(node.key, s.Word | s.Text) else None
    better = field_for(written, None if key is not None and key.isdigit() else key)
    if better is not None and better.text != written:
        keyed = better.text in FIELDS and FIELDS[better.text].keyed
        sure = better.sure and not keyed and not better.text.startswith("node.taint ")
        better = better._replace(sure=sure)
    else:
        close = closest_field(name)
        if close is None:
            return scope.refuse("P101", message, place, *_listed(name))
        keyed = FIELDS[close].keyed
        better = Spelling(close, sure=keyed == has_key and not node.tail)
        place = Span(place.start, place.start + len(node.path)) if keyed else place
    return _refused(scope, "P101", message, (node.span, place), better)


def _listed(name: str) -> tuple[str, ...]:
    """Returns the few fields of the same owner, else how fields begin."""
    for start in (name, name.rpartition(".")[0]):
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
        return scope.refuse("P102", message, node, f"did you mean `{close}`?{more}", fix=close)
    better = _meant(scope, node.name, in_pods=in_pods)
    if better is not None:
        return _refused(scope, "P102", message, (node.span, node.span), better)
    help_ = f'declare it:  let {node.name} = EXPRESSION   or, if it is a text, write  "{node.name}"'
    series = f'a series of Prometheus is  metric {node.name} = promql "{node.name}" by instance'
    return scope.refuse("P102", message, node, series if "_" in node.name else help_)


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
    field = next((one for one in FIELDS if one.startswith(f"{name}.")), None)
    if field is not None:
        return Spelling(field, sure=False, note="alone it is no value: name a field of it, as in")
    word = _BOOLEANS.get(name.lower())
    return Spelling(word) if word else None


def no_function(scope: Scope, node: s.Call) -> Refused:
    """Refuses a function that is not there, and writes the call as it is here."""
    message, place = f"there is no function `{node.name}`", (node.name_span, node.span)
    found = call_for(node.name, [scope.text(one) for one in node.args])
    if found is not None:
        moment = re.fullmatch(r"time\(([\w.]+)\)", found.text)
        if moment is not None and moment[1] in FIELDS and FIELDS[moment[1]].type.kind is Kind.TIME:
            found = found._replace(text=moment[1])  # It is a time already.
        note = found.note or ("write" if found.text else "")
        return _refused(scope, "P106", message, place, found._replace(note=note))
    close = _near(node.name, (*FUNCTIONS, *AGGREGATES))
    if close is not None:
        return _refused(scope, "P106", message, (node.name_span, node.name_span), close)
    if node.name in scope.names():
        better = Spelling(node.name, note="it is a value: write")
        return _refused(scope, "P106", message, place, better)
    return scope.refuse("P106", message, node.name_span)


def no_param(scope: Scope, node: s.Param) -> Refused:
    """Refuses a parameter that nobody declared."""
    message = f"there is no parameter `${node.name}`"
    better = _near(node.name, scope.params, "$")
    if node.name in scope.lets or node.name in scope.metrics:
        better = Spelling(node.name, note="it is no parameter: write")
    if better is not None:
        return _refused(scope, "P105", message, (node.span, node.span), better)
    return scope.refuse("P105", message, node, f"declare it:  param {node.name} = VALUE")
