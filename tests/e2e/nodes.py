"""Nodes without machines: pods that are bound run there, and end once they are deleted."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Final

from tests.cluster.controlplane import ControlPlane

Json = dict[str, Any]

_AMOUNTS: Final = {
    "cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi",
}  # fmt: skip
_CONDITIONS: Final = {
    "Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False",
    "NetworkUnavailable": "False",
}  # fmt: skip
#: The tests wait a minute on every node that lacks one of them.
_SYSTEM_PODS: Final = ("kube-proxy", "fluentd-elasticsearch", "node-problem-detector")
#: Conditions of a pod that the scheduler writes; a merge patch replaces the list.
_OF_SCHEDULER: Final = frozenset({"PodScheduled", "DisruptionTarget"})
_EVERY: Final = 0.15
_LEAST_GRACE: Final = 0.5


class Nodes:
    """Some nodes of a cluster, ready, with what a kubelet does for their pods.

    It asks again and again instead of watching: the clusters of these tests have few pods.
    """

    def __init__(self, plane: ControlPlane, count: int) -> None:
        self._plane = plane
        self._count = count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._dying: dict[str, float] = {}
        self._numbers = itertools.count(2)

    def start(self) -> None:
        """Creates the nodes and begins to run their pods."""
        for number in range(self._count):
            self._create("/api/v1/nodes", _node(f"node-{number}", number))
            for name in _SYSTEM_PODS:
                pod = _system_pod(f"{name}-{number}", f"node-{number}")
                self._create("/api/v1/namespaces/kube-system/pods", pod)
        self._thread.start()

    def stop(self) -> None:
        """Pods are left as they are."""
        self._stop.set()
        self._thread.join(timeout=30)

    def _create(self, path: str, item: Json) -> None:
        status, answer = self._plane.request("POST", path, item)
        if status != 201:
            raise RuntimeError(f"POST {path}: {status} {answer}")

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            try:
                _, answer = self._plane.request("GET", "/api/v1/nodes")
                for node in answer["items"]:
                    self._offer(node)
                _, answer = self._plane.request("GET", "/api/v1/pods")
                for pod in answer["items"]:
                    if pod["spec"].get("nodeName"):
                        self._serve(pod)
            except (urllib.error.URLError, TimeoutError, json.JSONDecodeError):
                continue  # The server is busy or ending; the next look is soon.

    def _offer(self, node: Json) -> None:
        """What somebody adds to a node's capacity may be had, as a kubelet sees to it."""
        status = node["status"]
        missing = {
            name: amount
            for name, amount in status["capacity"].items()
            if status["allocatable"].get(name) != amount
        }
        if missing:
            path = f"/api/v1/nodes/{node['metadata']['name']}/status"
            self._plane.request("PATCH", path, {"status": {"allocatable": missing}})

    def _serve(self, pod: Json) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase")
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            since = self._dying.setdefault(meta["uid"], time.monotonic())
            if time.monotonic() - since >= _grace(pod):
                if phase not in ("Failed", "Succeeded"):
                    self._plane.request("PATCH", f"{path}/status", {"status": _ended(pod)})
                options = {
                    "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                    "preconditions": {"uid": meta["uid"]},
                }  # fmt: skip
                self._plane.request("DELETE", path, options)
        elif phase == "Pending":
            address = next(self._numbers)
            running = _running(pod, f"10.2.{address // 250}.{address % 250 + 1}")
            self._plane.request("PATCH", f"{path}/status", {"status": running})


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _node(name: str, number: int) -> Json:
    addresses = {"InternalIP": f"10.9.0.{number + 1}", "Hostname": name}
    stamp = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
    about = {"reason": "Simulated", "message": "no machine stands behind it", **stamp}
    info = dict.fromkeys(
        (
            "osImage", "kernelVersion", "containerRuntimeVersion", "machineID", "systemUUID",
            "bootID", "kubeProxyVersion",
        ),
        "simulated",
    )  # fmt: skip
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/zone": f"zone-{number}",
                "topology.kubernetes.io/region": "region",
            },
        },
        "spec": {"podCIDR": f"10.1.{number}.0/24"},
        "status": {
            "capacity": _AMOUNTS,
            "allocatable": _AMOUNTS,
            "addresses": [{"type": kind, "address": one} for kind, one in addresses.items()],
            "conditions": [{"type": k, "status": v, **about} for k, v in _CONDITIONS.items()],
            "nodeInfo": {
                **info, "kubeletVersion": "v1.37.1", "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }  # fmt: skip


def _system_pod(name: str, node: str) -> Json:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "registry.example/x"}]}
    return {"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}


def _grace(pod: Json) -> float:
    """How long the containers take to end: what their hooks sleep, at most the grace period."""
    hooks = [(one.get("lifecycle") or {}).get("preStop") or {} for one in pod["spec"]["containers"]]
    sleep = max((hook.get("sleep") or {}).get("seconds", 0) for hook in hooks)
    return max(_LEAST_GRACE, min(sleep, pod["metadata"].get("deletionGracePeriodSeconds") or 0))


def _containers(pod: Json, ready: bool, state: Json) -> list[Json]:
    return [
        {
            "name": one["name"], "image": one["image"], "imageID": "simulated", "ready": ready,
            "started": ready, "restartCount": 0, "state": state,
        }
        for one in pod["spec"]["containers"]
    ]  # fmt: skip


def _running(pod: Json, address: str) -> Json:
    stamp = {"status": "True", "lastTransitionTime": _now()}
    scheduled: Json = {"type": "PodScheduled", **stamp}
    known = {one["type"]: one for one in (scheduled, *pod["status"].get("conditions", ()))}
    kept = [one for kind, one in known.items() if kind in _OF_SCHEDULER]
    met = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": _now(),
        "hostIP": "10.9.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [*kept, *({"type": one, **stamp} for one in met)],
        "containerStatuses": _containers(pod, True, {"running": {"startedAt": _now()}}),
    }


def _ended(pod: Json) -> Json:
    state = {"terminated": {"exitCode": 137, "reason": "Error"}}
    return {"phase": "Failed", "containerStatuses": _containers(pod, False, state)}
