"""The values of all parts of a rule, for a pod and a node: what a failed test shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dsl import ir, reference
from dsl.plan import FilterRule, RuleBase, ScoreRule
from dsl.types import Level, show
from engine.policytests.answers import rules_of
from engine.policytests.meaning import ByReference

_MOST_NODES: Final = 3
_MOST_VALUES: Final = 24
_WIDEST: Final = 44


def values_of_rules(answers: ByReference, nodes: tuple[str, ...], point: str) -> str:
    """What the rules made of these nodes, each part with its value; empty if there is no rule.

    `point` is the expectation that failed: scores are shown for `score` and `best`, filters else.
    """
    kind: type[RuleBase] = ScoreRule if point in ("score", "best") else FilterRule
    rules = [rule for plan in answers.plans for rule in rules_of(plan) if isinstance(rule, kind)]
    lines: list[str] = []
    for rule in rules:
        lines.extend(_of_rule(rule, answers, nodes[:_MOST_NODES]))
    return "\n".join(lines)


def _of_rule(rule: RuleBase, answers: ByReference, nodes: tuple[str, ...]) -> Iterator[str]:
    yield f"{rule.source.name}:{rule.line}: {rule.text}"
    assert isinstance(rule, FilterRule | ScoreRule)
    core = rule.core
    guard = core.guard
    rows = [row for name, row in answers.scene.rows.items() if name not in answers.rejections()]
    everywhere = reference.View(answers.world, answers.subject, -1, tuple(rows))
    applies = reference.applies(guard, answers.world, answers.subject)
    if guard is not None:
        yield f"  {'applies' if applies else 'does not apply'} to {answers.scene.pod.key}"
        yield from _table([guard], rule, everywhere)
    for name in nodes if applies else ():
        row = answers.scene.rows.get(name)
        if row is None:
            continue
        if isinstance(core, ir.FilterCore):
            candidates = None
            passes = reference.passes(core, answers.world, answers.subject, row)
            said = "passes" if passes else "is rejected"
            roots = [one for one in (core.left, core.right) if one is not None and one is not guard]
        else:
            candidates = tuple(rows)
            said = "is looked at"
            roots = [core.value]
        view = reference.View(answers.world, answers.subject, row, candidates)
        yield f"  {name} {said}"
        yield from _table(roots, rule, view)


def _table(roots: list[ir.Expr], rule: RuleBase, view: reference.View) -> Iterator[str]:
    rows = list(_parts(roots, rule.source.text, view))
    width = min(max((len(words) for words, _ in rows), default=0), _WIDEST)
    for words, value in rows[:_MOST_VALUES]:
        yield f"    {words:<{width}}  {value}"
    if len(rows) > _MOST_VALUES:
        yield "    ..."


def _parts(roots: list[ir.Expr], text: str, view: reference.View) -> Iterator[tuple[str, str]]:
    """Each part that has a value here, the whole before its parts, each text once."""
    seen: set[str] = set()
    for node in ir.walk(*roots):
        if isinstance(node, ir.Const) or node.level is Level.IT:
            continue
        if view.row < 0 and node.level is Level.NODE:
            continue
        words = " ".join(text[node.span.start : node.span.end].split())
        if words in seen and isinstance(node, ir.Read):
            words = node.field if node.key is None else f"{node.field}[{node.key}]"
        if words and words not in seen:
            seen.add(words)
            yield words, show(reference.evaluate(node, view), node.type)
