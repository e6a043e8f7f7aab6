"""The benchmark at toy size, so that it cannot rot. What it measures gates nothing here."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from tests.bench import (
    backlogs,
    beside,
    cluster,
    compiling,
    decisions,
    engine,
    language,
    report,
    several,
    workloads,
    yardstick,
)
from tests.bench.measure import Measurement

pytestmark = pytest.mark.slow


def shown(part, rows):
    console = Console(width=130, file=None, record=True, quiet=True)
    report.show(console, part, rows)
    for row in rows:
        assert json.loads(json.dumps(row.as_json()))["part"] == part


def test_decisions():
    rows = decisions.measure_size(20, decisions.TOY)
    assert len(rows) == len(decisions.WORKLOADS) + 2
    assert all(row.values["decisions_per_second"] > 0 for row in rows)
    shown("engine", rows)


def test_a_decision_beside_the_yardstick():
    rows = engine.measure(20, engine.TOY, every=True)
    assert [row.workload for row in rows] == list(yardstick.WORKLOADS)
    assert all(row.us > 0 and row.ratio > 0 for row in rows)
    assert all(of(row) or of(row) == "" for row in rows for of in engine.COLUMNS.values())


def test_every_workload_runs():
    for name, (document, _, _) in workloads.WORKLOADS.items():
        nodes = 1_010 if name == "DaemonSet pods" else 6  # their nodes are named from 1,000 on
        small = document | {"generate": document["generate"] | {"nodes": nodes}}
        run = workloads.Run(small | {"count": 3, "warmup": 1})
        assert len(run.times()) == 3
        assert run.placed == 4, name


def test_plain_pods_beside_everything_else():
    for name in beside.ROWS:
        row = beside.measure(name, nodes=20, pods=40, rounds=1, in_vain=30)
        assert min(row.rate, row.without, row.longest, row.p99) > 0


def test_the_yardstick_gives_one_row_what_it_gives_all():
    bare = yardstick.Bare(50)
    for row in (3, 3, 7):
        bare.place(row, 500, 1 << 30)
    keys, key_of = bare.keys(700, 3 << 30), bare.key_of(700, 3 << 30)
    assert [key_of(row) for row in range(50)] == keys.tolist()
    assert bare.changed(0).tolist() == [3, 3, 7]


def test_small_things():
    rows = list(language.measure(language.TOY))
    assert {"ratio", "us"} <= set(rows[0].values)
    shown("language", rows)


def test_what_is_about_several_pods():
    rows = list(several.measure(several.TOY))
    assert len(rows) == 9
    assert all(row.values["us"] > 0 for row in rows)
    shown("language", rows)


def test_what_loading_costs():
    rows = list(compiling.measure(compiling.TOY))
    assert sum("us_at_most" in row.tags for row in rows) == 4
    assert len(report.requirements(rows)) == 4
    shown("language", rows)


def test_the_texts_that_are_loaded():
    files = compiling.policies()
    assert sum(len(text) for text in files.values()) >= 80_000
    assert files == compiling.policies()
    assert len(files) > 10


def test_ratios_are_taken_round_by_round():
    def run(rate):
        return cluster.Run(rate, rate, rate, 1.0, 1.0, 1.0, 1.0, 1.0)

    runs = {"ours": [run(300), run(100)], "kube-scheduler": [run(100), run(50)]}
    *sides, ratio = cluster.rows(runs, cluster.TOY)
    assert [side.values["pods_per_second"] for side in sides] == [200, 75]
    assert ratio.values["pods_per_second"] == 2.5
    assert report.requirements([ratio])[0][1]
    assert not report.requirements(
        [Measurement("cluster", "slow", {"pods_per_second": 0.9}, {"ratio": "true"})]
    )[0][1]
    shown("cluster", [*sides, ratio])


@pytest.mark.cluster
def test_backlogs_of_all_sides():
    if why := cluster.missing():
        pytest.skip(why)
    sizes = ["--nodes", "10", "--pods", "20", "--cold", "20", "--rates", ""]
    done = CliRunner().invoke(backlogs.main, ["--only", "mixed", *sizes])
    assert done.exit_code == 0, done.output
    assert [line.split()[:2] for line in done.output.splitlines()[1:]] == [
        ["mixed", "berth"], ["mixed", "kube-scheduler"], ["mixed", "calls"],
    ]  # fmt: skip
    done = CliRunner().invoke(backlogs.main, ["--only", "vain", "--in-vain", "10", *sizes])
    berth, _, calls = (line.split()[-1] for line in done.output.splitlines()[1:])
    assert berth == calls == "1.50"  # the same Events, those of pods that fit nowhere among them


@pytest.mark.cluster
def test_both_schedulers_on_a_real_api_server():
    if why := cluster.missing():
        pytest.skip(why)
    rows = list(cluster.measure(cluster.TOY))
    assert all(row.values["pods_per_second"] > 0 for row in rows)
    shown("cluster", rows)
