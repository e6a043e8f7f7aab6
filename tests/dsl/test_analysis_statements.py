"""The analysis of the statements around filters and scores, and of policies taken by `use`."""

import pytest

from dsl.analysis import Size
from dsl.diagnostics import render
from tests.dsl.test_analysis import COMPILER, codes, found
from tests.effort import each

OFTEN = "preempt: victims where it.priority < pod.priority"


@each(
    "text, expected",
    [
        # conditions of every statement
        ("gate: pod.priority > 5 and pod.priority < 3", ["P301"]),
        ("first: node.label k=1 and node.label k=2", ["P301"]),
        ("first: pod.priority > 5 and pod.priority < 3 -> node.ready", ["P301"]),
        ("permit: pod.name is missing -> reject", ["P301"]),
        ("applies to: pod.namespace is a\npermit: pod.namespace is b -> allow", ["P301"]),
        ("preempt: victims where it.priority > 5 and it.priority < 3", ["P301"]),
        ("preempt: pod.name is missing -> never", ["P301"]),
        ("bind: pod.name is missing -> dry run", ["P301"]),
        ("prebind: pod.name is missing -> annotate a = pod.name", ["P301"]),
        ('postbind: pod.name is missing -> event "x"', ["P301"]),
        ("gang: pod.name is missing -> by pod.label[g] min 2", ["P301"]),
        ("quota: pod.name is missing -> by pod.namespace max cpu 10", ["P301"]),
        ("spread: pod.name is missing -> over zone", ["P301"]),
        ("sort: if pod.gpu > 0 and pod.gpu < 0 then 1 else pod.priority", ["P301"]),
        ("gate: time.hour >= 8 and time.minute >= 30", ["P317"]),
        ("filter: any(node.pods where it.label[a] == it.label[a])", ["P317"]),
        ("filter: any(pod.containers where it.request[cpu] is missing)", ["P301"]),
        # the first that applies
        ("permit: pod.gpu > 0 -> allow\npermit: pod.gpu > 1 -> reject", ["P304"]),
        ("permit: allow\npermit: pod.gpu > 1 -> reject", ["P304"]),
        (f"{OFTEN}\npreempt: pod.namespace is dev -> never", ["P304"]),
        ("bind: pod.gpu > 0 -> dry run\nbind: pod.gpu > 1 -> dry run", ["P304"]),
        ("bind: dry run\nbind: pod.gpu > 1 -> with other", ["P504"]),
        ("bind: pod.gpu > 0 -> with a\nbind: pod.gpu > 0 -> with b", ["P504"]),
        ("quota: by pod.namespace elastic\nquota: by pod.label[team] elastic", ["P505"]),
        ("spread: over zone hard\nspread: over zone skew 2 hard", ["P304"]),
        # lines about scores that are not there
        ("prescore: pod.gpu > 0\nfilter: node.ready", ["P316"]),
    ],
)  # fmt: skip
def test_found(text, expected):
    assert codes(text) == expected, render(found(text))


@each(
    "text",
    [
        "permit: pod.gpu > 1 -> reject\npermit: pod.gpu > 0 -> allow\npermit: allow",
        "permit: group.name is present -> wait 60s until group.reserved >= group.min_member",
        f"preempt: pod.namespace is dev -> never\n{OFTEN}",
        "bind: pod.namespace is sandbox -> dry run\nbind: default",
        "bind: pod.gpu > 0 -> with a\nbind: pod.cpu > 1 -> with b",
        "param n: number = 1\nbind: pod.gpu > $n -> with a\nbind: pod.gpu > $n -> with b",
        "quota: by pod.namespace elastic\nquota: by pod.label[team] max cpu 10",
        "sort: pod.qos [Guaranteed], pod.qos, pod.priority desc",
        "sort: pod.priority desc, pod.queued_at",
        "preempt: victims order it.priority, it.started_at desc pick victims.count",
        "first: pod.gpu > 0 -> node.label gpu\nfirst: pod.gpu == 0 -> not node.label gpu",
        "prescore: pod.gpu > 0\nprefer: node.ready",
        "normalize: minmax\nscore: node.gpu.free",
        "spread: over zone\nspread: over node",
        "gate: time.hour >= 8 and time.minute < 10\ngate: time.hour == 8 and time.minute < 30",
        "spread: over zone hard\nspread: over zone",
        "let pods = count(node.pods)\nscore: pods/sum*100",
        "score: count(node.pods)/sum(count(node.pods))*100",
        "score: sum(count(node.pods) over nodes)/100 - count(node.pods) normalize minmax",
        "score: sum(count(node.pods) over candidates) - count(node.pods) normalize minmax",
        "filter: sum(count(node.pods) where node.label spot) < 5 or node.label spot",
        "let n = load/max(load over nodes)\nfilter: (n ?? 0) < 0.5\nscore: 100 - n*100",
        "let n = load/max\nscore: 100 - n*100\nscore: n normalize minmax reverse",
    ],
)
def test_silent(text):
    assert codes(text) == [], render(found(text))


