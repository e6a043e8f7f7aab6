"""The tree as written: what the parser hands to the checker and the formatter.

Data only; every node carries the span of its text.
"""

from dataclasses import dataclass

from dsl.source import Span


@dataclass(frozen=True, slots=True)
class Node:
    """Anything with a place in the file."""

    span: Span


# ---- expressions


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A number, quantity or duration as written: `5`, `2Gi`, `1m30s`."""

    text: str


@dataclass(frozen=True, slots=True)
class Percent(Node):
    """A percentage as written: `80%`."""

    text: str


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A quoted text, its escapes read."""

    value: str


@dataclass(frozen=True, slots=True)
class Word(Node):
    """A bare word, or the glob of `like`."""

    value: str


@dataclass(frozen=True, slots=True)
class Param(Node):
    """A parameter: `$name`, without the dollar."""

    name: str


@dataclass(frozen=True, slots=True)
class Bool(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A single word in an expression: a let or a metric."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function applied to arguments."""

    name: str
    name_span: Span
    args: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Field(Node):
    """A field: `pod.name`, `node.label[zone]`, `node.resource[x].free`."""

    path: str
    key: "Word | Text | Param | None" = None
    computed: "Expr | None" = None
    tail: str = ""


@dataclass(frozen=True, slots=True)
class BareAggregate(Node):
    """`max`, `min`, `avg` ... without parentheses."""

    function: str


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """`sum(x over node.pods where p)`; several arguments are element-wise."""

    function: str
    args: "tuple[Expr, ...]"
    over: "Expr | None" = None
    where: "Expr | None" = None


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if a then x else if b then y else z`: the pairs, then the last."""

    branches: "tuple[tuple[Expr, Expr], ...]"
    otherwise: "Expr"


@dataclass(frozen=True, slots=True)
class Logical(Node):
    """A flat chain of `and` or of `or`."""

    operator: str
    operands: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Not(Node):
    """`not x`."""

    operand: "Expr"


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """A flat chain of `+ -` or of `* /`, read from the left."""

    operators: tuple[str, ...]
    operands: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """`-x`."""

    operand: "Expr"


@dataclass(frozen=True, slots=True)
class PercentOf(Node):
    """`80% of x`."""

    percent: Percent
    operand: "Expr"


@dataclass(frozen=True, slots=True)
class Fallback(Node):
    """`a ?? b ?? c`."""

    operands: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """A comparison with a symbol operator."""

    operator: str
    operator_span: Span
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True, slots=True)
class TextTest(Node):
    """`contains`, `starts with`, `ends with`, `like`, `matches`."""

    operator: str
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True, slots=True)
class Is(Node):
    """`x is word` and `x is not word`."""

    left: "Expr"
    right: "Expr"
    negated: bool


@dataclass(frozen=True, slots=True)
class IsMissing(Node):
    """`x is missing`; negated: `x is present`."""

    operand: "Expr"
    negated: bool


@dataclass(frozen=True, slots=True)
class Words(Node):
    """A list of words: `[a, b]`."""

    items: "tuple[Expr, ...]"


@dataclass(frozen=True, slots=True)
class Range(Node):
    """`8..18`."""

    low: Number
    high: Number


@dataclass(frozen=True, slots=True)
class In(Node):
    """`x in members` and `x not in members`."""

    left: "Expr"
    members: "Expr"
    negated: bool


@dataclass(frozen=True, slots=True)
class LabelTest(Node):
    """`node.label k`, `node.label k=v`, `node.label k in [a, b]`.

    `operator` is empty for "has the key", else a symbol, `in` or `not in`.
    """

    path: str
    path_span: Span
    key: "Word | Text | Param"
    operator: str = ""
    value: "Expr | None" = None


Expr = (
    Number
    | Percent
    | Text
    | Word
    | Param
    | Bool
    | Name
    | Call
    | Field
    | BareAggregate
    | Aggregate
    | If
    | Logical
    | Not
    | Chain
    | Negative
    | PercentOf
    | Fallback
    | Compare
    | TextTest
    | Is
    | IsMissing
    | Words
    | Range
    | In
    | LabelTest
)
Literal = Word | Text | Percent | Param | Words


@dataclass(frozen=True, slots=True)
class Template(Node):
    """A message: texts and the expressions between braces, in order."""

    parts: tuple[str | Expr, ...]


# ---- statements


@dataclass(frozen=True, slots=True)
class Header(Node):
    """One property of the file: `policy`, `mode`, `order`, `weight` ... or `applies to`."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class ParamDecl(Node):
    """`param name: type = default from a to b "what it is"`."""

    name: str
    name_span: Span
    kind: str
    is_list: bool
    default: Literal | None
    bounds: tuple[Literal, Literal] | None
    choices: Words | None
    doc: str


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """`name = value` of a `use`."""

    name: str
    value: Literal


@dataclass(frozen=True, slots=True)
class Use(Node):
    """`use name (arguments) as alias weight w`; without an alias it is empty."""

    name: str
    name_span: Span
    args: tuple[Argument, ...]
    alias: str
    weight: Expr | None


@dataclass(frozen=True, slots=True)
class LetDecl(Node):
    """`let name = expression`."""

    name: str
    name_span: Span
    value: Expr


@dataclass(frozen=True, slots=True)
class Clause(Node):
    """A part of a statement behind its main expression: `weight 2`, `every 15s` ..."""

    name: str
    values: tuple[Expr | Template, ...]


@dataclass(frozen=True, slots=True)
class Key(Node):
    """One key of an order: `pod.priority desc`, `pod.qos [Guaranteed, Burstable]`.

    `direction` is `ascending`, `descending` or `listed`.
    """

    value: Expr
    direction: str
    items: "Words | None" = None


@dataclass(frozen=True, slots=True)
class KeysClause(Node):
    """A part of a statement that is a list of keys: `order a desc, b`."""

    name: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Amount(Node):
    """An amount of a resource: `memory 32Gi`."""

    key: "Word | Text | Param"
    value: Literal


@dataclass(frozen=True, slots=True)
class AmountsClause(Node):
    """A part of a statement that is a list of amounts: `max cpu 10, memory 32Gi`."""

    name: str
    amounts: tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class MetricDecl(Node):
    """`metric name = source clauses`."""

    name: str
    name_span: Span
    source: str
    arguments: tuple[Expr, ...]
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """`keyword: [left ->] right clauses` for filter, forbid, score, prefer, avoid ...

    `direction` is `least` or `most` for `prefer:` and `avoid:`, else empty.
    """

    keyword: str
    point: str
    left: Expr | None
    right: Expr
    clauses: tuple[Clause, ...]
    direction: str = ""


@dataclass(frozen=True, slots=True)
class Special(Node):
    """`keyword: [left ->] parts`: a statement whose right side is more than one expression.

    `point` is the extension point: sort, preempt, spread, permit, prebind, bind, postbind, gang or
    quota.
    """

    keyword: str
    point: str
    left: Expr | None
    parts: tuple[Clause | KeysClause | AmountsClause, ...]


@dataclass(frozen=True, slots=True)
class NormalizeDecl(Node):
    """`normalize: N`, the default of the file's `score:` lines."""

    norm: Clause


@dataclass(frozen=True, slots=True)
class Other(Node):
    """A statement of the grammar that the checker does not know."""

    keyword: str
    keyword_span: Span


@dataclass(frozen=True, slots=True)
class Broken(Node):
    """A statement that could not be read; a declaration still declares its name."""

    declares: str = ""


Statement = (
    Header
    | ParamDecl
    | LetDecl
    | MetricDecl
    | Use
    | Rule
    | Special
    | NormalizeDecl
    | Other
    | Broken
)


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """All statements of a file in their order."""

    statements: tuple[Statement, ...]


# ---- the words as written


@dataclass(frozen=True, slots=True)
class Lexeme(Node):
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
