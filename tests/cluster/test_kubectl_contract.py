"""What people do with kubectl, on the embedded cluster and on the real one alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.wire import Finished, Wire

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("needs_programs")]

Run = Callable[..., str]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: a}}
spec: {schedulerName: nobody, containers: [{name: main, image: "registry.example/app:1"}]}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {key: %s}
"""


@pytest.fixture
def run(api: Wire, tmp_path: Path) -> Run:
    """kubectl in the test's namespace; returns what it printed."""
    cache = tmp_path / "kubectl-cache"
    command = [
        *(str(binaries.binary("kubectl")), f"--kubeconfig={api.kubeconfig}"),
        *(f"--namespace={api.namespace}", f"--cache-dir={cache}"),
    ]

    def run(*arguments: str, stdin: str = "", fails: bool = False) -> str:
        done: Finished = api.command(*command, *arguments, stdin=stdin)
        assert (done.code != 0) is fails, done
        return done.err if fails else done.out

    return run


def test_create_get_delete(run: Run) -> None:
    assert run("create", "-f", "-", stdin=POD) == "pod/p created\n"
    header, row = run("get", "pods").splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["p", "0/1", "Pending", "0"]
    assert "NODE" in run("get", "pods", "-o", "wide").splitlines()[0].split()
    assert run("get", "pods", "-o", "name") == "pod/p\n"
    assert json.loads(run("get", "pod", "p", "-o", "json"))["spec"]["schedulerName"] == "nobody"
    again = run("create", "-f", "-", stdin=POD, fails=True)
    assert 'pods "p" already exists' in again
    run("delete", "pod", "p", "--grace-period=0", "--force")
    missing = run("get", "pod", "p", fails=True)
    assert missing == 'Error from server (NotFound): pods "p" not found\n'


def test_delete_waits_for_the_end(run: Run) -> None:
    run("create", "-f", "-", stdin=POD)
    run("delete", "pod", "p")
    assert "not found" in run("get", "pod", "p", fails=True)


@pytest.mark.parametrize(
    "kind",
    [
        "apps/v1 Deployment",
        "policy/v1 PodDisruptionBudget",
        "coordination.k8s.io/v1 Lease",
        "storage.k8s.io/v1 StorageClass",
        "v1 ConfigMap",
    ],
)
def test_kinds_are_applied_described_and_deleted(run: Run, kind: str) -> None:
    version, name = kind.split()
    item = {"apiVersion": version, "kind": name, "metadata": {"name": f"of-{name.lower()}"}}
    labels, main = {"matchLabels": {"app": "a"}}, {"name": "main", "image": "registry.example/a"}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [main]}}
    more = {
        "Deployment": {"spec": {"replicas": 0, "selector": labels, "template": template}},
        "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": labels}},
        "StorageClass": {"provisioner": "example.com/disk"},
    }
    text = json.dumps({**item, **more.get(name, {})})
    assert run("apply", "-f", "-", stdin=text).endswith(" created\n")
    item["metadata"]["annotations"] = {"why": "because"}
    text = json.dumps({**item, **more.get(name, {})})
    assert run("apply", "-f", "-", stdin=text).endswith(" configured\n")
    assert f"of-{name.lower()}" in run("describe", name, f"of-{name.lower()}")
    run("wait", name, f"of-{name.lower()}", "--for=jsonpath={.metadata.annotations.why}=because")
    assert "deleted" in run("delete", "-f", "-", stdin=text)
    assert "NotFound" in run("get", name, f"of-{name.lower()}", fails=True)


def test_replace(run: Run) -> None:
    run("create", "-f", "-", stdin=CONFIG % "one")
    assert run("replace", "-f", "-", stdin=CONFIG % "two") == "configmap/c replaced\n"
    assert run("get", "configmap", "c", "-o", "jsonpath={.data.key}") == "two"


