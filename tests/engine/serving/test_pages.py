"""Words for checks and for numbers, and lines of the log for programs."""

from __future__ import annotations

import json
import logging
import math

import pytest

from engine.cli.logs import level_of, log_of_a_process
from engine.clock import ManualClock
from engine.framework.decision import Decision, FitError, Placed
from engine.measures import Measures, Result
from engine.queue.queued import QueuedPod
from engine.serving.exposition import exposition
from engine.serving.server import Check, told
from engine.telemetry import (
    ATTEMPTS,
    RULE_REJECTIONS,
    SLI_SECONDS,
    Count,
    Kind,
    Metric,
    Telemetry,
)
from tests.builders import make_pod

GOOD, BAD = Check("a", lambda: ""), Check("b", lambda: "it broke")


def test_a_group_of_checks_in_the_words_of_kube_scheduler():
    assert told("readyz", [GOOD]) == ("ok", "")
    assert told("readyz", [GOOD], verbose=True) == ("[+]a ok\nreadyz check passed\n", "")
    text, why = told("readyz", [GOOD, BAD])
    assert text == "[+]a ok\n[-]b failed: reason withheld\nreadyz check failed\n"
    assert why == "b: it broke"
    assert told("livez", [GOOD, BAD], exclude=["b"]) == ("ok", "")
    text, _ = told("livez", [GOOD], verbose=True, exclude=["c"])
    assert 'no matches for "c"' in text


def test_numbers_in_the_text_format():
    counter = Metric("z_total", Kind.COUNTER, "Back\\slash\nand line.", ("who",))
    gauge = Metric("a", Kind.GAUGE, "Odd ones.", ("k",))
    histogram = Metric("h", Kind.HISTOGRAM, "H.", ("x",), (0.5, 1.0))
    filled = Telemetry()
    for value in (0.5, 0.75, 3.0):
        filled.observe(histogram, value, "y")
    text = exposition(
        [
            (counter, {('q"\\\n',): 3.0}),
            *[one for one in filled.families() if one[0] is histogram],
            (gauge, {("i",): math.inf, ("n",): math.nan, ("f",): 0.25}),
            (Metric("empty", Kind.GAUGE, "None."), {}),
        ]
    )
    assert text.splitlines() == [
        "# HELP a Odd ones.",
        "# TYPE a gauge",
        'a{k="i"} +Inf',
        'a{k="n"} NaN',
        'a{k="f"} 0.25',
        "# HELP h H.",
        "# TYPE h histogram",
        'h_bucket{x="y",le="0.5"} 1',
        'h_bucket{x="y",le="1"} 2',
        'h_bucket{x="y",le="+Inf"} 3',
        'h_sum{x="y"} 4.25',
        'h_count{x="y"} 3',
        "# HELP z_total Back\\\\slash\\nand line.",
        "# TYPE z_total counter",
        'z_total{who="q\\"\\\\\\n"} 3',
    ]


def test_what_happens_to_a_pod_in_numbers():
    telemetry, clock = Telemetry(), ManualClock()
    measures = Measures(telemetry, clock)
    queued = QueuedPod(make_pod("p"), clock.time(), clock.time(), attempts=20)
    queued.first_attempt_at, queued.tried_at = clock.time(), clock.monotonic()
    clock.advance(2)
    measures.ended(queued, Result.SCHEDULED)
    profile = queued.pod.pod.spec.scheduler_name
    assert telemetry.value(ATTEMPTS, "scheduled", profile) == 1
    assert telemetry.value(SLI_SECONDS, "15+") == 1
    reasons = {"x is false (home.policy:3)": 2, "y is (home.policy:3)": 1, "Insufficient cpu": 4,
               "an extender's (x.go:12)": 1}  # fmt: skip
    decision = Decision(queued.pod, 1, "", 7, fit_error=FitError(7, reasons))
    measures.decided(Placed(decision, None, 0.001))
    assert telemetry.value(RULE_REJECTIONS, "home.policy", "3") == 1, "once for an attempt"
    assert dict(telemetry.families())[RULE_REJECTIONS] == {("home.policy", "3"): 1.0}
    telemetry.add(Count.PODS_EVICTED, 2)
    lines = exposition(telemetry.families()).splitlines()
    assert "berth_pods_evicted_total 2" in lines
    assert 'scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"} 1' in lines


@pytest.fixture
def start_log():
    """Starts the log of a process; everything is as it was afterwards."""
    root, scheduler = logging.getLogger(), logging.getLogger("engine.scheduler")
    handlers, level = [], root.level

    def start(verbosity, *, as_json):
        handlers[:] = root.handlers
        root.handlers.clear()  # or basicConfig leaves pytest's
        log_of_a_process(verbosity, as_json=as_json)

    yield start
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.setLogRecordFactory(logging.LogRecord)
    scheduler.setLevel(logging.NOTSET)


def test_json_lines_have_the_fields_of_the_text(start_log, capsys):
    start_log(2, as_json=True)
    log = logging.getLogger("engine.scheduler")
    log.info('Bound pod="%s" nodes=%d why="%s"', 'a"b\n', 3, None)
    log.warning("%s: %s", "pods", "broken")
    log.error('Lost pod="%s"', "x", exc_info=ValueError("no"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["msg"] for line in lines] == ["Bound", "pods: broken", "Lost"]
    assert (lines[0]["pod"], lines[0]["nodes"], lines[0]["why"]) == ('a"b\n', 3, None)
    assert lines[1]["level"] == "warning"
    assert "ValueError: no" in lines[2]["err"]
    assert lines[0]["ts"] > 1e12, "milliseconds"


@pytest.mark.parametrize(("level", "lines"), [(0, 1), (2, 2), (4, 3)])
def test_levels_are_those_of_kube_scheduler(level, lines, start_log, capsys):
    start_log(level, as_json=False)
    logging.getLogger("engine.app").info("start")
    logging.getLogger("engine.scheduler").info("a line a pod")
    logging.getLogger("engine.app").debug("more")
    assert len(capsys.readouterr().err.splitlines()) == lines


def test_a_level_is_a_number_in_any_way_to_write_it():
    assert [level_of(text) for text in ("4", "=4")] == [4, 4]
    with pytest.raises(Exception, match="'x' is not a log level; write a number"):
        level_of("x")
