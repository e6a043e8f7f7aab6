"""`berth run` as a process beside a control plane, and what tests ask of it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import Process, wait_until

PROFILE = "berth"


class Berth:
    """One scheduler process; `start` returns when its first rules are in force.

    It elects nobody and serves nothing unless it is told so: a test's process may be ended
    without a word, and there are many at a time.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        folder: Path,
        *flags: str | Path,
        kubeconfig: Path | None = None,
        whole: bool = False,
        program: tuple[str, ...] = ("engine", "run"),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "berth.log"
        self.journal = folder / "journal.jsonl"
        command: list[str | Path] = [
            sys.executable,
            "-m",
            *program,
            *(() if whole else ("--leader-elect=false", "--secure-port=0")),
            "--kubeconfig",
            kubeconfig or control_plane.kubeconfig_file(),
            *flags,
        ]
        self.process = Process("berth", command, self.log)

    def start(self, until: str = "Policies in force") -> None:
        before = self.log.read_text().count(until) if self.log.exists() else 0
        self.process.start()
        self.wait_for_log(until, count=before + 1, seconds=90.0)

    def wait_for_log(self, text: str, *, count: int = 1, seconds: float = 30.0) -> None:
        def there() -> bool:
            if not self.process.running:
                raise RuntimeError(f"berth ended:\n{self.process.tail()}")
            return self.log.read_text().count(text) >= count

        wait_until(f"{text!r} in berth's log", there, seconds=seconds)

    def end(self) -> int:
        """SIGTERM; the exit code. It tells Events for 20 s, if the server is slow."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.stop(seconds=60)


def pod(name: str, namespace: str, scheduler: str = PROFILE, **requests: str) -> dict[str, object]:
    resources = {"requests": requests} if requests else {}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/x", "resources": resources}],
        },
    }


def node(name: str, labels: dict[str, str] | None = None, **amounts: str) -> dict[str, object]:
    have = {"cpu": "8", "memory": "16Gi", "pods": "110", **amounts}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": have, "capacity": have},
    }