def test_a_config_map_from_files(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "spread.policy"
    file.write_text("policy spread\n")
    assert run("create", "configmap", "c", f"--from-file={file}") == "configmap/c created\n"
    data = json.loads(run("get", "configmap", "c", "-o", "jsonpath={.data}"))
    assert data == {"spread.policy": "policy spread\n"}


def test_label_and_annotate(run: Run) -> None:
    run("create", "-f", "-", stdin=POD)
    assert run("label", "pod", "p", "tier=web") == "pod/p labeled\n"
    assert "already has a value" in run("label", "pod", "p", "tier=db", fails=True)
    run("label", "pod", "p", "app-")
    run("annotate", "pod", "p", "why=because")
    metadata = json.loads(run("get", "pod", "p", "-o", "jsonpath={.metadata}"))
    assert metadata["labels"] == {"tier": "web"}
    assert metadata["annotations"] == {"why": "because"}
    assert run("get", "pods", "-l", "tier in (web),!app", "-o", "name") == "pod/p\n"


def test_patch(run: Run) -> None:
    run("create", "-f", "-", stdin=CONFIG % "one")
    merge = json.dumps({"data": {"key": "two", "more": "x"}})
    assert run("patch", "configmap", "c", "--type=merge", "-p", merge) == "configmap/c patched\n"
    assert run("get", "configmap", "c", "-o", "jsonpath={.data.key}") == "two"


def test_a_kind_that_is_not_served_is_named(run: Run) -> None:
    wanted = {"apiVersion": "none.example/v1", "kind": "Nothing", "metadata": {"name": "x"}}
    said = run("apply", "-f", "-", stdin=json.dumps(wanted), fails=True)
    assert 'no matches for kind "Nothing" in version "none.example/v1"' in said


def test_tables_of_the_cluster(run: Run, api: Wire) -> None:
    api.create_node("kubectl-node")
    assert run("get", "node", "kubectl-node").splitlines()[0].split() == [
        *("NAME", "STATUS", "ROLES", "AGE", "VERSION")
    ]
    assert run("get", "namespace", "default").splitlines()[1].split()[0] == "default"
    run("create", "-f", "-", stdin=CONFIG % "one")
    assert run("get", "configmap", "c").splitlines()[1].split()[0] == "c"
    assert run("cordon", "kubectl-node") == "node/kubectl-node cordoned\n"
    assert "SchedulingDisabled" in run("get", "node", "kubectl-node")


def test_events_of_a_pod(run: Run, api: Wire) -> None:
    run("create", "-f", "-", stdin=POD)
    uid = run("get", "pod", "p", "-o", "jsonpath={.metadata.uid}")
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": api.namespace, "name": "p", "uid": uid},
        "reason": "FailedScheduling",
        "message": "0/1 nodes are available",
        "type": "Warning",
    }
    api.create("events", event)
    row = run("get", "events").splitlines()[1].split()
    assert row[1:4] == ["Warning", "FailedScheduling", "pod/p"]
    assert "0/1 nodes are available" in run("describe", "pod", "p")


def test_get_watch(run: Run, api: Wire, tmp_path: Path) -> None:
    run("create", "-f", "-", stdin=POD)

    async def watch() -> list[bytes]:
        program = str(binaries.binary("kubectl"))
        child = await asyncio.create_subprocess_exec(
            program,
            *(f"--kubeconfig={api.kubeconfig}", f"--namespace={api.namespace}"),
            *(f"--cache-dir={tmp_path}", "get", "pods", "-o", "wide", "--watch"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        try:
            async with asyncio.timeout(20):
                lines = [await child.stdout.readline() for _ in range(2)]
                binding = {"metadata": {"name": "p"}, "target": {"name": "far-away"}}
                path = api.path("pods", "p/binding")
                async with (await api.session()).post(api.url(path), json=binding) as answer:
                    assert answer.status == 201
                return [*lines, await child.stdout.readline()]
        finally:
            child.kill()
            await child.communicate()

    header, before, after = api.run(watch())
    assert header.split()[0] == b"NAME"
    assert b"far-away" not in before
    assert b"far-away" in after
