"""A test file as written: what the parser hands to `policytest`.

Data only; every node carries the span of its text. Names are not looked up here: an attribute that
does not exist is still an `Attr`.
"""

from msgspec import Struct

from dsl.source import SourceFile, Span


class Node(Struct, frozen=True, gc=False):
    """Anything with a place in the file."""

    span: Span


class Value(Node, frozen=True):
    """A bare word or a quoted text, its escapes read."""

    text: str
    quoted: bool = False


class Values(Node, frozen=True):
    """A list: `[a, b]`."""

    items: tuple[Value, ...]


Operand = Value | Values


class Attr(Node, frozen=True):
    """`NAME value`, or `NAME KEY=VALUE`; `age` is the age of a metric's sample."""

    name: Value
    value: Operand
    key: Value | None = None
    age: Value | None = None


class Fixture(Node, frozen=True):
    """An object of the cluster: `node: a cpu 4`, `given pod name p`.

    `name` is the node of `running` and `finished`, and missing for `pod` and `pending`.
    """

    kind: str
    name: Value | None
    attrs: tuple[Attr, ...]


class NowSetting(Node, frozen=True):
    """`now: "TIME"` or `given now "TIME"`."""

    time: Value


class MetricSetting(Node, frozen=True):
    """`metric: NAME = V`, `metric: NAME [K1, K2] = V`, or the same after `given`."""

    name: Value
    keys: Values | None
    value: Operand


class ParamSetting(Node, frozen=True):
    """`given param NAME = V`."""

    name: Value
    value: Operand


class UseStatement(Node, frozen=True):
    """`use NAME (a = 1) as ALIAS weight 2`."""

    name: Value
    args: tuple[tuple[Value, Operand], ...] = ()
    alias: Value | None = None
    weight: Value | None = None


class Reply(Node, frozen=True):
    """`message "..."` or `status unschedulable` behind an expectation."""

    name: str
    value: Value


class Expectation(Node, frozen=True):
    """`expect NAME subject value replies`."""

    name: Value
    subject: Operand
    value: Operand | None = None
    replies: tuple[Reply, ...] = ()


Given = Fixture | NowSetting | MetricSetting | ParamSetting


class TestCase(Node, frozen=True):
    """`test: "NAME"` and what is given and expected in it."""

    __test__ = False

    name: Value
    given: tuple[Given, ...]
    expected: tuple[Expectation, ...]


TestStatement = UseStatement | NowSetting | MetricSetting | Fixture | TestCase


class TestFile(Struct, frozen=True):
    """All statements of a test file that could be read, in their order."""

    __test__ = False

    source: SourceFile
    statements: tuple[TestStatement, ...]
