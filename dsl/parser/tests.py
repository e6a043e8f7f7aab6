"""Text of a test file becomes the tree as written, or diagnostics. Never raises on any text.

Knows the grammar of test files and the habits of those who write them; what attributes and
expectations there are is `policytest`'s business.
"""

import re
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

from dsl import testsyntax as t
from dsl.diagnostics import Diagnostic, Fix, Severity
from dsl.parser.build import Kept, Raw, StatementReader, _Builder
from dsl.parser.complaints.openings import DECLARATIONS, STATEMENTS
from dsl.parser.layout import cut
from dsl.parser.place import Halt, Place, Refusal
from dsl.parser.reading import tell_test
from dsl.source import QUOTED_OR_COMMENT, SourceFile, Span, TextProblem
from dsl.spelling import closest

#: What may stand in column 1, and after `given`.
HEADS: Final = (
    "use", "now", "node", "running", "finished", "pending", "namespace", "workload", "group",
    "quota", "pdb", "metric", "test",
)  # fmt: skip
GIVEN: Final = (
    "pod", "node", "running", "finished", "pending", "namespace", "workload", "group", "metric",
    "param", "now",
)  # fmt: skip
#: What stands behind `expect`, each as it is written.
EXPECTED: Final = MappingProxyType(
    {
        "feasible": "feasible [a, b]",
        "rejected": 'rejected [a] message "no room"',
        "score": "score a 75",
        "best": "best a",
        "order": "order [p1, p2]",
        "victims": "victims [web-1]",
        "nominated": "nominated a",
        "permit": "permit wait",
        "gated": "gated p",
        "ungated": "ungated p",
        "skipped": "skipped 1",
        "annotation": "annotation example.com/score 75",
        "unset": "unset example.com/score",
        "events": 'events ["placed on a"]',
        "error": "error P102",
    }
)
#: Words for what is expected that others use.
_MEANT: Final = MappingProxyType(
    {
        **dict.fromkeys(("unschedulable", "infeasible", "unfeasible", "denied", "forbidden",
                         "filtered", "excluded", "not"), "rejected"),
        **dict.fromkeys(("schedulable", "allowed", "accepted", "fits", "nodes"), "feasible"),
        **dict.fromkeys(("chosen", "placed", "scheduled", "winner", "node", "bound"), "best"),
        **dict.fromkeys(("preempted", "evicted"), "victims"),
        **dict.fromkeys(("waiting", "waits", "wait"), "permit"),
    }
)  # fmt: skip
#: Words that start an expectation elsewhere.
_EXPECTS: Final = frozenset(
    {"assert", "asserts", "should", "must", "then", "verify", "check", "require", "expected"}
)
_EFFECTS: Final = "NoSchedule|NoExecute|PreferNoSchedule"
#: Attributes written NAME KEY=VALUE.
KEYED: Final = (
    "label", "annotation", "request", "limit", "resource", "taint", "toleration", "condition",
    "node_selector", "min", "max", "image_size",
)  # fmt: skip
#: Attributes written NAME VALUE.
PLAIN: Final = (
    "allowed", "attempts", "bound", "chosen", "count", "cpu", "created", "finished_at",
    "first_attempt_at", "from", "gpu", "heartbeat", "host_network", "image", "images", "ips",
    "kernel", "last_failure", "memory", "metric", "min_member", "name", "namespace",
    "nominated_node", "owner_kind", "owner_name", "phase", "pods", "preemption_policy",
    "previous_node", "priority", "priority_class", "qos", "queued_at", "ready", "replicas",
    "schedule_timeout", "scheduled_at", "scheduler", "service_account", "started_at", "storage",
    "terminating", "tolerates_all", "uid", "unschedulable", "volumes", "volumes_attached",
    "volumes_limit", "waited", "workload",
)  # fmt: skip
_UNNAMED: Final = ("pod", "pending")


