"""Lines of a test file: Lark's tree becomes ours, and a clause in column 1 is refused.

What attributes and expectations there are is `policytest`'s business.
"""

import re
from typing import Final

from msgspec.structs import replace

from dsl import syntax as s
from dsl.diagnostics import Diagnostic, Fix
from dsl.parser.build import _Builder
from dsl.parser.expressions import Raw
from dsl.parser.statements import UNNAMED
from dsl.source import SourceFile, Span

_PLAIN: Final = "write the value itself; other characters than letters, digits and -._/ in quotes"


def test_statement(build: _Builder, tree: Raw) -> s.TestStatement:
    """Returns the statement of a tree."""
    (node,) = tree.children
    if node.data == "use":
        use = build.st_decl(tree)
        args = tuple(replace(one, value=_plain(build, one.value)) for one in use.args)
        return replace(use, args=args, weight=_plain(build, use.weight))
    return _test(build, node) if node.data == "t_test" else _given(build, node)


def _given(build: _Builder, node: Raw) -> s.Given:
    span, kind, parts = build.span(node), str(node.data).partition("_")[2], node.children
    if kind == "fixture":
        kind, parts = str(parts[0].children[0]), parts[1:]
        name = None if kind in UNNAMED else _value(build, parts.pop(0))
        return s.Fixture(span, kind, name, tuple(_attr(build, one) for one in parts))
    if kind == "param":
        parts = parts[0].children
    keys = _value(build, parts[1]) if kind == "metric" else None
    return s.Setting(span, kind, _value(build, parts[0]), _value(build, parts[-1]), keys)


def _test(build: _Builder, node: Raw) -> s.TestCase:
    name, *clauses = node.children
    given = tuple(_given(build, one) for one in clauses if one.data.startswith("given"))
    expected = (_expectation(build, one) for one in clauses if one.data.startswith("expect"))
    return s.TestCase(build.span(node), _value(build, name), given, tuple(expected))


def _expectation(build: _Builder, node: Raw) -> s.Expectation:
    name, subject, *rest = node.children
    value = rest.pop(0) if node.data == "expect_one" else None
    replies = (
        s.Clause(build.span(one), str(one.data), (_value(build, one.children[0]),)) for one in rest
    )
    name, subject, value = (_value(build, one) for one in (name, subject, value))
    return s.Expectation(build.span(node), name, subject, value, tuple(replies))


def _attr(build: _Builder, node: Raw) -> s.Attr:
    span, kind = build.span(node), str(node.data)
    parts = [_value(build, one) for one in node.children]
    if kind in ("attr_metric", "attr_file"):
        word = "metric" if kind == "attr_metric" else "from"
        parts.insert(0, s.Word(Span(span.start, span.start + len(word)), word))
    name, *keyed, value = parts[: 3 if kind.startswith(("attr_metric", "attr_keyed")) else 2]
    return s.Attr(span, name, value, *keyed, *parts[3:])


def _value(build: _Builder, node: Raw) -> Raw:
    return _plain(build, build.expr(node))


def _plain(build: _Builder, value: s.Expr | None) -> Raw:
    """Returns a value as a word or a text, or a list of them; refuses all else."""
    match value:
        case None | s.Word() | s.Text():
            return value
        case s.Words():
            return replace(value, items=tuple(_plain(build, one) for one in value.items))
        case s.Percent():
            return s.Word(value.span, value.text)
        case _:
            what = "no parameters" if isinstance(value, s.Param) else "no expressions, only values"
            build.refuse("P001", f"a test file has {what}", value.span, _PLAIN)
            return value


# ---- what is told before the grammar is asked


def outside_of_test(source: SourceFile, span: Span, *, behind: bool) -> Diagnostic | None:
    """Returns what is said of a clause in column 1."""
    clause = re.match(r"(?:given|expect)\b", source.slice(span))
    if clause is None:
        return None
    help_ = "indent it under its test" if behind else 'write above it  test: "what must hold"'
    word = Span(span.start, span.start + clause.end())
    fix = Fix(Span(span.start, span.start), "  ") if behind else None
    message = f"`{clause.group()}` stands in a test"
    return Diagnostic("P012", message, source, word, helps=(help_,), fix=fix)
