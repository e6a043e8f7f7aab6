"""What the plugins of storage want done, and what recorded cases cannot show."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from engine.configuration.scheduler import ProfileDocument
from engine.cycle import conclude, decide
from engine.framework.effects import AssumeObject, Await, Patch
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.framework.status import Code
from engine.objects import DiskSources, LabelSelector, from_builtins
from engine.objects.storage import CSIDriver, CSINode, CSIStorageCapacity, PersistentVolume
from engine.plugins.profiles import make_profile
from engine.plugins.registry import make_plugin
from engine.plugins.volumes.filters import Alone
from engine.plugins.volumes.migration import csi_affinity, csi_handle, migration_of
from engine.plugins.volumes.pools import reach_of_labels
from engine.pods.podinfo import PodInfo
from tests.builders import Cache, default_plugins, make_pod
from tests.engine.plugins.volumes import builders as make


def framework() -> Framework:
    return Framework(Profile("berth", default_plugins()))


def act(cache: Cache, pod: PodInfo, node: str = "") -> tuple[Any, ...]:
    """Decides, assumes the pod and what it reserves; the effects of reserve and pre-bind."""
    with_plugins = framework()
    decision = decide(pod, cache.snapshot(0.0), with_plugins)
    assert decision.node is not None, decision.fit_error and decision.fit_error.message()
    assert node in ("", decision.node)
    cache.assume(pod, decision.node)
    clearance = with_plugins.reserve(pod, cache.snapshot(0.0), decision.node)
    for effect in clearance.reserved:
        assert isinstance(effect, AssumeObject)
        assert cache.assume_object(effect.value)
    return clearance.reserved, clearance.pre_bind


def why(cache: Cache, pod: PodInfo) -> str:
    error = decide(pod, cache.snapshot(0.0), framework()).fit_error
    return "" if error is None else error.message()


def test_plain_pods_are_nobodys_business() -> None:
    cache = make.cluster("n1", "n2")
    plain = make_pod("plain", spec={"volumes": [{"name": "token"}]})
    assert not framework().acts(plain)
    for name in ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"):
        points = make_plugin(name).points()
        assert points.class_key(plain, cache.snapshot(0.0)) is None
        assert points.pre_filter is not None
        assert points.pre_filter(plain, cache.snapshot(0.0)).status.code is Code.SKIP


def test_a_profile_without_the_filter_finds_no_volume_and_takes_none() -> None:
    off = {"plugins": {"filter": {"disabled": [{"name": "VolumeBinding"}]}}}
    without = Framework(make_profile(ProfileDocument.model_validate(off)))
    cache = make.cluster("n1", "n2")
    make.volume(cache, "there", on={make.HOST: "n2"})
    make.claim(cache, "data")
    pod = make.pod("p", "data")
    decision = decide(pod, cache.snapshot(0.0), without)
    assert decision.feasible == 2
    cache.assume(pod, str(decision.node))
    clearance = without.reserve(pod, cache.snapshot(0.0), str(decision.node))
    assert (clearance.status.ok, clearance.reserved, clearance.pre_bind) == (True, (), ())


# ---- volumes that exist ----------------------------------------------------------------------


def bound_to_be() -> tuple[Cache, tuple[Any, ...]]:
    cache = make.cluster("n1", "n2")
    make.volume(cache, "big", on={make.HOST: "n2"}, size="5Gi")
    make.volume(cache, "small", on={make.HOST: "n2"}, size="2Gi")
    make.claim(cache, "data")
    return cache, act(cache, make.pod("p", "data"), node="n2")


def test_the_smallest_volume_is_assumed_and_written_for_the_claim() -> None:
    cache, (reserved, before_binding) = bound_to_be()
    (assumed,) = reserved
    assert (assumed.kind, assumed.key) == ("PersistentVolume", "small")
    patch, wait = before_binding
    assert patch == Patch(
        "PersistentVolume",
        "",
        "small",
        {
            "metadata": {
                "resourceVersion": "1",
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": "default",
                    "name": "data",
                    "uid": "uid-data",
                }
            },
        },
    )
    assert isinstance(wait, Await)
    assert (wait.kinds, wait.timeout_seconds) == (
        {"PersistentVolume", "PersistentVolumeClaim"},
        600.0,
    )
    # Nobody else gets it meanwhile; taken back, it is to be had again.
    make.claim(cache, "other")
    (taken,), _ = act(cache, make.pod("q", "other"))
    assert taken.key == "big"
    cache.restore_object("PersistentVolume", "small", "1")
    make.claim(cache, "third")
    assert act(cache, make.pod("r", "third"))[0][0].key == "small"


def test_a_binding_is_waited_for_until_both_sides_say_so() -> None:
    cache, (reserved, (_, wait)) = bound_to_be()

    def said() -> Code:
        return wait.check(cache.snapshot(0.0)).code

    assert said() is Code.PENDING
    value = reserved[0].value
    make.put(cache, PersistentVolume, "small", 2, **builtins(value))
    assert said() is Code.PENDING
    make.claim(cache, "data", volume="small", version=2)
    assert said() is Code.SUCCESS
    make.volume(cache, "small", on={make.HOST: "n2"}, version=3)
    assert wait.check(cache.snapshot(0.0)).reasons == (
        'binding volumes: ClaimRef got reset for pv "small"',
    )
    cache.remove_object("PersistentVolume", "small")
    assert "not found" in wait.check(cache.snapshot(0.0)).reasons[0]
    cache.remove_node("n2")
    assert wait.check(cache.snapshot(0.0)).code is Code.ERROR


def builtins(volume: PersistentVolume) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - of this line only

    value = msgspec.to_builtins(volume)
    return {"spec": value["spec"], "status": value["status"]}


def test_two_claims_of_a_pod_get_two_volumes_of_its_node() -> None:
    cache = make.cluster("n1", "n2")
    for number, host in enumerate(("n1", "n2", "n2")):
        make.volume(cache, f"v{number}", on={make.HOST: host})
    make.claim(cache, "a")
    make.claim(cache, "b")
    reserved, _ = act(cache, make.pod("p", "a", "b"))
    # On n1 one of them would have to be made, which its class allows: no volume there is too much.
    assert {effect.key for effect in reserved} <= {"v0", "default/b", "v1", "v2"}
    assert len(reserved) == 2


def steps(claims: int) -> int:
    """How often nodes are asked for their first volume, of a pod whose claims any one suits."""
    cache, calls = make.cluster("n1", "n2"), 0
    for number in range(claims):
        make.volume(cache, f"v{number}")
        make.claim(cache, f"c{number}", size=f"{number + 1}Mi")

    def counted(_frame: object, event: str, of: Any) -> None:
        nonlocal calls
        calls += event == "c_call" and getattr(of, "__self__", None) is np.minimum

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        act(cache, make.pod("p", *[f"c{number}" for number in range(claims)]))
    finally:
        sys.setprofile(before)
    return calls


def test_claims_that_any_volume_suits_cost_a_look_each() -> None:
    assert steps(60) < 2.5 * steps(30)


def test_a_pod_of_many_claims_or_requirements_of_theirs_waits_and_is_told_so() -> None:
    cache = make.cluster("n1")
    for number in range(257):
        make.claim(cache, f"c{number}")
        make.volume(cache, f"v{number}", spec={"csi": {"driver": "csi.x"}})
        make.claim(cache, f"b{number}", volume=f"v{number}")
    odd = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(128)]
    make.claim(cache, "odd", selector={"matchExpressions": odd})
    words = "pod has more than 256 PersistentVolumeClaims, or more than 128 unbound ones"
    for kind, most in (("c", 128), ("b", 256)):
        names = [f"{kind}{number}" for number in range(most + 1)]
        assert why(cache, make.pod("fits", *names[:-1])) == ""
        assert words in why(cache, make.pod("many", *names))
    assert words in why(cache, make.pod("odd", "odd"))


# ---- volumes that are made ---------------------------------------------------------------------


def test_a_volume_is_made_for_the_chosen_node_and_waited_for() -> None:
    cache = make.cluster("n1")
    make.claim(cache, "data")
    (assumed,), (patch, wait) = act(cache, make.pod("p", "data"))
    assert assumed.value.metadata.annotations == {"volume.kubernetes.io/selected-node": "n1"}
    assert patch.body == {
        "metadata": {
            "resourceVersion": "1",
            "annotations": {"volume.kubernetes.io/selected-node": "n1"},
        }
    }
    assert wait.check(cache.snapshot(0.0)).code is Code.PENDING
    chosen = {"volume.kubernetes.io/selected-node": "n1"}
    make.claim(cache, "data", version=2, annotations=chosen)
    assert wait.check(cache.snapshot(0.0)).code is Code.PENDING
    make.claim(cache, "data", version=3, annotations=chosen, volume="made")
    assert wait.check(cache.snapshot(0.0)).code is Code.PENDING, "its volume is not seen yet"
    make.volume(cache, "made", on={make.HOST: "n1"})
    assert wait.check(cache.snapshot(0.0)).code is Code.SUCCESS
    make.volume(cache, "made", on={make.HOST: "n2"}, version=2)
    assert "node affinity doesn't match" in wait.check(cache.snapshot(0.0)).reasons[0]
    make.claim(cache, "data", version=4)
    assert wait.check(cache.snapshot(0.0)).reasons == (
        'binding volumes: provisioning failed for PVC "data"',
    )


def test_a_claim_whose_node_is_chosen_draws_other_pods_there_and_is_not_written_again() -> None:
    cache = make.cluster("n1", "n2", "n3")
    make.claim(cache, "data", annotations={"volume.kubernetes.io/selected-node": "n3"})
    reserved, effects = act(cache, make.pod("p", "data"), node="n3")
    assert reserved == ()
    assert [type(effect) for effect in effects] == [Await]


def test_a_capacity_that_only_says_the_largest_volume_scores_nothing_and_breaks_nothing() -> None:
    cache = make.cluster("n1", "n2")
    make.put(cache, CSIDriver, "csi.x", spec={"storageCapacity": True})
    topology = {"matchLabels": {make.ZONE: "a"}}
    value = {"nodeTopology": topology, "storageClassName": "late", "maximumVolumeSize": "2Gi"}
    make.put(cache, CSIStorageCapacity, "cap", **value)
    make.claim(cache, "data")
    act(cache, make.pod("p", "data"), node="n1")
    make.claim(cache, "large", size="3Gi")
    short = "0/2 nodes are available: 2 node(s) did not have enough free storage."
    assert why(cache, make.pod("q", "large")) == short
    make.put(cache, CSIStorageCapacity, "cap", 2, **{**value, "maximumVolumeSize": "3Gi"})
    act(cache, make.pod("q", "large"), node="n1")


# ---- other plugins -----------------------------------------------------------------------------


def test_a_claim_for_one_pod_is_free_again_once_its_pod_is_gone() -> None:
    cache = make.cluster("n1", "n2")
    make.claim(cache, "one", volume="pv", mode="ReadWriteOncePod")
    make.csi_volume(cache, "pv", "h", of="one")
    cache.add_pod(make.pod("user", "one", node="n1"), "n1")
    assert "ReadWriteOncePod" in why(cache, make.pod("p", "one"))
    cache.remove_pod("uid-default-user")
    assert why(cache, make.pod("p", "one")) == ""


def test_taking_away_a_pod_of_any_namespace_seems_to_free_a_claim_of_that_name() -> None:
    alone = Alone(frozenset({"one"}), 1)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "one"}}]
    other = make_pod("o", namespace="other", spec={"volumes": volumes})
    snapshot = make.cluster("n1").snapshot(0.0)
    assert alone.with_pod(other, snapshot, 0, -1).users == 0
    assert alone.with_pod(make.pod("x", "two"), snapshot, 0, -1).users == 1


@pytest.mark.parametrize(("limit", "fits"), [(1, False), (2, True)])
def test_a_shared_volume_counts_once(limit: int, fits: bool) -> None:
    cache = make.cluster("n1")
    make.csi_node(cache, "n1", limit)
    for name in ("a", "b"):
        make.claim(cache, name, volume=f"pv-{name}")
        make.csi_volume(cache, f"pv-{name}", f"h-{name}", of=name)
    for name in ("one", "two"):
        cache.add_pod(make.pod(name, "a", node="n1"), "n1")
    make.attachment(cache, "va", "n1", "pv-a")
    assert why(cache, make.pod("p", "a")) == ""
    message = why(cache, make.pod("q", "b"))
    assert ("exceed max volume count" in message) is not fits


@pytest.mark.parametrize(
    ("source", "labels", "handle"),
    [
        ({"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}, {}, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "anything"}}, {}, "anything"),
        ({"awsElasticBlockStore": {"volumeID": "aws://z/1"}}, {}, None),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {},
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {make.ZONE: "eu-w1-a__eu-w1-b"},
            "projects/UNSPECIFIED/regions/eu-w1/disks/d",
        ),
        ({"gcePersistentDisk": {"pdName": "d"}}, {make.ZONE: "eu-w1-a__eu-w2-b"}, None),
        ({"gcePersistentDisk": {"pdName": "d"}}, {make.ZONE: "a__b"}, None),
        ({"azureDisk": {"diskURI": "/d", "kind": "Managed"}}, {}, "/d"),
        ({"azureDisk": {"diskURI": "/d", "kind": "Shared"}}, {}, None),
        ({"cinder": {"volumeID": "c"}}, {}, "c"),
    ],
)
def test_drivers_that_left_the_tree(
    source: dict[str, Any], labels: dict[str, str], handle: str | None
) -> None:
    sources = from_builtins(DiskSources, source)
    of = migration_of(sources)
    assert of is not None
    if handle is None:
        with pytest.raises(ValueError, match=r"\w"):
            csi_handle(of, sources, labels)
    else:
        assert csi_handle(of, sources, labels) == handle


def test_a_volume_that_cannot_be_translated_leaves_out_the_nodes_that_ask_for_it() -> None:
    cache = make.cluster("n1", "n2")
    migrated = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/azure-disk"}
    make.put(cache, CSINode, "n1", metadata={"annotations": migrated})
    make.claim(cache, "data", volume="disk")
    make.volume(cache, "disk", spec={"azureDisk": {"diskURI": "/d", "kind": "Shared"}})
    act(cache, make.pod("p", "data"), node="n2")
    cache.remove_node("n2")
    assert "kind(Shared) is not supported in csi migration" in why(cache, make.pod("q", "data"))


def test_nobody_is_evicted_because_the_volumes_of_a_node_cannot_be_told() -> None:
    cache = make.cluster("n1")
    make.csi_node(cache, "n1", 5)
    make.claim(cache, "there-v")  # of nobody
    cache.add_pod(make.pod("there", v={"ephemeral": {}}), "n1")
    make.claim(cache, "c")
    volumes = [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]
    asks = make_pod("new", priority=9, spec={"volumes": volumes})
    decision = conclude(asks, cache.snapshot(0.0), framework())
    assert "PVC default/there-v was not created for pod default/there" in decision.message
    assert decision.rescue is not None
    assert not decision.rescue.evictions


def test_the_zone_of_a_volume_is_told_in_the_drivers_words() -> None:
    cache = make.cluster()
    ebs = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    beta = {"failure-domain.beta.kubernetes.io/region": "r"}
    by_affinity = make.volume(cache, "a", on={make.ZONE: "z", **beta}, spec=ebs)
    by_label = make.volume(cache, "b", spec=ebs, metadata={"labels": {make.ZONE: "z__y"}})
    of = migration_of(by_label.spec)
    assert of is not None
    for volume, zones in ((by_affinity, ["z"]), (by_label, ["y", "z"])):
        selector = csi_affinity(of, volume)
        assert selector is not None
        first = (selector.node_selector_terms or [])[0].match_expressions or []
        assert (first[0].key, first[0].values) == ("topology.ebs.csi.aws.com/zone", zones)


@pytest.mark.parametrize(
    "odd",
    [
        [{"key": "a", "operator": "Gt", "values": ["1"]}],
        [{"key": f"a{i}", "operator": "NotIn", "values": ["1"]} for i in range(501)],
    ],
)
def test_a_selector_that_cannot_be_read_or_is_too_long_selects_nothing(odd) -> None:
    selector = reach_of_labels(from_builtins(LabelSelector, {"matchExpressions": odd}))
    assert selector is not None
    assert not selector.terms


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"bindTimeoutSeconds": -1}, "negative"),
        ({"shape": [{"utilization": 200, "score": 1}]}, "utilization"),
        ({"bind": 1}, "unknown field"),
    ],
)
def test_arguments_are_read_strictly(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_plugin("VolumeBinding", args)


def test_claims_that_cannot_be_used_say_why() -> None:
    cache = make.cluster("n1")
    make.claim(cache, "lost", volume="gone", status={"phase": "Lost"})
    lost = 'persistentvolumeclaim "lost" bound to non-existent persistentvolume "gone"'
    assert lost in why(cache, make.pod("p", "lost"))
    make.claim(cache, "now", of="now")
    unbound = "pod has unbound immediate PersistentVolumeClaims"
    assert unbound in why(cache, make.pod("p", "now"))
