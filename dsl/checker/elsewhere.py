"""What is written elsewhere for what a name or a call asks: found in the text around it.

Words only: refuses nothing and decides no type.
"""

import re
from typing import Final

from dsl import syntax as s
from dsl.checker.scope import Scope
from dsl.schema import FIELDS, NODE_SETS, POD_SETS, FieldSpec
from dsl.source import QUOTED_OR_COMMENT, Span
from dsl.spelling import AGGREGATES, DAYS, days
from dsl.types import Kind

#: Sets of nodes, and how one of a label starts.
_NODES: Final = "|".join(("nodes", "candidates", *map(re.escape, NODE_SETS), "nodes_in"))
#: Statements that know of no node.
# Of thousands of mistakes each looks at what stands near: a whole file each is seconds.
_NEAR: Final = 24
_FAR: Final = 400
_CALLED: Final = re.compile(rf"\b({'|'.join(AGGREGATES)})\([ \t]*\Z")
_IN_A_SET: Final = re.compile(
    r"[ \t]+in[ \t]+([\w.]+)(?:[ \t]+where[ \t]+([^()\n]*(?:\([^()\n]*\)[^()\n]*)*))?\)"
)
_EARLY: Final = ("gate", "preEnqueue", "prefilter", "preFilter", "sort", "queueSort", "quota")
#: Words that start a statement, said as the outcome of a rule.
_OUTCOMES: Final = {
    "forbid": "forbid", "deny": "forbid", "reject": "forbid", "block": "forbid",
    "require": "require",
}  # fmt: skip


def outcome(scope: Scope, node: s.Name) -> str | None:
    """Returns what to write for `filter: A -> forbid`: a statement of its own."""
    word = _OUTCOMES.get(node.name)
    if word is None:
        return None
    start = _start_of_statement(scope, node.span.start)
    head = re.match(r"(\w+):[ \t]*", scope.source.text[start:])
    before = scope.source.text[start : node.span.start].rstrip()
    if head is None or not before.endswith("->"):
        return None
    condition = " ".join(before.removesuffix("->")[head.end() :].split())
    return f"`{word}` is a statement:  {word}: {condition}"


def in_sort(scope: Scope, span: Span) -> bool:
    """Whether a place is within `sort:`."""
    start = _start_of_statement(scope, span.start)
    return re.match(r"sort:|queueSort:", scope.source.text[start:]) is not None


def head_of_value(scope: Scope, span: Span) -> str:
    """Returns how the line of a value begins, `prefer: least`; "" where no number is wanted."""
    start = _start_of_statement(scope, span.start)
    head = " ".join(scope.source.text[start : span.start].split())
    return head if re.fullmatch(r"score:|(?:prefer|avoid): (?:least|most)", head) else ""


def pods(scope: Scope, node: s.Name) -> str | None:
    """Returns the pods that `pods` means where no node is at hand."""
    if node.name != "pods":
        return None
    start = _start_of_statement(scope, node.span.start)
    head = re.match(r"\w+", scope.source.text[start:])
    early = head is not None and head.group() in _EARLY
    return "cluster.pods" if early else None


def _start_of_statement(scope: Scope, at: int) -> int:
    """Returns where the statement around a place starts: the last word in column 1 before it."""
    text = scope.source.text
    start = text.rfind("\n", 0, at) + 1
    while start and not re.match(r"\w", text[start]):
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def values_of_pods(scope: Scope, node: s.Field) -> str | None:
    """Returns `sum(it.cpu over node.pods)` for `sum(node.pods.cpu)`, alike for sets of nodes."""
    sets = (*POD_SETS, *NODE_SETS)
    owner = next((one for one in sets if node.path.startswith(f"{one}.")), None)
    each = "node" if owner in NODE_SETS else "it"
    field = f"{each}.{node.path.removeprefix(f'{owner}.')}"
    if owner is None:
        return _of_domain(node.path)
    if field not in FIELDS:
        counted = each == "node" and field in ("node.count", "node.size", "node.length")
        return f"write  count({owner})" if counted else None
    text = scope.source.text
    call = _called(text, node.span)
    if call is None:
        return f"a value of each of them is asked in an aggregate:  sum({field} over {owner})"
    after = text[node.span.end : node.span.end + _FAR]
    bare = QUOTED_OR_COMMENT.sub(lambda found: "_" * len(found.group()), after)
    rest = " ".join(after[: _closing(bare, 0)].split())
    where = f" {rest}" if rest.startswith("where ") else ""
    if call[1] in ("count", "any", "all"):
        return f"write  {call[1]}({owner} where {field} ...)"
    return f"write  {call[1]}({field} over {owner}{where})"


