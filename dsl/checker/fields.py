"""Fields: which column or which value of the pod is meant."""

from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import names
from dsl.checker.scope import Flex, Scope
from dsl.checker.typer import Typer
from dsl.making import constant, made, type_of
from dsl.schema import AMOUNTS, FIELDS, PLURALS, RESULTS, FieldSpec
from dsl.source import Span
from dsl.types import TEXT, Kind, Level

_OF_CONTAINER: Final = ("it.name", "it.image", "it.request", "it.limit")
#: What the API server takes without a domain in a container's requests and limits.
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
#: A size, or the name of a volume plugin, follows.
_OPEN: Final = ("hugepages-", "attachable-volumes-")
_SETS: Final = {Kind.NODES: "nodes", Kind.PODS: "pods"}


def canonical(path: str) -> str:
    """Returns a path with its plurals turned into singulars."""
    if path in FIELDS:
        return path
    return ".".join(PLURALS.get(part, part) for part in path.split("."))


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
        raise names.no_field(typer, node, name, has_key=has_key)
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
        if spec.name in AMOUNTS:
            of_node = spec.name.startswith("node.")
            name_resource(typer, key, node.key.span, of_node=of_node)
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
    if spec.type.kind in _SETS:
        message = f"`{spec.name}` is a set of {_SETS[spec.type.kind]}, not a value"
        raise typer.refuse("P201", message, span, f"write  count({spec.name})")
    level, name = Level.IT if of_its_node else spec.level, spec.name
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
        text = " ".join(typer.source.slice(span).split())
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
    scope.warn(
        "P210",
        f"no pod can ask for a resource called `{key}`",
        span,
        f"without a domain there are {', '.join(_NATIVE)} and hugepages-SIZE; others have one,"
        ' in quotes: "nvidia.com/gpu"',
    )
