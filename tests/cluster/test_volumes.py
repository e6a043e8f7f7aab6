"""Pods with volumes on the real API server; the test is provisioner and volume controller."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

ZONE = "topology.kubernetes.io/zone"
CLAIMS = "persistentvolumeclaims"
SELECTED = "volume.kubernetes.io/selected-node"


class Volumes(Cluster):
    """Two nodes in two zones, storage in few words, and Berth beside them."""

    def __init__(self, *how) -> None:
        super().__init__(*how)
        for name, zone in (("a", "z1"), ("b", "z2")):
            self.node(name, {ZONE: zone})
        for name, mode in (("late", "WaitForFirstConsumer"), ("now", "Immediate")):
            value = {"provisioner": "example.com/disk", "volumeBindingMode": mode}
            meta = {"metadata": {"name": f"{name}-{self.namespace}"}}
            self.create("/apis/storage.k8s.io/v1/storageclasses", {**meta, **value})
        self.starts(until="")

    def change(self, path: str, change) -> None:
        status, answer = 409, {}
        while status == 409:  # others write it, too
            _, item = self.plane.request("GET", path)
            change(item)
            status, answer = self.plane.request("PUT", path, item)
        assert status == 200, answer

    def claim(self, name: str, of: str, mode: str = "ReadWriteOnce") -> dict[str, Any]:
        spec = {
            "accessModes": [mode],
            "storageClassName": f"{of}-{self.namespace}",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        return self.create(self.path(CLAIMS), {"metadata": {"name": name}, "spec": spec})

    def volume(self, name: str, on: dict[str, str], claim=None, **meta: Any) -> str:
        """A volume on the nodes with these labels, for a claim if given; its name."""
        requirements = [{"key": k, "operator": "In", "values": [v]} for k, v in on.items()]
        terms = {"nodeSelectorTerms": [{"matchExpressions": requirements}]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": claim["spec"]["accessModes"] if claim else ["ReadWriteOnce"],
            "storageClassName": f"late-{self.namespace}",
            "csi": {"driver": "example.com", "volumeHandle": name},
            **({"nodeAffinity": {"required": terms}} if on else {}),
        }
        if claim is not None:
            own = claim["metadata"]
            spec["claimRef"] = {key: own[key] for key in ("namespace", "name", "uid")}
        name = f"{name}-{self.namespace}"
        path = "/api/v1/persistentvolumes"
        self.create(path, {"metadata": {"name": name, **meta}, "spec": spec})
        phase = {"phase": "Available" if claim is None else "Bound"}
        self.change(f"{path}/{name}/status", lambda item: item.update(status=phase))
        return name

    def bind(self, claim: str, volume: str) -> None:
        """What the volume controller does once a volume is there."""

        def bound(item: dict[str, Any]) -> None:
            item["spec"]["volumeName"] = volume
            annotations = item["metadata"].setdefault("annotations", {})
            annotations["pv.kubernetes.io/bind-completed"] = "yes"

        self.change(self.path(CLAIMS, claim), bound)

    def bound_claim(self, name: str, on: dict[str, str], **how: Any) -> None:
        claim = self.claim(name, "late", how.pop("mode", "ReadWriteOnce"))
        self.bind(name, self.volume(name, on, claim, **how))

    def uses(self, name: str, *claims: str) -> None:
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
        self.pod(name, spec={"volumes": volumes}, cpu="10m")


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path):
    made = Volumes(control_plane, namespace, tmp_path)
    yield made
    made.stop()


def test_a_pod_goes_where_its_volume_is_and_waits_for_a_claim_that_is_not_there(cluster):
    cluster.uses("early", "data")
    cluster.refused("early", 'persistentvolumeclaim "data" not found')
    cluster.bound_claim("data", {"kubernetes.io/hostname": "b"})
    assert cluster.placed("early") == ["b"]


def test_a_volume_is_made_for_the_node_that_was_chosen(cluster):
    claim = cluster.claim("data", "late")
    cluster.uses("first", "data")

    def selected() -> str | None:
        _, item = cluster.plane.request("GET", cluster.path(CLAIMS, "data"))
        return (item["metadata"].get("annotations") or {}).get(SELECTED)

    wait_until("a node is chosen for the claim", lambda: selected() is not None)
    where = selected()
    assert not cluster.node_of("first"), "bound before its volume was there"
    cluster.bind("data", cluster.volume("made", {"kubernetes.io/hostname": where}, claim))
    assert cluster.placed("first") == [where]


def test_a_volume_that_exists_is_written_for_the_claim(cluster):
    claim = cluster.claim("data", "late")
    name = cluster.volume("there", {"kubernetes.io/hostname": "b"})
    path = f"/api/v1/persistentvolumes/{name}"
    # Where there is none its class would make one: only a node that has it is left.
    cluster.change("/api/v1/nodes/a", lambda item: item["spec"].update(unschedulable=True))
    cluster.uses("first", "data")

    def claimed() -> bool:
        _, item = cluster.plane.request("GET", path)
        return item["spec"].get("claimRef", {}).get("uid") == claim["metadata"]["uid"]

    wait_until("the volume is the claim's", claimed)
    cluster.bind("data", name)
    assert cluster.placed("first") == ["b"]


def test_a_claim_for_one_pod_and_a_volume_of_another_zone(cluster):
    cluster.bound_claim("one", {}, mode="ReadWriteOncePod", labels={ZONE: "z2"})
    cluster.uses("first", "one")
    assert cluster.placed("first") == ["b"]
    cluster.uses("second", "one")
    cluster.refused("second", "ReadWriteOncePod access mode already in-use by another pod")
    cluster.delete("first")
    assert cluster.placed("second") == ["b"]


def test_a_node_has_no_more_volumes_than_its_driver_allows(cluster):
    for name in ("a", "b"):
        driver = {"name": "example.com", "nodeID": name, "topologyKeys": []}
        limit = {"allocatable": {"count": int(name == "b")}}
        item = {"metadata": {"name": name}, "spec": {"drivers": [{**driver, **limit}]}}
        cluster.create("/apis/storage.k8s.io/v1/csinodes", item)
    cluster.bound_claim("one", {})
    cluster.bound_claim("two", {})
    cluster.uses("first", "one")
    assert cluster.placed("first") == ["b"]
    cluster.uses("second", "two")
    cluster.refused("second", "2 node(s) exceed max volume count")
    for name in ("a", "b"):
        cluster.plane.request("DELETE", f"/apis/storage.k8s.io/v1/csinodes/{name}")
