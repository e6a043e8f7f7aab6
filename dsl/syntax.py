"""The tree as written: what the parser hands to the checker and the formatter.

Data only; every node carries the span of its text.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from dsl.source import Span

#: Names that Kubernetes gives its extension points. `require` is no alias of `filter`: it says the
#: same in a sense of its own, so it stays as the author wrote it.
SHORT_POINTS: Final[Mapping[str, str]] = {
    "preEnqueue": "gate", "queueSort": "sort", "preFilter": "prefilter", "postFilter": "preempt",
    "preScore": "prescore", "preBind": "prebind", "postBind": "postbind",
}  # fmt: skip
#: What lines of a test file start with.
HEADS: Final = (
    "use", "now", "node", "running", "finished", "pending", "namespace", "workload", "group",
    "quota", "pdb", "metric", "test",
)  # fmt: skip
#: Attributes there that are written NAME KEY=VALUE.
KEYED: Final = (
    "label", "annotation", "request", "limit", "resource", "taint", "toleration", "condition",
    "node_selector", "min", "max", "min_resources", "image_size",
)  # fmt: skip


class Node(Struct, frozen=True, gc=False):
    """Anything with a place in the file."""

    span: Span


def parts(node: Node) -> list[Node]:
    """Returns the direct parts of a node."""
    found: list[Node] = []
    todo = [getattr(node, name) for name in reversed(node.__struct_fields__)]
    while todo:
        one = todo.pop()
        if isinstance(one, tuple):
            todo.extend(reversed(one))
        elif isinstance(one, Node):
            found.append(one)
    return found


# ---- expressions


class Number(Node, frozen=True):
    """A number, quantity or duration as written: `5`, `2Gi`, `1m30s`."""

    text: str


class Percent(Node, frozen=True):
    """A percentage as written: `80%`."""

    text: str


class Text(Node, frozen=True):
    """A quoted text, its escapes read."""

    value: str


class Word(Node, frozen=True):
    """A bare word, or the glob of `like`."""

    value: str


class Param(Node, frozen=True):
    """A parameter: `$name`, without the dollar."""

    name: str


class Bool(Node, frozen=True):
    """`true` or `false`."""

    value: bool


class Name(Node, frozen=True):
    """A single word in an expression: a let or a metric."""

    name: str


class Call(Node, frozen=True):
    """A function applied to arguments."""

    name: str
    name_span: Span
    args: "tuple[Expr, ...]"


class Field(Node, frozen=True):
    """A field: `pod.name`, `node.label[zone]`, `node.resource[x].free`."""

    path: str
    key: "Word | Text | Param | None" = None
    computed: "Expr | None" = None
    tail: str = ""


class Aggregate(Node, frozen=True):
    """`sum(x over node.pods where p)`; several arguments are element-wise, none a bare `max`."""

    function: str
    args: "tuple[Expr, ...]"
    over: "Expr | None" = None
    where: "Expr | None" = None


class If(Node, frozen=True):
    """`if a then x else if b then y else z`: the pairs, then the last."""

    branches: "tuple[tuple[Expr, Expr], ...]"
    otherwise: "Expr"


class Logical(Node, frozen=True):
    """A flat chain of `and` or of `or`."""

    operator: str
    operands: "tuple[Expr, ...]"


class Not(Node, frozen=True):
    """`not x`."""

    operand: "Expr"


class Chain(Node, frozen=True):
    """A flat chain of `+ -` or of `* /`, read from the left."""

    operators: tuple[str, ...]
    operands: "tuple[Expr, ...]"


class Negative(Node, frozen=True):
    """`-x`."""

    operand: "Expr"


class PercentOf(Node, frozen=True):
    """`80% of x`."""

    percent: Percent
    operand: "Expr"


class Fallback(Node, frozen=True):
    """`a ?? b ?? c`."""

    operands: "tuple[Expr, ...]"


class Compare(Node, frozen=True):
    """A comparison with a symbol operator."""

    operator: str
    operator_span: Span
    left: "Expr"
    right: "Expr"


class TextTest(Node, frozen=True):
    """`contains`, `starts with`, `ends with`, `like`, `matches`."""

    operator: str
    left: "Expr"
    right: "Expr"


class Is(Node, frozen=True):
    """`x is word` and `x is not word`."""

    left: "Expr"
    right: "Expr"
    negated: bool


class IsMissing(Node, frozen=True):
    """`x is missing`; negated: `x is present`."""

    operand: "Expr"
    negated: bool


class Words(Node, frozen=True):
    """A list of words: `[a, b]`."""

    items: "tuple[Expr, ...]"


class Range(Node, frozen=True):
    """`8..18`."""

    low: Number
    high: Number


class In(Node, frozen=True):
    """`x in members` and `x not in members`."""

    left: "Expr"
    members: "Expr"
    negated: bool


class LabelTest(Node, frozen=True):
    """`node.label k`, `node.label k=v`, `node.label k in [a, b]`.

    `operator` is empty for "has the key", else a symbol, `in` or `not in`.
    """

    path: str
    path_span: Span
    key: "Word | Text | Param"
    operator: str = ""
    value: "Expr | None" = None


Expr = (
    Number | Percent | Text | Word | Param | Bool | Name | Call | Field | Aggregate
    | If | Logical | Not | Chain | Negative | PercentOf | Fallback | Compare
    | TextTest | Is | IsMissing | Words | Range | In | LabelTest
)  # fmt: skip
Literal = Word | Text | Percent | Param | Words


class Template(Node, frozen=True):
    """A message: texts and the expressions between braces, in order."""

    parts: tuple[str | Expr, ...]


# ---- statements


class Header(Node, frozen=True):
    """One property of the file: `policy`, `mode`, `order`, `weight` ... or `applies to`."""

    name: str
    value: Expr


class ParamDecl(Node, frozen=True):
    """`param name: type = default from a to b "what it is"`."""

    name: str
    name_span: Span
    kind: str
    is_list: bool
    default: Literal | None
    bounds: tuple[Literal, Literal] | None
    choices: Words | None
    doc: str


class Argument(Node, frozen=True):
    """`name = value` of a `use`."""

    name: str
    value: Literal


class Use(Node, frozen=True):
    """`use name (arguments) as alias weight w`; without an alias it is empty."""

    name: str
    name_span: Span
    args: tuple[Argument, ...]
    alias: str
    weight: Expr | None


class LetDecl(Node, frozen=True):
    """`let name = expression`."""

    name: str
    name_span: Span
    value: Expr


class Clause(Node, frozen=True):
    """A part of a statement behind its main expression: `weight 2`, `order a desc, b` ...

    The grammar says what its values are: expressions, a `Template`, each a `Key` or an `Amount`.
    """

    name: str
    values: tuple[Any, ...]


class Key(Node, frozen=True):
    """One key of an order: `pod.priority desc`, `pod.qos [Guaranteed, Burstable]`.

    `direction` is `asc`, `desc` or `listed`.
    """

    value: Expr
    direction: str
    items: "Words | None" = None


class Amount(Node, frozen=True):
    """An amount of a resource: `memory 32Gi`."""

    key: "Word | Text | Param"
    value: Literal


class MetricDecl(Node, frozen=True):
    """`metric name = source clauses`."""

    name: str
    name_span: Span
    source: str
    arguments: tuple[Expr, ...]
    clauses: tuple[Clause, ...]


class Rule(Node, frozen=True):
    """`keyword: [left ->] right clauses` for filter, forbid, score, prefer, avoid ...

    `direction` is `least` or `most` for `prefer:` and `avoid:`, else empty.
    """

    keyword: str
    point: str
    left: Expr | None
    right: Expr
    clauses: tuple[Clause, ...]
    direction: str = ""


class Special(Node, frozen=True):
    """`keyword: [left ->] clauses`: a statement whose right side is more than one expression.

    `point` is the extension point: sort, preempt, spread, permit, prebind, bind, postbind, gang or
    quota.
    """

    keyword: str
    point: str
    left: Expr | None
    clauses: tuple[Clause, ...]


class NormalizeDecl(Node, frozen=True):
    """`normalize: N`, the default of the file's `score:` lines."""

    norm: Clause