def _of_domain(path: str) -> str | None:
    """Returns `sum(node.cpu.free over zone.nodes)` for `zone.cpu.free`."""
    domain, _, rest = path.partition(".")
    spec = FIELDS.get(f"node.{rest}")
    if f"{domain}.nodes" not in NODE_SETS or spec is None or not spec.type.is_number:
        return None
    return f"what the nodes of a {domain} have in all is  sum({spec.name} over {domain}.nodes)"


def _called(text: str, span: Span) -> re.Match[str] | None:
    """Returns the aggregate whose first word a place is."""
    return _CALLED.search(text, max(0, span.start - _NEAR), span.start)


def _closing(bare: str, at: int) -> int:
    """Returns where the bracket around a place is closed."""
    depth = 1
    for place in range(at, len(bare)):
        depth += (bare[place] == "(") - (bare[place] == ")")
        if depth == 0:
            return place
    return len(bare)


def query(scope: Scope, node: s.Call) -> str | None:
    """Returns the metric of `rate(x[5m])`: the query whole, as it was written."""
    text = scope.text(node)
    if not re.search(r"\[[ \t]*\d+(ms|[smhdwy])", text):
        return None
    quoted = f"'{text}'" if '"' in text else f'"{text}"'
    return f"write above  metric NAME = promql {quoted} by node   and here  NAME"


def no_param(scope: Scope, node: s.Param) -> tuple[str, str | None]:
    """Returns what to do about a parameter that nobody declared, and what to write instead."""
    if node.name in scope.lets or node.name in scope.metrics:
        kind = "let" if node.name in scope.lets else "metric"
        return f"`{node.name}` is a {kind}, no parameter: write  {node.name}", node.name
    before = scope.source.text[: node.span.start].rstrip()
    if re.search(r"\bin\Z", before):
        return f"declare it:  param {node.name}: list of string = [VALUE]", None
    return f"declare it:  param {node.name}: string = VALUE", None


def as_list(scope: Scope, span: Span) -> tuple[str, ...]:
    """Returns how a parameter behind `in` is declared, nothing for other values."""
    name = re.fullmatch(r"\$(\w+)", scope.source.slice(span))
    return (f"declare it  param {name[1]}: list of string = [...]",) if name is not None else ()


def of_set(scope: Scope, name: str, span: Span) -> str:
    """Returns the aggregate of `node.pods contains web`, `pod.name in node.pods`; "" for others."""
    text = scope.source.text
    test = re.compile(
        r"[ \t]+((?:contains|is|like|starts with|ends with)[ \t]+(?:[\w.*-]+|\"[^\"\n]*\"))"
    ).match(text, span.end)
    if test is not None:
        return f"any({name} where it.name {test[1]})"
    value = re.search(
        r"(?<![\w.$])(pod\.(\w+)(\[[\w./-]+\])?)[ \t]+(not[ \t]+)?in[ \t]*\Z",
        text[: span.start],
    )
    if value is None or f"it.{value[2]}" not in FIELDS:
        return ""
    # What a label or an annotation names is a pod by its name.
    own = "it.name" if value[3] else f"it.{value[2]}"
    return f"{'not ' if value[4] else ''}any({name} where {own} == {value[1]})"


