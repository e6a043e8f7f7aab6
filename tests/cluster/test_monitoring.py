"""Alerts fire under their fault and are silent without; every panel of the dashboard has series.

First on paper, by promtool; then the real Prometheus scrapes the real scheduler.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.cluster import manifests
from tests.cluster import prometheus as prometheus_program
from tests.cluster.berth import node
from tests.cluster.deployed import Deployed
from tests.cluster.process import Process, free_port, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        prometheus_program.missing() is not None, reason=str(prometheus_program.missing())
    ),
]

FILES = manifests.CHART / "files"
ALERTS = FILES / "alerts.yaml"
RULES = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"][0]["rules"]
RUNBOOKS = (manifests.ROOT / "docs/runbooks.md").read_text("utf-8")
PANELS = json.loads((FILES / "dashboard.json").read_text("utf-8"))["panels"]

_FORBIDDEN = 'berth_requests_forbidden_total{job="berth", verb="create", resource="pods/binding"}'
#: A scheduler with a follower, for three quarters of an hour. Values as promtool writes them.
WELL = {
    'up{job="berth", instance="a"}': "1x45",
    'up{job="berth", instance="b"}': "1x45",
    'leader_election_master_status{job="berth", instance="a", name="berth"}': "1x45",
    'leader_election_master_status{job="berth", instance="b", name="berth"}': "0x45",
    'scheduler_pending_pods{job="berth", instance="a", queue="active"}': "5x45",
    'scheduler_pending_pods{job="berth", instance="a", queue="unschedulable"}': "500x45",
    'scheduler_schedule_attempts_total{job="berth", result="scheduled"}': "0+600x45",
    'scheduler_schedule_attempts_total{job="berth", result="unschedulable"}': "0+900x45",
    'scheduler_schedule_attempts_total{job="berth", result="error"}': "0+1x45",
    'scheduler_scheduling_attempt_duration_seconds_bucket{job="berth", le="0.512"}': "0+1500x45",
    'scheduler_scheduling_attempt_duration_seconds_bucket{job="berth", le="2.048"}': "0+1501x45",
    'scheduler_scheduling_attempt_duration_seconds_bucket{job="berth", le="+Inf"}': "0+1501x45",
    'berth_bindings_written_total{job="berth", instance="a"}': "0+600x45",
    'berth_bindings_refused_total{job="berth", instance="a"}': "0+6x45",
    'berth_bindings_unknown_outcome_total{job="berth", instance="a"}': "0+1x45",
    'berth_policy_source_refused{job="berth", source="ConfigMap x/y"}': "0x45",
    'berth_metric_missing{job="berth", metric="m"}': "0x45",
    'berth_reflector_quiet_seconds{job="berth", resource="pods"}': "9x45",
    _FORBIDDEN: "7x45",
    'berth_events_dropped_total{job="berth", instance="a"}': "7x45",
    'berth_plugin_errors_total{job="berth", instance="a"}': "7x45",
}
_BUCKET = 'scheduler_scheduling_attempt_duration_seconds_bucket{job="berth", le="0.512"}'
_LEADER = 'leader_election_master_status{job="berth", instance="a", name="berth"}'
_ATTEMPTS = 'scheduler_schedule_attempts_total{job="berth", result="%s"}'
FAULTS = {
    "BerthDown": {'up{job="berth", instance="a"}': "0x45", 'up{job="berth", instance="b"}': "0x45"},
    "BerthNoLeader": {_LEADER: "0x45"},
    "BerthSchedulesNothing": {
        _ATTEMPTS % result: "9x45" for result in ("scheduled", "unschedulable", "error")
    },
    "BerthAttemptsFail": {_ATTEMPTS % "error": "0+100x45"},
    "BerthSlow": {_BUCKET: "0+1400x45"},
    "BerthBindingsFail": {'berth_bindings_refused_total{job="berth", instance="a"}': "0+80x45"},
    "BerthPoliciesRefused": {
        'berth_policy_source_refused{job="berth", source="ConfigMap x/y"}': "1x45"
    },
    "BerthMetricMissing": {'berth_metric_missing{job="berth", metric="m"}': "1x45"},
    "BerthWatchQuiet": {'berth_reflector_quiet_seconds{job="berth", resource="pods"}': "0+30x45"},
    "BerthForbidden": {_FORBIDDEN: "7+1x45"},
    "BerthEventsDropped": {'berth_events_dropped_total{job="berth", instance="a"}': "7+1x45"},
    "BerthPluginErrors": {'berth_plugin_errors_total{job="berth", instance="a"}': "7+1x45"},
}


def test_each_alert_has_its_fault_and_its_page():
    assert [rule["alert"] for rule in RULES] == list(FAULTS)
    for rule in RULES:
        name = rule["alert"]
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
        assert f"\n## {name}\n" in RUNBOOKS
    assert re.findall(r"^## (Berth\w+)$", RUNBOOKS, re.MULTILINE) == list(FAULTS)


@pytest.mark.parametrize(("name", "fault"), [("", {}), *FAULTS.items()])
def test_an_alert_fires_under_its_fault_and_no_other_does(name, fault, tmp_path):
    series = {**WELL, **fault}
    fires = [{"labels": f'{{alertname="{name}"}}', "value": 1}] if name else []
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "40m",
                "exp_samples": fires,
            }
        ],
    }
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        ["promtool", "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The real ones. Waits and windows of the rules are cut short; nothing else of them is changed.

SHORTER = [
    (r"for: \d+m", "for: 1s"),
    (r"\[\d+m\]", "[10s]"),
    (r"> 60$", "> 20"),
]


class Watching:
    """Prometheus beside a scheduler."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._port = free_port()
        rules = ALERTS.read_text("utf-8")
        for pattern, text in SHORTER:
            rules = re.sub(pattern, text, rules, flags=re.MULTILINE)
        (folder / "alerts.yaml").write_text(rules)
        (folder / "token").touch()
        command = [
            prometheus_program.PROGRAM, f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]  # fmt: skip
        self.process = Process("prometheus", command, folder / "prometheus.log")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self, target: str) -> None:
        job = {
            "job_name": "berth", "scheme": "https", "tls_config": {"insecure_skip_verify": True},
            "authorization": {"credentials_file": str(self.folder / "token")},
            "static_configs": [{"targets": [target]}],
        }  # fmt: skip
        timing = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config = {
            "global": timing,
            "rule_files": [str(self.folder / "alerts.yaml")],
            "scrape_configs": [job],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.process.start()
        wait_until("Prometheus is ready", lambda: self._get("/-/ready") is not None)

    def query(self, text: str) -> list[dict]:
        found = self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': text})}")
        return [] if found is None else json.loads(found)["data"]["result"]

    def firing(self) -> set[str]:
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}

    def wait_for(self, alert: str, *, fires: bool = True, seconds: float = 60.0) -> None:
        what = f"{alert} {'fires' if fires else 'is silent'}"
        try:
            wait_until(what, lambda: (alert in self.firing()) == fires, seconds=seconds)
        except TimeoutError as late:
            firing = [one["metric"] for one in self.query('ALERTS{alertstate="firing"}')]
            raise TimeoutError(f"{late}; firing: {firing}") from late

    def _get(self, path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return answer.read()
        except OSError:
            return None


@pytest.fixture
def watched(fresh_control_plane, tmp_path):
    watching = Watching(tmp_path / "prometheus")
    deployed = Deployed(fresh_control_plane, tmp_path / "berth", f"--prometheus-url={watching.url}")
    (tmp_path / "prometheus/token").write_text(deployed.scraper())
    try:
        watching.start(f"127.0.0.1:{deployed.port}")
        yield watching, deployed
    finally:
        deployed.berth.process.stop(seconds=5)
        watching.process.stop(seconds=3)


RULE = """\
metric spare = promql "vector(1)" by cluster every 1s
filter: pod.name is never -> node.label no=where
filter: (spare ?? 1) >= 0
"""
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{manifests.NAMESPACE}/leases"


def test_the_real_prometheus_sees_each_panel_and_the_faults(watched):
    watching, deployed = watched
    plane = deployed.plane
    watching.wait_for("BerthDown")
    # Somebody else has the lease: a follower decides nothing.
    lease = {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 0}
    deployed.create(LEASES, {"metadata": {"name": "berth"}, "spec": lease})
    deployed.create("/api/v1/nodes", node("a", cpu="4"))
    for name, value in (("low", 1), ("high", 1000)):
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        deployed.create(path, {"metadata": {"name": name}, "value": value})
    deployed.rules(rule=RULE)
    deployed.berth.start()
    deployed.pod("first", priority="low", cpu="4")
    watching.wait_for("BerthNoLeader")
    watching.wait_for("BerthSchedulesNothing")
    watching.wait_for("BerthDown", fires=False)
    _, taken = plane.request("GET", f"{LEASES}/berth")
    taken["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}  # as who gives it up
    assert plane.request("PUT", f"{LEASES}/berth", taken)[0] == 200
    watching.wait_for("BerthNoLeader", fires=False)
    wait_until("the first pod is bound", lambda: deployed.node_of("first") == "a")
    deployed.pod("important", priority="high", cpu="1")
    deployed.pod("never", cpu="1m")
    wait_until("the second pod is bound", lambda: deployed.node_of("important") == "a")
    check_panels(watching, deployed)
    wait_until("all is well", lambda: not watching.firing())

    deployed.rules(rule="filter: node.lable x=y\n")
    watching.wait_for("BerthPoliciesRefused")
    deployed.rules(rule=RULE.replace("vector(1)", "nothing_of_that_name"))
    watching.wait_for("BerthPoliciesRefused", fires=False)
    watching.wait_for("BerthMetricMissing")
    deployed.rules(rule=RULE)
    watching.wait_for("BerthMetricMissing", fires=False)

    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/berth"
    _, whole = plane.request("GET", role)
    left = [one for one in whole["rules"] if "pods/binding" not in one["resources"]]
    left = [one for one in left if "namespaces" not in one["resources"]]
    assert plane.request("PUT", role, {**whole, "rules": left})[0] == 200
    deployed.pod("refused", cpu="1m")
    watching.wait_for("BerthBindingsFail")
    watching.wait_for("BerthAttemptsFail")
    watching.wait_for("BerthWatchQuiet")
    watching.wait_for("BerthForbidden")
    _, now = plane.request("GET", role)
    assert plane.request("PUT", role, {**now, "rules": whole["rules"]})[0] == 200
    for alert in ("BerthBindingsFail", "BerthAttemptsFail", "BerthWatchQuiet", "BerthForbidden"):
        watching.wait_for(alert, fires=False)
    assert deployed.berth.end() == 0
    watching.wait_for("BerthDown")


def check_panels(watching, deployed):
    """Each query of each panel has series, as Grafana would ask it; small pods come and go."""
    queries = {
        f"{panel['title']}: {target['expr']}": target["expr"]
        .replace("$job", "berth")
        .replace("$namespace", ".*")
        .replace("$__rate_interval", "10s")
        for panel in PANELS
        for target in panel["targets"]
    }
    number = 0

    def empty() -> list[str]:
        nonlocal number
        number += 1
        if number % 4 == 1:
            deployed.pod(f"small-{number}", cpu="1m")
        return [name for name, query in queries.items() if not watching.query(query)]

    wait_until("panels have series", lambda: not empty(), seconds=30)
