"""Expressions, texts and messages of Lark's tree become ours; statements: see `build`.

Lark's objects do not leave the package.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from lark import Token, Tree

from dsl import syntax as s
from dsl.diagnostics import Diagnostic
from dsl.parser.layout import nested
from dsl.source import MAX_DEPTH, MAX_ITEMS, SourceFile, Span

#: A node of Lark's tree; its stubs say little more.
Raw = Any
#: Reads an expression that stands in a message.
ReadHole = Callable[[SourceFile, Span, str], tuple[s.Expr | None, list[Diagnostic]]]
_LEAVES: Final = ("true", "false", "name", "bare_agg", "field")
_WRAPPERS: Final = (
    "word", "lit", "key", "num", "glob", "members", "set_ref", "agg_name", "label_op", "keyed",
)  # fmt: skip
_ESCAPES: Final = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t"}
#: The parts of a message; what stands in a hole may hold braces in quotes.
_PIECE: Final = re.compile(
    r"(?P<brace>\{\{|\}\})|(?P<escape>\\.)|(?P<hole>\{(?:[^{}\"']|\"[^\"]*\"|'[^']*')*\})"
    r"|(?P<stray>[{}])|(?P<text>[^{}\\]+)",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)


def _text(word: s.Word | None) -> str:
    return "" if word is None else " ".join(word.value.split())


def _field(
    span: Span, path: s.Word, _: s.Word | None, key: Raw = None, tail: s.Word | None = None
) -> s.Field:
    return s.Field(span, path.value, key, None, _text(tail))


def _label(
    span: Span, path: s.Word, key: Raw, operator: s.Word | None = None, value: Raw = None
) -> s.LabelTest:
    return s.LabelTest(span, path.value, path.span, key, _text(operator), value)


def _label_in(sign: str) -> Callable[..., s.LabelTest]:
    return lambda span, path, key, value: s.LabelTest(span, path.value, path.span, key, sign, value)


#: Nodes that are made of their span and their parts, in order; what is not there is None.
_OF_PARTS: Final[dict[str, Callable[..., s.Expr]]] = {
    "true": partial(s.Bool, value=True),
    "false": partial(s.Bool, value=False),
    "range": s.Range,
    "not_": s.Not,
    "neg": s.Negative,
    "percent_of": s.PercentOf,
    "or_expr": lambda span, *parts: s.Logical(span, "or", parts),
    "and_expr": lambda span, *parts: s.Logical(span, "and", parts),
    "like": lambda span, left, right: s.TextTest(span, "like", left, right),
    "matches": lambda span, left, right: s.TextTest(span, "matches", left, right),
    "text_test": lambda span, left, sign, right: s.TextTest(span, _text(sign), left, right),
    "compare": lambda span, left, sign, right: s.Compare(span, sign.value, sign.span, left, right),
    "is_in": partial(s.In, negated=False),
    "not_in": partial(s.In, negated=True),
    "is_": partial(s.Is, negated=False),
    "is_not": partial(s.Is, negated=True),
    "is_missing": partial(s.IsMissing, negated=False),
    "is_present": partial(s.IsMissing, negated=True),
    "has_label": _label,
    "label_test": _label,
    "label_in": _label_in("in"),
    "label_not_in": _label_in("not in"),
    "name": lambda span, name: s.Name(span, name.value),
    "call": lambda span, name, *args: s.Call(
        span, name.value, name.span, tuple(one for one in args if one is not None)
    ),
    "field": _field,
    "keyed_name": _field,
    "field_computed": lambda span, path, _, key, tail: s.Field(
        span, path.value, None, key, _text(tail)
    ),
    "bare_agg": lambda span, name: s.Aggregate(span, name.value, ()),
    "agg": lambda span, name, *rest: s.Aggregate(span, name.value, rest[:-2], *rest[-2:]),
}


class StopError(Exception):
    """A limit was met while the tree was built; never leaves the package."""


class _Expressions:
    """Turns expressions of one statement into ours; positions become those of the file."""

    def __init__(self, hole: ReadHole, source: SourceFile, base: int) -> None:
        self.hole = hole
        self.source = source
        self.base = base
        self.found: list[Diagnostic] = []
        self.depth = 0

    # ---- places and findings

    def refuse(self, code: str, message: str, span: Span, help_: str) -> None:
        """Adds a finding."""
        self.found.append(Diagnostic(code, message, self.source, span, helps=(help_,)))

    def span(self, node: Raw) -> Span:
        if isinstance(node, Token):
            start = node.start_pos or 0
            return Span(self.base + start, self.base + (node.end_pos or start))
        meta = node.meta
        if meta.empty:
            return Span(self.base, self.base)
        return Span(self.base + meta.start_pos, self.base + meta.end_pos)

    # ---- texts

    def template(self, token: Raw) -> s.Template:
        raw = str(token)
        span = self.span(token)
        mark = 3 if raw.startswith('"""') else 1
        if raw.startswith("'"):
            return s.Template(span, (raw[1:-1],))
        parts: list[str | s.Expr] = []
        for found in _PIECE.finditer(raw, mark, len(raw) - mark):
            kind, text, at = found.lastgroup, found.group(), found.start()
            if kind == "hole":
                expr = self._hole(text[1:-1], span.start + at + 1)
                parts.extend([] if expr is None else [expr])
                continue
            if kind == "stray":
                other = "}" if text == "{" else "{"
                self._refuse_hole(f"`{text}` has no `{other}`", span.start + at)
                break
            if kind == "escape":
                text = self._escape(text, span.start + at)
            elif kind == "brace":
                text = text[0]
            before = parts.pop() if parts and isinstance(parts[-1], str) else ""
            parts.append(f"{before}{text}")
        return s.Template(span, tuple(parts))

    def _hole(self, inner: str, start: int) -> s.Expr | None:
        if not inner.strip():
            self._refuse_hole("`{}` is empty", start - 1)
            return None
        plain = _ESCAPE.sub(lambda found: _ESCAPES.get(found.group(), found.group()), inner)
        expr, found = self.hole(self.source, Span(start, start + len(inner)), plain)
        self.found.extend(found)
        return expr

    def _refuse_hole(self, message: str, at: int) -> None:
        help_ = "write `{expression}`, or `{{` and `}}` for braces"
        self.refuse("P013", f"{message} in this message", Span(at, at + 1), help_)

    def quoted(self, token: Raw) -> str:
        """Returns the text between quotes, its escapes read."""
        raw = str(token)
        if raw.startswith("'"):
            return raw[1:-1]
        mark = 3 if raw.startswith('"""') else 1
        inner, start = raw[mark:-mark], self.span(token).start + mark
        return _ESCAPE.sub(lambda found: self._escape(found.group(), start + found.start()), inner)

    def _escape(self, escape: str, at: int) -> str:
        if escape not in _ESCAPES:
            known = 'a quoted text knows \\" \\\\ \\n \\t; single quotes take everything as it is'
            span = Span(at, at + len(escape))
            self.refuse("P008", f"`{escape}` means nothing in a quoted text", span, known)
        return _ESCAPES.get(escape, escape)

    # ---- expressions

    def expr(self, node: Raw) -> Raw:
        """Returns our tree of one of Lark's, None of none; untyped because Lark's trees are."""
        if node is None:
            return None
        while isinstance(node, Tree) and node.data in _WRAPPERS:
            node = node.children[0]
        if isinstance(node, Token):
            return self._token(node)
        if node.data in _LEAVES:
            return self._built(node)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.found.append(nested(self.source, self.span(node).start))
            raise StopError
        try:
            return self._built(node)
        finally:
            self.depth -= 1

    def is_expression(self, node: Raw) -> bool:
        """Whether a node is an expression or a word, no part of a statement."""
        if isinstance(node, Token):
            return True
        name = str(node.data)
        return name in _WRAPPERS or name in _OF_PARTS or hasattr(self, f"ex_{name}")

    def _built(self, node: Raw) -> s.Expr:
        name = str(node.data)
        make = _OF_PARTS.get(name)
        if make is not None:
            parts = [None if one is None else self.expr(one) for one in node.children]
            return make(self.span(node), *parts)
        build: Callable[[Raw], s.Expr] = getattr(self, f"ex_{name}")
        return build(node)

    def _token(self, token: Token) -> s.Expr:
        span = self.span(token)
        text = str(token)
        if token.type == "QUANT":
            return s.Number(span, text)
        if token.type == "PERCENT":
            return s.Percent(span, text)
        if token.type == "STRING":
            return s.Text(span, self.quoted(token))
        if token.type == "PARAM":
            return s.Param(span, text[1:])
        return s.Word(span, text)

    def ex_words(self, tree: Raw) -> s.Words:
        """Returns a list of words; refuses one that is too long."""
        items = [one for one in tree.children if one is not None]
        if len(items) > MAX_ITEMS:
            message = f"a list holds at most {MAX_ITEMS} items"
            help_ = "give the nodes or pods a label, and test that"
            self.refuse("P006", message, self.span(items[MAX_ITEMS]), help_)
            raise StopError
        return s.Words(self.span(tree), tuple(self.expr(one) for one in items))

    words = ex_words

    def ex_if_(self, tree: Raw) -> s.If:
        span = self.span(tree)
        branches = []
        while True:
            cond, then, other = tree.children
            branches.append((self.expr(cond), self.expr(then)))
            if isinstance(other, Tree) and other.data == "if_" and len(branches) < MAX_ITEMS:
                tree = other
                continue
            return s.If(span, tuple(branches), self.expr(other))

    def _chain(self, tree: Raw) -> s.Chain:
        span = self.span(tree)
        signs = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
        family = ("add", "sub") if tree.data in ("add", "sub") else ("mul", "div")
        operators: list[str] = []
        operands: list[Raw] = []
        node: Raw = tree
        # A chain leans to the left; walking it down keeps the recursion flat. A parenthesised
        # chain of the same family on the left has the same meaning, so it may join.
        while isinstance(node, Tree) and node.data in family:
            left, right = node.children
            operators.append(signs[str(node.data)])
            operands.append(right)
            node = left
        operands.append(node)
        built = tuple(self.expr(one) for one in reversed(operands))
        return s.Chain(span, tuple(reversed(operators)), built)

    ex_add = ex_sub = ex_mul = ex_div = _chain

    def ex_fallback(self, tree: Raw) -> s.Fallback:
        span = self.span(tree)
        operands = []
        node: Raw = tree
        while isinstance(node, Tree) and node.data == "fallback":
            first, node = node.children
            operands.append(self.expr(first))
        return s.Fallback(span, (*operands, self.expr(node)))
