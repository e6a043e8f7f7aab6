"""`python -m tests.e2e`: Kubernetes' own end-to-end tests of scheduling, of the pinned version.

The suite is `k8s.io/kubernetes/test/e2e` as it is published; etcd, kube-apiserver and
kube-controller-manager are real, the nodes have no machines (`tests.e2e.nodes`). The scheduler is
Berth with one profile named `default-scheduler`, or kube-scheduler to compare with.
"""

from __future__ import annotations

import collections
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
import yaml

from tests.cluster import binaries
from tests.cluster.berth import Berth
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kube_scheduler import KubeScheduler
from tests.cluster.process import Process
from tests.e2e.nodes import Nodes

NODES: Final = 3
#: Tests of gates that are off in this version, of clouds, and of machines behind the nodes.
SKIP: Final = (
    r"\[Feature:(GangScheduling|WorkloadAwarePreemption|GPU|RecoverVolume)|"
    r"\[FeatureGate:(GenericWorkload|GangScheduling|WorkloadAwarePreemption)"
)
CONTROLLERS: Final = (
    "namespace", "serviceaccount", "serviceaccount-token", "replicaset", "replicationcontroller",
    "root-ca-certificate-publisher", "garbage-collector", "disruption", "deployment", "job",
    "persistentvolume-binder", "persistentvolumeclaim-protection", "persistentvolume-protection",
    "taint-eviction",
)  # fmt: skip
CONFIG: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "profiles": [{"schedulerName": "default-scheduler"}],
}


@click.command(help=__doc__)
@click.option("--scheduler", type=click.Choice(["berth", "kube-scheduler"]), default="berth")
@click.option("--focus", default="sig-scheduling", help="Tests whose name has this (a pattern).")
@click.option("--skip", default=SKIP, show_default=True, help="But none whose name has this.")
@click.option("--folder", type=click.Path(path_type=Path), help="A new folder for all logs.")
def main(scheduler: str, focus: str, skip: str, folder: Path | None) -> None:
    """Runs the suite; the exit code is 1 where a test failed."""
    folder = folder or Path(tempfile.mkdtemp(prefix="berth-e2e-"))
    if folder.exists() and any(folder.iterdir()):
        raise click.BadParameter(f"{folder} holds something already", param_hint="--folder")
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "junit.xml"
    with _cluster(folder, scheduler) as kubeconfig:
        command = [
            binaries.binary("e2e.test"), f"--kubeconfig={kubeconfig}", "--provider=skeleton",
            "--minStartupPods=0", "--dump-logs-on-failure=false", "--ginkgo.v",
            "--ginkgo.no-color", "--ginkgo.timeout=90m", f"--ginkgo.focus={focus}",
            f"--ginkgo.skip={skip}", f"--ginkgo.junit-report={report}",
        ]  # fmt: skip
        with (folder / "e2e.log").open("wb") as log:
            code = subprocess.run(
                command, stdout=log, stderr=subprocess.STDOUT, check=False
            ).returncode
    outcomes = _outcomes(report)
    for name, status, seconds in outcomes:
        click.echo(f"{status:<9} {seconds:6.1f} s  {name}")
    counts = collections.Counter(status for _, status, _ in outcomes)
    click.echo(f"{', '.join(f'{n} {one}' for one, n in sorted(counts.items()))}; logs: {folder}")
    sys.exit(1 if code or not counts["passed"] else 0)


@contextmanager
def _cluster(folder: Path, scheduler: str) -> Iterator[Path]:
    """A cluster in which the scheduler is at work; its admin's kubeconfig."""
    flags = (
        # Nobody takes the taint away that admission puts on new nodes.
        "--disable-admission-plugins=TaintNodesByCondition",
        # The suite reads taints from the cache of nodes, and patches the whole list: on a busy
        # machine it puts one back that it has just taken away.
        "--watch-cache-sizes=nodes#0",
    )
    with ExitStack() as stack:
        plane = ControlPlane(folder / "plane", apiserver_flags=flags)
        plane.start()
        stack.callback(plane.stop)
        controllers = _controllers(plane, folder)
        controllers.start()
        stack.callback(controllers.stop, seconds=5)
        nodes = Nodes(plane, NODES)
        nodes.start()
        stack.callback(nodes.stop)
        if scheduler == "berth":
            config = folder / "config.yaml"
            config.write_text(yaml.safe_dump(CONFIG))
            berth = Berth(plane, folder / "berth", "--config", config)
            berth.start(until="Caches are synced")
            stack.callback(berth.process.stop, seconds=5)
        else:
            real = KubeScheduler(plane)
            real.start()
            stack.callback(real.stop)
        yield plane.kubeconfig_file()


def _controllers(plane: ControlPlane, folder: Path) -> Process:
    command: list[str | Path] = [
        binaries.binary("kube-controller-manager"),
        f"--kubeconfig={plane.kubeconfig_file()}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--root-ca-file={plane.authority.certificate}",
        f"--service-account-private-key-file={plane.authority.service_account_key().key}",
        f"--controllers={','.join(f'{one}-controller' for one in CONTROLLERS)}",
    ]
    return Process("kube-controller-manager", command, folder / "kube-controller-manager.log")


def _outcomes(report: Path) -> list[tuple[str, str, float]]:
    """The tests that were chosen: name, status and seconds."""
    cases = ElementTree.parse(report).iter("testcase")
    found = [(one.get("name", ""), one.get("status", ""), one.get("time", "0")) for one in cases]
    return [
        (name.removeprefix("[It] "), status, float(seconds))
        for name, status, seconds in found
        if name.startswith("[It]") and (status != "skipped" or float(seconds) > 0)
    ]


if __name__ == "__main__":
    main()
