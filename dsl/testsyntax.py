"""A test file as written: what the parser hands to `policytest`.

Data only; every node carries the span of its text. Names are not looked up here: an attribute that
does not exist is still an `Attr`.
"""

from dataclasses import dataclass

from dsl.source import SourceFile, Span


@dataclass(frozen=True, slots=True)
class Node:
    """Anything with a place in the file."""

    span: Span


@dataclass(frozen=True, slots=True)
class Value(Node):
    """A bare word or a quoted text, its escapes read."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Values(Node):
    """A list: `[a, b]`."""

    items: tuple[Value, ...]


Operand = Value | Values


@dataclass(frozen=True, slots=True)
class Attr(Node):
    """`NAME value`, or `NAME KEY=VALUE`; `age` is the age of a metric's sample."""

    name: Value
    value: Operand
    key: Value | None = None
    age: Value | None = None


@dataclass(frozen=True, slots=True)
class Fixture(Node):
    """An object of the cluster: `node: a cpu 4`, `given pod name p`.

    `name` is the node of `running` and `finished`, and missing for `pod` and `pending`.
    """

    kind: str
    name: Value | None
    attrs: tuple[Attr, ...]


@dataclass(frozen=True, slots=True)
class NowSetting(Node):
    """`now: "TIME"` or `given now "TIME"`."""

    time: Value


@dataclass(frozen=True, slots=True)
class MetricSetting(Node):
    """`metric: NAME = V`, `metric: NAME [K1, K2] = V`, or the same after `given`."""

    name: Value
    keys: Values | None
    value: Operand


@dataclass(frozen=True, slots=True)
class ParamSetting(Node):
    """`given param NAME = V`."""

    name: Value
    value: Operand


@dataclass(frozen=True, slots=True)
class UseStatement(Node):
    """`use NAME (a = 1) as ALIAS weight 2`."""

    name: Value
    args: tuple[tuple[Value, Operand], ...] = ()
    alias: Value | None = None
    weight: Value | None = None


@dataclass(frozen=True, slots=True)
class Reply(Node):
    """`message "..."` or `status unschedulable` behind an expectation."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Expectation(Node):
    """`expect NAME subject value replies`."""

    name: Value
    subject: Operand
    value: Operand | None = None
    replies: tuple[Reply, ...] = ()


Given = Fixture | NowSetting | MetricSetting | ParamSetting


@dataclass(frozen=True, slots=True)
class TestCase(Node):
    """`test: "NAME"` and what is given and expected in it."""

    __test__ = False

    name: Value
    given: tuple[Given, ...]
    expected: tuple[Expectation, ...]


TestStatement = UseStatement | NowSetting | MetricSetting | Fixture | TestCase


@dataclass(frozen=True, slots=True)
class TestFile:
    """All statements of a test file that could be read, in their order."""

    __test__ = False

    source: SourceFile
    statements: tuple[TestStatement, ...]
