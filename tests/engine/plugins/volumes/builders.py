"""Objects of storage in few words, in a cache."""

from __future__ import annotations

from typing import Any

from engine.objects import from_builtins
from engine.objects.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from engine.pods.podinfo import PodInfo
from tests.builders import Cache, make_node, make_pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def cluster(*names: str) -> Cache:
    """Nodes with a host name each, in zones a and b in turn; classes `late` (waits) and `now`."""
    cache = Cache()
    for number, name in enumerate(names):
        cache.add_node(make_node(name, labels={HOST: name, ZONE: "ab"[number % 2]}))
    for name, mode in (("late", "WaitForFirstConsumer"), ("now", "Immediate")):
        value = {"provisioner": "csi.x", "volumeBindingMode": mode}
        put(cache, StorageClass, name, **value)
    return cache


def put(cache: Cache, kind: type[Any], name: str, version: int = 1, **value: Any) -> Any:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    item = from_builtins(kind, {**value, "metadata": {**meta, **value.pop("metadata", {})}})
    cache.set_object(item)
    return item


def claim(
    cache: Cache, name: str, *, of: str = "late", volume: str = "", size: str = "1Gi", **more: Any
) -> PersistentVolumeClaim:
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    annotations |= more.pop("annotations", {})
    spec = {
        "storageClassName": of,
        "volumeName": volume,
        "accessModes": [more.pop("mode", "ReadWriteOnce")],
        "resources": {"requests": {"storage": size}},
        "selector": more.pop("selector", None),
    }
    owners = more.pop("owners", None)
    meta = {"namespace": "default", "annotations": annotations, "ownerReferences": owners}
    item: PersistentVolumeClaim = put(
        cache, PersistentVolumeClaim, name, metadata=meta, spec=spec, **more
    )
    return item


def volume(
    cache: Cache, name: str, *, on: dict[str, str] | None = None, **more: Any
) -> PersistentVolume:
    """A volume that is to be had on nodes with these labels."""
    expressions = [{"key": k, "operator": "In", "values": [v]} for k, v in (on or {}).items()]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    spec = {
        "capacity": {"storage": more.pop("size", "1Gi")},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": more.pop("of", "late"),
        **({"nodeAffinity": {"required": terms}} if on else {}),
        **more.pop("spec", {}),
    }
    status = {"phase": "Available"}
    item: PersistentVolume = put(cache, PersistentVolume, name, spec=spec, status=status, **more)
    return item


def csi_volume(cache: Cache, name: str, handle: str, of: str = "") -> PersistentVolume:
    """A volume of the driver csi.x that a claim has."""
    spec: dict[str, Any] = {"csi": {"driver": "csi.x", "volumeHandle": handle}}
    if of:
        spec["claimRef"] = {"namespace": "default", "name": of, "uid": f"uid-{of}"}
    return volume(cache, name, spec=spec)


def csi_node(cache: Cache, name: str, limit: int | None = None, version: int = 1) -> None:
    driver: dict[str, Any] = {"name": "csi.x"}
    if limit is not None:
        driver["allocatable"] = {"count": limit}
    put(cache, CSINode, name, version, spec={"drivers": [driver]})


def attachment(cache: Cache, name: str, node: str, of: str) -> None:
    spec = {"attacher": "csi.x", "nodeName": node, "source": {"persistentVolumeName": of}}
    put(cache, VolumeAttachment, name, spec=spec)


def pod(name: str, *claims: str, node: str = "", **volumes: dict[str, Any]) -> PodInfo:
    """A pod that uses claims, and other volumes by name."""
    found = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    found += [{"name": each, **source} for each, source in volumes.items()]
    return make_pod(name, node=node, spec={"volumes": found})
