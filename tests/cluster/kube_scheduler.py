"""The real kube-scheduler as a process, with a configuration of the test's choosing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import Process, free_port, wait_until

BURST = 5_000


class KubeScheduler:
    """One kube-scheduler beside a control plane; `start` returns when it schedules."""

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        scheduler_name: str = "default-scheduler",
        profile: dict[str, Any] | None = None,
        extenders: list[dict[str, Any]] | None = None,
        flags: tuple[str, ...] = ("-v=2",),
    ) -> None:
        """Describe it; `profile` is merged into its only profile (plugins, pluginConfig ...)."""
        folder = control_plane.folder / f"kube-scheduler-{scheduler_name}"
        folder.mkdir(exist_ok=True)
        kubeconfig = control_plane.kubeconfig_file()
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": BURST, "burst": BURST},
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": scheduler_name, **(profile or {})}],
            "extenders": extenders or [],
        }
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        command: list[str | Path] = [
            binaries.binary("kube-scheduler"),
            f"--config={path}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={folder}",
            *flags,
        ]
        self.process = Process("kube-scheduler", command, folder / "kube-scheduler.log")

    def start(self) -> None:
        """Start it and wait until its caches are filled."""
        self.process.start()
        wait_until("kube-scheduler has started", self._started)

    def stop(self) -> None:
        """End it."""
        self.process.stop(seconds=3)

    def _started(self) -> bool:
        if not self.process.running:
            raise RuntimeError(f"kube-scheduler ended at once:\n{self.process.tail()}")
        return "Starting Kubernetes Scheduler" in self.process.log.read_text()
