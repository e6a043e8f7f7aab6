"""Declarations nobody uses (P316) and a `status` that contradicts the rule (P318)."""

import re
from collections.abc import Iterator
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.analysis.facts import FileFacts, warning
from dsl.diagnostics import Diagnostic

_DECLARED: Final = s.LetDecl | s.ParamDecl | s.MetricDecl
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
    others = [one for one in statements if not isinstance(one, _DECLARED)]
    todo = [name for one in others for name in _names(one)]
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            todo.extend(inside.get(name, ()))
    yield from _no_scores(facts)
    words: dict[type, str] = {s.LetDecl: "let", s.ParamDecl: "parameter", s.MetricDecl: "metric"}
    for one in statements:
        if isinstance(one, _DECLARED) and one.name not in used:
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
