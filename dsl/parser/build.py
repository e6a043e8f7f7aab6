"""One statement's text becomes its tree: runs Lark and turns Lark's tree into ours.

Lark's objects do not leave this module.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

from lark import Token, Tree

from dsl import syntax as s
from dsl.diagnostics import Diagnostic
from dsl.parser.automaton import Automaton
from dsl.parser.lexemes import lexemes_of
from dsl.parser.reading import depth_refusal, reaches, read
from dsl.parser.refusal import Meant, Refusal
from dsl.parser.tables import load_tables
from dsl.source import MAX_DEPTH, MAX_ITEMS, SourceFile, Span

#: A node of Lark's tree; its stubs say little more.
Raw = Any
_T = TypeVar("_T")
#: The words of each statement that was read.
Kept = list[tuple[s.Lexeme, ...]]
_LEAVES: Final = ("true", "false", "name", "bare_agg", "field")
_WRAPPERS: Final = ("word", "lit", "key", "num", "glob", "members", "set_ref")
_ESCAPES: Final = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\t": "\t"}
#: Wrong statements of a file of which it is tried what may be meant: each costs many readings.
_MAX_TRIED: Final = 40
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_PART_WORDS: Final = """
    keys never victims victim_order pick victim_limit across topo skew hard peers_by weight allow
    reject wait_until wait_then message status annotate set_label event bind_default bind_with
    bind_dry gang_min gang_wait gang_backoff gang_reject gang_within quota_clause quota_min
    quota_max quota_elastic quota_reclaim