class Broken(Node, frozen=True):
    """A statement that could not be read; a declaration still declares its names."""

    declares: tuple[str, ...] = ()


Statement = (
    Header | ParamDecl | LetDecl | MetricDecl | Use | Rule | Special | NormalizeDecl | Broken
)


# ---- test files: names are not looked up, an attribute that does not exist is still an `Attr`


Value = Word | Text


class Attr(Node, frozen=True):
    """`NAME value`, or `NAME KEY=VALUE`; `age` is the age of a metric's sample."""

    name: Value
    value: Value | Words
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
    value: Value | Words
    keys: Words | None = None


class Expectation(Node, frozen=True):
    """`expect NAME subject value replies`."""

    name: Value
    subject: Value | Words
    value: Value | Words | None
    replies: tuple[Clause, ...]


Given = Fixture | Setting


class TestCase(Node, frozen=True):
    """`test: "NAME"` and what is given and expected in it."""

    __test__ = False

    name: Value
    given: tuple[Given, ...]
    expected: tuple[Expectation, ...]


TestStatement = Use | Given | TestCase


# ---- the words as written


class Lexeme(Node, frozen=True):
    """One word or sign of a statement, keywords and brackets included, comments not.

    Attributes:
        kind: name of the terminal of the grammar.
        owner: innermost rule of the grammar around it.
        opens: rules whose text starts with it, outermost first.
        depth: number of rules around it; with `opens` it tells the tree.
    """

    kind: str
    text: str
    owner: str
    opens: tuple[str, ...]
    depth: int
