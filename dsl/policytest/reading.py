"""A test file as understood: names are looked up, values read, fixtures merged."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from dsl import syntax as s
from dsl.diagnostics import Diagnostic, Fix, sort_key
from dsl.files import read_source
from dsl.nearest import closest
from dsl.parser import Parser
from dsl.parser.statements import UNNAMED
from dsl.policytest import attributes as w
from dsl.quantities import parse_number, parse_time
from dsl.source import SourceFile, Span

_TEST_LINE: Final = re.compile(r"(?m)^test\b")
_MOST_NAMES: Final = 8
_CLAUSES: Final = ("given", "expect")
_T = TypeVar("_T")


class Sample(Struct, frozen=True):
    """A metric's value as written, the line it stands in, and how old it is."""

    text: str
    line: int
    age_seconds: float = 0.0


class Thing(Struct, frozen=True):
    """One object of the cluster, its attributes merged.

    Attributes:
        kind: `node`, `pod`, `running`, `finished`, `pending`, `namespace`, `workload` ...
        name: as given; empty for a pod without a name.
        plain: attribute -> value: text, int, bool, float (durations) or a tuple of texts.
        maps: attribute -> key -> value, for `label K=V` and the like.
    """

    kind: str
    name: str
    span: Span
    node: str = ""
    plain: dict[str, w.Plain] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics: dict[str, Sample] = field(default_factory=dict)

    def merged(self, newer: "Thing") -> "Thing":
        """The same object with the newer attributes; those not named again keep their value."""
        maps = {key: {**self.maps.get(key, {}), **newer.maps.get(key, {})}
                for key in (*self.maps, *newer.maps)}  # fmt: skip
        return replace(
            newer,
            node=newer.node or self.node,
            plain={**self.plain, **newer.plain},
            maps=maps,
            metrics={**self.metrics, **newer.metrics},
        )

    def get(self, name: str, default: _T) -> _T:
        """The value of an attribute that is of this kind."""
        value = self.plain.get(name)
        return value if isinstance(value, type(default)) else default


Params = Mapping[str, tuple[str | tuple[str, ...], Span]]
"""Name of a parameter -> its value, and where it is named."""


class Use(Struct, frozen=True):
    """A policy that takes part."""

    name: str
    span: Span
    params: Params
    alias: str
    weight: float | None


class Cluster(Struct, frozen=True):
    """Everything given, in its order: objects, metrics by name and keys, the time."""

    things: Mapping[tuple[str, str, str, int], Thing] = field(default_factory=dict)
    metrics: Mapping[tuple[str, ...], Sample] = field(default_factory=dict)
    now: float = w.NOW

    def of(self, *kinds: str) -> tuple[Thing, ...]:
        """The objects of these kinds."""
        return tuple(one for one in self.things.values() if one.kind in kinds)

    def key_of(self, thing: Thing) -> tuple[str, str, str, int]:
        """Kind, namespace, name, and a number for what is never merged, as pods to place are."""
        alone = len(self.things) if not thing.name or thing.kind == "pod" else 0
        return thing.kind, thing.get("namespace", "") or "default", thing.name, alone


class Expected(Struct, frozen=True):
    """One expectation with its values read."""

    name: str
    line: int
    text: str
    names: tuple[str, ...]
    value: str
    number: float
    message: str | None
    status: str | None


class Case(Struct, frozen=True):
    """One test: what is there, and what must come out."""

    name: str
    span: Span
    cluster: Cluster
    params: Params
    expected: tuple[Expected, ...]


