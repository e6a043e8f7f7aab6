"""`berth install --dry-run`: the manifests of the base, where and of what image is asked."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from engine.cli import main
from engine.embedded import EmbeddedCluster
from engine.kube.resources import KINDS

FOLDER = Path(__file__).parents[3] / "deploy/kustomize"
MONITORING = FOLDER / "components/prometheus-operator/monitoring.yaml"


def printed(*flags: str) -> list[dict]:
    done = CliRunner().invoke(main, ["install", "--dry-run", *flags])
    assert done.exit_code == 0, done.output
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of(*names: str) -> list[dict]:
    texts = [(FOLDER / name).read_text("utf-8") for name in names]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ((), ()),
        (("--monitoring",), ("components/prometheus-operator/monitoring.yaml",)),
        (("--webhook",), ("components/webhook/webhook.yaml",)),
    ],
)
def test_the_same_as_kustomize(flags, names):
    assert printed(*flags) == of("base/namespace.yaml", "base/berth.yaml", *names)


def test_another_image_and_namespace():
    asked = ("--image", "registry.example/berth@sha256:1", "--namespace", "batch")
    found = printed("--webhook", *asked)
    deployments = [one for one in found if one["kind"] == "Deployment"]
    assert len(deployments) == 2
    for deployment in deployments:
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == "registry.example/berth@sha256:1"
    assert "berth-system" not in yaml.safe_dump_all(found)
    assert {one["metadata"].get("namespace", "batch") for one in found} == {"batch"}


@pytest.mark.parametrize("namespace", ["123", "on", "null"])
def test_a_namespace_that_yaml_takes_for_something_else_is_a_name(namespace):
    found = printed("--webhook", "--monitoring", "--namespace", namespace)
    assert {one["metadata"].get("namespace", namespace) for one in found} == {namespace}
    assert found[0]["metadata"]["name"] == namespace
    [text] = [one["data"]["config.yaml"] for one in found if "config.yaml" in one.get("data", {})]
    scheduler, _ = yaml.safe_load_all(text)
    assert scheduler["leaderElection"]["resourceNamespace"] == namespace


@pytest.mark.parametrize("image", ["registry.example/berth-system/berth:1", "-", "[::1]:5000/b #1"])
def test_an_image_is_taken_as_it_is_written(image):
    found = printed("--image", image, "--namespace", "batch")
    [one] = [one for one in found if one["kind"] == "Deployment"]
    [container] = one["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image


@pytest.mark.parametrize("image", [[], ["--image", ""]])
def test_an_image_that_no_node_can_pull_is_not_put_into_a_cluster(image):
    done = CliRunner().invoke(main, ["install", *image])
    assert done.exit_code == 2
    assert "--image is required" in done.output


def test_a_namespace_that_no_cluster_can_have_is_refused():
    done = CliRunner().invoke(main, ["install", "--dry-run", "--namespace", "My NS"])
    assert done.exit_code == 2
    assert "'My NS' is not a namespace name" in done.output


def test_the_role_has_every_kind_that_is_watched():
    [role] = [one for one in printed() if one["kind"] == "ClusterRole"]
    may = {
        (group, resource)
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    paths = [kind.path.split("/") for kind in KINDS]
    watched = {("" if path[1] == "api" else path[2], path[-1]) for path in paths}
    assert watched <= may


def test_what_a_cluster_lacks_or_refuses_is_named(tmp_path):
    async def run():
        cluster = EmbeddedCluster(nodes=0)
        await cluster.start()
        try:
            path = tmp_path / "kubeconfig"
            path.write_text(json.dumps(cluster.kubeconfig()))
            words = ["install", "--image=x", "--monitoring", "--kubeconfig", str(path)]
            return await asyncio.to_thread(CliRunner().invoke, main, words)
        finally:
            await cluster.stop()

    done = asyncio.run(run())
    assert done.exit_code == 1
    assert re.search(r"Error: \w+/[\w-]+: (this cluster has no \w+ \(|4\d\d )", done.output)


@pytest.mark.parametrize("plural", ["clusterrolebindings", "configmaps"])
def test_what_cannot_be_looked_at_is_not_taken_for_absent(plural, tmp_path):
    """A server in trouble: nobody's rights are taken over, and no policies are written anew."""
    written = []

    class InTrouble(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(503 if f"/{plural}/" in self.path else 404)

        def do_PATCH(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            written.append(self.path.partition("?")[0])
            self.answer(200)

        def answer(self, status):
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), InTrouble) as server:
        threading.Thread(target=server.serve_forever).start()
        kubeconfig = EmbeddedCluster(nodes=0, port=server.server_port).kubeconfig()
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(kubeconfig))
        done = CliRunner().invoke(main, ["install", "--image=x", "--kubeconfig", str(path)])
        server.shutdown()
    assert done.exit_code == 1
    assert "503" in done.stderr
    names = [one.rpartition("/")[2] for one in written]
    assert "policies" not in names
    assert bool(names) is (plural == "configmaps"), "asked for before anything is written"
