"""Random tests of random engines: the runner never raises."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsl.parser import Parser
from engine.policy.findings import new_compiler
from engine.policytests.running import Runner
from tests.effort import examples

COMPILER, READER = new_compiler(), Parser()
RULES = (
    "preempt: victims across 3 nodes limit 4",
    "preempt: pod.label a=b -> victims where it.label c=d order it.name pick victims.count",
    "preempt: pod.label x -> never",
    "gang: by pod.label[g] min 2 wait 10s within zone",
    "gang: by pod.label[scheduling.x-k8s.io/pod-group] backoff 5s",
    "gang: pod.label g -> by pod.label[g] min number(pod.annotation[n]) reject above 50% missing",
    "quota: by pod.namespace elastic",
    "quota: by pod.namespace max cpu 2",
    "quota: by pod.label[g] min cpu 1 max cpu 2 elastic reclaim it.name desc",
    "require: node.cpu.free >= pod.cpu",
    "require: count(zone.pods where it.label c=d) < 1",
    "filter: count(queue.pods) < 3",
    "filter: not any(node.pods where it.quota.over_min and it.label c=d)",
    "score: count(node.nominated) - count(node.finished) normalize minmax",
    "permit: group.reserved < 2 -> wait 5s until group.reserved >= 2",
    "reserve: node.cpu.free >= 0",
    "prebind: annotate a.b/c = group.size",
    "sort: group.created ?? pod.queued_at, quota.used[cpu] desc",
    "gate: quota.over_max_with_pod -> pod.label go",
    "first: node.label zz",
)
ATTRIBUTES = (
    "cpu 1", "cpu 2", "label a=b", "label c=d", "label g=1", "label x=y", "label go=1",
    "label scheduling.x-k8s.io/pod-group=t", "annotation n=2", "priority 5", "priority -1",
    "namespace z", "nominated_node n1", 'started_at "2025-03-01T09:00:00Z"',
)  # fmt: skip
WANTED = (
    "feasible none", "victims none", "nominated none", "permit allow", "order [p]", "gated p",
    "annotation a.b/c 1", "skipped 1", "rejected none",
)  # fmt: skip
OBJECTS = (
    "quota: default  min cpu=1  max cpu=3\nquota: z  min cpu=2\n",
    'group: t  min_member 2  last_failure "2025-03-01T09:59:58Z"\n',
    "pdb: b  label c=d  allowed 0\n",
)
POD = st.lists(st.sampled_from(ATTRIBUTES), max_size=5).map("  ".join)


@st.composite
def clusters(draw):
    count = draw(st.integers(0, 3))
    out = ["use p\n", draw(st.sampled_from(("", "use node-resources-fit\n")))]
    for at in range(count):
        zone = draw(st.sampled_from(("", "label topology.kubernetes.io/zone=z")))
        out.append(f"node: n{at}  cpu {draw(st.integers(0, 4))}  {zone}\n")
    for at in range(draw(st.integers(0, 4)) if count else 0):
        bound = draw(st.sampled_from(("", "", "bound false")))
        on = draw(st.integers(0, count - 1))
        out.append(f"running: on n{on}  name r{at}  {draw(POD)}  {bound}\n")
    out += [f"pending: name q{at}  {draw(POD)}\n" for at in range(draw(st.integers(0, 3)))]
    out += draw(st.lists(st.sampled_from(OBJECTS), unique=True))
    chosen = (
        f"chosen n0  waited {draw(st.integers(0, 12))}s" if count and draw(st.booleans()) else ""
    )
    out.append(f'test: "t"\n  given pod name p  {draw(POD)}  {chosen}\n')
    wanted = draw(st.lists(st.sampled_from(WANTED), min_size=1, max_size=2))
    out += [f"  expect {one}\n" for one in wanted]
    return "".join(out)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.sampled_from(RULES), min_size=1, max_size=6, unique=True), clusters())
def test_the_runner_judges_whatever_it_is_given(rules, tests):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "p.policy").write_text("\n".join(rules) + "\n")
        (path / "t.policytest").write_text(tests)
        runner = Runner(None, COMPILER, READER)
        runner.run(path / "t.policytest")
    for one in runner.report.results:
        assert "says of" not in one.message, one.message
        assert one.outcome in ("passed", "failed", "error"), one.message
        if one.outcome == "error":
            known = ("error[P505]", "no node is chosen")
            assert any(word in one.message for word in known), one.message
