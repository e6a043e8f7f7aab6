"""`berth check` foretells what a scheduler would refuse, and knows folders and configurations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli import main
from engine.configuration.settings import load
from engine.policy.bundle import Bundle, compile_at_once, compile_settings
from engine.policy.findings import new_compiler

GOOD = "filter: node.label a=b\n"
COMPILER = new_compiler()


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    return write


def check(*args):
    return CliRunner().invoke(main, ["check", *map(str, args)])


def found(*args):
    told = json.loads(check("--format", "json", *args).stdout)["diagnostics"]
    return [(one["code"], one["severity"], one["line"]) for one in told]


# ---- plugins that are not there


def test_a_policy_that_is_off_is_loaded(file):
    name = file("a.policy", "mode: off\nbind: with other\n")
    assert found(name) == []


def test_what_a_used_policy_cannot_is_told_at_the_use_line(file):
    file("b.policy", "bind: with other\n")
    name = file("a.policy", GOOD + "use b\n")
    assert found(name) == [("P119", "error", 2)]
    assert "`use b`: no plugin binds pods as `other`" in check(name).stdout


def test_a_binder_that_nobody_is_is_named_with_those_that_there_are(file):
    result = check(file("a.policy", GOOD + "bind: with DefaultBindr\n"))
    assert "error[P119]: no plugin binds pods as `DefaultBindr`" in result.stdout
    assert "did you mean `DefaultBinder`?" in result.stdout
    assert found(file("a.policy", GOOD + "bind: with DefaultBinder\n")) == []


def test_it_is_told_beside_other_errors(file):
    text = "sort: pod.name\nuse qos-sort\nbind: with other\n"
    codes = [one[0] for one in found(file("a.policy", text))]
    assert codes == ["P501", "P119"]


def test_names_of_plugins_are_taken(file):
    assert found(file("a.policy", "policy: NodeAffinity\n" + GOOD)) == [("P502", "error", 1)]


def test_two_orders_are_too_many_for_one_scheduler_alone(file):
    names = file("a.policy", "sort: pod.name\n"), file("b.policy", "sort: pod.priority desc\n")
    assert found(*names) == []
    assert found("--chain", *names) == [("P501", "error", 1)]
    assert found(names[0]) == []


# ---- folders and configurations


def test_a_folder_is_its_policies(file):
    file("rules/b.policy", GOOD)
    file("rules/a.policy", "filter: node.lable a=b\n")
    file("rules/README", "no policy")
    result = check("rules")
    assert result.exit_code == 1
    assert re.findall(r"--> (\S+):\d+:\d+", result.stdout) == ["rules/a.policy"]
    assert result.stderr == "2 files checked: 1 error, 0 warnings\n"


CONFIG = """\
kind: BerthConfiguration
apiVersion: berth.dev/v1
policies:
  dir: rules
  overrides:
    first: {params: {pool: gold}}
    "secnd": {mode: off}
metrics:
  heat: {promql: celsius, by: node, default: 0}
