"""Fields and names: which value is meant, and what is suggested for a name that nobody has."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Flex, Refused, Scope, Typed
from dsl.checker.typer import Typer
from dsl.diagnostics import Fix
from dsl.foreign.calls import QUERIES, call_for
from dsl.foreign.fields import AMOUNT_WORDS, Spelling, closest_field, field_for
from dsl.functions import AGGREGATES, FUNCTIONS
from dsl.making import constant, made, type_of
from dsl.nearest import closest
from dsl.schema import AMOUNTS, CATALOGUE, FIELDS, POD_SETS, RESULTS, FieldSpec, canonical
from dsl.source import Span
from dsl.types import TEXT, Kind, Level

_OF_CONTAINER: Final = ("it.name", "it.image", "it.request", "it.limit")
#: What the API server takes without a domain in a container's requests and limits.
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
#: A size, or the name of a volume plugin, follows.
_OPEN: Final = ("hugepages-", "attachable-volumes-")
_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_EFFECT: Final = re.compile(r"(?i)\b(prefer)?noschedule\Z|\bnoexecute\Z")
#: Bare words and what they mean.
_MEANT: Final = {"true": "true", "false": "false", "s": "1s"}


def spec_of(name: str) -> tuple[FieldSpec | None, bool]:
    """Returns the field of a name, and whether it is read of the node of a pod of a set."""
    of_its_node = name.startswith("it.node.")
    return FIELDS.get(name.removeprefix("it.") if of_its_node else name), of_its_node


def read_field(typer: Typer, node: s.Field) -> ir.Expr:
    """Returns the read of a field."""
    name = canonical(node.path) + node.tail
    has_key = node.key is not None or node.computed is not None
    spec, of_its_node = spec_of(name)
    if spec is None:
        raise no_field(typer, node, name, has_key=has_key)
    if spec.keyed != has_key:
        before, dot, part = name.partition(".resource.")
        keyed = f"{before}.resource[KEY].{part}" if dot else f"{name}[KEY]"
        message = f"`{name}` {'takes no' if has_key else 'needs a'} key"
        better = name if has_key else keyed
        raise typer.refuse("P101", message, node, f"write  {better}")
    key: str | ir.Expr | None = None
    if node.computed is not None:
        typed = typer.check(node.computed)
        key = typed.text if isinstance(typed, Flex) else typer.want(typed, "text", "a key")
        if isinstance(key, ir.Const):
            key = str(key.value)
    elif node.key is not None:
        key = fixed_text(typer, node.key)
        known = "." in key and (key in FIELDS or key.startswith("pod.label."))
        if known and isinstance(node.key, s.Word):
            message = f"`{key}` is a word here, not the field of that name"
            typer.warn("P317", message, node.key, f"for the field write  {name}[({key})]")
        if spec.name in AMOUNTS:
            of_node = spec.name.startswith("node.")
            name_resource(typer, key, node.key.span, of_node=of_node)
        near = closest(key, _CONDITIONS) if spec.name == "node.condition" else None
        if near not in (None, key):
            typer.warn("P210", f"Kubernetes calls this condition `{near}`", node.key, fix=near)
    return make_read(typer, spec, key, node.span, of_its_node=of_its_node)


def make_read(
    typer: Typer,
    spec: FieldSpec,
    key: str | ir.Expr | None,
    span: Span,
    *,
    of_its_node: bool = False,
) -> ir.Expr:
    """Returns the read of a field; with `of_its_node` that of the node a pod of a set is on."""
    of_container = typer.place.containers and spec.level is Level.IT and not of_its_node
    wrong = _wrong_here(typer, spec, span, of_its_node=of_its_node)
    if wrong is None and not isinstance(key, str | None) and (of_its_node or of_container):
        wrong = "the key of such a field is a fixed word", ""
    if wrong is not None:
        message, help_ = wrong
        raise typer.refuse("P202", message, span, *([help_] if help_ else []))
    if spec.type.kind in (Kind.NODES, Kind.PODS):
        message = f"`{spec.name}` is {spec.type}, not a value"
        raise typer.refuse("P201", message, span, f"write  count({spec.name})")
    level, name = Level.IT if of_its_node else spec.level, spec.name
    effect = _EFFECT.search(key) if isinstance(key, str) else None
    if effect is not None and name.endswith(("taint", "toleration")):
        message = f"`{effect[0]}` is an effect: taints are asked by keys"
        typer.warn("P317", message, span, f"write  {name}[KEY]")
    if isinstance(key, ir.Core):
        return made(ir.KeyedRead, span, spec.type, max(level, key.level), field=name, key=key)
    kind = type_of(name, key)
    if of_container:
        own = name.removeprefix("it.")
        return made(ir.ContainerRead, span, kind, Level.POD, field=own, key=key)
    return made(ir.Read, span, kind, level, field=name, key=key)


def _wrong_here(
    typer: Typer, spec: FieldSpec, span: Span, *, of_its_node: bool
) -> tuple[str, str] | None:
    """Returns why a field cannot be read where it stands, and what helps."""
    place, name, root = typer.place, spec.name, spec.name.partition(".")[0]
    of_it = of_its_node or spec.level is Level.IT
    if of_it and not place.pods and not (place.containers and not of_its_node):
        own = f"pod.{name.removeprefix('it.')}"
        of_pod = f"of the pod to place it is  {own},  " * (own in FIELDS)
        text = typer.source.words(span)
        help_ = f"{of_pod}of pods of a set  any(node.pods where {text} ...)"
        return f"`{text}` means a pod of a set, and there is no set here", help_
    if of_it and place.containers and name not in _OF_CONTAINER:
        help_ = f"a container has {', '.join(_OF_CONTAINER)}"
        return f"`{name}` is a field of a pod, and `it` is a container here", help_
    if of_its_node and not place.placed:
        return "the pods of this set are on no node yet", ""
    if of_its_node and (spec.of_pod or spec.type.kind in (Kind.PODS, Kind.LIST)):
        return f"`{name}` cannot be read of the node of another pod", ""
    if root in RESULTS and not {root, name} & place.results:
        return f"`{name}` is known only {RESULTS[root]}", ""
    return None


def fixed_text(typer: Typer, node: s.Expr, what: str = "a key") -> str:
    """Returns a text that is known: of a word, of a text or of a parameter."""
    value = node if isinstance(node, s.Word | s.Text) else label_value(typer, node)
    if isinstance(value, s.Word | s.Text | ir.Const) and isinstance(value.value, str):
        return value.value
    message = f"{what} is a fixed text here, and `{typer.text(node)}` is none"
    raise typer.refuse("P201", message, node)


def label_value(typer: Typer, value: s.Expr) -> ir.Expr:
    """Returns the right side of a label test, words read as texts."""
    if isinstance(value, s.Percent):
        return constant(value.span, value.text, TEXT)
    typed = typer.check(value)
    if isinstance(typed, Flex) and isinstance(value, s.Param):
        return constant(value.span, typed.text, TEXT)
    return typer.plain(typed)


def name_resource(scope: Scope, key: str, span: Span, *, of_node: bool = False) -> None:
    """Warns of a resource that the API server lets no pod ask for; a node has `pods`, too."""
    if key in _NATIVE or key.startswith(_OPEN) or (of_node and key == "pods") or "/" in key:
        return
    message = f"no pod can ask for a resource called `{key}`"
    meant = AMOUNT_WORDS.get(key.removeprefix("requests.").lower())
    if meant in _NATIVE:
        raise scope.refuse("P210", message, span, fix=meant)
    help_ = f"without a domain there are {', '.join(_NATIVE)} and hugepages-SIZE; others have one"
    scope.warn("P210", message, span, f'{help_}, in quotes: "nvidia.com/gpu"')


_MAX_LISTED: Final = 9
_OWNERS: Final = ("pod", "node", "it", "time")


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
        if not better.sure and f"{name}.free" in FIELDS:
            return scope.refuse("P101", message, place, *_listed(name))
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
        return (f"what has no field may stand in a label:  {owner}.label[KEY]",)
    return ("fields start with pod, node, namespace, cluster, time, it or zone",)


def no_name(scope: Typer, node: s.Name) -> Refused:
    """Refuses a name that nothing has."""
    name = node.name
    message = f"no metric, let or field is called `{name}`"
    close = closest(name, scope.names()) if name not in scope.params else None
    if close is not None:
        bundled = close in CATALOGUE and close not in scope.metrics
        more = f" (bundled metric: {CATALOGUE[close].doc})" if bundled else ""
        return scope.refuse("P102", message, node, f"did you mean `{close}`?{more}", fix=close)
    better = _meant(scope, name, in_pods=scope.place.pods)
    if better is not None:
        return _refused(scope, "P102", message, (node.span, node.span), better)
    # A text would be the same for all, and all be of one group.
    other = f"label, write  pod.label[{name}]"
    other = other if scope.place.groups else f'text, write  "{name}"'
    help_ = f"declare it:  let {name} = EXPRESSION   or, if it is a {other}"
    series = f'a series of Prometheus is  metric {name} = promql "{name}" by instance'
    return scope.refuse("P102", message, node, series if "_" in name else help_)


def _meant(scope: Typer, name: str, *, in_pods: bool) -> Spelling | None:
    if name in scope.params:
        return Spelling(f"${name}", note="the parameter is")
    field = next((one for one in FIELDS if one.startswith(f"{name}.")), None)
    for owner in ("it", *_OWNERS) if in_pods else _OWNERS:
        spec = FIELDS.get(f"{owner}.{name}")
        if spec is not None and (in_pods or owner != "it" or field is None):
            # A `day` may be that of the week.
            alone = not spec.keyed and spec.type.kind is not Kind.PODS and name != "day"
            sure = alone and (in_pods or (owner != "it" and not scope.place.item))
            return Spelling(f"{spec.name}[KEY]" if spec.keyed else spec.name, sure=sure)
    if field is not None:
        return Spelling(field, sure=False, note="it is not a value: write a field of it, as in")
    if name in FUNCTIONS:
        takes = "node" if FUNCTIONS[name].takes == "t" else "..."
        return Spelling(f"{name}({takes})", sure=False, note="it is a function:")
    return Spelling(_MEANT[name.lower()]) if name.lower() in _MEANT else None


def no_function(scope: Scope, node: s.Call) -> Refused:
    """Refuses a function that is not there, and writes the call as it is here."""
    message, place = f"there is no function `{node.name}`", (node.name_span, node.span)
    found = call_for(node.name, [scope.text(one) for one in node.args])
    if found is not None:
        note = found.note or ("write" if found.text else "")
        return _refused(scope, "P106", message, place, found._replace(note=note))
    close = _near(node.name, (*FUNCTIONS, *AGGREGATES))
    if close is not None:
        return _refused(scope, "P106", message, (node.name_span, node.name_span), close)
    if node.name in scope.names():
        better = Spelling(node.name, note="it is a value: write")
        return _refused(scope, "P106", message, place, better)
    if QUERIES.fullmatch(node.name):
        query = scope.text(node).replace('"', "'")
        help_ = f'Prometheus computes it:  metric NAME = promql "{query}" by instance'
        return scope.refuse("P106", message, node.name_span, help_)
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


def param(scope: Scope, node: s.Param) -> Typed:
    """Returns the value of a parameter."""
    value = scope.params.get(node.name)
    if node.name not in scope.params and node.name not in scope.broken:
        raise no_param(scope, node)
    if value is None:
        raise Refused
    scope.given.append(node.span)
    return replace(value, span=node.span)
