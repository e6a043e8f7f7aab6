"""The mutants of a source file: small changes of its tree, each of which a test should notice.

Swapped are comparisons, arithmetic, `and` with `or`; negated are conditions, filters and guards;
numbers grow by one, flags turn, words get two letters more; statements, cases, arguments and signs
are removed; values returned or assigned become None (but not False, 0 or an empty text: a test
could tell those from None only by their type, which is checked otherwise). Left alone are
what is in no function, docstrings, annotations, decorators, messages (texts with a blank or a
backquote), assertions, errors that are our own (`AssertionError`, `NotImplementedError`), and
`strict=` of zip.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.Div, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
OUR_ERRORS: Final = ("AssertionError", "NotImplementedError")
#: Calls whose arguments are types, and keywords that only guard against our own mistakes.
TYPE_CALLS: Final = frozenset({"cast", "TypeVar"})
GUARDS: Final = frozenset({"strict"})

Apply = Callable[[], Callable[[], None]]
"""Changes the tree, and returns what takes the change back."""


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    path: str
    line: int
    #: The lines of which a test runs one, if it can meet the change at all.
    lines: tuple[int, int]
    #: The functions and classes around it, joined by dots.
    name: str
    what: str
    #: Its line, stripped.
    source: str
    apply: Apply


def mutants_of(root: Path, path: str) -> tuple[ast.Module, list[Mutant]]:
    """Returns the tree of a file and its mutants, in the order of the text."""
    text = (root / path).read_text(encoding="utf-8")
    tree = ast.parse(text)
    finder = _Finder(path, text)
    finder.body(tree.body, documented=True)
    return tree, finder.found


class _Finder:
    """Walks statements and expressions; `lines` are those of the statement that is walked."""

    def __init__(self, path: str, text: str) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._lines = text.splitlines()
        self._names: list[str] = []
        self._functions = 0
        self._span = (0, 0)

    def add(self, node: ast.expr | ast.stmt | ast.pattern, what: str, apply: Apply) -> None:
        if not self._functions:
            return
        source = self._lines[node.lineno - 1].strip()
        name = ".".join(self._names)
        self.found.append(Mutant(self._path, node.lineno, self._span, name, what, source, apply))

    # ---- statements

    def body(self, body: list[ast.stmt], *, documented: bool = False) -> None:
        """`documented`: the first statement may be a docstring."""
        for index, one in enumerate(body):
            if documented and index == 0 and _is_text(one):
                continue
            self._span = _head(one)
            visit = getattr(self, f"_{type(one).__name__.lower()}", None)
            if visit is not None:
                visit(one, body, index)

    def _functiondef(self, one: ast.FunctionDef, *_: object) -> None:
        for defaults in (one.args.defaults, one.args.kw_defaults):
            for index, default in enumerate(defaults):
                if default is not None:
                    self._span = (default.lineno, default.lineno)
                    self.expr(default, defaults, index)
        self._functions += 1
        self._inside(one)
        self._functions -= 1

    def _classdef(self, one: ast.ClassDef, *_: object) -> None:
        self._inside(one)

    def _inside(self, one: ast.FunctionDef | ast.ClassDef) -> None:
        self._names.append(one.name)
        self.body(one.body, documented=True)
        self._names.pop()

    def _raise(self, one: ast.Raise, *_: object) -> None:
        if one.exc is not None and not any(name in ast.unparse(one.exc) for name in OUR_ERRORS):
            self.expr(one.exc, one, "exc")

    def _return(self, one: ast.Return, *_: object) -> None:
        if one.value is None:
            return
        if not (isinstance(one.value, ast.Constant) and not one.value.value):
            self.add(one, "return -> None", swap(one, "value", ast.Constant(None)))
        self.expr(one.value, one, "value")

    def _expr(self, one: ast.Expr, body: list[ast.stmt], index: int) -> None:
        if isinstance(one.value, ast.Call | ast.YieldFrom):
            self.add(one, "statement removed", swap(body, index, ast.Pass()))
        self.expr(one.value, one, "value")

    def _assign(self, one: ast.Assign, *_: object) -> None:
        self._assigned(one, one.value)

    def _annassign(self, one: ast.AnnAssign, *_: object) -> None:
        if one.value is not None:
            self._assigned(one, one.value)

    def _assigned(self, one: ast.Assign | ast.AnnAssign, value: ast.expr) -> None:
        if not isinstance(value, ast.Constant):
            self.add(one, "assigned None", swap(one, "value", ast.Constant(None)))
        self.expr(value, one, "value")

    def _augassign(self, one: ast.AugAssign, body: list[ast.stmt], index: int) -> None:
        self.add(one, "statement removed", swap(body, index, ast.Pass()))
        other = SWAPPED.get(type(one.op))
        if other is not None:
            what = f"aug {type(one.op).__name__} -> {other.__name__}"
            self.add(one, what, swap(one, "op", other()))
        self.expr(one.value, one, "value")

    def _continue(self, one: ast.Continue, body: list[ast.stmt], index: int) -> None:
        self.add(one, "continue -> break", swap(body, index, ast.Break()))

    def _break(self, one: ast.Break, body: list[ast.stmt], index: int) -> None:
        self.add(one, "break -> continue", swap(body, index, ast.Continue()))

    def _if(self, one: ast.If | ast.While, *_: object) -> None:
        if isinstance(one.test, ast.Name) and one.test.id == "TYPE_CHECKING":
            return
        self._condition(one, "test")
        self.body(one.body)
        self.body(one.orelse)

    _while = _if

    def _for(self, one: ast.For, *_: object) -> None:
        self.expr(one.iter, one, "iter")
        self.body(one.body)
        self.body(one.orelse)

    def _with(self, one: ast.With, *_: object) -> None:
        for item in one.items:
            self.expr(item.context_expr, item, "context_expr")
        self.body(one.body)

    def _try(self, one: ast.Try, *_: object) -> None:
        self.body(one.body)
        for handler in one.handlers:
            self.body(handler.body)
        self.body(one.orelse)
        self.body(one.finalbody)

    def _match(self, one: ast.Match, *_: object) -> None:
        self.expr(one.subject, one, "subject")
        for index, case in enumerate(one.cases):
            self._span = (case.pattern.lineno, case.pattern.end_lineno or case.pattern.lineno)
            ours = any(name in ast.unparse(each) for name in OUR_ERRORS[:1] for each in case.body)
            if len(one.cases) > 1 and not _takes_all(case.pattern) and not ours:
                self.add(case.pattern, "case removed", remove(one.cases, index))
            if case.guard is not None:
                self._condition(case, "guard", "guard negated")
            self.body(case.body)

    def _condition(self, holder: Any, key: str, what: str = "condition negated") -> None:
        test = getattr(holder, key)
        self.add(test, what, swap(holder, key, ast.UnaryOp(ast.Not(), test)))
        self.expr(test, holder, key)

    # ---- expressions: each stands in an attribute or a list of `holder`

    def expr(self, one: ast.expr, holder: Any, key: Any) -> None:
        visit = getattr(self, f"_{type(one).__name__.lower()}", None)
        if visit is None:
            self._parts(one)
        elif not isinstance(one, ast.Call) or ast.unparse(one.func) not in TYPE_CALLS:
            visit(one, holder, key)

    def _parts(self, one: ast.expr) -> None:
        for name, value in ast.iter_fields(one):
            if isinstance(value, ast.expr):
                self.expr(value, one, name)
            elif isinstance(value, list):
                self._all(value)

    def _all(self, some: list[Any]) -> None:
        for index, one in enumerate(some):
            if isinstance(one, ast.expr):
                self.expr(one, some, index)

    def _constant(self, one: ast.Constant, holder: Any, key: Any) -> None:
        new: object
        match one.value:
            case bool():
                new = not one.value
            case int() | float():
                new = one.value + 1
            case str() if " " not in one.value.strip() and "`" not in one.value:
                new = f"{one.value}XX"
            case _:
                return
        self.add(one, f"{one.value!r} -> {new!r}", swap(holder, key, ast.Constant(new)))

    def _joinedstr(self, one: ast.JoinedStr, *_: object) -> None:
        for part in one.values:
            if isinstance(part, ast.FormattedValue):
                self.expr(part.value, part, "value")

    def _compare(self, one: ast.Compare, *_: object) -> None:
        for index, op in enumerate(one.ops):
            self._swapped(one, op, one.ops, index)
        self._parts(one)

    def _boolop(self, one: ast.BoolOp, *_: object) -> None:
        self._swapped(one, one.op, one, "op")
        self._parts(one)

    def _binop(self, one: ast.BinOp, holder: Any, key: Any) -> None:
        if isinstance(one.op, ast.BitOr) and _is_class(one.right):
            for side in (one.left, one.right):
                self.add(one, f"`{ast.unparse(side)}` alone", swap(holder, key, side))
            if isinstance(one.left, ast.BinOp):
                self.expr(one.left, one, "left")
            return
        if type(one.op) in SWAPPED:
            self._swapped(one, one.op, one, "op")
        self._parts(one)

    def _swapped(self, one: ast.expr, op: ast.AST, holder: Any, key: Any) -> None:
        other = SWAPPED[type(op)]
        self.add(one, f"{type(op).__name__} -> {other.__name__}", swap(holder, key, other()))

    def _unaryop(self, one: ast.UnaryOp, holder: Any, key: Any) -> None:
        self.add(one, f"{type(one.op).__name__} dropped", swap(holder, key, one.operand))
        self.expr(one.operand, one, "operand")

    def _ifexp(self, one: ast.IfExp, *_: object) -> None:
        self._condition(one, "test")
        self.expr(one.body, one, "body")
        self.expr(one.orelse, one, "orelse")

    def _call(self, one: ast.Call, *_: object) -> None:
        for index, keyword in enumerate(one.keywords):
            if keyword.arg in GUARDS:
                continue
            if keyword.arg is not None:
                what = f"argument {keyword.arg}= dropped"
                self.add(keyword.value, what, remove(one.keywords, index))
            self.expr(keyword.value, keyword, "value")
        if len(one.args) > 1 and _can_be_dropped(one.args[-1]) and not _is_named(one, "isinstance"):
            last = len(one.args) - 1
            self.add(one.args[-1], "last argument dropped", remove(one.args, last))
        self._all(one.args)
        self.expr(one.func, one, "func")

    def _comprehension(self, one: Any, *_: object) -> None:
        for generator in one.generators:
            self.expr(generator.iter, generator, "iter")
            for index, test in enumerate(generator.ifs):
                negated = ast.UnaryOp(ast.Not(), test)
                self.add(test, "filter negated", swap(generator.ifs, index, negated))
                self.expr(test, generator.ifs, index)
        self._parts(one)

    _listcomp = _setcomp = _generatorexp = _dictcomp = _comprehension

    def _lambda(self, one: ast.Lambda, *_: object) -> None:
        self.expr(one.body, one, "body")


def swap(holder: Any, key: Any, new: ast.AST) -> Apply:
    """The change that puts `new` into an attribute or an index of `holder`."""

    def put(value: Any) -> Any:
        if isinstance(holder, list):
            old, holder[key] = holder[key], value
        else:
            old = getattr(holder, key)
            setattr(holder, key, value)
        return old

    def apply() -> Callable[[], None]:
        old = put(ast.copy_location(new, old_place(holder, key)))

        def undo() -> None:
            put(old)

        return undo

    return apply


def old_place(holder: Any, key: Any) -> ast.AST:
    """What stands there, whose line the new one takes."""
    old: ast.AST = holder[key] if isinstance(holder, list) else getattr(holder, key)
    return old


def remove(some: list[Any], index: int) -> Apply:
    """The change that takes one element out of a list."""

    def apply() -> Callable[[], None]:
        old = some.pop(index)

        def undo() -> None:
            some.insert(index, old)

        return undo

    return apply


def _head(one: ast.stmt) -> tuple[int, int]:
    """The lines of a statement; of one that holds others, those before the others."""
    ends = {ast.If: "test", ast.While: "test", ast.For: "iter", ast.Match: "subject"}
    end: Any = getattr(one, ends[type(one)]) if type(one) in ends else one
    if isinstance(one, ast.With):
        end = one.items[-1].context_expr
    elif isinstance(one, ast.Try):
        return one.lineno, one.lineno
    return one.lineno, end.end_lineno


def _is_text(one: ast.stmt) -> bool:
    return (
        isinstance(one, ast.Expr)
        and isinstance(one.value, ast.Constant)
        and isinstance(one.value.value, str)
    )


def _takes_all(pattern: ast.pattern) -> bool:
    return isinstance(pattern, ast.MatchAs) and pattern.pattern is None


def _is_class(one: ast.expr) -> bool:
    return isinstance(one, ast.Attribute) and one.attr[:1].isupper()


def _can_be_dropped(last: ast.expr) -> bool:
    """An argument that may have a default: no text, nothing starred."""
    text = isinstance(last, ast.Constant) and isinstance(last.value, str)
    return not text and not isinstance(last, ast.Starred | ast.JoinedStr)


def _is_named(one: ast.Call, name: str) -> bool:
    return isinstance(one.func, ast.Name) and one.func.id == name