_VALUES: Final = frozenset({"WORD", "STRING"})


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
        if run_on is not None:
            found.append(run_on.diagnostic(source, chunk.span.start, len(source.text)))
            continue
        made, findings = reader.built(source, chunk.span, ("testfile", _statement, _complain), keep)
        found.extend(findings)
        if made is not None:
            statements.append(made)
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
    name = None if kind in _UNNAMED else _value(build, parts.pop(0))
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


# ---- why a statement could not be read: before the grammar looks


def _run_on(source: SourceFile, span: Span) -> Refusal | None:
    """`given pods`: where only words may stand, the grammar would take the `pod` of it."""
    text = source.slice(span)
    bare = QUOTED_OR_COMMENT.sub(_blank, text)
    for found in re.finditer(r"^(?:test:.*?)?[ \t]*\bgiven[ \t]+([\w-]+)", bare, re.MULTILINE):
        if found.group(1) not in GIVEN:
            return _no_given(found.start(1), found.group(1))
    return _no_expectation(bare) or _said_where(bare) or _name_alone(bare)


def _no_expectation(bare: str) -> Refusal | None:
    """`assert feasible [a]`, `should be ...`, `expect` or `expect gated` with nothing behind it."""
    if not bare.startswith("test"):
        return None
    for found in re.finditer(r"^[ \t]+(\w+):?[ \t]+(\w+)\b", bare, re.MULTILINE):
        # The same words may be values of a line that continues the one above.
        if found.group(1) in _EXPECTS and found.group(2) in (*EXPECTED, "be", "not", "that"):
            message = f"`{found.group(1)}` does not fit here"
            return _refuse(*found.span(1), "P001", message, "did you mean `expect`?")
    for found in re.finditer(r"(?m)^[ \t]+(expect)[ \t]*\n\s*(?:given|expect)[ \t]+\w", bare):
        helps = helps_of_expectation("")
        return _refuse(*found.span(1), "P009", "nothing follows `expect`", *helps)
    for found in re.finditer(r"\bexpect[ \t]+([\w-]+)[ \t]*\n\s*(?:given|expect)[ \t]+\w", bare):
        word = found.group(1)
        if word not in EXPECTED:
            message = f"there is no expectation `{word}`"
            return _refuse(*found.span(1), "P701", message, *helps_of_expectation(word))
        help_ = f"write  expect {EXPECTED[word]}"
        return _refuse(*found.span(1), "P009", f"nothing follows `{word}`", help_)
    return None


def _said_where(bare: str) -> Refusal | None:
    """`running onn1`: on which node the pod is."""
    for found in re.finditer(r"\b(running|finished)\b:?[ \t]+(on[\w-]+)", bare):
        help_ = f"write  on {found.group(2).removeprefix('on')}"
        what = f"`{found.group(1)}` says on which node the pod is"
        return _refuse(found.start(2), found.end(2), "P009", what, help_)
    return None


def _name_alone(bare: str) -> Refusal | None:
    """`given pod x` and a line of its own below: that line would be read as the value of `x`."""
    form = r"\bgiven[ \t]+(pod|pending)[ \t]+([\w.-]+)[ \t]*\n\s*(?:given|expect)[ \t]+\w"
    for found in re.finditer(form, bare):
        kind, word = found.groups()
        write = f"{word} VALUE" if word in PLAIN else f"given {kind} name {word}"
        write = f"{word} KEY=VALUE" if word in KEYED else write
        message = f"nothing follows `{word}`"
        return _refuse(*found.span(2), "P009", message, f"write  {write}")
    return None


def _no_given(start: int, met: str) -> Refusal:
    end = start + max(len(met), 1)
    near = closest(met, GIVEN) if met else None
    what = f"there is no `given {met}`" if met else "nothing follows `given`"
    help_ = f"did you mean `{near}`?" if near else f"given takes {_listed(list(GIVEN))}"
    return _refuse(start, end, "P001", what, help_)


# ---- why a statement could not be read


