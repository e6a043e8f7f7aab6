"""The systems after which Berth was made, each with the values of its own configuration.

docs/recipes has a page for each: what its configuration becomes. Here it decides on a real API
server, with a real Prometheus where metrics take part.
"""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from engine.cli import main
from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


class Systems(Cluster):
    """A scheduler whose journal must replay, and pods that are being deleted and do not go."""

    def __init__(self, *how):
        super().__init__(*how)
        self._held = []
        self.journal = self.folder / "journal.jsonl"

    def rules(self, text, *flags):
        super().rules("--record", self.journal, *flags, rules=text)

    def tried(self):
        """The pods in the order of the first decisions about them; bindings may end in any."""
        lines = map(json.loads, self.journal.read_text().splitlines())
        pods = [one["pod"]["metadata"]["name"] for one in lines if one["what"] == "decision"]
        return list(dict.fromkeys(pods))

    def leaving(self, name, node_name):
        """A pod on a node that is being deleted and does not go."""
        self.pod(name, meta={"finalizers": ["berth.dev/stays"]}, spec={"nodeName": node_name})
        self._held.append(name)
        self.delete(name)

    def stop(self):
        try:
            super().stop()
        finally:
            for name in self._held:
                body = {"metadata": {"finalizers": None}}
                self.plane.request("PATCH", self.path("pods", name), body)
        again = CliRunner().invoke(main, ["replay", str(self.journal)])
        assert again.exit_code == 0, again.output


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path):
    made = Systems(control_plane, namespace, tmp_path)
    yield made
    made.stop()


# ---- label filter: {node_label: test/test, workload_name: nginx} ---------------------------------

LABEL_FILTER = 'use label-filter (node_label = "{}", workload_name = nginx)\n'


def test_label_filter(cluster, control_plane, tmp_path):
    cluster.node("plain")
    cluster.node("other", {"test": "other"})
    cluster.rules(LABEL_FILTER.format("test=test"))
    cluster.pod("my-nginx-1")
    told = cluster.told("my-nginx-1", "no match label")
    assert told.startswith("FailedScheduling: 0/2 nodes are available: 2 no match label")
    assert cluster.goes("redis-0") in {"plain", "other"}
    cluster.node("labelled", {"test": "test"})
    assert cluster.placed("my-nginx-1") == ["labelled"]
    assert cluster.goes("nginx-2") == "labelled"

    # The configuration's own spelling is a key here, and one that no node has.
    saved, rules = tmp_path / "cluster.json", tmp_path / "rules.policy"
    config = str(control_plane.kubeconfig_file())
    result = CliRunner().invoke(main, ["inventory", "--kubeconfig", config, "-o", str(saved)])
    assert result.exit_code == 0, result.output
    rules.write_text(LABEL_FILTER.format("test/test"))
    result = CliRunner().invoke(main, ["check", "--inventory", str(saved), str(rules)])
    assert "no node has the label test/test" in result.output
    assert "did you mean `test=test`?" in result.output


# ---- QOSSort -------------------------------------------------------------------------------------


def test_qos_sort(cluster):
    cluster.node("small", pods="3")
    amounts = {"cpu": "100m", "memory": "64Mi"}
    cluster.pod("best-effort")
    cluster.pod("burstable", cpu="100m")
    whole = {"name": "main", "image": "any", "resources": {"limits": amounts, "requests": amounts}}
    cluster.pod("guaranteed", spec={"containers": [whole]})
    cluster.pod("important", spec={"priorityClassName": "system-cluster-critical"})
    cluster.rules("use qos-sort\n")
    assert cluster.placed("important", "guaranteed", "burstable") == ["small"] * 3
    assert "Too many pods" in cluster.told("best-effort", "FailedScheduling")
    assert cluster.tried() == ["important", "guaranteed", "burstable", "best-effort"]


# ---- NetworkTraffic: {ip: "prometheus.kube-system:9090", deviceName: eth0, timeRange: 60} --------