class Suite(Struct, frozen=True):
    """A test file, ready to run unless there are errors among the findings."""

    source: SourceFile
    uses: tuple[Use, ...]
    cases: tuple[Case, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def ok(self) -> bool:
        """Whether it can be run."""
        return not any(one.is_error for one in self.diagnostics)


def pod_names(thing: Thing, default: str = "pod") -> list[str]:
    """The names of the pods that a fixture stands for."""
    name = thing.name or default
    count = thing.get("count", 1)
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


# ---- reading


def read_suite(name: str, data: str | bytes, parser: Parser | None = None) -> Suite:
    """Reads a test file; whatever is wrong with it is among the findings. Never raises."""
    source, problems = read_source(name, data)
    if problems:
        return Suite(source, (), (), problems)
    statements, findings = (parser or Parser()).tests(source)
    return _Reader(source, findings).suite(statements)


class _Refused(Exception):  # noqa: N818 - a finding that ends a value, not a fault
    """Never leaves this module."""


class _Reader:
    """Looks up attributes and expectations; gathers findings."""

    def __init__(self, source: SourceFile, found: Sequence[Diagnostic]) -> None:
        self.source = source
        self.found = list(found)
        # A node whose line could not be read is no node, and naming it no second mistake.
        lines = [source.line(self._line(one.span)) for one in found]
        self._lost = {name for line in lines for name in w.NAME.findall(line)}

    def suite(self, statements: Sequence[s.TestStatement]) -> Suite:
        """Returns the whole file's model."""
        uses: list[Use] = []
        base = Cluster()
        tests: list[s.TestCase] = []
        for statement in statements:
            if isinstance(statement, s.TestCase):
                tests.append(statement)
            elif isinstance(statement, s.Use):
                with suppress(_Refused):
                    uses.append(self._use(statement))
            elif tests:
                self._report(
                    "P703", "this stands behind a test, so no test would see it", statement.span,
                    "move it before the first `test:`, or indent it there as `given ...`",
                )  # fmt: skip
            else:
                base = self._given(base, statement, once=True)
        if not self.found:
            end = len(self.source.text.rstrip())
            if not uses:
                message = "the file says of no policy that it tests it"
                self._report("P703", message, Span(0, 0), "name it:  use NAME")
            if not tests:
                help_ = 'add below:  test: "what must hold"'
                self._report("P703", "the file has no test", Span(end, end), help_)
        self._each_once("test", [(one.name.value, one.name.span) for one in tests])
        cases = tuple([self._case(base, one) for one in tests])
        # What stands above the tests is looked at with each of them.
        once = {(one.code, one.span, one.message): one for one in reversed(self.found)}
        found = tuple(sorted(once.values(), key=sort_key))
        return Suite(self.source, tuple(uses), cases, found)

    def _each_once(self, what: str, named: Iterable[tuple[str, Span]]) -> None:
        """A report names tests by what they say, and expectations given pods by their names."""
        seen = set[str]()
        for name, span in named:
            if name in seen:
                message = f"another {what} is called `{name}`"
                self._report("P703", message, span, "give each of them a `name` of its own")
            seen.add(name)

    def _report(
        self, code: str, message: str, span: Span, *helps: str, fix: Fix | None = None
    ) -> _Refused:
        """Notes what is wrong; underlined is what stands on the first line."""
        end = span.start + len(self.source.slice(span).rstrip().split("\n", 1)[0])
        at = Span(span.start, end)
        self.found.append(Diagnostic(code, message, self.source, at, helps=helps, fix=fix))
        return _Refused()

    def _line(self, span: Span) -> int:
        return self.source.position(span.start)[0]

    def _use(self, node: s.Use) -> Use:
        weight = None
        if node.weight is not None:
            weight = parse_number(str(self._value(w.AMOUNT, "weight", node.weight)))
        starts = [(one, one.span.start) for one in node.args]
        params = {one.name: (_plain(one.value), Span(at, at + len(one.name))) for one, at in starts}
        return Use(node.name, node.name_span, params, node.alias, weight)

    def _given(self, cluster: Cluster, node: s.Given, *, once: bool = False) -> Cluster:
        if isinstance(node, s.Fixture):
            new = self._thing(node)
            old = cluster.things.get(key := cluster.key_of(new))
            # Above the tests each object stands once; changing it is for tests.
            if once and old is not None:
                rest = self.source.words(node.span).partition(":")[2].strip()
                help_ = f"write all of it in one place; in a test  given {node.kind} {rest}"
                self._report("P703", f"`{new.name}` is given a second time", node.span, help_)
            return replace(cluster, things={**cluster.things, key: old.merged(new) if old else new})
        with suppress(_Refused):
            if node.kind == "metric":
                of = node.name.value, *(_texts(node.keys) if node.keys else ())
                sample = self._sample(node.value)
                return replace(cluster, metrics={**cluster.metrics, of: sample})
            if node.kind == "now":
                return replace(cluster, now=parse_time(str(self._value(w.TIME, "now", node.name))))
        return cluster

    def _thing(self, node: s.Fixture) -> Thing:
        name = node.name.value if node.name is not None else ""
        on, name = (name, "") if node.kind in ("running", "finished") else ("", name)
        thing = Thing(node.kind, name, node.span, on)
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

    def _attr(self, thing: Thing, attr: s.Attr) -> None:
        known, name = w.ATTRIBUTES[thing.kind], attr.name.value
        if name not in known:
            what = f"a `{thing.kind}` has no attribute"
            raise self._unknown(name, attr.name.span, known, what)
        key = "" if attr.key is None else attr.key.value
        if name == "metric" and key:
            thing.metrics[key] = self._sample(attr.value, attr.age)
        elif name in s.KEYED:
            if attr.key is None or (key.startswith((".", "-")) and isinstance(attr.key, s.Word)):
                at = (attr.key or attr.value).span
                message, help_ = f"`{name}` takes a key and a value", f"write  {name} KEY=VALUE"
                raise self._report("P702", message, at, help_)
            value = self._value(known[name], name, attr.value)
            thing.maps.setdefault(name, {})[key] = str(value)
        else:
            thing.plain[name] = self._value(known[name], name, attr.value)

    def _sample(self, value: s.Value | s.Words, age: s.Value | None = None) -> Sample:
        text = str(self._value(w.SAMPLE, "metric", value))
        seconds = 0.0 if age is None else self._value(w.SPAN, "age", age)
        return Sample(text, self._line(value.span), float(str(seconds)))

    def _value(self, kind: w.Kind, name: str, value: s.Expr) -> w.Plain:
        read = kind.read(value.value) if isinstance(value, s.Value) else None
        if kind is w.TEXTS and isinstance(value, s.Words):
            read = _texts(value)
        if read is None:
            message = f"`{name}` is {kind.what}, not `{self.source.words(value.span)}`"
            help_ = f"write something like {kind.example}"
            raise self._report("P702", message, value.span, help_)
        return read

    def _case(self, base: Cluster, node: s.TestCase) -> Case:
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
        case = Case(node.name.value, node.span, cluster, params, tuple(expected))
        self._check(case, node)
        return case

    def _check(self, case: Case, node: s.TestCase) -> None:
        pods = case.cluster.of("pod")
        for one in case.cluster.of("running", "finished", "pod"):
            if where := one.node or one.get("chosen", ""):
                self._node(where, self._place_of(where, one.span), case.cluster)
        if any(one.name == "error" for one in case.expected):
            if len(node.expected) > 1:
                message = "`expect error` is the only expectation of its test"
                self._report("P703", message, node.expected[0].span)
        elif node.expected and not pods:
            end, message = node.name.span.end, "this test gives no pod"
            fix = Fix(Span(end, end), "\n  given pod name p")
            self._report("P703", message, node.name.span, "add  given pod name p", fix=fix)
        self._each_once("pod", [(name, one.span) for one in pods for name in pod_names(one)])

    def _place_of(self, name: str, span: Span) -> Span:
        """Returns where a fixture says on which node it is."""
        form = re.compile(rf"\b(?:on|chosen)[ \t]+({re.escape(name)})(?![\w.-])")
        found = form.search(self.source.text, span.start, span.end)
        return span if found is None else Span(*found.span(1))

    def _expected(self, node: s.Expectation, cluster: Cluster) -> Expected:
        name, subject = node.name.value, node.subject
        shape = w.EXPECTATIONS.get(name)
        if shape is None:
            raise self._unknown(name, node.name.span, w.EXPECTATIONS, "there is no expectation")
        names, takes = _texts(subject), shape.takes
        value = node.value.value if isinstance(node.value, s.Value) else ""
        listed = isinstance(subject, s.Words)
        if "none" in takes and names == ("none",) and not listed:
            names, listed = (), "list" in takes
        words = next((one.split("|") for one in takes if "|" in one), names)
        text = value or "".join(names)
        number = next((w.NUMBERS[one].read(text) for one in takes if one in w.NUMBERS), 0)
        if (
            number is None
            or isinstance(node.value, s.Words)
            or listed != ("list" in takes)
            or (node.value is not None) != ("value" in takes)
            or not {*names} <= {*words}
            or any(one.name not in takes for one in node.replies)
        ):
            at, help_ = (node.value or subject).span, f"write  expect {shape.example}"
            raise self._report("P702", f"this is not what `expect {name}` takes", at, help_)
        self._named(names, node, cluster)
        line, text = self._line(node.span), self.source.words(node.span)
        said = {one.name: str(_plain(one.values[0])) for one in node.replies}
        message, status = said.get("message"), said.get("status")
        return Expected(name, line, text, names, value, float(str(number)), message, status)

    def _named(self, names: Sequence[str], node: s.Expectation, cluster: Cluster) -> None:
        """Names that the test does not give are slips of the pen."""
        expected, subject = node.name.value, node.subject
        parts = subject.items if isinstance(subject, s.Words) else (subject,)
        pods = [name for one in cluster.of("pod") for name in pod_names(one)]
        for name, part in zip(names, parts, strict=False):
            if expected in w.OF_NODES:
                self._node(name, part.span, cluster)
            elif expected in w.OF_GIVEN and name not in pods:
                message, help_ = f"no pod `{name}` is given", f"given are {_some(pods)}"
                self._nobody(name, part.span, message, help_, pods)

    def _node(self, name: str, span: Span, cluster: Cluster) -> None:
        """A node that is named has to be there."""
        nodes, message = [one.name for one in cluster.of("node")], f"there is no node `{name}`"
        if name in nodes or name in self._lost:
            return
        if nodes:
            self._nobody(name, span, message, f"the nodes are {_some(nodes)}", nodes)
            return
        line, first = f"node: {name} cpu 4", _TEST_LINE.search(self.source.text)
        fix = None if first is None else Fix(Span(*[first.start()] * 2), f"{line}\n")
        self._report("P701", message, span, f"add above the tests:  {line}", fix=fix)

    def _nobody(
        self, name: str, span: Span, message: str, help_: str, known: Iterable[str]
    ) -> _Refused:
        near = closest(name, known)
        if near is not None:
            help_ = f"did you mean `{near}`?"
        fix = Fix(span, near) if near is not None and near not in _CLAUSES else None
        return self._report("P701", message, span, help_, fix=fix)

    def _unknown(self, name: str, span: Span, known: Mapping[str, object], what: str) -> _Refused:
        there = f"there are {w.listed(sorted(known))}"
        meant = w.CALLED.get(name, name)
        near = meant if meant in known else name
        return self._nobody(near, span, f"{what} `{name}`", there, [*known, *_CLAUSES])


def _plain(value: s.Expr) -> str | tuple[str, ...]:
    assert isinstance(value, s.Value | s.Words)
    return _texts(value) if isinstance(value, s.Words) else value.value


def _texts(value: s.Value | s.Words) -> tuple[str, ...]:
    parts = value.items if isinstance(value, s.Words) else (value,)
    return tuple(one.value for one in parts if isinstance(one, s.Value))


def _some(names: list[str]) -> str:
    """Returns names as a list that can be read, however many they are."""
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return w.listed([*names[:_MOST_NAMES], *more])
