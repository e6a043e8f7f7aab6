"""What is kept of nodes' volumes equals what is worked out anew, after any history."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.objects.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from engine.plugins.volumes import attached
from engine.plugins.volumes.attached import NodeVolumes
from tests.builders import make_node
from tests.effort import examples
from tests.engine.plugins.volumes import builders as make

NODES = st.sampled_from(["n1", "n2", "n3"])
PODS = {"p1": ["c1"], "p2": ["c1", "c2"], "p3": ["c3"], "disk": [], "p4": ["c2"], "own": ["c1"]}
MORE = {"disk": {"disk": {"gcePersistentDisk": {"pdName": "d"}}}, "own": {"v": {"ephemeral": {}}}}
NAMES = st.sampled_from(sorted(PODS))
CLAIMS = st.sampled_from(["c1", "c2", "c3", "own-v"])
VOLUMES = st.sampled_from(["v1", "v2"])
HANDLES = st.sampled_from(["h1", "h2", "h3"])


class NodeVolumesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = make.cluster("n1", "n2")
        self.kept = NodeVolumes()
        self.version = 0

    @rule(name=NAMES, node=NODES)
    def pod_comes(self, name, node):
        self.cache.add_pod(make.pod(name, *PODS[name], node=node, **MORE.get(name, {})), node)

    @rule(name=NAMES)
    def pod_goes(self, name):
        self.cache.remove_pod(f"uid-default-{name}")

    @rule(name=NODES, there=st.booleans())
    def node_comes_or_goes(self, name, there):
        if there:
            self.cache.add_node(make_node(name))
        else:
            self.cache.remove_node(name)

    @rule(
        name=CLAIMS,
        volume=st.sampled_from(["", "v1", "v2"]),
        of=st.sampled_from(["late", "now", "none"]),
        owner=st.sampled_from(["own", "p1"]),
        there=st.booleans(),
    )
    def claim_changes(self, name, volume, of, owner, there):
        if there:
            owners = [{"uid": f"uid-default-{owner}", "controller": True}]
            make.claim(self.cache, name, of=of, volume=volume, owners=owners)
        else:
            self.cache.remove_object(PersistentVolumeClaim.__name__, f"default/{name}")

    @rule(name=VOLUMES, handle=HANDLES, of=st.sampled_from(["", "c1"]), there=st.booleans())
    def volume_changes(self, name, handle, of, there):
        if there:
            make.csi_volume(self.cache, name, handle, of)
        else:
            self.cache.remove_object(PersistentVolume.__name__, name)

    @rule(
        name=st.sampled_from(["late", "now"]),
        by=st.sampled_from(["csi.x", "kubernetes.io/gce-pd", "none"]),
        there=st.booleans(),
    )
    def class_changes(self, name, by, there):
        self.version += 1
        if there:
            make.put(self.cache, StorageClass, name, version=self.version, provisioner=by)
        else:
            self.cache.remove_object(StorageClass.__name__, name)

    @rule(name=st.sampled_from(["a1", "a2"]), node=NODES, of=VOLUMES, there=st.booleans())
    def attachment_changes(self, name, node, of, there):
        if there:
            make.attachment(self.cache, name, node, of)
        else:
            self.cache.remove_object(VolumeAttachment.__name__, name)

    @rule(name=NODES, limit=st.sampled_from([None, 0, 2]))
    def csi_node_changes(self, name, limit):
        self.version += 1
        make.csi_node(self.cache, name, limit, self.version)

    @rule(gone=NAMES, come=NAMES, node=NODES)
    def pods_are_thought_elsewhere(self, gone, come, node):
        snapshot, uid = self.cache.snapshot(0.0), f"uid-default-{gone}"
        row, there = self.cache.nodes.row(self.cache.node_of(uid) or ""), self.cache.nodes.row(node)
        thought = []
        if row >= 0:
            pod = self.cache.pods.pod(self.cache.pods.row(uid))
            thought.append(snapshot.overlay(row, remove=[pod]))
        if there >= 0:
            other = make.pod(f"{come}-too", *PODS[come], node=node)
            thought += [one.overlay(there, add=[other]) for one in (snapshot, *thought)]
        for one in thought:
            self.it_is_what_it_would_be(one)

    @invariant()
    def it_is_what_it_would_be(self, snapshot=None):
        snapshot, fresh = snapshot or self.cache.snapshot(0.0), NodeVolumes()
        for driver in ("csi.x", "pd.csi.storage.gke.io"):
            assert self.told(self.kept.count(snapshot, driver)) == self.told(
                fresh.count(snapshot, driver)
            )
        for handle in ("csi.x/h1", "csi.x/h2", "csi.x/\0default/c1"):
            kept, new = (one.rows_with(snapshot, handle) for one in (self.kept, fresh))
            assert kept.tolist() == new.tolist()
        assert self.kept.errors(snapshot) == fresh.errors(snapshot)
        for claim in ("default/c1", "default/c2", "default/c3", "default/own-v"):
            assert self.kept.is_used(snapshot, claim) == fresh.is_used(snapshot, claim)

    def told(self, column):
        nodes = self.cache.nodes
        return {name: int(column[nodes.row(name)]) for name in nodes.names()}


TestNodeVolumesMachine = NodeVolumesMachine.TestCase
TestNodeVolumesMachine.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None
)


def test_what_is_thought_while_all_is_looked_at_again_is_forgotten() -> None:
    cache, kept = make.cluster("n1"), NodeVolumes()
    make.csi_volume(cache, "v1", "h1", "c1")
    make.claim(cache, "c1", volume="v1")
    user = make.pod("p1", "c1", node="n1")
    cache.add_pod(user, "n1")
    assert kept.count(cache.snapshot(0.0), "csi.x").tolist() == [1]
    cache._renew_dictionary()  # rows may be others' since: all nodes are looked at again
    snapshot = cache.snapshot(0.0)
    assert kept.count(snapshot.overlay(0, remove=[user]), "csi.x").tolist() == [0]
    assert kept.count(snapshot, "csi.x").tolist() == [1]


def test_a_class_that_changes_costs_the_nodes_whose_claims_wait_for_a_volume_of_it(
    monkeypatch,
) -> None:
    cache, kept = make.cluster(*(f"n{i}" for i in range(20))), NodeVolumes()
    for i in range(20):
        make.claim(cache, f"c{i}", of="late", volume="" if i == 7 else f"v{i}")
        make.csi_volume(cache, f"v{i}", f"h{i}", f"c{i}")
        cache.add_pod(make.pod(f"p{i}", f"c{i}", node=f"n{i}"), f"n{i}")
    kept.count(cache.snapshot(0.0), "csi.x")
    looked_at, real = [], attached._fill
    monkeypatch.setattr(attached, "_fill", lambda *of: looked_at.append(of[2]) or real(*of))
    make.put(cache, StorageClass, "late", version=2, provisioner="csi.y")
    assert kept.count(cache.snapshot(0.0), "csi.y")[7] == 1
    assert looked_at == [7]


def test_what_is_thought_costs_the_nodes_that_it_is_about(monkeypatch) -> None:
    cache, kept = make.cluster(*(f"n{i}" for i in range(20))), NodeVolumes()
    pods = [make.pod(f"p{i}", "c1", node=f"n{i}") for i in range(20)]
    for pod in pods:
        cache.add_pod(pod, pod.pod.node_name)
    snapshot = cache.snapshot(0.0)
    kept.count(snapshot, "csi.x")
    looked_at, real = [], attached._fill
    monkeypatch.setattr(attached, "_fill", lambda *of: looked_at.append(of[2]) or real(*of))
    for row in (3, 7):
        thought = snapshot.overlay(row, remove=[pods[row]])
        for _ in range(2):
            kept.count(thought, "csi.x")
    kept.count(snapshot, "csi.x")
    assert sorted(looked_at) == [3, 3, 7, 7]


def test_a_claim_that_says_the_same_has_no_pod_read_again(monkeypatch) -> None:
    cache, kept, read = make.cluster("n1", "n2"), NodeVolumes(), []
    make.csi_volume(cache, "v1", "h1", "c1")
    for name in ("n1", "n2"):
        cache.add_pod(make.pod(name, "c1", node=name), name)
    real = attached.attached_by
    monkeypatch.setattr(
        attached, "attached_by", lambda pod, *more, **of: read.append(pod) or real(pod, *more, **of)
    )
    for number in range(5):
        make.claim(cache, "c1", volume="v1", annotations={"note": str(number)}, version=number)
        assert kept.count(cache.snapshot(0.0), "csi.x").tolist() == [1, 1]
    assert len(read) <= 4, "as they came, and once more at most"
    make.claim(cache, "c1", of="none")
    assert kept.count(cache.snapshot(0.0), "csi.x").tolist() == [0, 0]