TRAFFIC = "use network-traffic (device = eth0, range = 60m) weight 100\n"
RATE = 'use network-bandwidth (devices = "eth0", range = 1m) weight 100\n'
NOT_IDLE = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["idle"]}]}
        ]
    }
}
TELLS = 'postbind: event "traffic {{score[{}]}}"\n'


def test_network_traffic(cluster, prometheus, kubectl):
    exporter = prometheus.exporter
    # The exporters run in pods of their own: their addresses say nothing of the node.
    for number, name in enumerate(("busy", "some", "idle")):
        cluster.node(name)
        exporter.set_series("node_uname_info", 1, node=f"exporter-{number}", nodename=name)
    for number, received in enumerate((40, 10, 0)):
        exporter.set_gauge("node_network_receive_bytes_total", f"exporter-{number}", received)
    prometheus.wait_for("node_uname_info", {f"exporter-{number}" for number in range(3)})
    cluster.rules(
        TRAFFIC + TELLS.format("network-traffic"),
        "--prometheus-url", prometheus.url.removeprefix("http://"),
    )  # fmt: skip
    seen = has_samples(cluster, "idle")
    assert seen == "Policy: traffic 100"
    assert cluster.goes("second") == "idle"
    kubectl("cordon", "idle")
    # The sum grows with each scrape; that of a node is a quarter of the other's at any time.
    assert cluster.goes("third") == "some"
    assert 70 <= float(cluster.told("third", "traffic").rsplit(" ", 1)[1]) <= 80
    kubectl("uncordon", "idle")

    # Where nothing was received at all, no node is worse for it.
    for number in range(3):
        exporter.set_series(
            "node_network_receive_bytes_total", 0, node=f"exporter-{number}", device="eth1"
        )
    prometheus.wait_for('node_network_receive_bytes_total{device="eth1"}', {"exporter-2"})
    cluster.rules(TRAFFIC.replace("eth0", "eth1") + TELLS.format("network-traffic"))
    wait_until("a node has 100", lambda: score_of_a_pod(cluster) == 100.0)
    cluster.goes("busy-now", spec={"affinity": {"nodeAffinity": NOT_IDLE}})
    assert told_score(cluster, "busy-now") == 100.0


def test_network_bandwidth_forgets_what_was(cluster, prometheus):
    exporter = prometheus.exporter
    for number, name in enumerate(("was-busy", "is-busy")):
        cluster.node(name)
        exporter.set_series("node_uname_info", 1, node=f"e{number}", nodename=name)
        exporter.set_rate("node_network_transmit_bytes_total", f"e{number}", 0.0)
    exporter.set_gauge("node_network_receive_bytes_total", "e0", 1e15)
    exporter.set_rate("node_network_receive_bytes_total", "e1", 1e6)
    prometheus.wait_for("rate(node_network_receive_bytes_total[5s])", {"e0", "e1"})
    cluster.rules(RATE + TELLS.format("network-bandwidth"), "--prometheus-url", prometheus.url)
    assert has_samples(cluster, "was-busy") == "Policy: traffic 100"


def fresh(cluster):
    """The name of a pod that is not there yet."""
    cluster.made = getattr(cluster, "made", 0) + 1
    return f"probe-{cluster.made}"


def has_samples(cluster, best):
    """Pods go anywhere until the first answer is there; then to the best node."""

    def lands_there():
        cluster.probe = fresh(cluster)
        return cluster.goes(cluster.probe) == best and told_score(cluster, cluster.probe) == 100.0

    wait_until(f"{best} is best", lands_there)
    return cluster.told(cluster.probe, "traffic")


def told_score(cluster, name):
    """None where the policy had no say."""
    said = cluster.told(name, "traffic").rsplit(" ", 1)[1]
    return None if said == "<none>" else float(said)