def _complain(halt: Halt) -> Refusal:
    """Names what is wrong where reading a test file's statement stopped."""
    bare = QUOTED_OR_COMMENT.sub(_blank, halt.text)
    word = re.compile(r"[A-Za-z_][\w-]*|\S").match(halt.text, halt.start)
    met = word.group() if word is not None and halt.kind != "end" else ""
    at = Place(halt.text, bare, halt.start, halt.end, halt.accepts, halt.kind, met)
    for check in _CHECKS:
        found = check(at)
        if found is not None:
            return found
    refusal = tell_test(halt)
    words = _plain_words(halt.accepts)
    if refusal.code in ("P001", "P009") and not refusal.helps and words:
        return Refusal(
            refusal.code, refusal.message, refusal.start, refusal.end, helps=(f"{words} fits here",)
        )
    return refusal


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    if text.startswith("#") or len(text) == 1:
        return " " * len(text)
    return '"' + "_" * (len(text) - 2) + '"'


def _plain_words(accepts: frozenset[str]) -> str:
    if "GIVEN" in accepts:
        return "an attribute, `given`, `expect` or the next statement"
    return "an attribute" if "NAME" in accepts and "LABEL" in accepts else ""


def _head(at: Place) -> Refusal | None:
    """The word in column 1 and its colon."""
    text, bare, start, met = at.text, at.bare, at.start, at.met
    found = re.match(r"([A-Za-z_]+)([ \t]*)(:?)[ \t]*", bare)
    if found is None:
        return None if start else _refuse(0, 1, "P004", f"a statement does not start with `{met}`")
    word, colon = found.group(1), found.group(3)
    if word in ("given", "expect"):
        help_ = f"indent it under its test:   {word} ..."
        return _refuse(0, len(word), "P012", f"`{word}` belongs into a test", help_)
    if word not in HEADS:
        return _unknown_head(word)
    if word == "use" or start > found.end():
        return None
    if not colon:
        near = _line(text, bare, len(word))
        if word == "test":
            near = _named(near.removesuffix(":"))
        metric = re.match(r"metric[ \t]+(\w+)[ \t]*=[ \t]*(?![\d\s])", bare)
        if metric is not None:
            near = f"{metric.group(1)} = VALUE   (the query stands in the policy)"
        return _refuse(0, len(word), "P005", f"`{word}` needs a colon", f"write  {word}: {near}")
    return _head_value(word, _line(text, bare, start), start)


def _line(text: str, bare: str, start: int) -> str:
    """Returns the rest of a line as written, without its comment."""
    return text[start : start + len(bare[start:].split("\n", 1)[0].rstrip())].strip()


def _named(name: str) -> str:
    """Returns the name of a test as it is written: in quotes."""
    quoted = len(name) > 1 and name[0] == name[-1] and name[0] in "\"'"
    return name if quoted else f'"{name.strip(chr(34)) or "what must hold"}"'


def _unknown_head(word: str) -> Refusal:
    if word in STATEMENTS or word in DECLARATIONS or word == "applies":
        return _refuse(
            0, len(word), "P004", f"`{word}` belongs into a policy, not into a test of one",
            "name the policy to test:  use NAME",
        )  # fmt: skip
    near = closest(word, HEADS)
    help_ = f"did you mean `{near}`?" if near else f"a test file has {_listed(HEADS)}"
    return _refuse(0, len(word), "P004", f"a test file has no statement `{word}`", help_)


def _head_value(word: str, first: str, start: int) -> Refusal | None:
    """What stands right behind the colon."""
    end = start + max(len(first.split(maxsplit=1)[0]) if first else 0, 1)
    if word == "test":
        help_ = f'write  test: "{first or "what must hold"}"'
        return _refuse(start, end, "P009", "a test needs a name in quotes", help_)
    if word == "now":
        help_ = 'write  now: "2025-03-01T10:00:00Z"'
        return _refuse(start, end, "P001", "the time stands in quotes", help_)
    if word in ("running", "finished"):
        help_ = f"write  {word}: on NODE name web"
        return _refuse(start, end, "P009", f"`{word}` says on which node the pod is", help_)
    if word == "metric":
        help_ = "write  metric: NAME = VALUE"
        return _refuse(start, end, "P009", "`metric` needs a name and a value", help_)
    if word in _UNNAMED:
        return None
    help_ = f"write  {word}: NAME cpu 4" if word == "node" else f"write  {word}: NAME ..."
    return _refuse(start, end, "P009", f"`{word}` needs a name", help_)


