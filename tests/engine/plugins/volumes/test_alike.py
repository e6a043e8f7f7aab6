"""Pods whose new claims are alike share a class, and each gets what it would get alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cycle import decide
from engine.framework.classupdater import _Asking
from engine.framework.decision import Decision
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.objects.storage import CSIDriver, CSIStorageCapacity, StorageClass, VolumeAttachment
from engine.pods.podinfo import PodInfo
from tests.builders import default_plugins, make_node
from tests.effort import examples
from tests.engine.plugins.volumes import builders as make

NODES = ("n0", "n1", "n2")


class World:
    """A cluster, a framework that shares and keeps, and one for which no pod is like another."""

    def __init__(self) -> None:
        self.cache = make.cluster(*NODES)
        profile = Profile("berth", default_plugins())
        self.kept = Framework(profile)
        self.fresh = Framework(profile, memo_bytes=0)
        self.names = iter(range(10_000))
        self.pods: list[str] = []
        self.waiting: tuple[PodInfo, PodInfo]

    def comes(self, *sizes: str, stays: bool = True) -> None:
        """A pod with new claims of these sizes is decided about, and may be placed."""
        name = f"p{next(self.names)}"
        claims = [f"{name}-{number}" for number, _ in enumerate(sizes)]
        for claim, size in zip(claims, sizes, strict=True):
            make.claim(self.cache, claim, size=size)
        self.place(name, *claims, stays=stays)

    def place(self, name: str, *claims: str, stays: bool = True) -> None:
        pod, alone = (make.pod(name, *claims) for _ in range(2))
        self.kept.pre_enqueue(pod, self.cache.snapshot(0.0))
        decision = self.decided(pod, alone)
        if not stays:
            self.waiting = pod, alone
        if decision.node is None or not stays:
            return
        self.cache.assume(pod, decision.node)
        clearance = self.kept.reserve(pod, self.cache.snapshot(0.0), decision.node)
        with unlike():
            same = self.fresh.reserve(alone, self.cache.snapshot(0.0), decision.node)
        assert clearance.reserved == same.reserved
        for effect in clearance.reserved:
            assert self.cache.assume_object(effect.value)
        self.pods.append(pod.uid)

    def decided(self, pod: PodInfo, alone: PodInfo) -> Decision:
        decision = decide(pod, self.cache.snapshot(0.0), self.kept)
        with unlike():
            other = decide(alone, self.cache.snapshot(0.0), self.fresh)
        # Each has an order of ties of its own.
        assert told(decision) == told(other)
        return decision

    # ---- what happens

    def claim_that_waits_is_meant(self, n: int) -> None:
        of = {"namespace": "default", "name": f"{self.waiting[0].name}-0"}
        make.volume(self.cache, f"for-{n}", on={make.HOST: NODES[n % 3]}, spec={"claimRef": of})

    def claim_that_waits_is_used(self, n: int) -> None:
        user = make.pod(f"other{n}", f"{self.waiting[0].name}-0", node=NODES[n % 3])
        self.cache.add_pod(user, NODES[n % 3])

    def places(self, n: int) -> None:
        self.comes("1Gi" if n < 4 else "2Gi")

    def places_two(self, _: int) -> None:
        self.comes("1Gi", "1Gi")

    def places_for_one_alone(self, n: int) -> None:
        make.claim(self.cache, f"alone{n}", mode="ReadWriteOncePod")
        self.place(f"lone{next(self.names)}", f"alone{n}")

    def places_with_node(self, n: int) -> None:
        name, chosen = f"c{next(self.names)}", {"volume.kubernetes.io/selected-node": NODES[n % 3]}
        make.claim(self.cache, name, annotations=chosen)
        self.place(name, name)

    def places_with_volume_meant(self, n: int) -> None:
        name = f"m{next(self.names)}"
        of = {"namespace": "default", "name": name}
        make.volume(self.cache, f"of-{name}", on={make.HOST: NODES[n % 3]}, spec={"claimRef": of})
        make.claim(self.cache, name)
        self.place(name, name)

    def places_with_claim_in_use(self, n: int) -> None:
        node = NODES[n % 3]
        make.claim(self.cache, f"used{n}")
        self.cache.add_pod(make.pod(f"user{n}", f"used{n}", node=node), node)
        self.place(f"u{next(self.names)}", f"used{n}")

    def leaves(self, n: int) -> None:
        if self.pods:
            self.cache.forget(self.pods.pop(n % len(self.pods)))

    def volume_comes(self, n: int) -> None:
        on = [None, {make.ZONE: "a"}, {make.ZONE: "b"}, *({make.HOST: one} for one in NODES)][n]
        make.volume(self.cache, f"v{next(self.names)}", on=on, size="2Gi")

    def volume_goes(self, n: int) -> None:
        self.goes("PersistentVolume", n)

    def goes(self, kind: str, n: int) -> None:
        for key in sorted(self.cache.store(kind).objects)[n : n + 1]:
            self.cache.remove_object(kind, key)

    def class_changes(self, n: int) -> None:
        zones = [{"matchLabelExpressions": [{"key": make.ZONE, "values": ["a"]}]}]
        how = "kubernetes.io/no-provisioner" if n > 2 else "csi.x"
        value = {"provisioner": how, "volumeBindingMode": "WaitForFirstConsumer"}
        allowed = zones if n % 2 else None
        make.put(self.cache, StorageClass, "late", n, allowedTopologies=allowed, **value)

    def driver_changes(self, n: int) -> None:
        missing = {"storageCapacity": n % 2 == 0, "preventPodSchedulingIfMissing": n > 3}
        make.put(self.cache, CSIDriver, "csi.x", next(self.names), spec=missing)

    def room_changes(self, n: int) -> None:
        there = {"matchLabels": {make.HOST: NODES[n % 3]}}
        room = {"storageClassName": "late", "capacity": f"{n}Gi", "nodeTopology": there}
        make.put(self.cache, CSIStorageCapacity, f"room{n % 3}", next(self.names), **room)

    def limit_changes(self, n: int) -> None:
        make.csi_node(self.cache, NODES[n % 3], n, next(self.names))

    def attaches(self, n: int) -> None:
        make.csi_volume(self.cache, f"att{n}", f"handle{n}")
        make.attachment(self.cache, f"a{n}", NODES[n % 3], f"att{n}")

    def detaches(self, n: int) -> None:
        self.goes(VolumeAttachment.__name__, n)

    def node_changes(self, n: int) -> None:
        labels = {make.HOST: NODES[n % 3], make.ZONE: "ab"[n % 2]}
        self.cache.add_node(make_node(NODES[n % 3], labels=labels))


def told(one: Decision) -> tuple[object, ...]:
    return one.feasible, one.total, one.ties, one.fit_error, one.error


def unlike() -> AbstractContextManager[object]:
    return patch("engine.plugins.volumes.attached._alike", lambda *_: None)


HAPPENINGS: tuple[Callable[[World, int], None], ...] = (
    *[World.places, World.places_two, World.places_for_one_alone, World.places_with_node],
    *[World.places_with_volume_meant, World.places_with_claim_in_use, World.leaves],
    *[World.volume_comes, World.volume_comes, World.volume_goes, World.class_changes],
    *[World.driver_changes, World.room_changes, World.limit_changes],
    *[World.attaches, World.detaches, World.node_changes],
    *[World.claim_that_waits_is_meant, World.claim_that_waits_is_used],
)


@given(steps=st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 5)), max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_what_is_shared_is_what_each_would_get_alone(steps) -> None:
    world = World()
    for number in range(3):
        world.limit_changes(number)
        world.volume_comes(number + 3)
    for happens, number in steps:
        world.comes("1Gi", stays=False)
        happens(world, number)
        world.decided(*world.waiting)


@pytest.mark.parametrize("local", [True, False])
def test_pods_with_claims_alike_ask_once_about_all_nodes(monkeypatch, local) -> None:
    world, filled, fill = World(), [], _Asking.fill
    for number in range(9 if local else 0):
        make.volume(world.cache, f"v{number}", on={make.HOST: NODES[number % 3]})
    make.csi_node(world.cache, "n1", 39)
    monkeypatch.setattr(_Asking, "fill", lambda one, *of: filled.append(one.by) or fill(one, *of))
    for _ in range(9):
        world.comes("1Gi")
    assert filled.count(world.kept._updater) == 1
    assert len(world.pods) == 9


def test_of_pods_with_claims_alike_none_is_tried_for_all() -> None:
    world = World()
    make.claim(world.cache, "mine")
    pod, snapshot = make.pod("p", "mine"), world.cache.snapshot(0.0)
    assert world.kept.class_key(pod, snapshot) is None
    assert world.kept.class_key(make.pod("q"), snapshot) is not None
