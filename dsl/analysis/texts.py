"""Tests that read well and mean something else, and lines that say nothing.

Texts a field never holds (P317), pods asked instead of nodes (P227); declarations nobody uses
(P316), a `status` that contradicts the rule (P318).
"""

import re
from collections.abc import Iterator
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.analysis.facts import FileFacts, RuleFacts, fields_of, warning
from dsl.diagnostics import Diagnostic, Fix
from dsl.schema import FIELDS, Form
from dsl.types import QUOTED, Kind, Level

_PATTERN: Final = re.compile(r"[*?^$|%+()\[\]{}\\,;]")
#: A parameter that stands in no quotes.
_PARAM: Final = re.compile(r"(?<![\w\"'-])\$[A-Za-z_]")
#: What makes a text a pattern.
_SIGNS: Final = {"like": re.compile(r"[*?]"), "matches": re.compile(r"[\\^$.|?*+(\[{]")}
_PLAIN: Final = re.compile(r"[\w./:@*-]+")
#: The values of a field (`...`: and others), and what others call them.
_VALUES: Final = {
    "node.arch": "amd64 arm arm64 ppc64le riscv64 s390x",
    "node.os": "linux windows",
    "node.os_image": "Amazon Bottlerocket CentOS Debian Fedora Flatcar Rocky Talos Ubuntu ...",
    "owner.kind": "ReplicaSet StatefulSet DaemonSet Job Node ...",
}
_CALLED: Final = {
    "x86_64": "amd64", "x86": "amd64", "x64": "amd64", "aarch64": "arm64",
    "deployment": "ReplicaSet", "cronjob": "Job",
}  # fmt: skip
#: A text between signs of SQL, of globs or of regular expressions.
_ENDS: Final = re.compile(r"([%*^$]?)([\w./:@-]+)([%*$]?)")
_NOT: Final = re.compile(r"(\bnot|!=)\s*$")
_PATTERNS: Final = (
    "patterns are  like 'web*'   and  matches 'web-[0-9]+',  several texts  in [a, b]"
)


def odd_parts(rule: RuleFacts) -> Iterator[Diagnostic]:
    """Yields parts of a rule that mean something else than they say."""
    for node in ir.walk(*rule.roots):
        match node:
            case ir.Logical(operator="and"):
                yield from _each_hour(rule, node)
            case ir.Compare(operator="=="):
                yield from _tested(rule, "is", node.left, node.right)
            case ir.TextTest():
                yield from _tested(rule, node.operator, node.left, node.right)
            case ir.Member():
                yield from _tested(rule, "is", node.item, node.items)
            case _:
                pass
        if isinstance(node, ir.Compare):
            yield from _odd_sides(rule, node)


def _tested(rule: RuleFacts, operator: str, left: ir.Expr, right: ir.Expr) -> Iterator[Diagnostic]:
    """Yields a test for a text that a field never holds."""
    left = ir.unnamed(left)
    # The value of a parameter may be another one tomorrow.
    if not isinstance(right, ir.Const) or _PARAM.search(rule.source.slice(right.span)):
        return
    text = str(right.value)
    # `matches` is about the whole text, with its ends said or not.
    text = text.removeprefix("^").removesuffix("$") if operator == "matches" else text
    if operator in _SIGNS and _SIGNS[operator].search(text) is None:
        message = f"`{text}` has no sign of a pattern: only this whole text fits it"
        part = f'write  contains "{text}"   for a part of the text, or  is "{text}"'
        help_ = f'one of several is  matches "{text}"' if "|" in text else part
        yield _finding(rule, right, message, *_without_signs(rule, operator, right) or (help_,))
        return
    if operator == "matches" and "*" in text and ".*" not in text and _PLAIN.fullmatch(text):
        message = "in a regular expression `*` repeats what stands before it"
        yield _finding(rule, right, message, f"write  like {text}")
    if operator == "matches" or not isinstance(left, ir.Read):
        return
    for value in right.value if isinstance(right.value, tuple) else (right.value,):
        if isinstance(value, str):
            yield from _odd_text(rule, left, operator, right, value)


