"""A test file as written: what the parser hands to `policytest`.

Data only. Names are not looked up here: an attribute that does not exist is still an `Attr`.
"""

from dsl.syntax import Node


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


class Setting(Node, frozen=True):
    """`now: "TIME"`, `metric: NAME [K1, K2] = V`, the same after `given`, `given param NAME = V`.

    `name` is what stands in front of the value; of `now` it is the time itself.
    """

    kind: str
    name: Value
    value: Operand
    keys: Values | None = None


class UseStatement(Node, frozen=True):
    """`use NAME (a = 1) as ALIAS weight 2`."""

    name: Value
    args: tuple[tuple[Value, Operand], ...]
    alias: Value | None
    weight: Value | None


class Reply(Node, frozen=True):
    """`message "..."` or `status unschedulable` behind an expectation."""

    name: str
    value: Value


class Expectation(Node, frozen=True):
    """`expect NAME subject value replies`."""

    name: Value
    subject: Operand
    value: Operand | None
    replies: tuple[Reply, ...]


Given = Fixture | Setting


class TestCase(Node, frozen=True):
    """`test: "NAME"` and what is given and expected in it."""

    __test__ = False

    name: Value
    given: tuple[Given, ...]
    expected: tuple[Expectation, ...]


TestStatement = UseStatement | Given | TestCase
