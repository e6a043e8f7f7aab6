"""Text of a test file becomes the tree as written, or diagnostics. Never raises on any text.

Knows the grammar of test files and the habits of those who write them; what attributes and
expectations there are is `policytest`'s business.
"""

import re
from typing import Final

from dsl import testsyntax as t
from dsl.diagnostics import Diagnostic, Fix
from dsl.parser.build import Kept, StatementReader, _Builder
from dsl.parser.expressions import Raw
from dsl.parser.layout import cut
from dsl.parser.refusal import Refusal
from dsl.parser.statements import UNNAMED
from dsl.source import SourceFile, Span, blanked

#: Rules of the grammar that stand for the one value in them.
_WRAPPERS: Final = ("word", "lit", "key", "num")
_PLAIN: Final = (
    "write the value itself; other characters than letters, digits and -._/ in quotes",
)


def parse_test(
    source: SourceFile, reader: StatementReader | None = None, keep: Kept | None = None
) -> tuple[tuple[t.TestStatement, ...], tuple[Diagnostic, ...]]:
    """Reads a test file; statements that cannot be read are left out and reported.

    `keep` gets the words of each that can.
    """
    reader = reader or StatementReader()
    reader.begin()
    chunks, found = cut(source)
    statements: list[t.TestStatement] = []
    behind = False
    for chunk in chunks:
        early = _early(source, chunk, behind=behind)
        behind = behind or source.slice(chunk).startswith("test")
        if early is not None:
            found.append(early)
            continue
        made, findings = reader.built(source, chunk, ("testfile", _statement), keep)
        found.extend(findings)
        if made is not None:
            statements.append(made)
    if found:
        # Loaded when something is wrong, not before.
        from dsl.parser.lines import no_test_file  # noqa: PLC0415 - see above

        other = no_test_file(blanked(source.text))
        if other is not None:
            return (), (other.diagnostic(source, 0, len(source.text)),)
    return tuple(statements), tuple(found)


# ---- Lark's tree into ours


def _statement(build: _Builder, tree: Raw) -> t.TestStatement:
    (node,) = tree.children
    name = str(node.data)
    if name == "use":
        return _use(build, node)
    return _test(build, node) if name == "t_test" else _given(build, node)


def _given(build: _Builder, node: Raw) -> t.Given:
    span, kind = build.span(node), str(node.data).partition("_")[2]
    if kind in ("now", "metric", "param"):
        parts = node.children[0].children if kind == "param" else node.children
        keys = _operand(build, parts[1]) if kind == "metric" and parts[1] is not None else None
        assert not isinstance(keys, t.Value)
        return t.Setting(span, kind, _value(build, parts[0]), _operand(build, parts[-1]), keys)
    parts = list(node.children)
    name = None if kind in UNNAMED else _value(build, parts.pop(0))
    return t.Fixture(span, kind, name, tuple(_attr(build, one) for one in parts))


def _use(build: _Builder, node: Raw) -> t.UseStatement:
    name, *args, alias, weight = node.children
    return t.UseStatement(
        build.span(node),
        _value(build, name),
        tuple(_pair(build, one) for one in args if one is not None),
        None if alias is None else _value(build, alias),
        None if weight is None else _value(build, weight),
    )


def _pair(build: _Builder, node: Raw) -> tuple[t.Value, t.Operand]:
    name, value = node.children
    return _value(build, name), _operand(build, value)


def _test(build: _Builder, node: Raw) -> t.TestCase:
    name, *clauses = node.children
    given = tuple(_given(build, one) for one in clauses if one.data.startswith("given"))
    expected = (_expectation(build, one) for one in clauses if one.data.startswith("expect"))
    return t.TestCase(build.span(node), _value(build, name), given, tuple(expected))


def _expectation(build: _Builder, node: Raw) -> t.Expectation:
    name, subject, *rest = node.children
    value = rest.pop(0) if node.data == "expect_one" else None
    return t.Expectation(
        build.span(node),
        _value(build, name),
        _operand(build, subject),
        None if value is None else _operand(build, value),
        tuple(
            t.Reply(build.span(one), str(one.data), _value(build, one.children[0])) for one in rest
        ),
    )


def _attr(build: _Builder, node: Raw) -> t.Attr:
    span, kind, parts = build.span(node), str(node.data), list(node.children)
    if kind in ("attr", "attr_keyed"):
        name = _value(build, parts.pop(0))
    else:
        word = "metric" if kind == "attr_metric" else "from"
        name = t.Value(Span(span.start, span.start + len(word)), word)
    if kind in ("attr", "attr_file"):
        return t.Attr(span, name, _operand(build, parts[0]))
    age = _value(build, parts[2]) if kind == "attr_metric" and parts[2] is not None else None
    return t.Attr(span, name, _operand(build, parts[1]), _value(build, parts[0]), age)


def _operand(build: _Builder, node: Raw) -> t.Operand:
    while getattr(node, "data", "") in _WRAPPERS:
        node = node.children[0]
    if getattr(node, "data", "") == "words":
        words = build.words(node)
        items = (_value(build, one) for one in node.children if one is not None)
        return t.Values(words.span, tuple(items))
    return _value(build, node)


def _value(build: _Builder, node: Raw) -> t.Value:
    while getattr(node, "data", "") in (*_WRAPPERS, "keyed"):
        node = node.children[0]
    span, kind = build.span(node), getattr(node, "type", "")
    if kind == "STRING":
        return t.Value(span, build.quoted(node), quoted=True)
    text = build.source.slice(span)
    if not kind or kind == "PARAM":
        what = "no parameters" if kind else "no expressions, only values"
        start = span.start - build.base
        build.report(
            Refusal("P001", f"a test file has {what}", start, start + len(text), helps=_PLAIN)
        )
    return t.Value(span, text)


# ---- what is told before the grammar is asked


def _early(source: SourceFile, span: Span, *, behind: bool) -> Diagnostic | None:
    """A clause in column 1."""
    clause = re.match(r"(?:given|expect)\b", source.slice(span))
    if clause is None:
        return None
    help_ = "indent it under its test" if behind else 'write above it  test: "what must hold"'
    word = Span(span.start, span.start + clause.end())
    fix = Fix(Span(span.start, span.start), "  ") if behind else None
    message = f"`{clause.group()}` stands in a test"
    return Diagnostic("P012", message, source, word, helps=(help_,), fix=fix)
