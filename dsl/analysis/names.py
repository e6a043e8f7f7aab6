"""Declarations nobody uses (P316) and a `status` that contradicts the rule (P318)."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.analysis.facts import FileFacts, warning
from dsl.diagnostics import Diagnostic
from dsl.source import Span

_IN_TEXT: Final = re.compile(r"\$([A-Za-z_]\w*)")


def unused(facts: FileFacts) -> Iterator[Diagnostic]:
    """Yields lets, parameters and metrics that nothing reads, directly or through a let."""
    statements = facts.statements
    if not facts.sound or any(isinstance(one, s.Broken) for one in statements):
        return
    inside = {
        one.name: _names(one) for one in statements if isinstance(one, s.LetDecl | s.MetricDecl)
    }
    used: set[str] = set()
    todo = [
        name
        for one in statements
        if not isinstance(one, s.LetDecl | s.MetricDecl | s.ParamDecl)
        for name in _names(one)
    ]
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            todo.extend(inside.get(name, ()))
    yield from _no_scores(facts)
    words = {s.LetDecl: "let", s.ParamDecl: "parameter", s.MetricDecl: "metric"}
    for one in statements:
        if isinstance(one, s.LetDecl | s.ParamDecl | s.MetricDecl) and one.name not in used:
            word = words[type(one)]
            as_text = _as_text(statements, one.name) if isinstance(one, s.ParamDecl) else None
            yield warning(
                "P316",
                f"the {word} `{one.name}` is not used",
                facts.source,
                one.name_span,
                "remove it, or use it in a rule"
                if as_text is None
                else f"`{facts.source.slice(as_text)}` in line"
                f" {facts.source.position(as_text.start)[0]} is a text;"
                f" for the parameter write  ${one.name}",
            )


def _as_text(statements: Sequence[s.Node], name: str) -> Span | None:
    """Returns where a word stands as a text in a rule: `is pool`, `node.label pool=var.pool`."""
    stack: list[object] = [one for one in statements if not isinstance(one, s.ParamDecl)]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(reversed(node))
        elif isinstance(node, s.Word) and re.fullmatch(rf"(\w+\.)?{name}", node.value):
            return node.span
        elif isinstance(node, s.Field):
            continue  # its key is no value
        elif isinstance(node, s.LabelTest):
            stack.append(node.value)
        elif isinstance(node, s.Node):
            parts = [getattr(node, one) for one in node.__struct_fields__]
            stack.extend([one for one in reversed(parts) if isinstance(one, _INNER)])
    return None


def _no_scores(facts: FileFacts) -> Iterator[Diagnostic]:
    """Yields lines about the scores of a file that has none."""
    scores = any(isinstance(one.core, ir.ScoreCore) for one in facts.rules)
    lines = any(isinstance(one, s.Rule) and one.point == "score" for one in facts.statements)
    for one in facts.statements:
        if isinstance(one, s.Rule) and one.point == "prescore" and not scores:
            word, hint = one.keyword, "remove it; what decides about nodes is a `filter:`"
        elif isinstance(one, s.NormalizeDecl) and not lines:
            word, hint = "normalize", "remove it; it is the default of `score:` lines"
        else:
            continue
        yield warning(
            "P316",
            f"`{word}:` speaks of the scores of this file, and there is none",
            facts.source,
            Span(one.span.start, one.span.start + len(word)),
            hint,
        )


#: What of a node may hold further names.
_INNER: Final = (s.Node, tuple)


def _names(root: object) -> set[str]:
    """Returns every name below a node that could be a declared one."""
    found: set[str] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
            continue
        if isinstance(node, s.Name | s.Param):
            found.add(node.name)
        elif isinstance(node, s.Text | s.Word):
            found.update(_IN_TEXT.findall(node.value))
        elif isinstance(node, s.Call):
            found.add(node.name)
            found.update(one.value for one in node.args if isinstance(one, s.Word))
        elif isinstance(node, s.Field):
            found.add(node.path)
        if isinstance(node, s.Node):
            parts = [getattr(node, one) for one in node.__struct_fields__]
            stack.extend([one for one in parts if isinstance(one, _INNER)])
    return found


def contradicting_status(facts: FileFacts) -> Iterator[Diagnostic]:
    """Yields a `status` that says other than what the rule reads."""
    for rule in facts.rules:
        core = rule.core
        if not isinstance(core, ir.FilterCore) or core.status is None:
            continue
        resolvable = core.status == "Unschedulable"
        if resolvable == rule.changes:
            continue
        clause = next(one for one in rule.clauses if one.name == "status")
        if resolvable:
            message = "no eviction changes what this rule reads, so preemption would be in vain"
            better = "unresolvable"
        else:
            message = "evicting pods can change what this rule reads, and preemption would not try"
            better = "unschedulable"
        yield warning(
            "P318",
            message,
            rule.source,
            clause.span,
            f"drop the clause, which gives  status {better}",
        )