"""


def test_what_a_configuration_says(file):
    text = "param pool: string\nfilter: node.label pool=$pool\nfilter: heat < 80\n"
    file("rules/first.policy", text)
    file("rules/second.policy", "bind: with other\n")
    config = file("config.yaml", CONFIG)
    assert [one[0] for one in found("rules/first.policy")] == ["P104", "P102"]
    assert found("--config", config, "rules/first.policy") == []
    assert found("--config", config) == [("P119", "error", 1), ("P107", "warning", 1)]
    assert ("P119", "error", 1) in found("--config", config, "rules/second.policy")
    result = check("--config", config)
    assert result.exit_code == 1, "a scheduler refuses the folder"
    assert "did you mean `second`?" in result.stdout
    assert " --> BerthConfiguration:1:12\n" in result.stdout
    file("config.yaml", CONFIG.replace("secnd", "second"))
    assert found("--config", config) == []


def test_a_source_that_is_for_some_profiles_does_not_sort(file):
    name = file("rules/first.policy", "sort: pod.priority desc\n")
    sources = "kind: BerthConfiguration\napiVersion: berth.dev/v1\npolicies: {sources: [%s]}\n"
    config = file("config.yaml", sources % "{dir: rules, profiles: [berth]}")
    assert found("--config", config, name) == [("P501", "error", 1)]
    file("config.yaml", sources % "{dir: rules}")
    assert found("--config", config, name) == []


def test_with_a_configuration_a_parameter_needs_its_value(file):
    file("rules/first.policy", "param pool: string\nfilter: node.label pool=$pool\n")
    config = file(
        "config.yaml",
        CONFIG.replace("{pool: gold}", "{}").replace('    "secnd": {mode: off}\n', ""),
    )
    assert found("--config", config) == [("P104", "error", 1)]
    file("config.yaml", CONFIG.replace("{pool: gold}", "{poll: gold}"))
    assert ("P105", "error", 1) in found("--config", config)


def test_a_configuration_that_cannot_be_used(file):
    file("a.policy", GOOD)
    result = check("--config", "none.yaml", "a.policy")
    assert (result.exit_code, "cannot be read" in result.stderr) == (1, True)
    result = check("--config", file("c.yaml", "kind: BerthConfiguration\n"))
    assert (result.exit_code, "names no folder" in result.stderr) == (2, True)
    assert check().exit_code == 2


def test_who_has_policies_in_a_configmap_is_told_how_to_check_them(file):
    berth = "apiVersion: berth.dev/v1\nkind: BerthConfiguration\npolicies: {configMap: a/b}\n"
    result = check("--config", file("c.yaml", berth))
    asked = "kubectl --namespace a get configmap b --output yaml | berth check --chain --config"
    assert (result.exit_code, asked in result.stderr) == (2, True)


def test_the_only_source_is_what_there_is_to_check(file):
    file("rules/a.policy", GOOD)
    one = "apiVersion: berth.dev/v1\nkind: BerthConfiguration\n"
    one += "policies: {sources: [{dir: rules}%s]}\n"
    result = check("--config", file("c.yaml", one % ""))
    assert (result.exit_code, "1 file checked: all good" in result.output) == (0, True)
    several = check("--config", file("c.yaml", one % ", {dir: more}"))
    assert (several.exit_code, "names several sources" in several.stderr) == (2, True)


def test_a_scheduler_is_told_of_names_that_are_nobodys(file):
    berth = load(file("config.yaml", CONFIG)).berth
    files = {"first.policy": "param pool: string\nfilter: node.label pool=$pool\n"}
    bundle = compile_at_once(COMPILER, files, compile_settings(berth))
    assert isinstance(bundle, Bundle)
    (one,) = bundle.warnings
    assert (one.code, one.source.name, one.source.slice(one.span)) == (
        "P107", "BerthConfiguration", "secnd",
    )  # fmt: skip


def test_values_of_a_configuration_are_refused_where_their_parameters_are_declared(file):
    text = "policy: team-quota\nparam n: number = 5 from 1 to 9\nparam m: duration = 1m\n"
    file(
        "rules/first.policy", text + "prefer: node.pods.free > $n\nfilter: now - pod.created > $m\n"
    )
    config = file(
        "config.yaml",
        CONFIG.partition("    first")[0]
        + "    team-quota:\n      params:\n        n: 10\n        m: soon\n        nn: 3\n",
    )
    assert found("--config", config) == [
        ("P105", "error", 1), ("P111", "error", 2), ("P111", "error", 3),
    ]  # fmt: skip
    told = check("--config", config).stdout
    assert " --> rules/first.policy:2:" in told


# ---- the policies of a namespace -----------------------------------------------------------------


def test_an_author_sees_what_the_scheduler_would_say_of_a_namespace(file):
    file("p/a.policy", "sort: pod.priority desc\nscore: node.cpu.free normalize minmax\n")
    assert found("p/a.policy") == []
    assert found("--tenant", "team-a", "p") == [("P121", "error", 1)]
    file("p/a.policy", "filter: pod.namespace is other -> node.label a=b\n")
    assert found("--tenant", "team-a", "p") == [("P301", "warning", 1)]


def test_the_limits_of_a_namespace_are_those_of_the_configuration(file):
    document = {
        "apiVersion": "berth.dev/v1",
        "kind": "BerthConfiguration",
        "policies": {
            "configMap": "x/y",
            "tenants": {"configMap": "c", "namespaces": ["team-*"], "policies": 1},
        },
    }
    config = file("berth.yaml", json.dumps(document))
    file("p/a.policy", GOOD)
    file("p/b.policy", "score: node.cpu.free normalize minmax\n")
    assert found("--tenant", "team-a", "p") == []
    assert found("--tenant", "team-a", "--config", config, "p") == [("P122", "error", 1)]
    refused = check("--tenant", "other", "--config", config, "p")
    assert refused.exit_code == 1
    assert "policies.tenants does not let namespace other have policies" in refused.output
