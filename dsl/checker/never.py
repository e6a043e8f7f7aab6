"""Tests that read well and hold for none or for all: the item as a word, phases, moments, versions.

Warns only; each of these has another form that says what is meant.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Scope, Typed, closest
from dsl.diagnostics import Fix, Severity
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.types import Kind

if TYPE_CHECKING:
    from dsl.checker.expressions import Typer

_WARNING: Final = Severity.WARNING
_FINISHED: Final = ("Succeeded", "Failed")
_CONDITIONS: Final = (
    "Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable",
)  # fmt: skip
#: Texts that are no number as a whole, whatever cluster it is.
_NO_NUMBERS: Final = frozenset(
    {"arch", "os", "kernel", "os_image", "container_runtime", "kubelet_version", "instance_type",
     "namespace", "name", "image", "kind", "uid", "qos", "scheduler", "service_account",
     "priority_class", "preemption_policy", "runtime_class"}
)  # fmt: skip
_VERSIONS: Final = frozenset({"node.kernel", "node.kubelet_version"})
#: What parameters are read by in other languages.
OWNERS_OF_PARAMS: Final = frozenset(
    {"var", "vars", "param", "params", "parameter", "parameters", "input", "inputs", "arg", "args",
     "values", "Values", "config", "local", "settings", "variables"}
)  # fmt: skip
#: Whether what is past is so before now.
_BEFORE: Final = {"<": True, "<=": True, ">": False, ">=": False}


# ---- words


def item_as_word(typer: "Typer", node: s.Is | s.TextTest) -> bool:
    """Warns of `node.region is it` within a list, which is the text `it`; False for others."""
    word = node.right
    if not isinstance(word, s.Word) or word.value != "it":
        return False
    if typer.in_pods and typer.item is None:
        scope, left = typer.scope, typer.scope.text(node.left)
        mine = f"pod.{left.removeprefix('it.')}"
        scope.warn(
            "P317",
            "`it` is the text `it` here, and a pod of the set is asked by its fields",
            word.span,
            f"write for example  {left} == {mine if mine in FIELDS else 'it.name'}",
        )
    if typer.item is None:
        return typer.in_pods
    left = typer.scope.text(node.left)
    if isinstance(node, s.Is):
        better = f"{left} {'!=' if node.negated else '=='} it"
    else:
        better = f"{left} {node.operator} (it)"
    _of_item(typer.scope, word, better, Fix(node.span, better))
    return True


def items_as_words(typer: "Typer", node: s.In) -> None:
    """Warns of `node.region in [it, other]` within a list."""
    for one in node.members.items if isinstance(node.members, s.Words) else ():
        if typer.item is not None and isinstance(one, s.Word) and one.value == "it":
            _of_item(typer.scope, one, "(it)", Fix(one.span, "(it)"))


def _of_item(scope: Scope, word: s.Word, better: str, fix: Fix) -> None:
    scope.report(
        "P317",
        "`it` is the text `it` here, not the item of the list",
        word.span,
        f"write  {better}",
        'for the text itself write  "it"',
        fix=fix,
        severity=_WARNING,
    )


def parameter_as_word(scope: Scope, word: s.Word) -> None:
    """Warns of `pool=var.pool`, where there is a parameter `pool`."""
    owner, _, name = word.value.rpartition(".")
    if name in scope.params and owner in OWNERS_OF_PARAMS:
        scope.report(
            "P317",
            f"`{word.value}` is a text here, not the parameter `{name}`",
            word.span,
            f"write  ${name}",
            f'for the text itself write  "{word.value}"',
            fix=f"${name}",
            severity=_WARNING,
        )


def odd_condition(scope: Scope, key: str, span: Span) -> None:
    """Warns of `node.condition[ready]`, which no node has."""
    near = closest(key, _CONDITIONS) if key not in _CONDITIONS else None
    if near is not None:
        scope.report(
            "P317",
            f"nodes have no condition `{key}`",
            span,
            f"did you mean `{near}`?",
            fix=near,
            severity=_WARNING,
        )


# ---- pods that are in no set


def finished_pods(scope: Scope, table: str, *parts: ir.Expr | None) -> None:
    """Warns of `any(cluster.pods where it.phase is Succeeded)`: no set holds pods that finished."""
    if table == "finished":
        return
    for test in _wanted(*parts):
        phases = _phases(test)
        if phases and set(phases) <= set(_FINISHED):
            scope.report(
                "P317",
                "pods that have finished are in no set of pods, so this is never true",
                test.span,
                "those of a node, for an hour, are  node.finished",
                severity=_WARNING,
            )


def _wanted(*parts: ir.Expr | None) -> Iterator[ir.Expr]:
    """Yields the tests in conditions that are not turned round by `not`."""
    stack = [one for one in parts if one is not None]
    while stack:
        node = stack.pop()
        if isinstance(node, ir.Not):
            continue
        yield node
        stack.extend(ir.children(node))


def _phases(test: ir.Expr) -> tuple[str, ...]:
    """Returns the phases that a test asks for, none for other tests."""
    match test:
        case ir.Compare(operator="==", left=ir.Read(field="it.phase"), right=ir.Const() as right):
            return (str(right.value),)
        case ir.Member(item=ir.Read(field="it.phase"), items=ir.Const(value=tuple() as values)):
            return tuple(map(str, values))
        case _:
            return ()


def pod_with_itself(scope: Scope, *parts: ir.Expr | None) -> None:
    """Warns of `any(node.pods where it.name == it.name)`: the pod to place is `pod`."""
    for test in ir.walk(*(one for one in parts if one is not None)):
        match test:
            case ir.Compare(operator="==", left=ir.Read() as left, right=ir.Read() as right):
                same = (left.field, left.key) == (right.field, right.key)
                own = "pod." + left.field.removeprefix("it.")
                if same and left.field.startswith("it.") and own in FIELDS:
                    mine = scope.text(right).replace("it.", "pod.", 1)
                    scope.report(
                        "P223",
                        "here each pod is compared with itself",
                        right.span,
                        f"the pod to place is  {mine}",
                        fix=mine,
                        severity=_WARNING,
                    )
            case _:
                pass


# ---- moments


def moments_to_come(scope: Scope, node: s.Compare, left: ir.Expr, right: ir.Expr) -> None:
    """Warns of `node.created - now > 5m` and of `pod.created > now`: all of these are past."""
    if node.operator not in _BEFORE:
        return
    for one, operator, other in (
        (left, node.operator, right),
        (right, _turned(node.operator), left),
    ):
        if _is_past(one) and _is_now(other):
            what, better = scope.text(one), f"now - {scope.text(one)}"
            help_, fix = f"an age is  {better}", None
        elif (gap := _until(one)) and isinstance(other, ir.Const) and _is_length(other):
            what = scope.text(gap.operands[0])
            better = f"now - {what}"
            # In a let it is mended there.
            help_, fix = f"an age is  {better}", Fix(gap.span, better) if gap is one else None
        else:
            continue
        always = _BEFORE[operator]
        scope.report(
            "P303" if always else "P301",
            f"`{what}` is past, so this is {'always' if always else 'never'} true",
            node.span,
            help_,
            fix=fix,
            severity=_WARNING,
        )
        return


def _turned(operator: str) -> str:
    return operator.translate(str.maketrans("<>", "><"))


def _inner(node: ir.Expr) -> ir.Expr:
    while isinstance(node, ir.Named):
        node = node.body
    return node


def _is_now(node: ir.Expr) -> bool:
    node = _inner(node)
    return isinstance(node, ir.Read) and node.field == "now"


def _is_past(node: ir.Expr) -> bool:
    node = _inner(node)
    return isinstance(node, ir.Read) and node.type.kind is Kind.TIME and node.field != "now"


def _until(node: ir.Expr) -> ir.Arith | None:
    """Returns `node.created - now`, which is never above nothing; None for anything else."""
    node = _inner(node)
    if not isinstance(node, ir.Arith) or node.operators != ("-",):
        return None
    return node if _is_past(node.operands[0]) and _is_now(node.operands[1]) else None


def _is_length(node: ir.Const) -> bool:
    return isinstance(node.value, float) and node.value > 0


# ---- numbers of texts


def no_number(scope: Scope, node: s.Call, value: Typed) -> None:
    """Warns of `number(node.kernel)`, which is always missing."""
    if not isinstance(value, ir.Read) or value.key is not None:
        return
    owner, _, last = value.field.rpartition(".")
    if last not in _NO_NUMBERS or owner.partition(".")[0] not in ("pod", "node", "it"):
        return
    text = scope.text(value)
    help_ = f'a part of it may be one:  number(after({text}, "-"))'
    if value.field in _VERSIONS:
        help_ = f"versions are compared by  version({text})"
    scope.warn(
        "P317",
        f"`{text}` is no number as a whole, so this is always missing",
        node.span,
        help_,
    )