def of_node(scope: Scope, name: str, span: Span) -> str:
    """Returns the field that `it.ready` means in an aggregate over nodes, "" elsewhere."""
    better = f"node.{name.removeprefix('it.')}"
    before = scope.source.text[_start_of_statement(scope, span.start) : span.start]
    over = re.search(rf"\((?:{_NODES})\b[^()]*\Z", before) is not None
    after = re.compile(rf"[^()\n]*\bover[ \t]+(?:{_NODES})\b")
    over = over or after.match(scope.source.text, span.end) is not None
    return better if over and better in FIELDS else ""


def compared(scope: Scope, field: str, span: Span) -> bool:
    """Whether a field stands on the other side of the comparison that a place is a side of."""
    text, path = scope.source.text, re.escape(field)
    sign = r"[ \t]*(?:[!=<>]=|[<>])[ \t]*"
    if re.compile(rf"{sign}{path}(?![\w.\[])").match(text, span.end) is not None:
        return True
    near = text[max(0, span.start - _FAR) : span.start]
    return re.search(rf"(?<![\w.]){path}{sign}\Z", near) is not None


def without_set(scope: Scope, spec: FieldSpec, span: Span) -> str:
    """Returns what `it.ready` means where no set of pods is gone through."""
    start = _start_of_statement(scope, span.start)
    early = re.match(rf"(?:{'|'.join(_EARLY)}):", scope.source.text[start:]) is not None
    pods = "cluster.pods" if early else "node.pods"
    text = " ".join(scope.source.slice(span).split())
    last = spec.name.removeprefix("it.")
    own = text.replace("it.", "pod.", 1)
    before = scope.source.text[start : span.start]
    if f"pod.{last}" in FIELDS and re.match(r"(?:quota|gang):.*\bby[ \t]+\Z", before, re.DOTALL):
        return f"write  {own}"
    owners = {"pod": "of the pod to place"} | ({} if early else {"node": "of the node"})
    parts = [
        f"{what} it is  {owner}.{text.removeprefix('it.')}"
        for owner, what in owners.items()
        if f"{owner}.{last}" in FIELDS
    ]
    alone = spec.keyed and text.endswith("]")
    each = f"any({pods} where {text}{' ...' if alone or spec.type.kind is not Kind.BOOL else ''})"
    if spec.keyed and not alone:
        each = f"any({pods} where {text})"
    elif spec.type.kind is Kind.TIME:
        each = f"any({pods} where now - {text} < 5m)"
    elif spec.type.is_number and last != "priority":
        each = f"sum({text} over {pods})"
    shown = ",  ".join([*parts, f"of pods of a set  {each}"])
    if re.match(r"let\b", scope.source.text[start:]) is not None:
        shown += "; a `let` holds no `it`: where a set is gone through, write it out"
    return shown


def variable(scope: Scope, node: s.Name) -> str:
    """Returns the aggregate of `count(p in node.pods where p.ready)`, "" for other names."""
    text = scope.source.text
    before = _called(text, node.span)
    found = _IN_A_SET.match(text, node.span.end)
    if before is None or found is None or found[1] not in POD_SETS:
        return ""
    where = re.sub(rf"\b{node.name}\.", "it.", found[2] or "")
    return f"{before[1]}({found[1]}{f' where {where}' if where else ''})"


def weekdays(scope: Scope, node: s.Name) -> str | None:
    """Returns the days of `mon-fri` at its first word, "" at its last, None for other names."""
    if node.name not in DAYS:
        return None
    text = scope.source.text
    if re.search(r"\w-\Z", text[max(0, node.span.start - 2) : node.span.start]) is not None:
        return ""
    whole = re.compile(r"\w{3}-\w{3}(?!\w)").match(text, node.span.start)
    return days(whole.group()) or None if whole is not None else None