def _own_line(at: Place) -> Refusal | None:
    """An indented line that starts like a statement."""
    bare, start = at.bare, at.start
    line = bare.rfind("\n", 0, start + 1) + 1
    found = re.compile(r"[ \t]+([A-Za-z]+)[ \t]*:").match(bare, line)
    if found is None or line == 0 or start > found.end() or found.group(1) not in HEADS:
        return None
    word = found.group(1)
    if word in GIVEN:
        help_ = f"in a test write  given {word} ...; for all tests remove the leading spaces"
    else:
        help_ = "remove the leading spaces"
    return Refusal(
        "P012", "this line is indented, so it continues the", found.start(1), found.end(1),
        label="a new statement starts in column 1", helps=(help_,),
        continues=re.match(r"\w*", bare).group(),  # type: ignore[union-attr]  # may be empty
    )  # fmt: skip


def _clause_word(at: Place) -> Refusal | None:
    """What follows `given` and `expect`, and words that should be one of them."""
    bare, start, met, accepts = at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    if before.endswith("given") and "POD" in accepts:
        return _no_given(start, met)
    if re.search(r"given[ \t]+(running|finished)\Z", before):
        word = before.rsplit(None, 1)[-1]
        help_ = f"write  given {word} on NODE name web"
        return _refuse(start, start + 1, "P009", f"`{word}` says on which node the pod is", help_)
    if before.endswith("expect") and "ERROR" in accepts:
        end = start + max(len(met), 1)
        what = f"`{met}` is not something to expect" if met else "nothing follows `expect`"
        return _refuse(start, end, "P009", what, *helps_of_expectation(met))
    line = bare.rfind("\n", 0, start) + 1
    first = re.compile(r"[ \t]+(\w+)").match(bare, line)
    if first is not None and line and first.group(1) not in ("given", "expect", *KEYED):
        near = closest(first.group(1), ("given", "expect"))
        if near is not None:
            help_ = f"did you mean `{near}`?"
            what = f"`{first.group(1)}` does not fit here"
            return _refuse(first.start(1), first.end(1), "P001", what, help_)
    return None


def helps_of_expectation(name: str) -> tuple[str, ...]:
    """Returns what to expect instead of a word that is no expectation."""
    known = f"a test expects {_listed(EXPECTED)}"
    meant = _MEANT.get(name)
    if meant is not None:
        return f"write  expect {EXPECTED[meant]}", known
    if not name:
        return f"write  expect {EXPECTED['feasible']}", known
    near = closest(name, EXPECTED)
    return (f"did you mean `{near}`?",) if near else (known,)


def _expectation_word(at: Place) -> Refusal | None:
    """`expect event "x"`, `expect unschedulable`: the word itself is wrong."""
    bare, start = at.bare, at.start
    found = re.search(r"\bexpect[ \t]+([A-Za-z_][\w-]*)[^\n]*\Z", bare[:start].rstrip())
    if found is None or found.group(1) in EXPECTED:
        return None
    word = found.group(1)
    message = f"there is no expectation `{word}`"
    return _refuse(*found.span(1), "P701", message, *helps_of_expectation(word))


