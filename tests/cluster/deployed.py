"""What the manifests put into a cluster, and Berth with what its pods would be given."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import yaml

from tests.cluster import binaries, manifests
from tests.cluster.berth import Berth, pod
from tests.cluster.process import free_port, wait_until
from tests.cluster.scraping import get

ACCOUNTS = f"system:serviceaccount:{manifests.NAMESPACE}"
PODS = "/api/v1/namespaces/default/pods"


class Deployed:
    """What `berth install` puts into a cluster, and Berth with what its pods would be given."""

    def __init__(self, plane, folder, *more: str, webhook: bool = False, chart: str = "") -> None:
        """`chart` is put there instead of what `berth install` makes."""
        self.plane, self.folder = plane, folder
        of = "overlays/webhook" if webhook else "base"
        self.objects = manifests.objects(chart or manifests.kustomize(of))
        if chart:
            self.create("/api/v1/namespaces", {"metadata": {"name": manifests.NAMESPACE}})
            admin = f"--kubeconfig={plane.kubeconfig_file()}"
            command = [binaries.binary("kubectl"), admin, "apply", "-f", "-"]
            subprocess.run(command, input=chart, text=True, check=True, capture_output=True)
        else:
            self.install(*(["--webhook"] if webhook else []))
        self.folder.mkdir()
        config = folder / "config.yaml"
        config.write_text(self.named("ConfigMap", "berth-config")["data"]["config.yaml"])
        self.token = self.token_of("berth")
        kubeconfig = self.kubeconfig("berth")
        # Its own port may be taken on this machine.
        self.port = free_port()
        flags = (*self.arguments("berth", "run", self.port), *more)
        self.berth = Berth(plane, folder, *flags, kubeconfig=kubeconfig, whole=True)

    def arguments(self, deployment: str, command: str, port: int) -> list[str]:
        """The arguments of a container, but for its command, and where it listens here."""
        [container] = self.named("Deployment", deployment)["spec"]["template"]["spec"]["containers"]
        first, *flags = [a.replace("/etc/berth", str(self.folder)) for a in container["args"]]
        assert first == command
        listens = "--port" if command == "extender" else "--secure-port"
        return [*flags, f"{listens}={port}", "--bind-address=127.0.0.1"]

    def install(self, *flags: str) -> str:
        """`berth install` as admin; what it says."""
        admin = self.plane.kubeconfig_file()
        words = ["install", *flags, "--image=berth:any", "--kubeconfig", admin]
        done = subprocess.run(
            [sys.executable, "-m", "engine", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def named(self, kind: str, name: str = "berth") -> dict[str, Any]:
        [found] = [o for o in self.objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
        return found

    def kubeconfig(self, account: str):
        """With a token of a service account, as a pod has one, and no certificate."""
        config = self.plane.kubeconfig()
        config["users"] = [{"name": "user", "user": {"token": self.token_of(account)}}]
        path = self.folder / f"{account}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def token_of(self, account: str) -> str:
        """A token of a service account of its namespace."""
        path = f"/api/v1/namespaces/{manifests.NAMESPACE}/serviceaccounts/{account}/token"
        return str(self.create(path, {"spec": {}})["status"]["token"])

    def scraper(self) -> str:
        """The token of an account that may read /metrics and nothing else."""
        accounts = f"/api/v1/namespaces/{manifests.NAMESPACE}/serviceaccounts"
        self.create(accounts, {"metadata": {"name": "prometheus"}})
        rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        self.create(f"{rbac}/clusterroles", {"metadata": {"name": "scraper"}, "rules": [rule]})
        subject = {
            "kind": "ServiceAccount", "name": "prometheus", "namespace": manifests.NAMESPACE,
        }  # fmt: skip
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"}
        binding = {"metadata": {"name": "scraper"}, "roleRef": role, "subjects": [subject]}
        self.create(f"{rbac}/clusterrolebindings", binding)
        return self.token_of("prometheus")

    def shown(self, path: str, token: str = "") -> int:
        """The status with which Berth answers a GET; 0 if it does not."""
        try:
            return get(self.port, path, token=token)[0]
        except OSError:
            return 0

    def rules(self, **texts: str) -> None:
        """These are the policies from now on."""
        path = f"/api/v1/namespaces/{manifests.NAMESPACE}/configmaps/policies"
        _, config_map = self.plane.request("GET", path)
        config_map["data"] = {f"{name}.policy": text for name, text in texts.items()}
        assert self.plane.request("PUT", path, config_map)[0] == 200

    def create(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        status, answer = self.plane.request("POST", path, item)
        assert status == 201, answer
        return answer

    def pod(self, name: str, *, priority: str = "", claim: str = "", **requests: str) -> None:
        item = pod(name, "default", **requests)
        item["spec"] |= {"priorityClassName": priority} if priority else {}
        if claim:
            volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
            item["spec"]["volumes"] = [volume]
        self.create(PODS, item)

    def node_of(self, name: str) -> str | None:
        return self.plane.request("GET", f"{PODS}/{name}")[1]["spec"].get("nodeName")

    def did(self, account: str = "berth") -> dict[tuple[str, str, str], set[int]]:
        """What an account asked the API server for, and the answers: (group, resource, verb)."""
        found: dict[tuple[str, str, str], set[int]] = {}
        for entry in self.plane.audit():
            if (
                entry["user"]["username"] != f"{ACCOUNTS}:{account}"
                or entry["stage"] == "RequestReceived"
            ):
                continue
            of = entry.get("objectRef")
            if of is not None:
                name = "/".join(filter(None, (of["resource"], of.get("subresource"))))
                asked = (of.get("apiGroup", ""), name, entry["verb"])
                found.setdefault(asked, set()).add(entry["responseStatus"]["code"])
        return found

    def flow_of(self, path: str) -> str | None:
        """Which FlowSchema the API server put a request of the service account under."""
        request = urllib.request.Request(self.plane.url + path)
        request.add_header("Authorization", f"Bearer {self.token}")
        tls = ssl.create_default_context(cafile=str(self.plane.authority.certificate))
        try:
            answer = urllib.request.urlopen(request, timeout=10, context=tls)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            return answer.headers["X-Kubernetes-PF-FlowSchema-UID"]

    def wait_for(self, group: str, resource: str, verb: str) -> None:
        def done() -> bool:
            codes = self.did().get((group, resource, verb), set())
            return any(code < 300 for code in codes)

        wait_until(f"{verb} {resource}\n{self.berth.process.tail()}", done)