def test_what_a_used_policy_does_is_told_at_the_use_line():
    bundled = {"pool": "param p: string = a\nfilter: node.label pool=$p\n"}
    result = COMPILER.compile(
        {"a.policy": "# mine\nuse pool (p = b)\nfilter: node.label pool=c\n"}, bundled=bundled
    )
    (one,) = result.diagnostics
    line = one.source.position(one.span.start)[0]
    assert (one.code, one.source.name) == ("P302", "a.policy")
    assert (line, one.message) == (
        2,
        "together with the rule of a.policy:3 a rule of `pool` rejects every node for every pod",
    )


def test_order_and_elastic_quotas_of_used_policies():
    text = "use capacity-scheduling\nquota: by pod.label[team] elastic\nuse x\nuse y\n"
    bundled = {
        "capacity-scheduling": "quota: by pod.namespace elastic\n",
        "x": "sort: pod.priority desc\n",
        "y": "sort: pod.name\n",
    }
    found = COMPILER.compile({"a.policy": text}, bundled=bundled).diagnostics
    places = [(one.code, one.source.name, one.source.position(one.span.start)) for one in found]
    assert places == [("P505", "a.policy", (1, 1)), ("P501", "a.policy", (4, 1))]


def test_names_of_used_policies():
    bundled = {"x": "filter: node.ready\n"}
    files = {"a.policy": "use x\nuse x\n"}
    found = [one for one in COMPILER.compile(files, bundled=bundled).diagnostics if one.is_error]
    places = [(one.code, one.source.name, one.source.position(one.span.start)) for one in found]
    assert places == [("P502", "a.policy", (2, 1))]
    assert found[0].helps == ("give it another name:  use x ... as NAME",)
    files = {"a.policy": "policy: x\nuse x as y\n", "b.policy": "use x\n"}
    found = COMPILER.compile(files, bundled=bundled).diagnostics
    assert ("P502", "b.policy") in [(one.code, one.source.name) for one in found]


def test_binders_and_preemption_of_several_files():
    files = {"a.policy": "bind: dry run\n", "b.policy": "bind: with other\n"}
    result = COMPILER.compile(files)
    assert [(one.code, one.source.name) for one in result.diagnostics] == [("P504", "b.policy")]
    assert not result.ok
    files = {"a.policy": f"{OFTEN}\n", "b.policy": "order: 10\npreempt: pod.gpu > 0 -> never\n"}
    assert COMPILER.compile(files).diagnostics == ()
    files["b.policy"] = files["b.policy"].replace("10", "200")
    (one,) = COMPILER.compile(files).diagnostics
    assert (one.code, one.source.name) == ("P304", "b.policy")
    files["a.policy"] = "mode: off\n" + files["a.policy"]
    assert COMPILER.compile(files).diagnostics == ()


TESTS = " or ".join(f"it.name contains a{i}" for i in range(6))
FEWER = TESTS.partition(" or ")[2]
DEAR = f"count(cluster.pods where {TESTS})"


@pytest.mark.parametrize(
    "rule",
    [
        f"gate: {DEAR} < 9",
        f"prefilter: {DEAR} < 9",
        f"first: node.ready and {DEAR} < 9",
        f"reserve: {DEAR} < 9",
        f"permit: wait 1m until {DEAR} < 9",
        f"permit: {DEAR} < 9 -> reject",
        f"prebind: annotate a = {DEAR}",
        f'postbind: event "{{{DEAR}}}"',
        f"score: {DEAR} + node.gpu.free normalize minmax",
        f"preempt: victims where {FEWER}",
        f"preempt: {DEAR} < 9 -> never",
        f"gang: {DEAR} < 9 -> by pod.label[g] min 2",
        f"quota: {DEAR} < 9 -> by pod.namespace max cpu 10",
    ],
)
def test_every_statement_has_its_cost(rule):
    (one,) = found(rule)
    assert one.code == "P320", render([one])
    assert found(rule, size=Size(1_000, 2_000)) == ()
    assert codes(rule, size=Size(1_000, 200_000)) == ["P321"]


def test_what_is_dearest_is_named():
    (one,) = found(f"filter: node.ready\nfilter: {DEAR} < 9")
    (label,) = one.labels
    assert one.source.slice(label.span) == DEAR
    assert one.source.position(one.span.start) == (2, 1)
    (one,) = found(f"let n = {DEAR}\nfilter: node.ready\nfilter: n < 9")
    assert one.source.slice(one.labels[0].span) == DEAR
    assert one.source.position(one.span.start) == (3, 1)


def test_ranks_and_orders_cost_more_than_a_pass():
    nodes = Size(60_000, 100)
    assert codes("score: rank(node.gpu.free)*100", size=nodes) == []
    ranks = "\n".join(f"let r{i} = rank(node.gpu.free + {i})\nscore: r{i}*100" for i in range(2))
    assert codes(ranks, size=nodes) == ["P320"]
    assert codes("score: node.gpu.free normalize rank", size=Size(90_000, 1)) == ["P320"]
    assert codes("score: node.gpu.free normalize minmax", size=Size(90_000, 1)) == []
    assert codes(f"{OFTEN} order it.priority, it.name", size=Size(1, 90_000)) == ["P321"]


def test_the_cost_of_a_used_policy_is_told_at_the_use_line():
    (one,) = found("use dear", bundled={"dear": f"filter: {DEAR} < 9\n"})
    assert (one.code, one.source.name) == ("P320", "a.policy")
    assert one.message.startswith("`dear` may take")
    assert DEAR in one.notes[0]