def _compared(at: Place) -> Refusal | None:
    """`expect score a == 0`: a sign between a name and the value expected."""
    text, bare, start, met = at.text, at.bare, at.start, at.met
    found = re.search(r"expect[ \t]+(score|annotation)[ \t]+([\w./-]+)\Z", bare[:start].rstrip())
    sign = re.compile(r"(?:==?|:)[ \t]*(\S*)").match(bare, start)
    if found is None:
        # `is` would be the value itself, were nothing behind it.
        said = re.search(
            r"expect[ \t]+(score|annotation)[ \t]+([\w./-]+)[ \t]+(is)[ \t]*\Z", bare[:start]
        )
        wanted = re.compile(r"\"_*\"|[\w./-]+").match(bare, start)
        if said is None or wanted is None:
            return None
        what = f"{said.group(1)} {said.group(2)} {text[wanted.start() : wanted.end()]}"
        message = "no `is` stands before the value expected"
        return _refuse(*said.span(3), "P001", message, f"write  expect {what}")
    if sign is None or met not in ("=", ":"):
        return None
    value = text[sign.start(1) : sign.end(1)] or "VALUE"
    shown = bare[start : sign.start(1)].rstrip()
    return _refuse(
        start, start + len(shown), "P001", f"no `{shown}` stands before the value expected",
        f"write  expect {found.group(1)} {found.group(2)} {value}",
    )  # fmt: skip


def _effect(at: Place) -> Refusal | None:
    """`taint dedicated=ml:NoSchedule`."""
    text, bare, start = at.text, at.bare, at.start
    form = re.compile(
        rf"\b(taint|toleration)[ \t]+([\w./-]+)(?:=(\"_*\"|[\w./-]*))?(:(?:{_EFFECTS}))\b"
    )
    for found in form.finditer(bare):
        if found.start() < start <= found.end():
            value = text[found.start(3) : found.end(3)] if found.group(3) else '""'
            word = found.group(1)
            message = f"a {word} is given by its key and value, without its effect"
            help_ = f"write  {word} {found.group(2)}={value}"
            return _refuse(*found.span(4), "P001", message, help_)
    return None


def _list(at: Place) -> Refusal | None:
    """`expect feasible a, b`: a list without brackets."""
    text, bare, start, met = at.text, at.bare, at.start, at.met
    found = re.search(r"expect[ \t]+\w+[ \t]+([\w./-]+)\Z", bare[:start].rstrip())
    if found is None or met != ",":
        return None
    line = _line(text, bare, found.start(1))
    end = found.start(1) + len(line)
    return _refuse(found.start(1), end, "P001", "a list stands in brackets", f"write  [{line}]")


def _pair(at: Place) -> Refusal | None:
    """`name=web`, `cpu: 4`, `label app`: the wrong sign between a name and its value."""
    text, bare, start, met, accepts = at.text, at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    if re.fullmatch(r"metric:[ \t]*\w+", before) and met != "=":
        end = start + max(len(met), 1)
        help_ = f"write  {before} = {met or 'VALUE'}"
        return _refuse(start, end, "P005", f"`{before}` needs a `=`", help_)
    named = re.fullmatch(r"(\w+):[ \t]*([A-Za-z_]\w*)", before)
    if named is not None and met in ("=", ":") and named.group(1) in HEADS[2:]:
        help_ = f"write  {named.group(1)}: NAME {named.group(2)} VALUE"
        return _refuse(
            named.start(2), start, "P009", f"`{named.group(1)}` needs a name first", help_
        )
    left = re.search(r"([A-Za-z_]\w*)\Z", before)
    if left is not None and met in ("=", ":") and accepts & _VALUES:
        value = text[start + 1 :].split()
        word = left.group(1)
        shown = value[0] if value and word not in KEYED else "VALUE"
        write = f"{word} KEY=VALUE" if word in KEYED else f"{word} {shown}"
        if re.search(r"\bmetric[ \t]+\w+\Z", before):
            write = f"metric {word} {shown}"
        elif word not in (*KEYED, *PLAIN):
            near = closest(word, (*KEYED, *PLAIN))
            write = f"{near or 'label'} {word}={value[0] if value else 'VALUE'}"
            write = f"{near} {shown}" if near in PLAIN else write
            write = f"{near} KEY=VALUE" if near in KEYED else write
        return _refuse(
            start, start + 1, "P001", f"no `{met}` stands between `{word}` and its value",
            f"write  {write}",
        )  # fmt: skip
    return _key_and_value(at)


