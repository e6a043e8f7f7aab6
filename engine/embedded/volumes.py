"""A provisioner and a volume controller: claims in, volumes for them out.

Makes volumes of the class `simulated` once a node is chosen for their claim, and joins claims with
volumes that are meant for them. Stores nothing but objects.
"""

from __future__ import annotations

from typing import Final

from engine.embedded.api import Api
from engine.embedded.errors import Object
from engine.embedded.resources import BY_PLURAL
from engine.embedded.store import Key

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
            of["uid"]: version.object
            for version in self._api.collection(BY_PLURAL[_VOLUMES]).items.values()
            if (of := version.object["spec"].get("claimRef")) and of.get("uid")
        }
        for key, version in list(self._api.collection(BY_PLURAL[_CLAIMS]).items.items()):
            claim = version.object
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
        return self._api.create(BY_PLURAL[_VOLUMES], "", item).object

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
