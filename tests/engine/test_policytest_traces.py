"""What a failed test shows of its rules is so: every line of it is true of the pod and the node."""

from pathlib import Path
from textwrap import dedent

import pytest

from dsl import ir, reference
from dsl.compiler import Compiler
from dsl.evaluate import understand
from dsl.parser import Parser
from dsl.types import Level, show
from engine.explain.misses import condition_of, table
from engine.policytests.running import Runner

COMPILER = Compiler()
READER = Parser()
BOTH = "pod.cpu > 1 and pod.memory > 1Gi"
NODES = "node: a  cpu 4\nnode: b  cpu 8\n"
IMAGES = 'images ["r/a", "evil/b", "r/c", "r/d", "r/e"]'


@pytest.fixture
def said(tmp_path):
    """Runs one test of one policy; gives what is said of it, each line without its margin."""

    def go(policy: str, test: str, nodes: str = NODES) -> list[str]:
        (tmp_path / "p.policy").write_text(dedent(policy))
        lines = "".join(f"  {line}\n" for line in test.split("; "))
        path = tmp_path / "t.policytest"
        path.write_text(f'use p\n{nodes}test: "t"\n{lines}')
        runner = Runner(None, COMPILER, READER)
        runner.run(path)
        (one,) = runner.report.results
        return [" ".join(line.split()) for line in one.message.splitlines()] or [one.outcome]

    return go


HALVES = [f"{BOTH} false", "pod.cpu > 1 true", "pod.cpu 2", "pod.memory > 1Gi false"]
SMALL = "given pod name x cpu 2 memory 1Mi"


@pytest.mark.parametrize(
    ("policy", "test", "shown"),
    [
        # The first part of a left side, the parts and the whole.
        *[
            (rule, test, HALVES)
            for rule, test in [
                (f"filter: {BOTH} -> node.label a=b", f"{SMALL}; expect rejected [a]"),
                (f"gate: {BOTH} -> pod.label a=b", f"{SMALL}; expect gated x"),
                (f"permit: {BOTH} -> reject", f"{SMALL} chosen a; expect permit reject"),
                (f"prebind: {BOTH} -> annotate k.io/a = node.name",
                 f"{SMALL} chosen a; expect annotation k.io/a a"),
                (f"applies to: {BOTH}\nfilter: node.label a=b", f"{SMALL}; expect rejected [a]"),
                (f"prescore: {BOTH}\nscore: 10", f"{SMALL}; expect score a 10"),
            ]
        ],
        ("applies to: pod.label x=y\nprescore: pod.priority < 10\nscore: 10",
         "given pod name p label x=y priority 20; expect score a 10",
         ["does not apply to default/p", "pod.label x=y true", "pod.priority < 10 false"]),
        ("filter: pod.cpu > 1 and node.cpu.free > 5 and pod.priority > 3 -> node.label a=b",
         "given pod name p cpu 2 priority 9; expect feasible [b]",
         ["a", "b", "pod.cpu > 1 true", "pod.priority > 3 true",
          "node.cpu.free > 5 true", "node.cpu.free > 5 false"]),
        # Conditions of scores, and what came of them.
        ("avoid: node.cpu.free < 5", "given pod; expect score a 50",
         ["a gets 0", "node.cpu.free < 5 true", "node.cpu.free 4"]),
        ("prefer: node.cpu.free < 5", "given pod; expect score b 50",
         ["b gets 0", "node.cpu.free < 5 false", "node.cpu.free 8"]),
        ("prefer: least node.cpu.free", "given pod; expect best b",
         ["a gets 100", "node.cpu.free 4", "b gets 0", "node.cpu.free 8"]),
        ("filter: node.cpu.free > 5\nscore: node.cpu.free/node.cpu.allocatable*50",
         "given pod; expect best a", ["a gets nothing", "b gets 50"]),
        ("score: number(node.label[x])", "given pod; expect best a",
         ["a gets nothing", "node.label[x] <none>"]),
        # What was added up is known when the pod is bound.
        ("score: 43\nprebind: annotate k.io/a = score.total",
         "given pod chosen a; expect annotation k.io/a 1",
         ["score.total 43"]),
        # Lists: each item that makes a difference, few of those alike.
        ('filter: all(pod.images where it starts with "r/")',
         f"given pod name p {IMAGES}; expect feasible [a, b]",
         ['all(pod.images where it starts with "r/") false',
          'it starts with "r/", it is r/a true', 'it starts with "r/", it is evil/b false',
          'it starts with "r/", it is r/d true']),
        ("param l = [x, y]\nfilter: any($l where it == node.name)",
         "given pod; expect feasible [a]",
         ["it == node.name, it is x false", "it == node.name, it is y false"]),
        ('filter: all(pod.containers where it.image starts with "r/")',
         f"given pod name p {IMAGES}; expect feasible [a, b]",
         ["it.image, of main r/a", "it.image, of main-2 evil/b",
          'it.image starts with "r/", of main-2 false']),
        ('filter: len(split(pod.annotation[x], ",")) == 0',
         'given pod name p annotation x=""; expect feasible [a, b]',
         ['len(split(pod.annotation[x], ",")) 1', 'split(pod.annotation[x], ",") [""]']),
        # A pod of a set within a set is another pod.
        ("preempt: victims where it.priority < pod.priority and any(node.pods where it.cpu > 3)",
         "running: on a name l cpu 1 priority 1; given pod cpu 4 priority 5; expect victims [l]",
         ["any(node.pods where it.cpu > 3) false", "it.priority 1"]),
        # That victims are less important goes without saying, and is no part of what is written.
        ("preempt: victims where it.label spot=yes",
         "running: on a name l cpu 1 priority 9 label spot=yes; "
         "given pod cpu 4 priority 5; expect victims [l]",
         ["l on a stays", "it.label spot=yes true", "it.priority 9", "pod.priority 5"]),
    ],
)  # fmt: skip
def test_what_is_shown_is_so(said, policy, test, shown):
    given, _, rest = test.partition("; ")
    nodes = NODES + f"{given}\n" if given.startswith("running") else NODES
    lines = said(policy, rest if given.startswith("running") else test, nodes)
    assert [one for one in shown if one not in lines] == [], lines


