"""Simulated nodes: their objects, their kubelets and the load that Prometheus reports of them.

Writes through `Api` as any client would, but in the process and in batches. So do a provisioner and
a volume controller: they make volumes of the class `simulated` once a node is chosen for their
claim, and join claims with volumes that are meant for them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from random import Random
from typing import Final

from engine.embedded.api import Api
from engine.embedded.errors import Object
from engine.embedded.resources import BY_PLURAL
from engine.embedded.store import Key

ZONES = ("zone-a", "zone-b", "zone-c")
REGION = "region-1"
SIZES = ((4, 16), (8, 32), (16, 64))
"""(cores, GiB) of the node shapes, in turn."""
PODS_A_NODE = 110
BATCH = 100
NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)
"""The fields that clients with typed models insist on."""
KUBELET_VERSION = "v1.37.1"
WALK = 0.08
"""The standard deviation of a step of the load, as a share of its full range."""

_RECEIVE: Final = "node_network_receive"
SERIES: Mapping[str, float] = {
    _RECEIVE: 125_000_000.0,
    "node_network_transmit": 125_000_000.0,
    "node_cpu": 1.0,
    "node_memory": 1.0,
    "node_load": 16.0,
}
"""What a query may mention -> the top of its range: bytes/s, shares of 1, the load average.

The first that fits wins."""


class SimulatedNodes:
    """The nodes of the embedded cluster and everything that would run on them."""

    def __init__(self, api: Api, *, count: int, random: Random) -> None:
        self._api = api
        self._random = random
        self._addresses = 0
        self.names = [f"node-{number:02d}" for number in range(1, count + 1)]
        self.signals = {
            signal: {name: random.uniform(0.1, 0.9) * top for name in self.names}
            for signal, top in SERIES.items()
        }
        for index, name in enumerate(self.names):
            api.create(BY_PLURAL["nodes"], "", self._node(index, name))

    def bandwidth(self, node: str) -> float:
        """Bytes a second that the node receives now."""
        return self.signals[_RECEIVE][node]

    def step_signals(self) -> None:
        """Let every value take one seeded step within its range."""
        for signal, values in self.signals.items():
            top = SERIES[signal]
            for name, value in values.items():
                moved = value + self._random.gauss(0.0, WALK * top)
                values[name] = min(top, max(0.0, moved))

    async def run_kubelets(self, seconds: float) -> None:
        """Looks at all pods for ever, this long after some changed; others have their turns too."""
        pods = self._api.store.collection("pods").items
        async for _ in self._api.store.changing(seconds, "pods"):
            for number, key in enumerate(list(pods), 1):
                self.attend(key)
                if number % BATCH == 0:
                    await asyncio.sleep(0)

    async def run_signals(self, seconds: float) -> None:
        """Step the signals for ever, at this interval."""
        while math.isfinite(seconds):
            await asyncio.sleep(seconds)
            self.step_signals()

    def attend(self, key: Key) -> None:
        """Starts a pod that was bound, ends one that is being deleted."""
        pod = self._api.store.collection("pods").items.get(key)
        if pod is None or not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._api.delete(BY_PLURAL["pods"], key, {"gracePeriodSeconds": 0})
        elif pod["status"].get("phase") == "Pending":
            status = self._running(pod)
            self._api.store.put("pods", key, pod | {"status": status})

    def _running(self, pod: Object) -> Object:
        now = self._api.store.now()
        self._addresses += 1
        address = f"10.{64 + self._addresses // 65_536 % 64}"
        address += f".{self._addresses // 256 % 256}.{self._addresses % 256}"
        status: Object = pod["status"]
        ready = [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        ]
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": now}},
                "lastState": {},
            }
            for container in pod["spec"]["containers"]
        ]
        return status | {
            "phase": "Running",
            "conditions": [*(status.get("conditions") or ()), *ready],
            "containerStatuses": containers,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
        }

    def _node(self, index: int, name: str) -> Object:
        cores, gibibytes = SIZES[index % len(SIZES)]
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/region": REGION,
            "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
        }
        if index % 2 == 0:
            labels["test"] = "test"
        now = self._api.store.now()
        amounts = {
            "cpu": str(cores),
            "memory": f"{gibibytes}Gi",
            "ephemeral-storage": "100Gi",
            "pods": str(PODS_A_NODE),
        }
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the simulated kubelet is ready",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [ready],
            "addresses": [
                {"type": "InternalIP", "address": f"10.1.{index // 256}.{index % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": dict.fromkeys(NODE_INFO, "")
            | {
                "kubeletVersion": KUBELET_VERSION,
                "osImage": "simulated",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }
        return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


# ---- volumes


CLASS: Final = "simulated"
PROVISIONER: Final = "simulated.berth.dev/disk"
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"


class SimulatedVolumes:
    """What a storage driver and Kubernetes' volume controller would do."""

    def __init__(self, api: Api) -> None:
        self._api = api
        value = {"provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
        item = {"metadata": {"name": CLASS}, **value}
        api.create(BY_PLURAL["storageclasses"], "", item)

    async def run(self, seconds: float) -> None:
        """Steps for ever, this long after claims or volumes changed."""
        async for _ in self._api.store.changing(seconds, _CLAIMS, _VOLUMES):
            self.step()

    def step(self) -> None:
        """Gives each claim its volume that has none yet and can have one."""
        meant = {
            of["uid"]: volume
            for volume in self._api.collection(BY_PLURAL[_VOLUMES]).items.values()
            if (of := volume["spec"].get("claimRef")) and of.get("uid")
        }
        for key, claim in list(self._api.collection(BY_PLURAL[_CLAIMS]).items.items()):
            if claim["spec"].get("volumeName"):
                continue
            volume = meant.get(claim["metadata"]["uid"]) or self._made_for(claim)
            if volume is not None:
                self._join(key, claim, volume)

    def _made_for(self, claim: Object) -> Object | None:
        """A new volume on the claim's node; None if no node is chosen, or it is not our class."""
        meta, spec = claim["metadata"], claim["spec"]
        node = (meta.get("annotations") or {}).get(_SELECTED)
        if node is None or spec.get("storageClassName") != CLASS:
            return None
        host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        item = {
            "metadata": {"name": f"pvc-{meta['uid']}"},
            "spec": {
                "capacity": (spec.get("resources") or {}).get("requests") or {},
                "accessModes": spec.get("accessModes") or [],
                "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {name: meta[name] for name in ("namespace", "name", "uid")},
                "csi": {"driver": PROVISIONER, "volumeHandle": meta["uid"]},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
            },
        }
        return self._api.create(BY_PLURAL[_VOLUMES], "", item)

    def _join(self, key: Key, claim: Object, volume: Object) -> None:
        name = volume["metadata"]["name"]
        self._api.store.put(_VOLUMES, ("", name), volume | {"status": {"phase": "Bound"}})
        annotations = {**(claim["metadata"].get("annotations") or {}), _COMPLETED: "yes"}
        status = {"phase": "Bound", "capacity": volume["spec"].get("capacity") or {}}
        bound = {
            "metadata": claim["metadata"] | {"annotations": annotations},
            "spec": claim["spec"] | {"volumeName": name},
            "status": claim["status"] | status,
        }
        self._api.store.put(_CLAIMS, key, claim | bound)
