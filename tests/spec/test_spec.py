"""Every case of the specification, on the reference and on the plan.

`pytest tests/spec --update` rewrites the diagnostics blocks; read the difference before keeping it.
"""

from pathlib import Path

import numpy as np
import pytest

from dsl import reference
from dsl.compiler import Compiler
from dsl.diagnostics import render
from tests.spec.cases import read_cases, read_tests, text_of

HERE = Path(__file__).parent
CASES = [case for path in sorted(HERE.glob("*.md")) for case in read_cases(path)]
COMPILER = Compiler()


class ByReference:
    """The meaning, one node at a time."""

    def __init__(self, plan, world, pod):
        self.plan, self.world, self.pod = plan, world, pod
        self.rows = list(range(world.nodes))

    def rejecting(self, row):
        for rule in self.plan.filters:
            if not reference.passes(rule.core, self.world, self.pod, row):
                return rule
        return None

    def columns(self, rows):
        return [
            reference.scores(rule.core, self.world, self.pod, rows) for rule in self.plan.scores
        ]

    def score(self, rows):
        columns = self.columns(rows)
        weights = [rule.weight for rule in self.plan.scores]
        return reference.policy_score(list(zip(weights, columns, strict=True)))

    def applies(self, rule, rows):
        if rule in self.plan.scores:
            return self.columns(rows)[self.plan.scores.index(rule)] is not None
        return reference.applies(rule.core.guard, self.world, self.pod)


class ByPlan(ByReference):
    """The same over columns."""

    def rejecting(self, row):
        for rule in self.plan.filters:
            parts = rule.prepare(self.pod, self.world)
            if parts is not None:
                full = rule.verdict(parts, self.world, slice(0, self.world.nodes))
                single = rule.verdict(parts, self.world, np.array([row]))
                assert full[row] == single[0]
                if not full[row]:
                    return rule
        return None

    def columns(self, rows):
        rows, out = np.array(rows, np.intp), []
        for rule in self.plan.scores:
            parts = rule.prepare(self.pod, self.world)
            done = None
            if parts is not None:
                done = rule.finish(rule.column(parts, self.world, rows, rows))
            out.append(None if done is None else done.tolist())
        return out

    def score(self, rows):
        parts = [rule.prepare(self.pod, self.world) for rule in self.plan.scores]
        column = self.plan.score(parts, self.world, np.array(rows, np.intp))
        return None if column is None else column.tolist()


def judge(evaluator, names, clause):
    rejecting = {name: evaluator.rejecting(row) for row, name in enumerate(names)}
    feasible = [name for name in names if rejecting[name] is None]
    what = str(clause.children[0])
    if what in ("feasible", "rejected"):
        wanted = text_of(clause.children[1])
        wanted = [] if wanted == "none" else wanted
        got = feasible if what == "feasible" else [one for one in names if one not in feasible]
        assert sorted(got) == sorted(wanted)
        for reply in clause.children[2:]:
            if reply is None:
                continue
            value = text_of(reply)
            for name in wanted:
                rule = rejecting[name]
                if reply.data == "message":
                    row = names.index(name)
                    assert rule.message(evaluator.pod, evaluator.world, row) == value
                else:
                    full = "UnschedulableAndUnresolvable"
                    assert rule.status == (full if value == "unresolvable" else "Unschedulable")
        return
    rows = [names.index(name) for name in feasible]
    word = text_of(clause.children[1])
    if what == "skipped":
        rules = {rule.id: rule for rule in (*evaluator.plan.filters, *evaluator.plan.scores)}
        assert not evaluator.applies(rules[f"case.policy#{word}"], rows)
        return
    scores = dict(zip(feasible, evaluator.score(rows), strict=True))
    if what == "score":
        assert scores[word] == pytest.approx(float(text_of(clause.children[2])), abs=2e-6)
    else:
        assert what == "best"
        top = max(scores.values())
        assert [name for name, score in scores.items() if score == top] == [word]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case):
    result = COMPILER.compile({"case.policy": case.policy})
    if case.diagnostics is not None:
        assert render(result.diagnostics) == case.diagnostics
        if not case.tests:
            return
    assert result.ok, render(result.diagnostics)
    plan = result.plans[0]
    for name, fixture, expected in read_tests(case.tests):
        world, pod = fixture.world().knows(plan), fixture.subject()
        names = list(fixture.nodes)
        assert expected, name
        for clause in expected:
            for evaluator in (ByReference(plan, world, pod), ByPlan(plan, world, pod)):
                judge(evaluator, names, clause)
