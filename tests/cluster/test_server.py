"""The scheduler's own HTTPS server on a real API server: who may read what, and what is there."""

from __future__ import annotations

import json
import re
import signal

import pytest
from click.testing import CliRunner

from engine.cli import main
from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import free_port, wait_until
from tests.cluster.scraping import Scraper, get

pytestmark = pytest.mark.cluster

POLICY = "filter: pod.name contains nginx -> node.label test=test\n"


@pytest.fixture
def berth(control_plane, namespace, no_nodes, tmp_path):
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "home.policy").write_text(POLICY)
    port = free_port()
    made = Berth(
        control_plane,
        tmp_path / "berth",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--leader-elect",
        f"--leader-elect-resource-name={namespace}",
        f"--leader-elect-resource-namespace={namespace}",
        f"--scheduler-name={namespace}",
        "--policies",
        policies,
    )
    made.port = port
    control_plane.request("POST", "/api/v1/nodes", node(f"{namespace}-n"))
    made.start("Successfully acquired lease")
    yield made
    made.process.stop(seconds=5)


def token_of(plane, namespace, account, *, may):
    """A token of a new account, which may read /metrics and the pages or not."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert plane.request("POST", path, {"metadata": {"name": account}})[0] == 201
    if may:
        role = {
            "metadata": {"name": f"{namespace}-{account}"},
            "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}],
        }
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        assert plane.request("POST", f"{rbac}/clusterroles", role)[0] == 201
        binding = {
            "metadata": {"name": f"{namespace}-{account}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": f"{namespace}-{account}",
            },
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }
        assert plane.request("POST", f"{rbac}/clusterrolebindings", binding)[0] == 201
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    status, answer = plane.request("POST", f"{path}/{account}/token", request)
    assert status == 201, answer
    return answer["status"]["token"]


def test_health_is_for_everybody_and_the_rest_for_those_who_may(berth, control_plane, namespace):
    for path in ("/livez", "/healthz"):
        assert get(berth.port, path) == (200, "ok")
    wait_until("it is ready", lambda: get(berth.port, "/readyz") == (200, "ok"))
    status, text = get(berth.port, "/readyz?verbose")
    assert status == 200
    assert re.findall(r"^\[\+\](\S+) ok$", text, re.MULTILINE) == [
        "ping", "leaderElection", "sched-handler-sync", "watches", "policies", "shutdown",
    ]  # fmt: skip
    assert text.endswith("readyz check passed\n")

    assert get(berth.port, "/metrics")[0] == 403, "nobody in particular"
    assert get(berth.port, "/metrics", token="of nobody")[0] == 401
    nosy = token_of(control_plane, namespace, "nosy", may=False)
    status, text = get(berth.port, "/metrics", token=nosy)
    assert (status, text) == (
        403,
        f'Forbidden: user "system:serviceaccount:{namespace}:nosy" cannot get /metrics',
    )
    reader = token_of(control_plane, namespace, "reader", may=True)
    wait_until("the role is known", lambda: get(berth.port, "/metrics", token=reader)[0] == 200)
    status, text = get(berth.port, "/configz", token=reader)
    assert json.loads(text)["componentconfig"]["leaderElection"]["resourceName"] == namespace
    status, text = get(berth.port, "/statusz?format=json", token=reader)
    assert json.loads(text)["leads"] is True
    assert json.loads(text)["policies"]["inForce"] == ["home"]


def test_a_pod_shows_in_the_numbers_that_a_real_prometheus_scrapes(
    berth, control_plane, namespace, tmp_path
):
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name in ("plain", "nginx"):
        item = pod(name, namespace, namespace, cpu="100m")
        assert control_plane.request("POST", path, item)[0] == 201
    token = token_of(control_plane, namespace, "prometheus", may=True)
    scraper = Scraper(tmp_path / "prometheus", berth.port, token)
    scraper.process.start()
    try:
        assert scraper.wait_for("up == 1")
        profile = f'profile="{namespace}"'
        [bound] = scraper.wait_for(
            f'scheduler_schedule_attempts_total{{result="scheduled",{profile}}} == 1'
        )
        assert bound["metric"]["job"] == "berth"
        for query in (
            f'scheduler_schedule_attempts_total{{result="unschedulable",{profile}}} >= 1',
            f'scheduler_scheduling_attempt_duration_seconds_count{{result="scheduled",{profile}}}',
            'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} == 1',
            'scheduler_pending_pods{queue="unschedulable"} == 1',
            'scheduler_queue_incoming_pods_total{queue="active",event="UnscheduledPodAdd"}',
            'scheduler_framework_extension_point_duration_seconds_count{extension_point="Bind"}',
            "histogram_quantile(0.99, scheduler_scheduling_algorithm_duration_seconds_bucket)",
            'scheduler_cache_size{type="nodes"} == 1',
            f'leader_election_master_status{{name="{namespace}"}} == 1',
            'rest_client_requests_total{code="201",method="POST"}',
            'berth_rule_rejections_total{policy="home.policy",line="1"} >= 1',
            "berth_policy_bundle_info == 1",
            "berth_bindings_written_total == 1",
            "process_resident_memory_bytes > 1e6",
        ):
            assert scraper.wait_for(query), query
    finally:
        scraper.process.stop(seconds=3)
    berth.process.signal(signal.SIGUSR2)
    berth.wait_for_log("Compared cache and server nodes=1 podsOnNodes=1 waiting=1 differences=0")
    (tmp_path / "token").write_text(token)
    asked = ["--scheduler", f"https://127.0.0.1:{berth.port}", "--insecure"]
    words = ["explain", "pod", f"{namespace}/nginx", *asked, "--token-file", tmp_path / "token"]
    told = CliRunner().invoke(main, list(map(str, words)))
    assert told.exit_code == 0, told.output
    assert "0/1 nodes are available" in told.output
    assert "home.policy:1" in told.output
    nobody = CliRunner().invoke(main, ["explain", "pod", f"{namespace}/nginx", *asked])
    assert nobody.exit_code == 1
    assert "give --token-file with a token that may read it" in nobody.output
    assert get(berth.port, "/debug/decisions?pod=no/such", token=token)[0] == 404