"""
#: What the grammar calls the parts of a statement that are more than one expression.
_PARTS: Final = frozenset(_PART_WORDS.split())
_KEYWORD: Final = re.compile(r"[A-Za-z]+")
_RESOURCE: Final = re.compile(
    r"(?:cpus?|cores?|memory|storage|ephemeral-storage|pods|gpus?|hugepages-\w+|[\w.-]+/[\w.-]+)\Z"
)


class _StopError(Exception):
    """A limit was met while the tree was built; never leaves this module."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class StatementReader:
    """Parses one statement or one expression at a time."""

    def __init__(self, meant: Meant | None = None) -> None:
        """Makes a reader; `meant` says how calls of other languages are written here."""
        self._loaded: Automaton | None = None
        self._meant = meant
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

        Args:
            source: the file.
            span: the text in it.
            how: the start symbol, what turns Lark's tree into ours.
            keep: gets the words of the text, if it can be read.
        """
        start, make = how
        builder = _Builder(self, source, span.start)
        text = source.slice(span)
        words: list[Token] | None = None if keep is None else []
        tree = self._read(builder, text if text.endswith("\n") else text + "\n", start, words)
        if tree is None:
            return None, builder.found
        if keep is not None and words is not None:
            keep.append(lexemes_of(tree, words, span.start))
        try:
            made = make(builder, tree)
        except _StopError as stop:
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
        builder = _Builder(self, source, span.start)
        text = source.slice(span) if text is None else text
        tree = self._read(builder, text, "expr")
        if tree is None:
            return None, builder.found
        try:
            return builder.expr(tree), builder.found
        except _StopError as stop:
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
        tree, found = read(self._automaton(), text, start, words, self._meant, tries=tries)
        self._wrong += bool(found)
        for refusal in found:
            builder.report(refusal)
        return tree


def _statement(builder: "_Builder", tree: Raw) -> s.Statement:
    return builder.statement(tree.children[0])


class _Builder:
    """Turns the tree of one statement into ours; positions become those of the file."""

    def __init__(self, reader: StatementReader, source: SourceFile, base: int) -> None:
        self.reader = reader
        self.source = source
        self.base = base
        self.found: list[Diagnostic] = []
        self.fatal = False
        self.depth = 0

    # ---- places and findings

    def report(self, refusal: Refusal) -> None:
        """Adds a finding whose places count from the start of the statement."""
        self.fatal = True
        size = len(self.source.text)
        self.found.append(refusal.diagnostic(self.source, self.base, size))

    def span(self, node: Raw) -> Span:
        if isinstance(node, Token):
            start = node.start_pos or 0
            return Span(self.base + start, self.base + (node.end_pos or start))
        meta = node.meta
        if meta.empty:
            return Span(self.base, self.base)
        return Span(self.base + meta.start_pos, self.base + meta.end_pos)

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
        bounds: tuple[s.Literal, s.Literal] | None = None
        choices: s.Words | None = None
        if check is not None and check.data == "range_check":
            low, high = (cast("s.Literal", self.expr(one)) for one in check.children)
            bounds = (low, high)
        elif check is not None:
            choices = self.words(check.children[0])
        return s.ParamDecl(
            self.span(tree),
            str(name),
            self.span(name),
            str(kind.children[0]) if kind is not None else "",
            kind is not None and kind.data == "list_type",
            cast("s.Literal", self.expr(default)) if default is not None else None,
            bounds,
            choices,
            self.quoted(doc) if doc is not None else "",
        )

    def st_decl(self, tree: Raw) -> s.Use:
        """Reads a `use`, the one declaration that is a rule of its own in the grammar."""
        (tree,) = tree.children
        name, *args, alias, weight = tree.children
        return s.Use(
            self.span(tree),
            str(name),
            self.span(name),
            tuple(
                s.Argument(self.span(one), str(one.children[0]), self.expr(one.children[1]))
                for one in args
                if one is not None
            ),
            str(alias) if alias is not None else "",
            self.expr(weight) if weight is not None else None,
        )

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
            tuple(self.expr(one) for one in source.children),
            tuple(self.clause(one) for one in clauses),
        )

    def _rule(self, tree: Raw) -> s.Rule:
        rule, *clauses = tree.children
        left, right = rule.children
        if right is None:
            left, right = None, left
        return self._make_rule(tree, left, right, clauses)

    def _make_rule(
        self, tree: Raw, left: Raw, right: Raw, clauses: list[Raw], direction: str = ""
    ) -> s.Rule:
        span = self.span(tree)
        word = _KEYWORD.match(self.source.text, span.start)
        return s.Rule(
            span,
            word.group() if word else str(tree.data),
            str(tree.data),
            self.expr(left) if left is not None else None,
            self.expr(right),
            tuple(self.clause(one) for one in clauses),
            direction,
        )

    st_filter = st_forbid = st_score = st_gate = st_prefilter = st_reserve = st_first = _rule

    def st_prescore(self, tree: Raw) -> s.Rule:
        return self._make_rule(tree, None, tree.children[0], [])

    def _preference(self, tree: Raw) -> s.Rule:
        cond, target, *clauses = tree.children
        left = cond.children[0] if cond is not None else None
        direction = "" if target.data == "plain" else str(target.data)
        return self._make_rule(tree, left, target.children[0], clauses, direction)

    st_prefer = st_avoid = _preference

    def st_normalize(self, tree: Raw) -> s.NormalizeDecl:
        return s.NormalizeDecl(self.span(tree), self._norm(tree.children[0]))

    def _special(self, tree: Raw) -> s.Special:
        span = self.span(tree)
        word = _KEYWORD.match(self.source.text, span.start)
        keyword = word.group() if word else str(tree.data)
        left: s.Expr | None = None
        parts: list[s.Clause | s.KeysClause | s.AmountsClause] = []
        for child in tree.children:
            if child is None:
                continue
            if isinstance(child, Tree) and child.data == "cond":
                left = self.expr(child.children[0])
            else:
                parts.extend(self._parts(child))
        return s.Special(span, keyword, str(tree.data), left, tuple(parts))

    st_sort = st_preempt = st_spread = st_permit = st_prebind = _special
    st_bind = st_postbind = st_gang = st_quota = _special

    def _parts(self, tree: Raw) -> Iterator[s.Clause | s.KeysClause | s.AmountsClause]:
        """Yields a part of a statement, and the parts that the grammar nests in it."""
        span, name = self.span(tree), "" if isinstance(tree, Token) else str(tree.data)
        if name not in _PARTS:
            yield s.Clause(span, "by", (self.expr(tree),))
            return
        children = [one for one in tree.children if one is not None]
        inner = [one for one in children if isinstance(one, Tree) and one.data in _PARTS]
        plain = [one for one in children if not any(one is part for part in inner)]
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
        amount = s.Amount(self.span(tree), self.expr(key), self.expr(value))
        if _turned(amount):
            # No resource starts with a digit: the name stands behind its amount.
            resource = self.source.slice(amount.value.span)
            named = "cpu" if resource in ("cpus", "core", "cores") else resource
            better = f"{named} {self.source.slice(amount.key.span)}"
            start, end = (at - self.base for at in (amount.span.start, amount.span.end))
            self.report(
                Refusal(
                    "P001", f"`{resource}` stands before its amount", start, end,
                    helps=(f"write  {better}",), fix=better,
                )
            )  # fmt: skip
        return amount

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

    def template(self, token: Raw) -> s.Template:
        raw = str(token)
        span = self.span(token)
        mark = 3 if raw.startswith('"""') else 1
        if raw.startswith("'"):
            return s.Template(span, (raw[1:-1],))
        parts: list[str | s.Expr] = []
        text = ""
        at, end = mark, len(raw) - mark
        while at < end:
            char = raw[at]
            if raw[at : at + 2] in ("{{", "}}"):
                text += char
                at += 2
            elif char == "\\":
                text += self._escape(raw[at : at + 2], span.start + at)
                at += 2
            elif char == "{":
                close = _closing(raw, at, end)
                expr = self._hole(raw, span.start, at, close) if close > 0 else None
                if close < 0:
                    self.report(_hole_refusal("`{` has no `}`", span, at, self.base))
                    break
                parts.extend([text] if text else [])
                parts.extend([expr] if expr is not None else [])
                text = ""
                at = close + 1
            elif char == "}":
                self.report(_hole_refusal("`}` has no `{`", span, at, self.base))
                break
            else:
                text += char
                at += 1
        if text:
            parts.append(text)
        return s.Template(span, tuple(parts))

    def _hole(self, raw: str, start: int, at: int, close: int) -> s.Expr | None:
        inner = raw[at + 1 : close]
        span = Span(start + at + 1, start + close)
        if not inner.strip():
            self.report(_hole_refusal("`{}` is empty", Span(start, start), at, self.base))
            return None
        plain = _ESCAPE.sub(lambda found: _ESCAPES.get(found.group(), found.group()), inner)
        expr, found = self.reader.expression(self.source, span, plain)
        self.found.extend(found)
        self.fatal = self.fatal or bool(found)
        return expr

    def quoted(self, token: Raw) -> str:
        """Returns the text between quotes, its escapes read."""
        raw = str(token)
        if raw.startswith('"""'):
            inner, shift = raw[3:-3], 3
        elif raw.startswith("'"):
            return raw[1:-1]
        else:
            inner, shift = raw[1:-1], 1
        start = self.span(token).start + shift
        return _ESCAPE.sub(lambda found: self._escape(found.group(), start + found.start()), inner)

    def _escape(self, escape: str, at: int) -> str:
        if escape not in _ESCAPES:
            self.report(
                Refusal(
                    "P008",
                    f"`{escape}` means nothing in a quoted text",
                    at - self.base,
                    at - self.base + len(escape),
                    helps=(
                        'a quoted text knows \\" \\\\ \\n \\t;'
                        " single quotes take everything as it is",
                    ),
                )
            )
        return _ESCAPES.get(escape, escape)

    # ---- expressions

    def expr(self, node: Raw) -> Raw:
        """Returns our tree of one of Lark's; untyped because Lark's trees are."""
        while isinstance(node, Tree) and node.data in _WRAPPERS:
            node = node.children[0]
        if isinstance(node, Token):
            return self._token(node)
        build: Callable[[Raw], s.Expr] = getattr(self, f"ex_{node.data}")
        if node.data in _LEAVES:
            return build(node)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            span = self.span(node)
            raise _StopError(depth_refusal(span.start - self.base, span.start - self.base + 1))
        try:
            return build(node)
        finally:
            self.depth -= 1

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

    def _inner(self, tree: Raw) -> s.Expr:
        return cast("s.Expr", self.expr(tree.children[0]))

    def ex_words(self, tree: Raw) -> s.Words:
        return self.words(tree)

    def words(self, tree: Raw) -> s.Words:
        """Returns a list of words; refuses one that is too long."""
        items = [one for one in tree.children if one is not None]
        if len(items) > MAX_ITEMS:
            span = self.span(items[MAX_ITEMS])
            raise _StopError(
                Refusal(
                    "P006",
                    f"a list holds at most {MAX_ITEMS} items",
                    span.start - self.base,
                    span.end - self.base,
                    helps=("give the nodes or pods a label, and test that",),
                )
            )
        return s.Words(self.span(tree), tuple(self.expr(one) for one in items))

    def ex_range(self, tree: Raw) -> s.Range:
        low, high = (self.expr(one) for one in tree.children)
        return s.Range(self.span(tree), low, high)

    def ex_true(self, tree: Raw) -> s.Bool:
        return s.Bool(self.span(tree), value=True)

    def ex_false(self, tree: Raw) -> s.Bool:
        return s.Bool(self.span(tree), value=False)

    def ex_name(self, tree: Raw) -> s.Name:
        return s.Name(self.span(tree), str(tree.children[0]))

    def ex_call(self, tree: Raw) -> s.Call:
        name, *args = tree.children
        built = tuple(self.expr(one) for one in args if one is not None)
        return s.Call(self.span(tree), str(name), self.span(name), built)

    def ex_field(self, tree: Raw) -> s.Field:
        path, _, key, tail = tree.children
        return s.Field(
            self.span(tree),
            str(path),
            self.expr(key) if key is not None else None,
            None,
            str(tail) if tail is not None else "",
        )

    def ex_keyed_name(self, tree: Raw) -> s.Field:
        name, _, key = tree.children
        return s.Field(self.span(tree), str(name), self.expr(key))

    def ex_field_computed(self, tree: Raw) -> s.Field:
        path, _, key, tail = tree.children
        text = str(tail) if tail is not None else ""
        return s.Field(self.span(tree), str(path), None, self.expr(key), text)

    def ex_bare_agg(self, tree: Raw) -> s.BareAggregate:
        return s.BareAggregate(self.span(tree), str(tree.children[0].children[0]))

    def ex_agg(self, tree: Raw) -> s.Aggregate:
        name, *args, over, where = tree.children
        return s.Aggregate(
            self.span(tree),
            str(name.children[0]),
            tuple(self.expr(one) for one in args),
            self.expr(over) if over is not None else None,
            self.expr(where) if where is not None else None,
        )

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

    def ex_or_expr(self, tree: Raw) -> s.Logical:
        return s.Logical(self.span(tree), "or", tuple(self.expr(one) for one in tree.children))

    def ex_and_expr(self, tree: Raw) -> s.Logical:
        return s.Logical(self.span(tree), "and", tuple(self.expr(one) for one in tree.children))

    def ex_not_(self, tree: Raw) -> s.Not:
        return s.Not(self.span(tree), self._inner(tree))

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

    def ex_neg(self, tree: Raw) -> s.Negative:
        return s.Negative(self.span(tree), self._inner(tree))

    def ex_percent_of(self, tree: Raw) -> s.PercentOf:
        percent, operand = (self.expr(one) for one in tree.children)
        return s.PercentOf(self.span(tree), percent, operand)

    def ex_fallback(self, tree: Raw) -> s.Fallback:
        span = self.span(tree)
        operands = []
        node: Raw = tree
        while isinstance(node, Tree) and node.data == "fallback":
            first, node = node.children
            operands.append(self.expr(first))
        return s.Fallback(span, (*operands, self.expr(node)))

    def ex_compare(self, tree: Raw) -> s.Compare:
        left, operator, right = tree.children
        return s.Compare(
            self.span(tree), str(operator), self.span(operator), self.expr(left), self.expr(right)
        )

    def ex_text_test(self, tree: Raw) -> s.TextTest:
        left, operator, right = tree.children
        word = " ".join(str(operator).split())
        return s.TextTest(self.span(tree), word, self.expr(left), self.expr(right))

    def ex_like(self, tree: Raw) -> s.TextTest:
        left, right = tree.children
        return s.TextTest(self.span(tree), "like", self.expr(left), self.expr(right))

    def ex_matches(self, tree: Raw) -> s.TextTest:
        left, right = tree.children
        return s.TextTest(self.span(tree), "matches", self.expr(left), self.expr(right))

    def _in(self, tree: Raw) -> s.In:
        left, members = tree.children
        return s.In(
            self.span(tree), self.expr(left), self.expr(members), negated=tree.data == "not_in"
        )

    ex_is_in = ex_not_in = _in

    def _is(self, tree: Raw) -> s.Is:
        left, right = tree.children
        return s.Is(
            self.span(tree), self.expr(left), self.expr(right), negated=tree.data == "is_not"
        )

    ex_is_ = ex_is_not = _is

    def _is_missing(self, tree: Raw) -> s.IsMissing:
        return s.IsMissing(self.span(tree), self._inner(tree), negated=tree.data == "is_present")

    ex_is_missing = ex_is_present = _is_missing

    def _label(self, tree: Raw) -> s.LabelTest:
        path, key, *rest = tree.children
        operator, value = "", None
        if tree.data == "label_test":
            operator = str(rest[0].children[0])
            value = self.expr(rest[1])
        elif tree.data in ("label_in", "label_not_in"):
            operator = "in" if tree.data == "label_in" else "not in"
            value = self.expr(rest[0])
        return s.LabelTest(
            self.span(tree), str(path), self.span(path), self.expr(key), operator, value
        )

    ex_has_label = ex_label_test = ex_label_in = ex_label_not_in = _label


def _turned(amount: s.Amount) -> bool:
    """Whether a number stands where a resource is named, and a resource where its amount is."""
    key, value = amount.key, amount.value
    if not isinstance(key, s.Word) or not isinstance(value, s.Word | s.Text):
        return False
    return key.value[:1].isdigit() and _RESOURCE.match(value.value) is not None


def _closing(raw: str, at: int, end: int) -> int:
    """Returns where the brace opened at `at` closes, minding quotes; -1 if nowhere."""
    quote = ""
    for place in range(at + 1, end):
        char = raw[place]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "}":
            return place
    return -1


def _hole_refusal(message: str, span: Span, at: int, base: int) -> Refusal:
    place = span.start + at - base
    return Refusal(
        "P013",
        f"{message} in this message",
        place,
        place + 1,
        helps=("write `{expression}`, or `{{` and `}}` for braces",),
    )