def _odd_text(
    rule: RuleFacts, left: ir.Read, operator: str, right: ir.Const, value: str
) -> Iterator[Diagnostic]:
    field, form, low = left.field, FIELDS[left.field].form, value.lower()
    values = _VALUES.get(field.removeprefix("pod.").removeprefix("it."), "").split()
    known = (one for one in values if low in (one.lower(), f"{one.lower()}s"))
    better = next(known, _CALLED.get(low.rstrip("s"), "") if values else "")
    text = f"{field}[{left.key}]" if left.key else field
    never = f"`{text}` {'is never' if operator == 'is' else f'never {operator}'} `{value}`"
    if value in ("Succeeded", "Failed") and "node.finished" not in rule.source.text:
        message = f"{never}: finished pods are in `node.finished` alone"
        yield rule.warning("P317", message, right.span)
    if better not in ("", value) and _may_be(form, operator, better):
        yield _finding(rule, right, f"{never}, but `{better}`", f"did you mean `{better}`?", better)
    elif operator == "is" and values and not {"...", value} & {*values}:
        yield _finding(rule, right, never, f"it is one of {', '.join(values)}")
    elif form is None or _may_be(form, operator, value):
        return
    elif sign := _PATTERN.search(re.sub(r"[*?]", "", value) if operator == "like" else value):
        message = f"`{sign[0]}` stands for itself here, and `{text}` never holds it"
        yield _finding(rule, right, message, *_without_signs(rule, operator, right) or (_PATTERNS,))
    elif _may_be(form, operator, low):
        message = f"`{text}` has no capitals, so this never holds"
        yield _finding(rule, right, message, f"write  {low}", low)
    else:
        yield _finding(rule, right, never, f"it is {form.words or f'such as {form.sample}'}")


def _may_be(form: Form | None, operator: str, value: str) -> bool:
    """Whether a text of this form may pass a test: as it is, or with parts of one around it."""
    if form is None or "=" in value or len(value) > QUOTED:
        return True  # Of `node.label "a=b=c"` nobody knows what is meant.
    if operator == "like":
        first, *others, last = re.split(r"[*?]+", value)
        parts = {"starts with": [first], "contains": others, "ends with": [last]}
        return all(_may_be(form, test, one) for test, each in parts.items() for one in each)
    places = range(len(form.sample) + 1)
    before = places if operator in ("ends with", "contains") else (0,)
    behind = places if operator in ("starts with", "contains") else places[-1:]
    tried = (form.sample[:i] + value + form.sample[j:] for i in before for j in behind)
    return any(re.fullmatch(form.pattern, one, re.ASCII) for one in tried)


def _without_signs(rule: RuleFacts, operator: str, right: ir.Const) -> tuple[str, ...]:
    """Returns how a text is asked for whose signs are at its ends: `^web` and `web%` start so."""
    found = _ENDS.fullmatch(str(right.value))
    front, plain, back = found.groups() if found is not None else ("", "", "")
    if front == "$":
        return f"in quotes it is a text: the parameter is  ${plain}", f"${plain}"
    if not front + back:
        return ()
    anchored = front == "^" or back == "$"
    before, behind = (front != "^", back != "$") if anchored else (front != "", back != "")
    word = ("is", "starts with", "ends with", "contains")[2 * before + behind]
    no = "not ... " if _NOT.search(rule.source.text[: right.span.start]) else ""
    return f"write  {no}{word} {plain}", plain if word == operator else ""


def _finding(
    rule: RuleFacts, right: ir.Const, message: str, help_: str, better: str = ""
) -> Diagnostic:
    written = rule.source.slice(right.span)
    quote = written[:1] if written[:1] in ("'", '"') and better[:1] != "$" else ""
    alone = better and written.strip("'\"") == right.value
    fix = Fix(right.span, f"{quote}{better}{quote}") if alone else None
    return rule.warning("P317", message, right.span, help_, fix=fix)


def _odd_sides(rule: RuleFacts, node: ir.Compare) -> Iterator[Diagnostic]:
    """Yields `it.name == it.name`, and `reserve: node.cpu.free >= pod.cpu`: the pod is on it."""
    left, right = node.left.span, node.right.span
    if left != right and rule.text(left) == rule.text(right):
        yield rule.warning("P317", "both sides are the same", node.span)
    read = {field for field, _ in fields_of(node)}
    for one in read if rule.point in ("reserve", "permit") else ():
        of = f"node.{one.removeprefix('pod.')}"
        if one.startswith("pod.") and read & {f"{of}.free", f"{of}.requested"}:
            message = f"the pod is on its node already, and in `{of}.requested`"
            yield rule.warning("P317", message, node.span, f"write  {of}.free >= 0")


def _each_hour(rule: RuleFacts, node: ir.Logical) -> Iterator[Diagnostic]:
    """Yields `time.hour >= 8 and time.minute >= 30`, which 9:15 is not."""
    signs: dict[str, set[str]] = {}
    for one in node.operands:
        if isinstance(one, ir.Compare):
            signs.setdefault(getattr(one.left, "field", ""), set()).add(one.operator[0])
    alone = not re.search(r"\bor\b", rule.source.slice(rule.right))
    if alone and signs.get("time.hour") == signs.get("time.minute") in ({"<"}, {">"}):
        help_ = "those of the day are  time.hour*60 + time.minute >= 8*60 + 30"
        yield rule.warning("P317", "this asks for these minutes of each hour", node.span, help_)


