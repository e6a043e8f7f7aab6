"""What the documents claim and can be looked up: names, links, commands, numbers."""

from __future__ import annotations

import gzip
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from dsl.parser import Parser
from engine import telemetry
from engine.cli import main
from engine.configuration.berth import BerthDocument, MetricSection, PolicyOverride
from engine.configuration.scheduler import SchedulerDocument
from engine.configuration.settings import Settings, load
from engine.cycle import decide
from engine.framework.defaults import DEFAULT_WEIGHTS
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.policy.findings import new_compiler
from engine.policytests.running import Runner
from engine.telemetry import Count
from tests.builders import Cache, default_plugins, make_node, make_pod
from tests.conformance.compare import DATA
from tests.conformance.test_conformance import RESTRICTED

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs/operations.md").read_text("utf-8")
PARITY = (ROOT / "docs/parity.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    if "errors" not in path.parts
)


def flags_of(command: str) -> set[str]:
    output = CliRunner().invoke(main, [command, "--help"]).output
    return set(re.findall(r"--[a-z-]+", output)) - {"--help"}


def fields(model: type[BaseModel]) -> Iterator[str]:
    yield from (
        to_camel(name) for name in model.model_fields if name not in ("api_version", "kind")
    )


# ---- names ---------------------------------------------------------------------------------------


def test_every_metric_is_in_the_operations_page():
    named = set(re.findall(r"`([a-z_]+)`", OPERATIONS.partition("## Metrics")[2]))
    table = {one.name for one in vars(telemetry).values() if isinstance(one, telemetry.Metric)}
    assert len(table) > len(Count)
    assert table | {count.value for count in Count} <= named


def test_every_flag_of_run_is_in_the_operations_page():
    assert flags_of("run") == set(
        re.findall(r"--[a-z][a-z-]*", OPERATIONS.partition("Exit codes")[0])
    )


@pytest.mark.parametrize("model", [BerthDocument, SchedulerDocument, MetricSection, PolicyOverride])
def test_every_field_of_the_configuration_is_in_the_operations_page(model):
    assert [name for name in fields(model) if name not in OPERATIONS] == []


def test_every_in_tree_plugin_is_in_the_readme():
    assert [name for name in DEFAULT_WEIGHTS if name not in README] == []


# ---- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text("utf-8"))
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(path):
    named = re.findall(r"`((?:engine|dsl|tests|docs|examples)/[\w./-]+)`", path.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_commands_and_targets_that_are_named_exist():
    text = "\n".join(path.read_text("utf-8") for path in DOCUMENTS)
    commands = set(re.findall(r"`berth ([a-z-]+)", text)) - {"test"}  # named as not there yet
    asked = {name: CliRunner().invoke(main, [name, "-h"]) for name in commands}
    assert {name: repr(one) for name, one in asked.items() if one.exit_code} == {}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"(?:`|    )make ([a-z0-9-]+)", text))
    assert [name for name in targets if f"\n{name}:" not in makefile] == []


def test_the_examples_are_in_the_style_that_the_readme_checks(tmp_path):
    for page in ("language", "tutorial"):
        text = (ROOT / f"docs/{page}.md").read_text("utf-8")
        for number, (kind, block) in enumerate(re.findall(r"```(policy\w*)\n(.*?)```", text, re.S)):
            (tmp_path / f"{page}-{number}.{kind}").write_text(block)
    result = CliRunner().invoke(main, ["fmt", "--check", str(ROOT / "examples"), str(tmp_path)])
    assert result.exit_code == 0, result.output


def test_the_readme_is_one_screen():
    assert len(README.splitlines()) <= 60


def test_tests_in_the_language_page_pass(tmp_path):
    page = (ROOT / "docs/language.md").read_text("utf-8")
    blocks = re.findall(r"```policytest\n(.*?)```", page, re.DOTALL)
    alone = [one for one in blocks if not one.startswith("# nginx.policytest")]
    assert len(alone) == len(blocks) - 1, "that one has a policy and a manifest beside it"
    for policy in re.findall(r"```policy\n(policy: (?:.|\n)*?)```", page):
        (tmp_path / f"{policy.split()[1]}.policy").write_text(policy)
    runner = Runner(ROOT / "policies", new_compiler(), Parser())
    for number, text in enumerate(alone):
        path = tmp_path / f"{number}.policytest"
        path.write_text(text)
        runner.run(path)
    results = runner.report.results
    assert len(results) >= 4
    assert [one.message for one in results if one.outcome != "passed"] == []


def test_the_page_of_explain_shows_what_is_printed(monkeypatch):
    monkeypatch.chdir(ROOT / "examples/explain")
    page = (ROOT / "docs/explain.md").read_text("utf-8")
    shown = re.findall(r"    \$ berth (.*)\n((?:(?:    .*)?\n)+)", page)
    assert len(shown) == 3
    for command, output in shown:
        printed = CliRunner().invoke(main, command.split()).stdout
        assert textwrap.dedent(output).strip() == printed.strip()


def test_prose_of_the_language_page_is_not_wider_than_an_editor():
    page = re.sub(r"```.*?```", "", (ROOT / "docs/language.md").read_text("utf-8"), flags=re.DOTALL)
    prose = [line for line in page.splitlines() if not line.startswith(("|", "    "))]
    assert [line for line in prose if len(line) > 110] == []


def test_the_picture_shows_the_two_lines():
    picture = (ROOT / "docs/demo.svg").read_text("utf-8").replace("&#160;", " ")
    assert "filter: pod.name contains nginx -&gt; node.label test=test" in picture
    assert "score: 100 - bandwidth/max*100" in picture
    assert "All of this happened" in picture
    assert len(picture) < 200_000


# ---- parity --------------------------------------------------------------------------------------


def test_parity_counts_the_cases_as_they_are():
    paths = list(DATA.glob("*.jsonl.gz"))
    assert [one.name for one in paths if f"`{one.name.partition('.')[0]}`" not in PARITY] == []
    total = sum(gzip.decompress(one.read_bytes()).count(b"\n") for one in paths)
    assert f"{total:,} cases" in PARITY
    assert f"{sum(RESTRICTED.values())} cases" in PARITY


def test_tests_of_differences_exist():
    table = PARITY.partition("## Deliberate differences")[2]
    files = set(re.findall(r"`([\w/]*test_\w+\.py)`", table))
    assert files
    assert [name for name in files if not any(ROOT.glob(f"tests/**/{Path(name).name}"))] == []


def test_every_node_is_looked_at():
    cache = Cache()
    for number in range(500):
        cache.add_node(make_node(f"n{number}", cpu="4"))
    cache.add_node(make_node("largest", cpu="64"))
    framework = Framework(Profile("berth", default_plugins()))
    decision = decide(make_pod("p", cpu="1"), cache.snapshot(0.0), framework)
    assert (decision.evaluated, decision.feasible) == (501, 501)
    assert decision.node == "largest"


def test_the_default_name_is_our_own(tmp_path):
    assert Settings().scheduler_name == "berth"
    path = tmp_path / "config.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(head)
    assert load(str(path)).scheduler_name == "berth"
    path.write_text(f"{head}profiles: [{{}}]\n")
    assert load(str(path)).scheduler_name == "default-scheduler"
