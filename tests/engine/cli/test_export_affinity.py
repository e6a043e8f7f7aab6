"""Filters as node affinity: the same nodes as by the rule, and what no affinity can say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cli import main
from engine.cli.export_affinity import as_yaml
from engine.policy.affinity import MOST_TERMS, Said, said
from engine.policy.findings import new_compiler
from tests.builders import make_node, make_pod
from tests.effort import examples
from tests.engine.policy.builders import chain
from tests.engine.test_scheduler import World


@pytest.fixture
def run(tmp_path):
    def run(text, *more):
        (tmp_path / "a.policy").write_text(text)
        return CliRunner().invoke(
            main, ["export-affinity", str(tmp_path / "a.policy"), *map(str, more)]
        )

    return run


def test_a_label_a_condition_and_what_is_for_all_pods(run):
    done = run(
        "filter: pod.name contains nginx -> node.label test=test\nfilter: not node.label x\n"
    )
    assert done.exit_code == 0, done.output
    everywhere, nginx = done.stdout.split("---\n")
    assert "# Put it on all pods\n" in everywhere
    assert "# Put it on the pods with: pod.name contains nginx\n" in nginx
    assert ":1: filter: pod.name contains nginx -> node.label test=test\n" in nginx
    absent = {"key": "x", "operator": "DoesNotExist"}
    assert terms(everywhere) == [{"matchExpressions": [absent]}]
    test = {"key": "test", "operator": "In", "values": ["test"]}
    assert terms(nginx) == [{"matchExpressions": [test, absent]}]


def test_policies_that_use_others_and_names_of_their_own_are_not_mixed_up(run, tmp_path):
    """What `$workload_name` or `web` is, each policy says for itself."""
    use = 'use label-filter (node_label = "{}", workload_name = "{}") as {}\n'
    done = run(use.format("test=test", "nginx", "x") + use.format("disk=ssd", "redis", "y"))
    assert done.exit_code == 0, done.output
    keys = [one["matchExpressions"][0]["key"] for of in each(done) for one in terms(of)]
    assert keys == ["test", "disk"]
    assert "# Put it on the pods with: pod.name contains $workload_name, as in: use" in done.stdout
    assert 'workload_name = "redis") as y\n' in done.stdout
    (tmp_path / "b.policy").write_text(
        "let web = pod.name contains apache\nfilter: web -> node.label b\n"
    )
    done = run(
        "let web = pod.name contains nginx\nfilter: web -> node.label a\n", tmp_path / "b.policy"
    )
    assert [terms(of) for of in each(done)] == [
        [{"matchExpressions": [{"key": key, "operator": "Exists"}]}] for key in "ab"
    ]
    assert f"pods with: web, as in: {tmp_path / 'b.policy'}\n" in done.stdout


def test_what_a_file_uses_may_stand_beside_it(run, tmp_path):
    (tmp_path / "b.policy").write_text("filter: node.label b\n")
    done = run("use b\n")
    assert done.exit_code == 0, done.output
    assert terms(done.stdout) == [{"matchExpressions": [{"key": "b", "operator": "Exists"}]}]


def test_a_file_that_is_not_utf_8_is_said_to_be_none(tmp_path):
    (tmp_path / "a.policy").write_bytes(b"filter: node.label a\xe9")
    done = CliRunner().invoke(main, ["export-affinity", str(tmp_path)])
    assert done.exit_code == 1
    assert "error[P003]: the file is not UTF-8" in done.stderr


def each(done):
    return done.stdout.split("---\n")


def terms(text):
    affinity = yaml.safe_load(text)["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("filter: node.label[a] starts with x", "affinity compares only labels and names of nodes"),
        ("filter: node.label[a] == pod.label[a]", "as a whole, with constants: in, not in"),
        (
            "filter: node.cpu.free > 2",
            "`node.cpu.free > 2`: affinity compares only labels and names of nodes",
        ),
        (
            "filter: node.label a=b and pod.cpu > 1",
            "`pod.cpu > 1`: affinity compares only labels and names",
        ),
        ("filter: count(node.pods where it.label a) < 2", "affinity compares only labels"),
        ('filter: node.zone == "a b"', "it allows no node, which affinity cannot express"),
        ("filter: number(node.name) > 3", "affinity compares no names as numbers"),
        ("filter: number(node.label[a]) > 99999999999999999999", "the number is too large for"),
        ("filter: node.images contains nginx", "affinity compares only labels"),
        ("filter: node.label[a] == node.label[b]", "affinity compares only labels"),
        (
            "filter: cpu_usage is missing or cpu_usage < 50%",
            "affinity compares only labels",
        ),
        ('filter: node.label["a b"] is "x"', "'a b' is not a valid label key"),
        ("score: 50", "it is not a filter"),
        ("gate: pod.label go", "it is not a filter"),
    ],
)
def test_what_cannot_be_said_is_named_with_its_line_and_why(run, line, said):
    done = run(f"filter: node.label k\n{line}\n")
    assert f"a.policy:2: not exported: {said}" in done.stderr or said in done.stderr
    assert done.stderr.count("not exported") == 1
    assert done.exit_code == (1 if line.startswith("filter") else 0)
    assert "key: k" in done.stdout


def test_a_name_is_what_it_stands_for(run):
    done = run("let size = number(node.label[gen])\nfilter: size > 2\n")
    assert terms(done.stdout) == [
        {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["2"]}]}
    ]


def test_too_many_terms_and_broken_policies(run):
    many = " and ".join(f"(node.label a{n}=x or node.label b{n}=x)" for n in range(6))
    done = run(f"filter: {many}\n")
    assert done.exit_code == 1
    assert f"written out that is more than {MOST_TERMS} terms" in done.stderr
    done = run("filter: " + " or ".join(f"node.label a{n}=x" for n in range(MOST_TERMS + 1)))
    assert f"that is more than {MOST_TERMS} alternatives" in done.stderr
    lines = [f"filter: node.label a{n}=x or node.label b{n}=x" for n in range(6)]
    done = run("\n".join(lines) + "\n")
    assert done.exit_code == 1
    assert "# Not exported: written out" in done.stdout
    done = run("filter: node.lable a\n")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "error[P" in done.stderr


def test_check_notes_filters_that_autoscalers_do_not_see_only_when_asked(tmp_path):
    path = tmp_path / "a.policy"
    path.write_text("filter: node.label k\nfilter: node.cpu.free > 2\nscore: 50\n")
    plain = CliRunner().invoke(main, ["check", str(path)])
    assert "P405" not in plain.output
    asked = CliRunner().invoke(main, ["check", "--autoscaler", str(path)])
    assert asked.exit_code == 0
    assert asked.output.count("note[P405]") == 2
    assert "`berth export-affinity` prints what to write there" in asked.output
    assert "`node.cpu.free > 2`: affinity compares only labels and names" in asked.output


def test_the_page_about_autoscalers_shows_what_is_printed(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs" / "autoscalers.md").read_text("utf-8")
    policy, printed = re.findall(r"```(?:policy|yaml)\n(.*?)```", page, re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    Path("nginx.policy").write_text(policy)
    done = CliRunner().invoke(main, ["export-affinity", "nginx.policy"])
    assert done.stdout.split("---\n")[1] == printed


# ---- the same nodes

KEYS, VALUES = ["a", "b", "gen"], ["x", "y", "1", "2", "3"]
_LABEL = st.sampled_from(KEYS)
_VALUE = st.sampled_from([*VALUES, "no label has this", ""])
_NUMBER = st.sampled_from(["0", "1", "2", "2.5", "3"])
_TEST = st.one_of(
    st.builds('node.label["{}"] == "{}"'.format, _LABEL, _VALUE),
    st.builds('node.label["{}"] != "{}"'.format, _LABEL, _VALUE),
    st.builds('node.label["{}"] in ["{}", "{}"]'.format, _LABEL, _VALUE, _VALUE),
    st.builds('node.label["{}"] not in ["{}", "{}"]'.format, _LABEL, _VALUE, _VALUE),
    st.builds('node.label["{}"] is missing'.format, _LABEL),
    st.builds('node.label["{}"] is present'.format, _LABEL),
    st.builds(
        "number(node.label[gen]) {} {}".format,
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        _NUMBER,
    ),
    st.builds(
        "{} {} number(node.label[gen])".format,
        _NUMBER,
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    ),
    st.builds("number(node.label[gen]) in {}..{}".format, _NUMBER, _NUMBER),
    st.sampled_from(
        ["true", "node.name is present", "node.name is missing", "named", "text is y", "size > 2"]
    ),
    st.builds('node.zone == "{}"'.format, _VALUE),
    st.builds('node.name in ["n0", "n{}"]'.format, st.integers(0, 30)),
    st.builds('node.name != "n{}"'.format, st.integers(0, 30)),
)
_RULE = st.recursive(
    _TEST,
    lambda inner: st.one_of(
        st.builds("not ({})".format, inner),
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
    ),
    max_leaves=5,
)


def _nodes():
    """All labels in all ways, numbers only where they are compared as such."""
    each = [
        {"a": a, "b": b, "gen": gen, "topology.kubernetes.io/zone": a}
        for a in (None, "x", "1")
        for b in (None, "y")
        for gen in (None, "0", "1", "2", "3", "12")
    ]
    found = [{key: value for key, value in one.items() if value is not None} for one in each]
    return [make_node(f"n{number}", labels=labels) for number, labels in enumerate(found)]


LETS = """\
let named = node.label[a] == "x"
let text = node.label[b]
let size = number(node.label[gen])
"""
WORLD = World(nodes=())
WORLD.add(_nodes())
ROWS = np.flatnonzero(WORLD.snapshot().nodes.present)


@given(test=_RULE)
@settings(max_examples=examples(300))
def test_the_affinity_leaves_the_nodes_that_the_rule_leaves(test):
    text = f"{LETS}filter: {test}\n"
    compiled = new_compiler().compile({"t.policy": text})
    if not compiled.plans:
        return  # it can never be met, or is otherwise refused
    [rule] = compiled.plans[0].filters
    found, snapshot = said(rule), WORLD.snapshot()
    by_rule = chain({"t.policy": text}).verdicts(make_pod("p"), snapshot, ROWS)
    if not isinstance(found, Said):
        assert not by_rule.any() or "terms" in found.why or "alternatives" in found.why
        return
    text = as_yaml([found])
    affinity = (yaml.safe_load(text) or {}).get("affinity")
    assert (affinity is None) == ("Nothing to put there" in text)
    pod = make_pod("p", spec={} if affinity is None else {"affinity": affinity})
    by_affinity = WORLD.framework.verdicts(pod, snapshot, ROWS)
    assert by_rule.tolist() == by_affinity.tolist()
