"""One statement's text becomes its tree: runs Lark and turns Lark's tree into ours.

Lark's objects do not leave this module.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar, cast

from lark import Token, Tree

from dsl import syntax as s
from dsl.diagnostics import Diagnostic
from dsl.parser.automaton import Automaton
from dsl.parser.expressions import Raw, StopError, _Expressions
from dsl.parser.lexemes import lexemes_of
from dsl.parser.reading import reaches, read
from dsl.parser.tables import load_tables
from dsl.source import SourceFile, Span

_T = TypeVar("_T")
#: The words of each statement that was read.
Kept = list[tuple[s.Lexeme, ...]]
#: Wrong statements of a file of which it is tried what may be meant: each costs many readings.
_MAX_TRIED: Final = 40
_KEYWORD: Final = re.compile(r"[A-Za-z]+")


class StatementReader:
    """Parses one statement or one expression at a time."""

    def __init__(self) -> None:
        self._loaded: Automaton | None = None
        self._wrong = 0

    def begin(self) -> None:
        """Begins a file: of its first wrong statements it is tried what may be meant."""
        self._wrong = 0

    def warm(self) -> None:
        """Reads the tables if they are not there yet, and makes the scanner of every state."""
        self._automaton().warm()

    def _automaton(self) -> Automaton:
        if self._loaded is None:
            self._loaded = Automaton(load_tables())
        return self._loaded

    def statement(
        self, source: SourceFile, span: Span, keep: Kept | None = None
    ) -> tuple[s.Statement | None, list[Diagnostic]]:
        """Reads one statement of a policy; see `built`."""
        return self.built(source, span, ("start", _statement), keep)

    def built(
        self,
        source: SourceFile,
        span: Span,
        how: "tuple[str, Callable[[_Builder, Raw], _T]]",
        keep: Kept | None = None,
    ) -> tuple[_T | None, list[Diagnostic]]:
        """Reads the text under a span; with None there is at least one finding.

        `how` is the start symbol and what turns Lark's tree into ours; `keep` gets the words.
        """
        start, make = how
        builder = _Builder(self.expression, source, span.start)
        text = source.slice(span)
        words: list[Token] | None = None if keep is None else []
        tree = self._read(builder, text if text.endswith("\n") else text + "\n", start, words)
        if tree is None:
            return None, builder.found
        if keep is not None and words is not None:
            keep.append(lexemes_of(tree, words, span.start))
        try:
            made = make(builder, tree)
        except StopError as stop:
            builder.report(stop.refusal)
            return None, builder.found
        return (None if builder.fatal else made), builder.found

    def reads(self, text: str, start: str = "start") -> bool:
        """Whether a text is a statement as far as the grammar goes."""
        return reaches(self._automaton(), text, start) > len(text)

    def expression(
        self, source: SourceFile, span: Span, text: str | None = None
    ) -> tuple[s.Expr | None, list[Diagnostic]]:
        """Reads the text under a span as an expression; `text` replaces it (escapes read)."""
        builder = _Builder(self.expression, source, span.start)
        text = source.slice(span) if text is None else text
        tree = self._read(builder, text, "expr")
        if tree is None:
            return None, builder.found
        try:
            return builder.expr(tree), builder.found
        except StopError as stop:
            builder.report(stop.refusal)
            return None, builder.found

    def _read(
        self,
        builder: "_Builder",
        text: str,
        start: str,
        words: list[Token] | None = None,
    ) -> Raw:
        tries = self._wrong < _MAX_TRIED
        tree, found = read(self._automaton(), text, start, words, tries=tries)
        self._wrong += bool(found)
        for refusal in found:
            builder.report(refusal)
        return tree


def _statement(builder: "_Builder", tree: Raw) -> s.Statement:
    return builder.statement(tree.children[0])


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

    def st_param(self, tree: Raw) -> s.ParamDecl:
        name, kind, default, check, doc = tree.children
        checked = None if check is None else tuple(self.expr(one) for one in check.children)
        ranges = check is not None and check.data == "range_check"
        return s.ParamDecl(
            self.span(tree),
            str(name),
            self.span(name),
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
        name, *args, alias, weight = tree.children
        given = (
            s.Argument(self.span(one), str(one.children[0]), self.expr(one.children[1]))
            for one in args
            if one is not None
        )
        span, alias = self.span(tree), str(alias or "")
        return s.Use(span, str(name), self.span(name), tuple(given), alias, self.expr(weight))

    def st_let(self, tree: Raw) -> s.LetDecl:
        name, value = tree.children
        return s.LetDecl(self.span(tree), str(name), self.span(name), self.expr(value))

    def st_metric(self, tree: Raw) -> s.MetricDecl:
        name, source, *clauses = tree.children
        return s.MetricDecl(
            self.span(tree),
            str(name),
            self.span(name),
            str(source.data),
            tuple(map(self.expr, source.children)),
            tuple(map(self.clause, clauses)),
        )

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
            tuple(map(self.clause, clauses)),
            direction,
        )

    st_filter = st_forbid = st_score = st_gate = st_prefilter = st_reserve = st_first = _rule
    st_prescore = st_prefer = st_avoid = _rule

    def st_normalize(self, tree: Raw) -> s.NormalizeDecl:
        return s.NormalizeDecl(self.span(tree), self._norm(tree.children[0]))

    def _special(self, tree: Raw) -> s.Special:
        left: s.Expr | None = None
        parts: list[s.Clause | s.KeysClause | s.AmountsClause] = []
        for child in tree.children:
            if child is None:
                continue
            if isinstance(child, Tree) and child.data == "cond":
                left = self.expr(child.children[0])
            else:
                parts.extend(self._parts(child))
        return s.Special(self.span(tree), self._keyword(tree), str(tree.data), left, tuple(parts))

    st_sort = st_preempt = st_spread = st_permit = st_prebind = _special
    st_bind = st_postbind = st_gang = st_quota = _special

    def _parts(self, tree: Raw) -> Iterator[s.Clause | s.KeysClause | s.AmountsClause]:
        """Yields a part of a statement, and the parts that the grammar nests in it."""
        span, name = self.span(tree), "" if isinstance(tree, Token) else str(tree.data)
        if self.is_expression(tree):
            yield s.Clause(span, "by", (self.expr(tree),))
            return
        children = [one for one in tree.children if one is not None]
        plain = [one for one in children if self.is_expression(one)]
        inner = [one for one in children if not any(one is part for part in plain)]
        if name == "keys":
            yield s.KeysClause(span, name, self._keys(tree))
        elif name in ("victim_order", "pick", "quota_reclaim"):
            yield s.KeysClause(span, name, self._keys(children[0]))
        elif name in ("quota_min", "quota_max"):
            yield s.AmountsClause(span, name, tuple(self._amount(one) for one in children))
        elif name in ("message", "event"):
            yield s.Clause(span, name, (self.template(children[0]),))
        elif name == "topo":
            yield s.Clause(span, "over", (self.expr(children[0]),))
        elif name == "gang_within":
            yield s.Clause(span, name, (self.expr(children[0].children[0]),))
        else:
            if name != "quota_clause":
                yield s.Clause(span, name, tuple(self.expr(one) for one in plain))
            for one in inner:
                yield from self._parts(one)

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

    # ---- clauses

    def clause(self, tree: Raw) -> s.Clause:
        span = self.span(tree)
        name = str(tree.data)
        if name == "message":
            return s.Clause(span, name, (self.template(tree.children[0]),))
        if name == "norm_clause":
            return s.Clause(span, "normalize", self._norm(tree.children[0]).values)
        return s.Clause(span, name, tuple(self.expr(one) for one in tree.children))

    def _norm(self, tree: Raw) -> s.Clause:
        span = self.span(tree)
        kind = str(tree.children[0]) if tree.children else "default"
        words = [s.Word(span, kind)]
        if tree.data == "norm_reverse":
            words.append(s.Word(span, "reverse"))
        return s.Clause(span, "normalize", tuple(words))
