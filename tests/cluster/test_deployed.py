"""Berth as its manifests deploy it: as that service account, with RBAC on, and nothing unused."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from engine.cli import main
from engine.serving.server import ServerOptions
from tests.cluster import manifests
from tests.cluster.berth import node, pod
from tests.cluster.certificates import Authority
from tests.cluster.cluster import CRDS, defined
from tests.cluster.deployed import Deployed
from tests.cluster.process import Process, free_port, wait_until
from tests.cluster.scraping import get

pytestmark = pytest.mark.cluster

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{manifests.NAMESPACE}/leases"
#: What the roles allow for kinds that this server does not have.
ABSENT = {
    ("scheduling.k8s.io", "podgroups", "watch"),
    ("scheduling.x-k8s.io", "elasticquotas", "watch"),
}


@pytest.fixture
def deployed(fresh_control_plane, tmp_path):
    made = Deployed(fresh_control_plane, tmp_path / "berth")
    yield made
    made.berth.process.stop(seconds=5)


def allowed(objects) -> set[tuple[str, str, str]]:
    """What the roles of the manifests allow."""
    return {
        (group, resource, verb)
        for one in objects
        if one["kind"] in ("ClusterRole", "Role")
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_roles_allow_what_is_done_and_nothing_else(deployed):
    berth = deployed.berth
    deployed.create("/api/v1/nodes", node("a", cpu="2"))
    for name, value in (("low", 1), ("high", 1000)):
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        deployed.create(path, {"metadata": {"name": name}, "value": value})
    deployed.create(CRDS, defined("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"))
    groups = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
    wait_until("pod groups are there", lambda: deployed.plane.request("GET", groups)[0] == 200)
    # Who leads does not watch the lease, so it follows another until that one gives it up.
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 3600}
    lease = deployed.create(LEASES, {"metadata": {"name": "berth"}, "spec": spec})
    berth.start()
    deployed.wait_for("coordination.k8s.io", "leases", "watch")
    given_up = lease | {"spec": {"leaseDurationSeconds": 1}}
    assert deployed.plane.request("PUT", f"{LEASES}/berth", given_up)[0] == 200
    deployed.pod("small", priority="low", cpu="2")
    wait_until("the first is bound", lambda: deployed.node_of("small") == "a")
    deployed.pod("important", priority="high", cpu="1")
    wait_until("one makes room", lambda: deployed.node_of("important") == "a")
    volumes(deployed)
    repeated_events(deployed)
    an_unclear_binding(deployed)
    for verb in ("create", "patch"):
        deployed.wait_for("", "configmaps", verb)
    deployed.wait_for("coordination.k8s.io", "leases", "update")
    deployed.plane.request("DELETE", f"{LEASES}/berth")
    deployed.wait_for("coordination.k8s.io", "leases", "create")
    assert deployed.shown("/metrics", deployed.scraper()) == 200
    may = allowed(deployed.objects)
    did = deployed.did()
    assert {asked for asked, codes in did.items() if 403 in codes} == set()
    assert set(did) - may == set()
    assert may - set(did) == ABSENT
    assert berth.end() == 0, berth.process.tail()
    assert "forbidden" not in berth.log.read_text()


def volumes(deployed) -> None:
    """A volume that is there is given to one claim, and a node chosen for another."""
    late = {"provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer"}
    deployed.create(CLASSES, {"metadata": {"name": "late"}, **late})
    none = late | {"provisioner": "kubernetes.io/no-provisioner"}
    deployed.create(CLASSES, {"metadata": {"name": "static"}, **none})
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "static"}
    disk = {"capacity": {"storage": "1Gi"}, "csi": {"driver": "example.com", "volumeHandle": "v"}}
    deployed.create(
        "/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": {**spec, **disk}}
    )
    path = "/api/v1/persistentvolumes/v"
    _, volume = deployed.plane.request("GET", path)
    deployed.plane.request("PUT", f"{path}/status", volume | {"status": {"phase": "Available"}})
    for name in ("static", "late"):
        wanted = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": name}
        deployed.create(CLAIMS, {"metadata": {"name": name}, "spec": {**spec, **wanted}})
        deployed.pod(name, claim=name, cpu="10m")
    for resource in ("persistentvolumes", "persistentvolumeclaims"):
        deployed.wait_for("", resource, "patch")


def repeated_events(deployed) -> None:
    """A pod that a policy refuses is told so again, in the same words, after an edit."""
    for number in range(2):
        deployed.rules(never=f"filter: pod.name is never -> node.label no=where\n# {number}\n")
        deployed.berth.wait_for_log("Policies in force", count=number + 2)
        if not number:
            deployed.pod("never", cpu="1m")
            deployed.wait_for("", "pods/status", "patch")
    deployed.wait_for("events.k8s.io", "events", "patch")


def an_unclear_binding(deployed) -> None:
    """A hook that cannot be reached makes bindings fail with 500, and Berth asks what became."""
    rule = {
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods/binding"],
    }  # fmt: skip
    hook = {
        "name": "away.example.com", "rules": [rule], "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "admissionReviewVersions": ["v1"],
    }  # fmt: skip
    deployed.create(HOOKS, {"metadata": {"name": "away"}, "webhooks": [hook]})
    # The API server takes a moment to know the hook: pods until one binding has met it.
    number = 0

    def asked() -> bool:
        nonlocal number
        number += 1
        if number % 20 == 1:
            deployed.pod(f"unclear-{number}", cpu="1m")
        return ("", "pods", "get") in deployed.did()

    wait_until("a binding without a clear answer is asked about", asked)
    deployed.plane.request("DELETE", f"{HOOKS}/away")
    wait_until("it is bound in the end", lambda: deployed.node_of("unclear-1") is not None)


def test_probes_are_answered_and_metrics_are_for_those_who_may(deployed):
    [container] = deployed.named("Deployment")["spec"]["template"]["spec"]["containers"]
    probes = {
        name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    assert {probe["scheme"] for probe in probes.values()} == {"HTTPS"}
    assert [port["containerPort"] for port in container["ports"]] == [ServerOptions().port]
    broken = {"none.policy": "filter: node.lable x=y\n"}
    deployed.rules(none=broken["none.policy"])
    deployed.berth.start("was refused")
    wait_until("it lives", lambda: deployed.shown(probes["startup"]["path"]) == 200)
    assert deployed.shown(probes["liveness"]["path"]) == 200
    assert deployed.shown(probes["readiness"]["path"]) == 500, "no rules are in force"
    deployed.rules(none="# none\n")
    wait_until("it is ready", lambda: deployed.shown(probes["readiness"]["path"]) == 200)
    scraper = deployed.scraper()
    wait_until("the scraper may", lambda: deployed.shown("/metrics", scraper) == 200)
    assert deployed.shown("/metrics") == 403
    assert deployed.shown("/metrics", "nonsense") == 401
    assert deployed.shown("/metrics", deployed.token) == 403
    assert deployed.shown("/statusz", scraper) == 403


def test_an_install_again_leaves_the_policies_alone(deployed):
    path = f"/api/v1/namespaces/{manifests.NAMESPACE}/configmaps/policies"
    _, own = deployed.plane.request("GET", path)
    own["data"] = {"own.policy": "score: 50\n"}
    assert deployed.plane.request("PUT", path, own)[0] == 200
    said = deployed.install()
    assert "configmap/policies is left as it is" in said
    assert "deployment/berth applied" in said
    assert deployed.plane.request("GET", path)[1]["data"] == own["data"]


def test_an_install_elsewhere_does_not_take_the_rights_of_this_one(deployed):
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/berth"
    before = deployed.plane.request("GET", path)[1]
    kubeconfig = str(deployed.plane.kubeconfig_file())
    words = ["install", "--namespace=elsewhere", "--image=berth:any", "--kubeconfig", kubeconfig]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert f"the Berth in namespace {manifests.NAMESPACE}, which would lose them" in done.output
    assert deployed.plane.request("GET", path)[1] == before
    assert deployed.plane.request("GET", "/api/v1/namespaces/elsewhere")[0] == 404


def test_the_service_account_has_a_level_of_its_own_at_the_api_server(deployed):
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{manifests.NAMESPACE}/leases/berth"
    for path, wanted in (("/api/v1/nodes", "berth"), (lease, "berth-leader-election")):
        url = f"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{wanted}"
        uid = deployed.plane.request("GET", url)[1]["metadata"]["uid"]

        def asked(path=path, uid=uid) -> bool:
            return deployed.flow_of(path) == uid

        wait_until(f"{path} is asked for under {wanted}", asked)


def test_the_extender_of_the_chart_reads_and_does_nothing_else(fresh_control_plane, tmp_path):
    folder, plane = tmp_path / "berth", fresh_control_plane
    values = "extender.enabled=true,extender.certificateSecret=any,replicas=0"
    deployed = Deployed(plane, folder, chart=manifests.template(f"--set={values}"))
    tls = Authority(tmp_path / "berth-tls")
    pair, stock = tls.server("tls"), tls.client("kube-scheduler")
    assert pair.certificate.parent == tmp_path / "berth-tls", "where the chart mounts it"
    deployed.create("/api/v1/nodes", node("a", {"test": "test"}))
    deployed.create("/api/v1/nodes", node("b"))
    deployed.rules(nginx="filter: pod.name contains nginx -> node.label test=test\n")
    account = "berth-extender"
    deployed.port = port = free_port()
    arguments = deployed.arguments(account, "extender", port)
    command = [sys.executable, "-m", "engine", "extender", *arguments]
    command += [f"--kubeconfig={deployed.kubeconfig(account)}"]
    process = Process("berth extender", command, folder / "extender.log")
    process.start()
    try:
        wait_until("it is ready", lambda: deployed.shown("/readyz") == 200, seconds=60)
        question = {"Pod": pod("nginx", "default"), "NodeNames": ["a", "b"]}
        assert get(port, "/filter", asks=question)[0] == 401, "without a certificate"
        status, text = get(port, "/filter", asks=question, pair=stock)
        assert (status, json.loads(text)["NodeNames"]) == (200, ["a"])
        assert get(port, "/metrics", token=deployed.scraper())[0] == 200
    finally:
        assert process.stop() == 0
    own = [one for one in deployed.objects if one["metadata"]["name"] == account]
    did, may = deployed.did(account), allowed(own)
    assert {asked for asked, codes in did.items() if 403 in codes} == set()
    assert set(did) - may == set()
    assert {verb for _, _, verb in did} == {"get", "list", "watch", "create"}
    absent = {("scheduling.x-k8s.io", "podgroups", "watch")}
    assert may - set(did) == ABSENT | absent
