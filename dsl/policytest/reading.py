"""The tree of a test file becomes its model: names are looked up, values read, fixtures merged."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from dsl import syntax as s
from dsl.diagnostics import Diagnostic, Fix, Severity, sort_key
from dsl.files import read_source
from dsl.nearest import closest
from dsl.parser import Parser
from dsl.parser.statements import UNNAMED
from dsl.policytest import attributes as w
from dsl.policytest import model as m
from dsl.quantities import parse_duration, parse_number, parse_time
from dsl.source import SourceFile, Span
from dsl.types import is_missing


def read_suite(name: str, data: str | bytes, parser: Parser | None = None) -> m.Suite:
    """Reads a test file; whatever is wrong with it is among the findings. Never raises."""
    source, problems = read_source(name, data)
    if problems:
        return m.Suite(source, (), (), problems)
    statements, findings = (parser or Parser()).tests(source)
    return _Reader(source, findings).suite(statements)


_TEST_LINE: Final = re.compile(r"(?m)^test\b")
_MOST_NAMES: Final = 8
_CLAUSES: Final = ("given", "expect")
#: Fewer bytes than anything has; what is meant is another unit.
_SMALL_BYTES: Final = 1024


class _Refused(Exception):  # noqa: N818 - a finding that ends a value, not a fault
    """Never leaves this module."""


class _Reader:
    """Looks up attributes and expectations; gathers findings."""

    def __init__(self, source: SourceFile, found: Sequence[Diagnostic]) -> None:
        self.source = source
        self.found = list(found)
        self.given: list[m.Given] = []
        # A node whose line could not be read is no node, and naming it no second mistake.
        lines = [source.line(source.position(one.span.start)[0]) for one in found]
        self._lost = {name for line in lines for name in w.NAME.findall(line)}

    def suite(self, statements: Sequence[s.TestStatement]) -> m.Suite:
        """Returns the whole file's model."""
        uses: list[m.Use] = []
        base = m.Cluster()
        tests: list[s.TestCase] = []
        for statement in statements:
            if isinstance(statement, s.Use):
                uses.extend(self._use(statement))
            elif isinstance(statement, s.TestCase):
                tests.append(statement)
            elif tests:
                self._report(
                    "P703", "this stands behind a test, so no test would see it", statement.span,
                    "move it before the first `test:`, or indent it there as `given ...`",
                )  # fmt: skip
            else:
                base = self._given(base, statement, once=True)
        whole = Span(0, 0)
        broken = any(one.is_error for one in self.found)
        if not uses and not broken:
            help_ = "name it:  use NAME"
            self._report("P703", "the file says of no policy that it tests it", whole, help_)
        if not tests and not broken:
            end = Span(*[len(self.source.text.rstrip())] * 2)
            help_ = 'add below:  test: "what must hold"'
            self._report("P703", "the file has no test", end, help_)
        names = [(one.name.value, one.name.span) for one in tests]
        already = "a test is called so already, in line {line}"
        self._each_once(names, already, "say what this one is about")
        cases = [self._case(base, one) for one in tests]
        # What stands above the tests is looked at with each of them.
        once = {(one.code, one.span, one.message): one for one in reversed(self.found)}
        found = tuple(sorted(once.values(), key=sort_key))
        return m.Suite(self.source, tuple(uses), tuple(cases), found, tuple(self.given))

    def _each_once(self, named: Sequence[tuple[str, Span]], message: str, help_: str) -> None:
        """A report names tests by what they say, and expectations given pods by their names."""
        lines: dict[str, int] = {}
        for name, span in named:
            if name in lines:
                self._report("P703", message.format(name=name, line=lines[name]), span, help_)
            lines.setdefault(name, self._line(span))

    def _report(
        self,
        code: str,
        message: str,
        span: Span,
        *helps: str,
        fix: Fix | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        trimmed = self.source.slice(span).rstrip()
        end = span.start + len(trimmed.split("\n", 1)[0])
        self.found.append(
            Diagnostic(
                code, message, self.source, Span(span.start, end), severity, helps=helps, fix=fix
            )
        )

    def _line(self, span: Span) -> int:
        return self.source.position(span.start)[0]

    # ---- what is given

    def _use(self, node: s.Use) -> Iterator[m.Use]:
        weight = None
        if node.weight is not None:
            weight = parse_number(str(_plain(node.weight)))
            if is_missing(weight) or weight < 0:
                self._report("P702", "a weight is a number from 0 up", node.weight.span)
                return
        params = {one.name: _plain(one.value) for one in node.args}
        starts = ((one.name, one.span.start) for one in node.args)
        places = {name: Span(at, at + len(name)) for name, at in starts}
        yield m.Use(node.name, node.name_span, params, node.alias, weight, places)

    def _given(self, cluster: m.Cluster, node: s.Given, *, once: bool = False) -> m.Cluster:
        if isinstance(node, s.Fixture):
            new = self._thing(node)
            old = cluster.things.get(key := cluster.key_of(new))
            # Above the tests each object stands once; changing it is for tests.
            if once and old is not None:
                rest = self.source.words(node.span).partition(":")[2].strip()
                help_ = f"write all of it in one place; in a test  given {node.kind} {rest}"
                self._report("P703", f"`{new.name}` is given a second time", node.span, help_)
            return replace(cluster, things={**cluster.things, key: old.merged(new) if old else new})
        if node.kind == "metric":
            with suppress(_Refused):
                of = node.name.value, *(_texts(node.keys) if node.keys else ())
                setting = m.Setting(of[0], of[1:], self._sample(node.value), node.span)
                return replace(cluster, settings={**cluster.settings, of: setting})
        elif node.kind == "now":
            now = parse_time(node.name.value)
            if is_missing(now):
                help_ = f'write  "{w.DEFAULT_NOW}"'
                self._report("P702", "this is not a time", node.name.span, help_)
            else:
                return replace(cluster, now=now)
        return cluster

    def _thing(self, node: s.Fixture) -> m.Thing:
        name = node.name.value if node.name is not None else ""
        on, name = (name, "") if node.kind in ("running", "finished") else ("", name)
        thing = m.Thing(node.kind, name, node.span, on, {}, {}, {})
        for number, attr in enumerate(node.attrs):
            place, word = attr.name.span, attr.name.value
            if word not in w.ATTRIBUTES[node.kind] and _plain(attr.value) in _CLAUSES:
                unnamed = not number and node.kind in UNNAMED
                fix = Fix(place, f"name {word}") if unnamed else None
                helps = () if fix is None else (f"write  {fix.text}",)
                self._report("P702", f"`{word}` has no value", place, *helps, fix=fix)
                break  # The rest is of the next clause.
            with suppress(_Refused):
                self._attr(thing, attr)
        return replace(thing, name=name or thing.get("name", ""))

    def _attr(self, thing: m.Thing, attr: s.Attr) -> None:
        known, name = w.ATTRIBUTES[thing.kind], attr.name.value
        if name not in known:
            what = f"a `{thing.kind}` has no attribute"
            raise self._unknown(name, attr.name.span, known, what)
        key = "" if attr.key is None else attr.key.value
        self.given.append(m.Given(thing.kind, name, key, attr.name.span))
        if name == "metric" and attr.key is not None:
            thing.metrics[key] = self._sample(attr.value, attr.age)
        elif name in s.KEYED:
            if attr.key is None or (key.startswith((".", "-")) and isinstance(attr.key, s.Word)):
                message, help_ = f"`{name}` takes a key and a value", f"write  {name} KEY=VALUE"
                raise self._refuse(message, (attr.key or attr.value).span, help_)
            value = self._value(known[name], name, attr.value)
            thing.maps.setdefault(name, {})[key] = str(value)
        else:
            thing.plain[name] = self._value(known[name], name, attr.value)
            self._few_bytes(name, attr.value)

    def _few_bytes(self, name: str, value: s.Value | s.Words) -> None:
        """Warns of `memory 8`, which is 8 bytes."""
        if name not in ("memory", "storage") or isinstance(value, s.Words):
            return
        if re.fullmatch(r"[0-9]+", value.value) and 0 < int(value.value) < _SMALL_BYTES:
            text = value.value
            help_ = f"did you mean {text}Gi or {text}Mi?"
            message = f"`{name} {text}` is {text} bytes"
            self._report("P220", message, value.span, help_, severity=Severity.WARNING)

    def _sample(self, value: s.Value | s.Words, age: s.Value | None = None) -> m.Sample:
        read = (parse_number, parse_duration)
        if isinstance(value, s.Words) or all(is_missing(one(value.value)) for one in read):
            help_ = "write it in the unit of the metric, for example  5   or  10Mi"
            raise self._refuse("the value of a metric is a number", value.span, help_)
        seconds = 0.0 if age is None else parse_duration(age.value)
        if age is not None and is_missing(seconds):
            raise self._not(w.SPAN, "age", age)
        return m.Sample(value.value, seconds)

    def _value(self, kind: str, name: str, value: s.Value | s.Words) -> w.Plain:
        read: w.Plain | None = None
        if isinstance(value, s.Value):
            read = w.read_value(kind, name, value.value)
        elif kind == w.TEXTS:
            read = _texts(value)
        if read is None and kind == w.TEXT and isinstance(value, s.Value):
            choices = w.CHOICES.get(name, ())
            help_ = f"it is {m.listed(choices, 'or')}" if choices else "names have no blanks"
            raise self._refuse(f"`{name}` is never `{value.value}`", value.span, help_)
        if read is None:
            raise self._not(kind, name, value)
        return read

    # ---- tests

    def _case(self, base: m.Cluster, node: s.TestCase) -> m.Case:
        cluster = base
        params: dict[str, tuple[str | tuple[str, ...], Span]] = {}
        for one in node.given:
            if isinstance(one, s.Setting) and one.kind == "param":
                params[one.name.value] = (_plain(one.value), one.name.span)
            else:
                cluster = self._given(cluster, one)
        expected = []
        for wanted in node.expected:
            with suppress(_Refused):
                expected.append(self._expected(wanted, cluster))
        case = m.Case(
            node.name.value, self._line(node.span), node.span, cluster, params, tuple(expected)
        )
        self._check(case, node)
        return case

    def _check(self, case: m.Case, node: s.TestCase) -> None:
        nodes = [one.name for one in case.cluster.of("node")]
        for one in case.cluster.of("running", "finished", "pod"):
            where = one.node or one.get("chosen", "")
            if where and where not in nodes:
                self._no_node(where, self._place_of(where, one.span), nodes)
        if case.wants_error:
            if len(node.expected) > 1:
                message = "`expect error` is the only expectation of its test"
                self._report("P703", message, node.expected[0].span)
        elif node.expected and not case.cluster.of("pod"):
            end = node.name.span.end
            fix = Fix(Span(end, end), "\n  given pod name p")
            help_ = "add  given pod name p"
            self._report("P703", "this test gives no pod", node.name.span, help_, fix=fix)
        pods = case.cluster.of("pod")
        named = [(name, one.span) for one in pods for name in m.pod_names(one)]
        already = "two of the pods that this test gives are called `{name}`"
        self._each_once(named, already, "give each of them a `name` of its own")

    def _place_of(self, name: str, span: Span) -> Span:
        """Returns where a fixture says on which node it is."""
        form = re.compile(rf"\b(?:on|chosen)[ \t]+({re.escape(name)})(?![\w.-])")
        found = form.search(self.source.text, span.start, span.end)
        return span if found is None else Span(*found.span(1))

    def _expected(self, node: s.Expectation, cluster: m.Cluster) -> m.Expected:
        name, subject = node.name.value, node.subject
        shape = w.EXPECTATIONS.get(name)
        if shape is None:
            raise self._unknown(name, node.name.span, w.EXPECTATIONS, "there is no expectation")
        self._shaped(shape, node)
        text = self.source.words(node.span)
        names = _plain(subject)
        if isinstance(names, str):
            names = () if "none" in shape.takes and names == "none" else (names,)
        said: dict[str, Any] = {one.name: _plain(one.values[0]) for one in node.replies}
        value = "" if node.value is None else str(_plain(node.value))
        number = self._number(name, (names[0] if name == "skipped" else value), node)
        made = m.Expected(
            name, node.span, self._line(node.span), text, names, value, number,
            said.get("message"), said.get("status"),
        )  # fmt: skip
        self._named(made, node, cluster)
        return made

    def _shaped(self, shape: w.Shape, node: s.Expectation) -> None:
        """Looks at what stands behind the name, part by part."""
        name, subject, value = node.name.value, node.subject, node.value
        example, takes = shape
        listed, valued = "list" in takes, "value" in takes
        words = next((one.split("|") for one in takes if "|" in one), ())
        none = "none" in takes and _plain(subject) == "none"
        wrong: tuple[str, s.Node] | None = None
        if listed != isinstance(subject, s.Words) and not none:
            wrong = f"takes {'a list' if listed else 'one name, not a list'}", subject
        elif (value is not None) != valued:
            wrong = f"takes {'two values' if valued else 'one value'}", value or subject
        elif words and _plain(subject) not in words:
            wrong = f"takes {m.listed(words, 'or')}", subject
        elif isinstance(value, s.Words):
            wrong = "takes one value, not a list of them", value
        for reply in node.replies:
            if wrong is None and reply.name not in takes:
                wrong = f"has no {reply.name}", reply
        if wrong is not None:
            raise self._refuse(
                f"`expect {name}` {wrong[0]}", wrong[1].span, f"write  expect {example}"
            )

    def _number(self, name: str, text: str, node: s.Expectation) -> float:
        if name not in ("score", "skipped"):
            return 0.0
        number = float("nan") if text.endswith("%") else parse_number(text)
        if is_missing(number) or (name == "skipped" and not (text.isdecimal() and number > 0)):
            span = (node.value or node.subject).span
            usage = f"write  expect {w.EXPECTATIONS[name].example}"
            raise self._refuse(f"`expect {name}` takes a number", span, usage)
        return number

    def _named(self, made: m.Expected, node: s.Expectation, cluster: m.Cluster) -> None:
        """Names that the test does not give are slips of the pen."""
        subject = node.subject
        parts = subject.items if isinstance(subject, s.Words) else (subject,)
        nodes = [one.name for one in cluster.of("node")]
        pods = [name for one in cluster.of("pod") for name in m.pod_names(one)]
        for name, part in zip(made.names, parts, strict=False):
            if made.name in w.OF_NODES and name not in nodes:
                self._no_node(name, part.span, nodes)
            elif made.name in w.OF_GIVEN and name not in pods:
                message, help_ = f"no pod `{name}` is given", f"given are {_some(pods)}"
                self._nobody(name, part.span, message, help_, pods)

    # ---- findings

    def _no_node(self, name: str, span: Span, nodes: Sequence[str]) -> None:
        message = f"there is no node `{name}`"
        if nodes and name not in self._lost:
            self._nobody(name, span, message, f"the nodes are {_some(nodes)}", nodes)
        elif name not in self._lost:
            line = f"node: {name} cpu 4"
            first = _TEST_LINE.search(self.source.text)
            fix = None if first is None else Fix(Span(*[first.start()] * 2), f"{line}\n")
            self._report("P701", message, span, f"add above the tests:  {line}", fix=fix)

    def _nobody(
        self, name: str, span: Span, message: str, help_: str, known: Iterable[str]
    ) -> None:
        near = closest(name, known)
        if near is not None:
            help_ = f"did you mean `{near}`?"
        fix = Fix(span, near) if near is not None and near not in _CLAUSES else None
        self._report("P701", message, span, help_, fix=fix)

    def _unknown(self, name: str, span: Span, known: Mapping[str, object], what: str) -> _Refused:
        there = f"there are {m.listed(sorted(known))}"
        meant = w.CALLED.get(name, name)
        near = meant if meant in known else name
        self._nobody(near, span, f"{what} `{name}`", there, [*known, *_CLAUSES])
        return _Refused()

    def _not(self, kind: str, name: str, value: s.Value | s.Words) -> _Refused:
        shown = self.source.words(value.span)
        example = w.EXAMPLES.get(kind)
        helps = (f"write something like {example}",) if example else ()
        return self._refuse(f"`{name}` is {kind}, not `{shown}`", value.span, *helps)

    def _refuse(self, message: str, span: Span, *helps: str) -> _Refused:
        self._report("P702", message, span, *helps)
        return _Refused()


def _plain(value: s.Expr) -> str | tuple[str, ...]:
    assert isinstance(value, s.Value | s.Words)
    return _texts(value) if isinstance(value, s.Words) else value.value


def _texts(value: s.Value | s.Words) -> tuple[str, ...]:
    parts = value.items if isinstance(value, s.Words) else (value,)
    return tuple(one.value for one in parts if isinstance(one, s.Value))


def _some(names: Sequence[str]) -> str:
    """Returns names as a list that can be read, however many they are."""
    if len(names) <= _MOST_NAMES:
        return m.listed(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
