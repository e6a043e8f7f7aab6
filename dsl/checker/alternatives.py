"""`x is a or b`, `x is (a or b)`, `"app" in pod.labels`: values where a test or a list is wanted.

Refuses; decides no type.
"""

import re
from typing import Final

from dsl import syntax as s
from dsl.checker.fields import canonical
from dsl.checker.scope import Refused, Scope
from dsl.diagnostics import Fix
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.spelling import quoted_key
from dsl.types import Kind

_Test = s.Is | s.TextTest | s.Compare | s.LabelTest
_OPPOSITE: Final = {"==": False, "=": False, "!=": True}


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
    several = _several(scope, node, test)
    if several:
        # That one of two is meant by `and` is likely, not sure.
        fix = Fix(node.span, several) if node.operator == "or" else None
        return scope.refuse("P201", message, value.span, f"write  {several}", fix=fix)
    if isinstance(test, s.LabelTest):
        sign = {"in": "=", "not in": "!="}.get(test.operator, test.operator)
        better = f"{test.path} " + (f"{scope.text(test.key)}{sign}" if sign else "") + text
    else:
        operator = test.operator if not isinstance(test, s.Is) else "is" + " not" * test.negated
        # After a symbol a bare word would be a name.
        word = isinstance(value, s.Name) and isinstance(test, s.Compare)
        better = f"{scope.text(test.left)} {operator} " + (f'"{text}"' if word else text)
    return scope.refuse("P201", message, value.span, fix=better)


def _several(scope: Scope, node: s.Logical, test: _Test) -> str:
    """`x is not a or b`, `x is a and b`: a list, for a test of each would hold always or never."""
    operator = test.operator if not isinstance(test, s.Is) else "!=" if test.negated else "=="
    against = _OPPOSITE.get(operator)
    if against is None or against != (node.operator == "or") or node.operands[0] is not test:
        return ""
    if not all(isinstance(one, s.Name | s.Text) for one in node.operands[1:]):
        return ""
    if isinstance(test, s.LabelTest):
        first, left = test.value, f"{test.path} {scope.text(test.key)}"
    else:
        first, left = test.right, scope.text(test.left)
    assert first is not None
    items = ", ".join(scope.text(one) for one in (first, *node.operands[1:]))
    return f"{left} {'not in' if against else 'in'} [{items}]"


def listed_words(scope: Scope, node: s.Is | s.TextTest) -> None:
    """Refuses `x is (a or b)`."""
    right = node.right
    if not isinstance(right, s.Logical):
        return
    if not all(isinstance(one, s.Name | s.Text) for one in right.operands):
        return
    words, left = [scope.text(one) for one in right.operands], scope.text(node.left)
    if isinstance(node, s.Is):
        operator = "is"
        better = f"{left} {'not in' if node.negated else 'in'} [{', '.join(words)}]"
    else:
        operator = node.operator
        each = [f"{left} {operator} {one}" for one in words]
        better = f"({f' {right.operator} '.join(each)})"
    message = f"`{operator}` takes one value"
    raise scope.refuse("P201", message, right.span, fix=Fix(node.span, better))


def membership(scope: Scope, node: s.In) -> None:
    """Refuses `"app" in pod.labels`, `"nginx" in pod.name`, `x in a`, `x in "a, b"`."""
    members = node.members
    better = ""
    if isinstance(members, s.Field) and isinstance(node.left, s.Text) and members.key is None:
        better = _within(scope, node.left, members)
    if better:
        better = f"not {better}" if node.negated else better
        message = f"`in` wants a list, and `{scope.text(members)}` is none"
        raise scope.refuse("P201", message, members.span, fix=Fix(node.span, better))
    if isinstance(members, s.Chain) and re.fullmatch(r"\d+-\d+", scope.text(members)):
        better = scope.text(members).replace("-", "..")
        raise scope.refuse("P201", "a range is written with `..`", members.span, fix=better)
    known = {*scope.names(), *scope.broken}
    if isinstance(members, s.Text) or (isinstance(members, s.Name) and members.name not in known):
        text = members.value if isinstance(members, s.Text) else members.name
        items = ", ".join(quoted_key(one.strip()) for one in text.split(",") if one.strip()) or '""'
        message = "`in` wants a list, and a list stands in brackets"
        around = scope.source.beside(members.span) == ("(", ")")
        place = Span(members.span.start - around, members.span.end + around)
        raise scope.refuse("P201", message, members.span, fix=Fix(place, f"[{items}]"))


def _within(scope: Scope, word: s.Text, members: s.Field) -> str:
    """Returns how it is asked whether a field has a key, or a text holds another."""
    spec, key = FIELDS.get(canonical(members.path)), quoted_key(word.value)
    if spec is None:
        return ""
    if not spec.keyed:
        return f"{spec.name} contains {scope.text(word)}" if spec.type.kind is Kind.TEXT else ""
    short = spec.name.endswith(("label", "annotation", "taint"))
    return f"{spec.name} {key}" if short else f"{spec.name}[{key}] is present"