def score_of_a_pod(cluster):
    name = fresh(cluster)
    cluster.goes(name)
    return told_score(cluster, name)


# ---- NodeResourcesAllocatable --------------------------------------------------------------------


def test_node_resources_allocatable(cluster):
    cluster.node("few-cores", cpu="4", memory="16Gi")
    cluster.node("middle", cpu="16", memory="32Gi")
    cluster.node("little-memory", cpu="64", memory="8Gi")
    use = "use node-resources-allocatable ({}) weight 100\n"
    cluster.rules(use.format("mode = least"))
    assert cluster.goes("least") == "few-cores"
    cluster.rules(use.format("mode = most"))
    assert cluster.goes("most") == "little-memory"
    cluster.rules(use.format("mode = least, cpu_weight = 1, memory_weight = 1000"))
    assert cluster.goes("least-memory") == "little-memory"


# ---- PodState ------------------------------------------------------------------------------------


def test_pod_state(cluster, control_plane):
    for name in ("a", "b", "c"):
        cluster.node(name)
    cluster.rules("use pod-state weight 100\n")
    cluster.leaving("goes-1", "b")
    assert cluster.goes("first") == "b"
    cluster.leaving("goes-2", "c")
    cluster.leaving("goes-3", "c")
    assert cluster.goes("second") == "c"
    # What is promised to others counts against a node.
    for number in range(3):
        name = f"promised-{number}"
        cluster.pod(name, spec={"schedulingGates": [{"name": "berth.dev/held"}]})
        promise = {"status": {"nominatedNodeName": "c"}}
        path = cluster.path("pods", f"{name}/status")
        assert control_plane.request("PATCH", path, promise)[0] == 200
    wait_until("the promises count", lambda: cluster.goes(fresh(cluster)) == "b")


# ---- beside every policy -------------------------------------------------------------------------


def test_a_pod_that_names_its_node_is_left_alone(cluster, control_plane):
    cluster.node("only", cpu="1")
    cluster.rules('filter: node.label test=test message "no match label"\n')
    cluster.pod("by-hand", cpu="800m", spec={"nodeName": "only"})
    cluster.pod("small", cpu="100m")
    cluster.told("small", "no match label")
    cluster.rules("filter: node.name is only\n")
    assert cluster.placed("small") == ["only"]
    # It is on the node, whoever put it there: its room is taken.
    cluster.pod("large", cpu="500m")
    assert cluster.told("large", "Insufficient cpu").startswith("FailedScheduling")
    bindings = control_plane.audit(verb="create", resource="pods", subresource="binding")
    assert "by-hand" not in [one["objectRef"]["name"] for one in bindings
                             if one["objectRef"]["namespace"] == cluster.namespace]  # fmt: skip
    assert not [note for note in cluster.notes("by-hand") if "Schedul" in note]


def test_affinity_and_anti_affinity_hold_beside_policies(cluster):
    for number in range(4):
        cluster.node(f"n{number}", {ZONE: f"z{number % 2}"})
    cluster.rules("prefer: node.name is n0 weight 100\nfilter: pod.cpu < 4\n")
    db = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE}
    web = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOST}

    def terms(term):
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    affinity = {"podAffinity": terms(db), "podAntiAffinity": terms(web)}
    cluster.pod("web-0", labels={"app": "web"}, spec={"affinity": affinity})
    cluster.told("web-0", "didn't match pod affinity rules")
    pinned = {"nodeSelector": {HOST: "n1"}}
    assert cluster.goes("db", labels={"app": "db"}, spec=pinned) == "n1"
    [first] = cluster.placed("web-0")
    second = cluster.goes("web-1", labels={"app": "web"}, spec={"affinity": affinity})
    assert {first, second} == {"n1", "n3"}, "one a node, in the zone of the database"
    cluster.pod("web-2", labels={"app": "web"}, spec={"affinity": affinity})
    cluster.told("web-2", "didn't match pod anti-affinity rules")
