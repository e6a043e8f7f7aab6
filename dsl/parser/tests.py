"""Text of a test file becomes the tree as written, or diagnostics. Never raises on any text.

Knows the grammar of test files and the habits of those who write them; what attributes and
expectations there are is `policytest`'s business.
"""

import re
from typing import Any, Final

from dsl import testsyntax as t
from dsl.diagnostics import Diagnostic, Fix
from dsl.parser.build import Kept, StatementReader, _Builder
from dsl.parser.expressions import Raw
from dsl.parser.layout import cut
from dsl.parser.refusal import Refusal
from dsl.parser.statements import UNNAMED
from dsl.source import SourceFile, Span, blanked


def parse_test(
    source: SourceFile, reader: StatementReader | None = None, keep: Kept | None = None
) -> tuple[t.TestFile, tuple[Diagnostic, ...]]:
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
            return t.TestFile(source, ()), (other.diagnostic(source, 0, len(source.text)),)
    return t.TestFile(source, tuple(statements)), tuple(found)


# ---- Lark's tree into ours


def _statement(build: _Builder, tree: Raw) -> t.TestStatement:
    (node,) = tree.children
    name = str(node.data)
    if name == "use":
        return _use(build, node)
    if name == "t_test":
        return _test(build, node)
    made = _setting(build, node, name.removeprefix("t_"))
    assert not isinstance(made, t.ParamSetting)  # the grammar has it in tests only
    return made


def _setting(build: _Builder, node: Raw, kind: str) -> t.Given:
    span = build.span(node)
    if kind == "now":
        return t.NowSetting(span, _value(build, node.children[0]))
    if kind == "metric":
        name, keys, value = node.children
        listed = _operand(build, keys) if keys is not None else None
        assert not isinstance(listed, t.Value)
        return t.MetricSetting(span, _value(build, name), listed, _operand(build, value))
    if kind == "param":
        name, value = node.children[0].children
        return t.ParamSetting(span, _value(build, name), _operand(build, value))
    parts = list(node.children)
    name = None if kind in UNNAMED else _value(build, parts.pop(0))
    return t.Fixture(span, kind, name, tuple(_attr(build, one) for one in parts))


def _use(build: _Builder, node: Raw) -> t.UseStatement:
    name, *args, alias, weight = node.children
    given = tuple(
        (_value(build, arg.children[0]), _operand(build, arg.children[1]))
        for arg in args
        if arg is not None
    )
    return t.UseStatement(
        build.span(node),
        _value(build, name),
        given,
        _value(build, alias) if alias is not None else None,
        _value(build, weight) if weight is not None else None,
    )


def _test(build: _Builder, node: Raw) -> t.TestCase:
    name, *clauses = node.children
    given: list[t.Given] = []
    expected: list[t.Expectation] = []
    for clause in clauses:
        kind = str(clause.data)
        if kind.startswith("expect"):
            expected.append(_expectation(build, clause))
        else:
            given.append(_setting(build, clause, kind.removeprefix("given_")))
    return t.TestCase(build.span(node), _value(build, name), tuple(given), tuple(expected))


def _expectation(build: _Builder, node: Raw) -> t.Expectation:
    span = build.span(node)
    if node.data == "expect_error":
        start = build.source.text.index("error", span.start)
        name = t.Value(Span(start, start + len("error")), "error")
        return t.Expectation(span, name, _value(build, node.children[0]))
    name, subject, *rest = node.children
    value = rest.pop(0) if node.data == "expect_one" else None
    return t.Expectation(
        span,
        _value(build, name),
        _operand(build, subject),
        _operand(build, value) if value is not None else None,
        tuple(
            t.Reply(build.span(one), str(one.data), _value(build, one.children[0]))
            for one in rest
            if one is not None
        ),
    )


def _attr(build: _Builder, node: Raw) -> t.Attr:
    span, kind, parts = build.span(node), str(node.data), list(node.children)
    if kind == "attr":
        return t.Attr(span, _value(build, parts[0]), _operand(build, parts[1]))
    if kind == "attr_keyed":
        name = _value(build, parts.pop(0).children[0])
    else:
        word = kind.removeprefix("attr_").replace("file", "from")
        name = t.Value(Span(span.start, span.start + len(word)), word)
    if kind == "attr_file":
        return t.Attr(span, name, _value(build, parts[0]))
    key = _value(build, parts[0])
    age = _value(build, parts[2]) if kind == "attr_metric" and parts[2] is not None else None
    return t.Attr(span, name, _operand(build, parts[1]), key, age)


def _operand(build: _Builder, node: Any) -> t.Operand:  # noqa: ANN401 - Lark's trees
    inner = node
    while hasattr(inner, "data"):
        if inner.data == "words":
            words = build.words(inner)
            values = (_value(build, one) for one in inner.children if one is not None)
            return t.Values(words.span, tuple(values))
        if inner.data not in ("word", "lit", "key", "num"):
            break
        inner = inner.children[0]
    return _value(build, inner)


def _value(build: _Builder, node: Any) -> t.Value:  # noqa: ANN401 - Lark's trees
    while hasattr(node, "data") and node.data in ("word", "lit", "key", "num"):
        node = node.children[0]
    span = build.span(node)
    kind = getattr(node, "type", "")
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


_PLAIN: Final = (
    "write the value itself; other characters than letters, digits and -._/ in quotes",
)


# ---- what is told before the grammar is asked


def _early(source: SourceFile, span: Span, *, behind: bool) -> Diagnostic | None:
    """A clause in column 1."""
    text = source.slice(span)
    clause = re.match(r"(?:given|expect)\b", text)
    if clause is not None:
        help_ = "indent it under its test" if behind else 'write above it  test: "what must hold"'
        word = Span(span.start, span.start + clause.end())
        fix = Fix(Span(span.start, span.start), "  ") if behind else None
        return Diagnostic("P012", f"`{clause.group()}` stands in a test", source, word,
                          helps=(help_,), fix=fix)  # fmt: skip
    return None
