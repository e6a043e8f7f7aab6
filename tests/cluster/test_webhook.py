"""The admission webhook on a real API server, deployed by its manifests: what kubectl is told."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from engine.cli import main
from engine.configuration.berth import PoliciesSection
from engine.webhook.process import webhooks
from tests.cluster import binaries, manifests
from tests.cluster.berth import node
from tests.cluster.certificates import Authority
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployed import Deployed
from tests.cluster.process import Process, free_port, wait_until
from tests.cluster.scraping import get
from tests.cluster.test_deployed import allowed

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("needs_programs")]

NAME = "berth-webhook"
OF = f"/api/v1/namespaces/{manifests.NAMESPACE}"
CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}"
GOOD = "filter: pod.name contains nginx -> node.label test=test\n"
BROKEN = "filter: pod.name contains nginx -> node.lable test=test\n"
WARNS = GOOD + GOOD


class Hook:
    """A deployed Berth, its webhook, and somebody with kubectl."""

    def __init__(self, plane, folder):
        self.plane = plane
        self.deployed = Deployed(plane, folder, webhook=True)
        self.log = folder / "webhook.log"
        self.log.write_text("")
        self.port = free_port()
        # No kube-proxy is here that would know the Service.
        self.listens(f"--url=https://127.0.0.1:{self.port}")

    def listens(self, *where):
        kubeconfig = self.deployed.kubeconfig(NAME)
        flags = self.deployed.arguments(NAME, "webhook", self.port)
        words = ["webhook", *flags, *where, f"--kubeconfig={kubeconfig}"]
        self.command = [sys.executable, "-m", "engine", *words]

    def start(self, *flags, until="Serving the certificate"):
        self.process = Process("webhook", [*self.command, *flags], self.log)
        self.process.start()
        self.wait_for_log(until, self.log.read_text().count(until) + 1)

    def wait_for_log(self, text, count=1):
        wait_until(
            f"{text!r} in the webhook's log:\n{self.process.tail()}",
            lambda: self.log.read_text().count(text) >= count,
            seconds=90.0,
        )

    def apply(
        self, text, *flags,
        name="policies", namespace=manifests.NAMESPACE, key="a.policy", labels=(),
    ):  # fmt: skip
        """`kubectl apply`: exit code and what it prints on stderr."""
        meta = {"name": name, "namespace": namespace}
        meta["labels"] = dict(label.split("=") for label in labels)
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {key: text}}
        return self.kubectl("apply", "--filename=-", *flags, stdin=json.dumps(manifest))

    def kubectl(self, *arguments, stdin=None):
        program, admin = binaries.binary("kubectl"), self.plane.kubeconfig_file()
        done = subprocess.run(
            [str(program), f"--kubeconfig={admin}", *arguments],
            input=stdin, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stderr

    def in_cluster(self):
        return self.plane.request("GET", f"{OF}/configmaps/policies")[1]["data"]

    def configured(self):
        return self.plane.request("GET", CONFIGURATION)[1].get("webhooks", [])

    def trusted(self):
        return [one["clientConfig"]["caBundle"] for one in self.configured()]


@pytest.fixture(scope="module")
def hook(tmp_path_factory):
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    made = None
    try:
        plane.start()
        made = Hook(plane, tmp_path_factory.mktemp("webhook") / "berth")
        made.start()
        wait_until("the API server asks", lambda: made.apply(BROKEN, "--dry-run=server")[0] != 0)
        yield made
    finally:
        if made is not None:
            made.process.stop(seconds=5)
            made.deployed.berth.process.stop(seconds=5)
        plane.stop()


def test_a_broken_policy_is_refused_with_what_check_prints(hook, tmp_path):
    assert hook.apply(GOOD)[0] == 0
    code, said = hook.apply(BROKEN)
    assert code == 1
    (tmp_path / "a.policy").write_text(BROKEN)
    printed = CliRunner().invoke(main, ["check", str(tmp_path / "a.policy")]).stdout
    assert "^^^^" in printed
    assert printed.replace(f"{tmp_path}/", "") in said
    assert 'admission webhook "policies.berth.dev" denied the request' in said
    assert hook.in_cluster()["a.policy"] == GOOD
    assert hook.apply(BROKEN, "--dry-run=server")[0] == 1


def test_a_good_one_passes_and_what_is_odd_is_a_warning(hook):
    code, said = hook.apply("# nothing\n")
    assert (code, "berth" in said) == (0, False), said
    code, said = hook.apply(WARNS)
    assert code == 0
    assert "Warning: a.policy:2:" in said
    assert hook.in_cluster()["a.policy"] == WARNS
    code, said = hook.kubectl("delete", "configmap", "policies", f"-n={manifests.NAMESPACE}")
    assert code == 0
    assert "its rules stay in force" in said
    code, said = hook.apply("x", key="readme")
    assert (code, "has no file whose name ends in .policy; it has readme" in said) == (1, True)
    assert hook.apply(GOOD)[0] == 0


def test_no_other_config_map_is_asked_about(hook):
    before = hook.log.read_text().count("Checked")
    hook.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    assert hook.apply(BROKEN, name="elsewhere")[0] == 0
    assert hook.apply(BROKEN, namespace="elsewhere")[0] == 0
    assert hook.apply(BROKEN + "# anew\n", namespace="elsewhere")[0] == 0
    assert hook.apply(GOOD + "# anew\n")[0] == 0
    hook.wait_for_log("Checked", before + 1)
    assert hook.log.read_text().count("Checked") == before + 1


def test_a_certificate_that_is_lost_is_made_anew(hook):
    [first] = hook.trusted()
    served = hook.log.read_text().count("Serving the certificate")
    path = f"{OF}/secrets/{NAME}"
    assert hook.plane.request("PATCH", path, {"data": None})[0] == 200
    wait_until("a new one is trusted", lambda: hook.trusted() != [first], seconds=90)
    hook.wait_for_log("Serving the certificate", served + 1)
    code, said = hook.apply(BROKEN)
    assert (code, "denied the request" in said) == (1, True)


def test_its_metrics_are_shown_to_those_who_may(hook):
    token = hook.deployed.scraper()
    wait_until("the scraper may", lambda: get(hook.port, "/metrics", token=token)[0] == 200)
    assert get(hook.port, "/metrics")[0] == 403
    text = get(hook.port, "/metrics", token=token)[1]
    ends = re.search(r"^berth_webhook_certificate_expiration_timestamp_seconds (\S+)", text, re.M)
    assert float(ends[1]) > time.time()


def test_its_role_allows_what_it_does_and_nothing_else(hook):
    own = [one for one in hook.deployed.objects if one["metadata"]["name"] == NAME]
    did = hook.deployed.did(NAME)
    assert {asked for asked, codes in did.items() if 403 in codes} == set()
    assert set(did) == allowed(own)
    rules = [rule for one in own for rule in one.get("rules", ()) if "resourceNames" not in rule]
    others = {(*rule["resources"], *rule["verbs"]) for rule in rules}
    reviews = {(f"{kind}reviews", "create") for kind in ("token", "subjectaccess")}
    assert others == reviews, "every other rule is about objects by their names"


def test_with_the_webhook_down_all_is_let_in_and_the_scheduler_keeps_the_old_rules(hook):
    deployed = hook.deployed
    assert hook.apply(GOOD)[0] == 0
    deployed.create("/api/v1/nodes", node("plain", cpu="4"))
    deployed.create("/api/v1/nodes", node("labelled", {"test": "test"}, cpu="4"))
    deployed.berth.start()
    assert hook.process.stop() == 0, hook.process.tail()
    assert hook.apply(BROKEN)[0] == 0
    deployed.berth.wait_for_log("ConfigMap berth-system/policies was refused: a.policy:1:")
    for number in range(3):
        deployed.pod(f"nginx-{number}", cpu="100m")
        wait_until("it is placed", lambda n=number: deployed.node_of(f"nginx-{n}") is not None)
        assert deployed.node_of(f"nginx-{number}") == "labelled"
    hook.start()
    wait_until(
        "the webhook is asked again",
        lambda: hook.apply(BROKEN + "# again\n", "--dry-run=server")[0] == 1,
    )


def test_a_certificate_of_others_is_served_and_trusted(hook, tmp_path):
    assert hook.process.stop() == 0
    authority = Authority(tmp_path / "authority")
    pair = authority.server("webhook")
    files = (f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}")
    hook.start(*files, f"--ca-file={authority.certificate}", until="The API server now asks")
    [trusted] = hook.trusted()
    assert base64.b64decode(trusted) == authority.certificate.read_bytes()
    assert hook.apply(GOOD)[0] == 0
    wait_until("it is asked", lambda: hook.apply(BROKEN, "--dry-run=server")[0] == 1)


SERVICES = "127.0.8.0/24"
"""Addresses of Services that this machine has itself, as no kube-proxy is here."""


@pytest.fixture
def by_service(tmp_path):
    """A webhook that the API server finds by its Service, of sources of all kinds."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.8.1", 443))
        except OSError as why:
            pytest.skip(f"a Service has the port 443, which nobody may listen on here: {why}")
    flags = (f"--service-cluster-ip-range={SERVICES}",)
    plane, made = ControlPlane(tmp_path / "control-plane", apiserver_flags=flags), None
    try:
        plane.start()
        made = Hook(plane, tmp_path / "berth")
        policies = {
            "sources": [{"selector": "berth=policy", "namespace": "teams"}],
            "tenants": {"configMap": "berth-policies", "namespaces": ["team-*"]},
        }
        document = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration"}
        config = made.deployed.folder / "config.yaml"
        config.write_text(json.dumps(document | {"policies": policies}))
        for name in ("teams", "team-red", "elsewhere"):
            made.deployed.create("/api/v1/namespaces", {"metadata": {"name": name}})
        # As the chart allows it for such sources.
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
        made.deployed.create(f"{rbac}/clusterroles", {"metadata": {"name": "x"}, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}
        account = {"kind": "ServiceAccount", "name": NAME, "namespace": manifests.NAMESPACE}
        bound = {"metadata": {"name": "x"}, "roleRef": role, "subjects": [account]}
        made.deployed.create(f"{rbac}/clusterrolebindings", bound)
        address = plane.request("GET", f"{OF}/services/{NAME}")[1]["spec"]["clusterIP"]
        made.port = 443
        made.listens(f"--bind-address={address}")
        made.start()
        yield made
    finally:
        if made is not None:
            made.process.stop(seconds=5)
        plane.stop()


def test_it_is_found_by_its_service_for_namespaces_own_policies_and_for_selected_ones(by_service):
    def apply(text, name, namespace, *labels):
        said = by_service.apply(text, name=name, namespace=namespace, labels=labels)
        return said[0], "^^^^" in said[1]

    assert all("service" in one["clientConfig"] for one in by_service.configured())
    wait_until(
        "the API server asks", lambda: apply(BROKEN, "berth-policies", "team-red") == (1, True)
    )
    assert apply(GOOD, "berth-policies", "team-red") == (0, False)
    assert apply(BROKEN, "others", "team-red") == (0, False)
    assert apply(BROKEN, "berth-policies", "elsewhere") == (0, False)
    assert apply(BROKEN, "any", "teams", "berth=policy") == (1, True)
    assert apply(GOOD, "any", "teams", "berth=policy") == (0, False)
    assert apply(BROKEN, "other", "teams", "berth=none") == (0, False)
    assert apply(BROKEN, "other", "teams", "berth=policy") == (1, True)


def test_what_is_written_for_all_kinds_of_sources_is_taken(hook):
    sources = [
        {"configMap": "a/b"},
        {"configMap": "c.d/e"},
        {"selector": "x=1,!old,team in (r, g),stage!=dev,y", "namespace": "teams"},
    ]
    tenants = {"configMap": "berth-policies", "namespaces": ["team-a", "dev-*", "x[!12]?"]}
    policies = PoliciesSection.model_validate({"sources": sources, "tenants": tenants})
    made = {"metadata": {"name": "all"}, "webhooks": webhooks(policies, {"url": "https://x/"})}
    path = f"{CONFIGURATION.rpartition('/')[0]}?dryRun=All"
    status, answer = hook.plane.request("POST", path, made)
    assert status == 201, answer
