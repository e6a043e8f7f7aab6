"""Statements of Lark's tree become ours: which words are its sides, its clauses and its keys.

Lark's objects do not leave the package.
"""

import re
from collections.abc import Iterator
from typing import Final, cast

from lark import Token, Tree

from dsl import syntax as s
from dsl.parser.expressions import Raw, _Expressions
from dsl.source import Span

_KEYWORD: Final = re.compile(r"[A-Za-z]+")


class _Builder(_Expressions):
    """Turns the tree of one statement into ours."""

    # ---- statements

    def statement(self, tree: Raw) -> s.Statement:
        return cast("s.Statement", getattr(self, f"st_{tree.data}")(tree))

    def _header(self, tree: Raw) -> s.Header:
        (value,) = tree.children
        return s.Header(self.span(tree), str(tree.data), self.expr(value))

    st_policy = st_description = st_version = st_language = st_mode = _header
    st_applies_to = st_order = st_policy_weight = _header

    def _named(self, tree: Raw) -> tuple[Span, str, Span]:
        """Returns the place of a declaration, and its name with its place."""
        name = tree.children[0]
        return self.span(tree), str(name), self.span(name)

    def st_param(self, tree: Raw) -> s.ParamDecl:
        _, kind, default, check, doc = tree.children
        checked = None if check is None else tuple(self.expr(one) for one in check.children)
        ranges = check is not None and check.data == "range_check"
        return s.ParamDecl(
            *self._named(tree),
            str(kind.children[0]) if kind is not None else "",
            kind is not None and kind.data == "list_type",
            self.expr(default),
            cast("tuple[s.Literal, s.Literal] | None", checked if ranges else None),
            cast("s.Words", checked[0]) if checked is not None and not ranges else None,
            self.quoted(doc) if doc is not None else "",
        )

    def st_decl(self, tree: Raw) -> s.Use:
        """Reads a `use`, the one declaration that is a rule of its own in the grammar."""
        (tree,) = tree.children
        _, *args, alias, weight = tree.children
        given = (
            s.Argument(self.span(one), str(one.children[0]), self.expr(one.children[1]))
            for one in args
            if one is not None
        )
        return s.Use(*self._named(tree), tuple(given), str(alias or ""), self.expr(weight))

    def st_let(self, tree: Raw) -> s.LetDecl:
        return s.LetDecl(*self._named(tree), self.expr(tree.children[1]))

    def st_metric(self, tree: Raw) -> s.MetricDecl:
        _, source, *clauses = tree.children
        asked = tuple(map(self.expr, source.children))
        return s.MetricDecl(*self._named(tree), str(source.data), asked, self._clauses(clauses))

    def _keyword(self, tree: Raw) -> str:
        """Returns the word of a statement as it is written: a point has two."""
        word = _KEYWORD.match(self.source.text, self.span(tree).start)
        return word.group() if word else str(tree.data)

    def _rule(self, tree: Raw) -> s.Rule:
        first, *clauses = tree.children
        direction, left, right = "", None, first
        if tree.data in ("prefer", "avoid"):
            target, *clauses = clauses
            direction = "" if target.data == "plain" else str(target.data)
            left, right = first and first.children[0], target.children[0]
        elif tree.data != "prescore":
            left, right = first.children
            if right is None:
                left, right = None, left
        return s.Rule(
            self.span(tree),
            self._keyword(tree),
            str(tree.data),
            self.expr(left),
            self.expr(right),
            self._clauses(clauses),
            direction,
        )

    st_filter = st_forbid = st_score = st_gate = st_prefilter = st_reserve = st_first = _rule
    st_prescore = st_prefer = st_avoid = _rule

    def st_normalize(self, tree: Raw) -> s.NormalizeDecl:
        (norm,) = tree.children
        return s.NormalizeDecl(
            self.span(tree), s.Clause(self.span(norm), "normalize", self._norm(norm))
        )

    def _special(self, tree: Raw) -> s.Special:
        left: s.Expr | None = None
        parts: list[s.Clause] = []
        for child in tree.children:
            if isinstance(child, Tree) and child.data == "cond":
                left = self.expr(child.children[0])
            elif child is not None:
                parts.extend(self._parts(child))
        return s.Special(self.span(tree), self._keyword(tree), str(tree.data), left, tuple(parts))

    st_sort = st_preempt = st_spread = st_permit = st_prebind = _special
    st_bind = st_postbind = st_gang = st_quota = _special

    def _parts(self, tree: Raw) -> Iterator[s.Clause]:
        """Yields a part of a statement, and the parts that the grammar nests in it."""
        span, name = self.span(tree), "" if isinstance(tree, Token) else str(tree.data)
        if self.is_expression(tree):
            yield s.Clause(span, "by", (self.expr(tree),))
            return
        children = [one for one in tree.children if one is not None]
        match name:
            case "keys" | "victim_order" | "pick" | "quota_reclaim":
                keys = tree if name == "keys" else children[0]
                yield s.Clause(span, name, self._keys(keys))
            case "quota_min" | "quota_max":
                yield s.Clause(span, name, tuple(self._amount(one) for one in children))
            case "message" | "event":
                yield s.Clause(span, name, (self.template(children[0]),))
            case "norm_clause":
                yield s.Clause(span, "normalize", self._norm(children[0]))
            case "topo":
                yield s.Clause(span, "over", (self.expr(children[0]),))
            case "gang_within":
                yield s.Clause(span, name, (self.expr(children[0].children[0]),))
            case _:
                yield from self._nested(tree, children)

    def _nested(self, tree: Raw, children: list[Raw]) -> Iterator[s.Clause]:
        plain = [one for one in children if self.is_expression(one)]
        if tree.data != "quota_clause":
            yield s.Clause(self.span(tree), str(tree.data), tuple(map(self.expr, plain)))
        for one in children:
            if not self.is_expression(one):
                yield from self._parts(one)

    def _clauses(self, trees: list[Raw]) -> tuple[s.Clause, ...]:
        return tuple(one for each in trees for one in self._parts(each))

    def _keys(self, tree: Raw) -> tuple[s.Key, ...]:
        return tuple(
            s.Key(
                self.span(one),
                self.expr(one.children[0]),
                str(one.data),
                self.words(one.children[1]) if one.data == "listed" else None,
            )
            for one in tree.children
        )

    def _amount(self, tree: Raw) -> s.Amount:
        key, value = tree.children
        return s.Amount(self.span(tree), self.expr(key), self.expr(value))

    def _norm(self, tree: Raw) -> tuple[s.Word, ...]:
        kind = str(tree.children[0]) if tree.children else "default"
        words = (kind, "reverse") if tree.data == "norm_reverse" else (kind,)
        return tuple(s.Word(self.span(tree), one) for one in words)