def _key_and_value(at: Place) -> Refusal | None:
    """`annotation a.io/x: a`, `labels team=red`, `label app`."""
    text, bare, start, met, accepts = at.text, at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    keyed = re.search(r"([a-z_]+)[ \t]+([\w./-]+|\"_*\")\Z", before)
    if keyed is None:
        return None
    word, key = keyed.group(1), text[keyed.start(2) : keyed.end(2)]
    given = re.compile(r"(?:==?|:)[ \t]*(\"_*\"|[^\s,=]+)").match(bare, start)
    value = text[given.start(1) : given.end(1)] if given is not None else "VALUE"
    end = start + max(len(met), 1)
    longer = re.compile(r"(:[\w./@:-]*)=([^\s,=]+)").match(bare, start)
    if word in KEYED and "EQUAL" in accepts and longer is not None:
        begin, whole = keyed.start(2), key + text[longer.start(1) : longer.end(1)]
        help_ = f'write  {word} "{whole}"={longer.group(2)}'
        return _refuse(begin, longer.end(1), "P001", f"`{whole}` needs quotes", help_)
    if word in KEYED and "EQUAL" in accepts:
        help_ = f"write  {word} {key}={value}"
        return _refuse(start, end, "P001", f"`{word}` takes a key and a value", help_)
    near = word.removesuffix("s") if word.removesuffix("s") in KEYED else closest(word, KEYED)
    if met == "=" and near is not None and word != near and "EQUAL" not in accepts:
        message = f"there is no attribute `{word}`"
        return _refuse(*keyed.span(1), "P701", message, f"write  {near} {key}={value}")
    return None


def _needs_quotes(at: Place) -> Refusal | None:
    """`image nginx:1.25`, `created 2025-03-01T10:00:00Z`: signs that a bare word cannot have."""
    bare, start = at.bare, at.start
    if not start or bare[start - 1].isspace() or bare[start] in '\n,[]()="':
        return None
    found = re.search(r"[^\s=\[\],()\"]*\Z", bare[:start])
    head = found.group() if found else ""
    tail = re.compile(r"[^\s,\[\]()]*").match(bare, start)
    word = head + (tail.group() if tail else "")
    if not head or re.fullmatch(r"[\w.-]+:", word):
        return None
    begin = start - len(head)
    return _refuse(begin, begin + len(word), "P001", f"`{word}` needs quotes", f'write  "{word}"')


def _missing_value(at: Place) -> Refusal | None:
    """An attribute or an expectation without its value."""
    bare, start, met, accepts = at.bare, at.start, at.met, at.accepts
    before = bare[:start].rstrip()
    last = re.search(r"([A-Za-z_]\w*)\Z", before)
    if last is None or not accepts & _VALUES or "NAME" in accepts:
        return None
    if met and re.match(r"[\w\"'\[(]", met):
        return None
    word = last.group(1)
    if word in HEADS and bare.startswith(word):
        return None
    write = f"{word} KEY=VALUE" if word in KEYED else f"{word} VALUE"
    if re.search(rf"\bgiven[ \t]+pod[ \t]+{word}\Z", before):
        write = f"given pod name {word}"
    if word in EXPECTED and re.search(rf"\bexpect[ \t]+{word}\Z", before):
        write = f"expect {EXPECTED[word]}"
    return _refuse(
        last.start(1), last.end(1), "P009", f"nothing follows `{word}`", f"write  {write}"
    )


_CHECKS: Final = (
    _head, _own_line, _clause_word, _expectation_word, _compared, _list, _effect, _pair,
    _needs_quotes, _missing_value,
)  # fmt: skip


def _refuse(start: int, end: int, code: str, message: str, *helps: str) -> Refusal:
    return Refusal(code, message, start, end, helps=helps)


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