def without_arrow(rule: RuleFacts) -> Iterator[Diagnostic]:
    """Yields `filter: pod.label a=b and node.label c=d`: all other pods would fit nowhere."""
    written, right = rule.written, getattr(rule.core, "right", None)
    if not isinstance(written, s.Rule) or written.point != "filter" or written.left is not None:
        return
    each = ir.joined(right)
    of_pod = [one for one in each if _picks_pods(one)]
    others = [one for one in each if one not in of_pod]
    if not of_pod or not any(one.level is Level.NODE for one in others):
        return
    if fields_of(*of_pod) & fields_of(*others):
        # `pod.label[a] is present and node.label[a] == pod.label[a]` demands both of each pod.
        return
    parts = [" and ".join(rule.text(one.span) for one in side) for side in (of_pod, others)]
    bare = rule.source.text[: written.right.span.start].rstrip().endswith(":")
    joined = any(isinstance(one, ir.Logical | ir.If) for one in each)
    fix = Fix(written.right.span, " -> ".join(parts)) if bare and not joined else None
    yield rule.warning(
        "P227",
        f"`{parts[0]}` is asked of the pod alone: other pods fit on no node",
        of_pod[0].span,
        f"to ask the nodes only for such pods write  {written.keyword}: {' -> '.join(parts)}",
        fix=fix,
    )


def _picks_pods(node: ir.Expr) -> bool:
    """Whether this is a plain test of which pod it is, and no test of what it is not."""
    node = ir.unnamed(node)
    if not isinstance(node, ir.Compare | ir.TextTest | ir.Member) or node.level is not Level.POD:
        return False
    # Texts tell one pod from another; how much it asks for is compared with nodes as well.
    of_text = (Kind.TEXT, Kind.LIST)
    return all(
        isinstance(one, ir.Const)
        or (isinstance(one, ir.Read) and FIELDS[one.field].type.kind in of_text)
        for one in ir.walk(*ir.children(node))
    )


_DECLARED: Final = s.LetDecl | s.ParamDecl | s.MetricDecl
_IN_TEXT: Final = re.compile(r"\$([A-Za-z_]\w*)")


def unused(facts: FileFacts) -> Iterator[Diagnostic]:
    """Yields lets, parameters and metrics that nothing reads, directly or through a let."""
    statements = facts.statements
    if not facts.sound or any(isinstance(one, s.Broken) for one in statements):
        return
    declared = [one for one in statements if isinstance(one, _DECLARED)]
    inside = {one.name: _names(one) for one in declared if not isinstance(one, s.ParamDecl)}
    used: set[str] = set()
    others = [one for one in statements if declared and not isinstance(one, _DECLARED)]
    todo = [name for one in others for name in _names(one)]
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            todo.extend(inside.get(name, ()))
    yield from _no_scores(facts)
    words: dict[type, str] = {s.LetDecl: "let", s.ParamDecl: "parameter", s.MetricDecl: "metric"}
    for one in declared:
        if one.name not in used:
            message = f"the {words[type(one)]} `{one.name}` is not used"
            yield warning("P316", message, (facts.source, one.name_span), "remove it")


def _no_scores(facts: FileFacts) -> Iterator[Diagnostic]:
    """Yields lines about the scores of a file that has none: nothing is dropped in silence."""
    if any(isinstance(one.core, ir.ScoreCore) for one in facts.rules):
        return
    for one in facts.statements:
        prescore = isinstance(one, s.Rule) and one.point == "prescore"
        if prescore or isinstance(one, s.NormalizeDecl):
            message = "this speaks of the scores of this file, and there is none"
            yield warning("P316", message, (facts.source, one.span), "remove it")


def _names(root: s.Node) -> set[str]:
    """Returns every name below a node that could be a declared one."""
    found: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        match node:
            case s.Name() | s.Param():
                found.add(node.name)
            case s.Text() | s.Word():
                found.update(_IN_TEXT.findall(node.value))
            case s.Call():
                found.add(node.name)
                found.update(one.value for one in node.args if isinstance(one, s.Word))
            case s.Field():
                found.add(node.path)
            case _:
                pass
        stack.extend(s.parts(node))
    return found


def contradicting_status(facts: FileFacts) -> Iterator[Diagnostic]:
    """Yields a `status` that says other than what the rule reads."""
    for rule in facts.rules:
        core = rule.core
        clause = rule.clause("status")
        if not isinstance(core, ir.FilterCore) or clause is None:
            continue
        resolvable = core.status == "Unschedulable"
        if resolvable != rule.changes:
            what = "no eviction changes" if resolvable else "evicting pods can change"
            better = "unresolvable" if resolvable else "unschedulable"
            help_ = f"drop the clause, which gives  status {better}"
            yield rule.warning("P318", f"{what} what this rule reads", clause.span, help_)