def test_of_items_that_are_alike_a_few_are_shown_and_a_node_once(said):
    rule = 'filter: all(pod.images where it starts with "r/")'
    lines = said(rule, f"given pod name p {IMAGES}; expect feasible [a]")
    assert 'it starts with "r/", it is r/e true' not in lines
    lines = said("score: node.cpu.free/node.cpu.allocatable*0", "given pod; expect best a")
    assert [one for one in lines if one.startswith("a gets")] == ["a gets 0"]
    rule = "preempt: victims where it.priority < pod.priority and any(node.pods where it.cpu > 3)"
    nodes = f"{NODES}running: on a name low cpu 1 priority 1\n"
    lines = said(rule, "given pod cpu 4 priority 5; expect victims [low]", nodes)
    assert [one for one in lines if one.startswith("it.cpu")] == []


@pytest.mark.parametrize(
    ("wanted", "rule"),
    [
        ("victims none", "preempt: victims where it.label a"),
        ("nominated none", "quota: by pod.namespace elastic"),
        ("permit allow", "permit: pod.label a -> reject"),
    ],
)
def test_what_no_rule_could_change_is_no_expectation(said, wanted, rule):
    test, filters = f"given pod chosen a; expect {wanted}", "filter: node.ready"
    lines = said(filters, test)
    assert f"expect {wanted}" in lines[0]
    assert "this holds whatever they say" in lines[1]
    assert said(f"{filters}\n{rule}", test) == ["passed"]
    assert said(filters, test, f"use defaults\n{NODES}") == ["passed"]


METRICS = """\
metric heat = promql "h" by node
metric power = promql "p" by pod
metric debt = promql "d" by namespace
metric speed = promql "s" by workload
metric carbon = promql "c" by cluster
metric rtt = promql "r" by src, dst
metric spot = promql "q" by zone
filter: (spot ?? 0) + (heat ?? 0) + (power ?? 0) + (debt ?? 0) + (speed ?? 0) + (carbon ?? 0)
  + (rtt(node.name, node.zone) ?? 0) < 100
"""
OBJECTS = {
    "node": "node: c metric {0} 3",
    "pod": "running: on a metric {0} 3",
    "namespace": "namespace: default metric {0} 3",
    "workload": "workload: web metric {0} 3",
    "cluster": "metric: {0} = 3",
    "pair": "metric: {0} [a, b] = 3",
    "zone": "metric: {0} [z1] = 3",
}


@pytest.mark.parametrize(
    ("metric", "of"),
    [
        ("heat", "node"),
        ("power", "pod"),
        ("debt", "namespace"),
        ("speed", "workload"),
        ("carbon", "cluster"),
        ("rtt", "pair"),
        ("spot", "zone"),
    ],
)
def test_a_metric_is_given_to_what_has_it(said, metric, of):
    owners = [*OBJECTS, *OBJECTS]
    at = owners.index(of)
    for owner in owners[at : at + 2]:
        nodes = f"{NODES}{OBJECTS[owner].format(metric)}\n"
        lines = said(METRICS, "given pod workload web; expect rejected none", nodes)
        if owner == of:
            assert lines == ["passed"]
            continue
        (only,) = lines
        place, _, words = only.partition("policytest:4: ")
        assert place
        assert words.endswith(f"reads the metric `{metric}` given here; it is by {of}")


class Lines(Runner):
    """Shows the parts of every filter and guard of every test, and reads each line again."""

    seen = 0
    parser = Parser()

    def _judged(self, suite, case, answers):
        for plan in answers.scene.plans:
            rules = [*plan.filters, *plan.scores, *plan.tiers, *plan.gates, *plan.prefilters]
            for rule in rules:
                for row in (-1, *answers.scene.rows.values()):
                    view = answers.scene.view(row)
                    for line in table(roots(rule.core, row), rule, view):
                        self._again(line, view)
        return "passed", ""

    def _again(self, line, view):
        words, _, value = line.strip().partition("  ")
        found, _ = understand(self.parser, words)
        if found is None or found.expr.level is Level.IT:
            return
        if any(isinstance(one, ir.Metric | ir.Pair) for one in ir.walk(found.expr)):
            return
        self.seen += 1
        alone = show(reference.evaluate(found.expr, view), found.expr.type)
        told = value.strip()
        assert told == alone or (told.endswith("...") and alone.startswith(told[:-3])), line


def roots(core, row):
    if row < 0:
        return [core.guard] if core.guard is not None else []
    if isinstance(core, ir.FilterCore):
        return [one for one in (core.left, core.right) if one is not None]
    return [condition_of(core.value) if isinstance(core, ir.ScoreCore) else core.test]


@pytest.mark.slow
def test_every_line_is_what_its_text_comes_to_alone():
    root = Path(__file__).parents[2]
    runner = Lines(root / "policies", COMPILER, READER)
    for folder in ("examples/cookbook", "policies"):
        for path in sorted((root / folder).glob("*.policytest")):
            runner.run(path)
    assert runner.seen > 500
