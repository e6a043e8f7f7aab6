"""`berth status` shows what the scheduler wrote down, and who changed that."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from engine.cli import main
from engine.embedded import EmbeddedCluster
from tests.engine.loopback import listening

GOOD = {"source": "ConfigMap x/policies", "state": "InForce", "policies": ["home"], "why": ""}
BAD = {
    "source": "folder more", "state": "PoliciesRefused", "policies": [],
    "why": "folder more was refused:\n\x1b[31mred",
}  # fmt: skip


def shown(tmp_path, text, *flags, lease=None):
    async def main_():
        async with EmbeddedCluster(nodes=0) as cluster:
            cluster.create("namespaces", {"metadata": {"name": "x"}})
            item = {"metadata": {"name": "berth-status"}, "data": {"status.json": text}}
            cluster.create("configmaps", item, namespace="x")
            if lease is not None:
                item = {"metadata": {"name": "berth"}, "spec": lease}
                cluster.create("leases", item, namespace="x")
            return await asked(tmp_path, cluster, *flags)

    return asyncio.run(main_())


async def asked(tmp_path, cluster, *flags):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(cluster.kubeconfig()))
    words = ["status", "x/berth", "--kubeconfig", str(kubeconfig), *flags]
    return await asyncio.to_thread(CliRunner().invoke, main, words)


def status(*sources, bundle="abc"):
    return {"bundle": bundle, "since": "2026-01-02T03:04:05+00:00", "sources": list(sources)}


def test_what_is_in_force_and_why_the_rest_is_not(tmp_path):
    done = shown(tmp_path, json.dumps(status(GOOD, BAD)))
    assert done.exit_code == 1
    assert done.output == (
        "Bundle abc is in force since 2026-01-02T03:04:05+00:00.\n\n"
        "ConfigMap x/policies: home\n\n"
        "folder more [PoliciesRefused]: none\n"
        "  folder more was refused:\n  \\x1b[31mred\n"
    )
    assert shown(tmp_path, json.dumps(status(GOOD))).exit_code == 0


def test_nothing_in_force_is_said(tmp_path):
    done = shown(tmp_path, json.dumps(status(BAD, bundle=None)))
    assert done.output.startswith("Nothing is in force, and no pod is scheduled.")


def test_as_json(tmp_path):
    text = json.dumps(status(GOOD) | {"awaits": ["jobs.batch"]})
    assert shown(tmp_path, text, "--format=json").output == f"{text}\n", "all of it"


HELD = {"holderIdentity": "pod-a", "leaseDurationSeconds": 15}
PAST, FUTURE = "2026-01-02T03:04:05.000000Z", "2999-01-02T03:04:05.000000Z"


@pytest.mark.parametrize(
    ("lease", "said", "code"),
    [
        (None, "No scheduler leads: lease x/berth does not exist. What follows is the last ", 1),
        ({"leaseDurationSeconds": 1}, "No scheduler leads: nobody holds lease x/berth.", 1),
        (HELD | {"renewTime": PAST}, "last renewed it at 2026-01-02T03:04:05+00:00, ", 1),
        (HELD | {"renewTime": FUTURE}, "pod-a leads (lease x/berth).\nBundle abc", 0),
        (HELD | {"renewTime": "yesterday"}, "Which scheduler leads is not known: ", 0),
    ],
)
def test_whether_anybody_decides_by_it(tmp_path, lease, said, code):
    text = json.dumps(status(GOOD) | {"lease": "x/berth"})
    done = shown(tmp_path, text, lease=lease)
    assert said in done.output
    assert done.exit_code == code
    done = shown(tmp_path, text, "--format=json", lease=lease)
    assert (done.stdout, done.exit_code) == (f"{text}\n", code)
    assert (said in done.stderr) is (code == 1), "what the exit code is about"


def test_a_lease_is_old_by_the_clock_of_the_server(tmp_path):
    written = {"data": {"status.json": json.dumps(status(GOOD) | {"lease": "x/berth"})}}

    async def answer(request):
        found = {"spec": HELD | {"renewTime": PAST}} if "leases" in request.path else written
        return web.json_response(found, headers={"Date": "Fri, 02 Jan 2026 03:04:15 GMT"})

    async def main_():
        async with listening(answer) as port:
            return await asked(tmp_path, EmbeddedCluster(nodes=0, port=port))

    done = asyncio.run(main_())
    assert done.output.startswith("pod-a leads (lease x/berth).\n")
    assert done.exit_code == 0


def test_why_the_next_process_will_not_have_them_is_told(tmp_path):
    done = shown(tmp_path, json.dumps(status(GOOD) | {"notKept": "they are too large"}))
    assert done.output.endswith("\nNot kept for the next start: they are too large.\n")


def test_a_leader_that_is_refused_is_shown_and_is_no_success(tmp_path):
    done = shown(tmp_path, json.dumps(status(GOOD) | {"troubles": ["nodes: 403 Forbidden: no"]}))
    assert done.output.startswith("The leader is cut off: nodes: 403 Forbidden: no\n")
    assert done.exit_code == 1


def test_namespaces_with_policies_of_their_own_are_counted(tmp_path):
    done = shown(tmp_path, json.dumps(status(GOOD) | {"tenants": 7, "tenantsRefused": 2}))
    assert done.output.endswith("\nNamespaces with policies of their own: 7, 2 of them refused.\n")


@pytest.mark.parametrize("state", ["berth", "berth/", "/berth", "a/b/c"])
def test_what_names_no_state_is_refused(state):
    done = CliRunner().invoke(main, ["status", state])
    assert done.exit_code == 2
    assert f"{state!r} is not NAMESPACE/NAME" in done.output


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"sources": [1]}', '{"sources": [{"policies": 1}]}']
)
def test_what_somebody_wrote_there_is_told_apart(tmp_path, text):
    done = shown(tmp_path, text)
    assert done.exit_code == 1
    assert "does not hold what Berth writes" in done.output


async def test_the_scheduler_of_berth_up_says_what_is_in_force(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    program = ("-c", "from engine.cli import main; main()", "up", "--nodes=1", "--kubeconfig")
    up = await asyncio.create_subprocess_exec(
        sys.executable, *program, kubeconfig, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(300):  # against waiting for ever
            while b"Policies in force" not in (line := await up.stderr.readline()):
                assert line, "it ended"
            words, told = ["status", "--kubeconfig", str(kubeconfig)], ""
            while "is in force" not in told:  # the first time it may not be written yet
                done = await asyncio.to_thread(CliRunner().invoke, main, words)
                told = done.output
    finally:
        up.terminate()
        _, log = await up.communicate()
    assert b" W " not in log, "it warns of nothing that it wrote itself"
    assert "ConfigMap berth-system/policies: none (off)" in told
