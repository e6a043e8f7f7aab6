"""Text of a test file becomes the tree as written, or diagnostics. Never raises on any text.

Knows the grammar of test files and the habits of those who write them; what attributes and
expectations there are is `policytest`'s business.
"""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from dsl import testsyntax as t
from dsl.diagnostics import Diagnostic, Fix, Severity
from dsl.parser.build import Kept, Raw, StatementReader, _Builder
from dsl.parser.layout import cut
from dsl.parser.refusal import Halt, Refusal
from dsl.parser.testwords import EXPECTATIONS, EXPECTS, GIVEN, UNNAMED
from dsl.source import QUOTED_OR_COMMENT, SourceFile, Span, TextProblem
from dsl.spelling import closest


def parse_test(
    source: SourceFile, reader: StatementReader | None = None, keep: Kept | None = None
) -> tuple[t.TestFile, tuple[Diagnostic, ...]]:
    """Reads a test file; statements that cannot be read are left out and reported.

    Args:
        source: the file.
        reader: what reads statements; one of its own if there is none.
        keep: gets the words of each statement that can be read.
    """
    reader = reader or StatementReader()
    chunks, problems = cut(source)
    found = [_of_problem(source, one) for one in problems]
    statements: list[t.TestStatement] = []
    for chunk in chunks:
        run_on = _run_on(source, chunk.span)
        if run_on is not None and run_on.fix is not None:
            found.append(run_on.diagnostic(source, chunk.span.start, len(source.text)))
            continue
        if run_on is not None:
            # Loaded when something is wrong, not before.
            from dsl.parser.complaints.of_tests import complain_early  # noqa: PLC0415 - see above

            text = source.slice(chunk.span)
            early = complain_early(text, source.text, run_on)
            size = len(source.text)
            found.extend(one.diagnostic(source, chunk.span.start, size) for one in early)
            continue
        how = "testfile", _statement, partial(_complain, source, chunk.span.start)
        made, findings = reader.built(source, chunk.span, how, keep)
        found.extend(findings)
        if made is not None:
            statements.append(made)
    if found:
        # Loaded when something is wrong, not before.
        from dsl.parser.complaints.files import no_test_file  # noqa: PLC0415 - see above

        other = no_test_file(QUOTED_OR_COMMENT.sub(blank_out, source.text))
        if other is not None:
            return t.TestFile(source, ()), (other.diagnostic(source, 0, len(source.text)),)
    return t.TestFile(source, tuple(statements)), tuple(found)


def _of_problem(source: SourceFile, problem: TextProblem) -> Diagnostic:
    fix = Fix(problem.span, problem.fix) if problem.fix is not None else None
    helps = (problem.help,) if problem.help else ()
    return Diagnostic(
        problem.code, problem.message, source, problem.span, Severity.ERROR, helps=helps, fix=fix
    )


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


def _complain(source: SourceFile, start: int, halt: Halt) -> Refusal:
    # Loaded when something is wrong, not before.
    from dsl.parser.complaints.of_tests import complain_of_test  # noqa: PLC0415 - see above

    return complain_of_test(halt, source.text, start)


_EXPECTED: Final = f"a test expects {', '.join(EXPECTATIONS)}"


# ---- what the grammar would take, and read as something else


def _run_on(source: SourceFile, span: Span) -> Refusal | None:
    """`given pods`: where only words may stand, the grammar would take the `pod` of it."""
    text = source.slice(span)
    bare = QUOTED_OR_COMMENT.sub(blank_out, text)
    for found in re.finditer(r"^(?:test:.*?)?[ \t]*\bgiven[ \t]+([\w-]+)", bare, re.MULTILINE):
        if found.group(1) not in GIVEN:
            return no_given(found.start(1), found.group(1))
    return _no_expectation(bare) or _said_where(bare) or _name_alone(bare)


def _no_expectation(bare: str) -> Refusal | None:
    """`assert feasible [a]`, `should be ...`, `expect` or `expect gated` with nothing behind it."""
    if not bare.startswith("test"):
        return None
    for found in re.finditer(r"^[ \t]+(\w+):?[ \t]+(\w+)\b", bare, re.MULTILINE):
        # The same words may be values of a line that continues the one above.
        if found.group(1) in EXPECTS and found.group(2) in (*EXPECTATIONS, "be", "not", "that"):
            message = f"`{found.group(1)}` does not fit here"
            return refuse(*found.span(1), "P001", message, "did you mean `expect`?")
    for found in re.finditer(r"(?m)^[ \t]+(expect)[ \t]*\n\s*(?:given|expect)[ \t]+\w", bare):
        return refuse(*found.span(1), "P009", "nothing follows `expect`", _EXPECTED)
    for found in re.finditer(r"\bexpect[ \t]+([\w-]+)[ \t]*\n\s*(?:given|expect)[ \t]+\w", bare):
        message = f"nothing follows `{found.group(1)}`"
        return refuse(*found.span(1), "P009", message, _EXPECTED)
    return None


def _said_where(bare: str) -> Refusal | None:
    """`running onn1`: on which node the pod is."""
    for found in re.finditer(r"\b(running|finished)\b:?[ \t]+(on[\w-]+)", bare):
        better = f"on {found.group(2).removeprefix('on')}"
        what = f"`{found.group(1)}` says on which node the pod is"
        return Refusal("P009", what, *found.span(2), helps=(f"write  {better}",), fix=better)
    return None


def _name_alone(bare: str) -> Refusal | None:
    """`given pod x` and a line of its own below: that line would be read as the value of `x`."""
    form = r"\bgiven[ \t]+(pod|pending)[ \t]+([\w.-]+)[ \t]*\n\s*(?:given|expect)[ \t]+\w"
    for found in re.finditer(form, bare):
        kind, word = found.groups()
        help_ = f"write  given {kind} name {word}"
        return refuse(*found.span(2), "P009", f"nothing follows `{word}`", help_)
    return None


def no_given(start: int, met: str) -> Refusal:
    """Refuses what no `given` can be of."""
    end = start + max(len(met), 1)
    near = closest(met, GIVEN) if met else None
    what = f"there is no `given {met}`" if met else "nothing follows `given`"
    help_ = f"did you mean `{near}`?" if near else f"given takes {listed(list(GIVEN))}"
    return refuse(start, end, "P001", what, help_)


def blank_out(found: re.Match[str]) -> str:
    """Blanks out a comment, or the inside of a text."""
    text = found.group()
    if text.startswith("#") or len(text) == 1:
        return " " * len(text)
    return '"' + "_" * (len(text) - 2) + '"'


def refuse(start: int, end: int, code: str, message: str, *helps: str) -> Refusal:
    """Refuses a stretch of the statement's text."""
    return Refusal(code, message, start, end, helps=helps)


def listed(words: Iterable[str]) -> str:
    """Returns words as a list of English."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
