"""Pools against the obvious loop: the first that suits, reaches the row and is not avoided."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.objects.storage import PersistentVolume
from engine.plugins.volumes.matching import Storage
from engine.plugins.volumes.pools import Reach, reach_of_volume
from tests.effort import examples
from tests.engine.plugins.volumes import builders as make

PLACES = st.sampled_from(
    [
        None,
        {make.ZONE: "a"},
        {make.HOST: "n1"},
        {make.HOST: "n3"},
        {make.ZONE: "b", "x": "y"},
        {make.ZONE: "a", make.HOST: "n1"},
        {make.HOST: "n3", make.ZONE: "a"},
        {make.ZONE: "b", make.HOST: "n1"},
        {make.ZONE: "b", make.HOST: "n2", "x": "y"},
    ]
)
CHANGES = st.lists(
    st.tuples(
        st.sampled_from("uvwxyz"),
        st.sampled_from(["1Gi", "2Gi", "1024Mi"]),
        PLACES,
        st.sampled_from(["put", "put", "claim", "remove"]),
    ),
    max_size=25,
)


@given(changes=CHANGES, asked=st.sets(st.integers(0, 25)))
@settings(max_examples=examples(60), deadline=None)
def test_the_first_of_a_pool_is_found_for_all_rows_at_once(changes, asked) -> None:
    cache = make.cluster("n1", "n2", "n3")
    pools = Storage().volumes
    for number, (name, size, place, what) in enumerate(changes):
        if what == "remove":
            cache.remove_object(PersistentVolume.__name__, name)
        else:
            spec = {"claimRef": {"namespace": "other", "name": "x"}} if what == "claim" else {}
            make.volume(cache, name, on=place, size=size, spec=spec)
        if number in asked:
            compare(cache, pools)
    compare(cache, pools)


def test_classes_without_volumes_have_no_pool_each() -> None:
    cache, pools = make.cluster("n1"), Storage().volumes
    for number in range(9):
        make.volume(cache, "v", spec={"storageClassName": f"gone{number}"})
        for name, size in (("gone", 1), ("odd", 0)):
            assert len(pools.of(cache.snapshot(0.0), f"{name}{number}").items) == size
        cache.remove_object(PersistentVolume.__name__, "v")
    pools.of(cache.snapshot(0.0), "gone8")
    assert list(pools._pools) == [""]


class Counting(Reach):
    """Counts how often all rows are looked at for a selector."""

    masks = 0

    def mask(self, selector):
        self.masks += 1
        return super().mask(selector)


def test_objects_that_name_several_labels_are_looked_up_and_not_compared() -> None:
    cache, pools = make.cluster("n1", "n2", "n3"), Storage().volumes
    for name in ("n3", "n2", "n1", "n4"):
        make.volume(cache, f"of-{name}", on={make.HOST: name, make.ZONE: "a"})
    snapshot = cache.snapshot(0.0)
    reach = Counting(snapshot, slice(0, 3))
    pool = pools.of(snapshot, "late")
    chosen = pool.first(0, lambda _: True, reach)
    names = ["" if n < 0 else pool.items[n].metadata.name for n in chosen.tolist()]
    assert names == ["of-n1", "", "of-n3"], "n2 is in zone b"
    assert reach.masks == 0


def compare(cache, pools) -> None:
    snapshot = cache.snapshot(0.0)
    reach = Reach(snapshot, slice(0, 3))
    pool = pools.of(snapshot, "late")
    found = []
    for least in (0, 2 * 1024**3 * 10**9):
        chosen = pool.first(least, lambda _: True, reach, [one for one, _ in found])
        names = ["" if n < 0 else pool.items[n].metadata.name for n in chosen.tolist()]
        taken = [earlier for _, earlier in found]
        assert names == naive(snapshot, least, taken)
        found.append((chosen, names))


def naive(snapshot, least, taken) -> list[str]:
    sizes = {"1Gi": 1024**3, "1024Mi": 1024**3, "2Gi": 2 * 1024**3}
    there = [v for v in snapshot.objects("PersistentVolume").values() if v.spec.claim_ref is None]
    order = sorted(there, key=lambda v: (sizes[v.spec.capacity["storage"]], v.metadata.name))
    names = []
    for row in range(3):
        name = ""
        for one in order:
            affinity = one.spec.node_affinity
            selector = reach_of_volume(affinity and affinity.required)
            fits = selector is None or selector.mask(snapshot.nodes, np.array([row]))[0]
            free = all(earlier[row] != one.metadata.name for earlier in taken)
            if fits and free and sizes[one.spec.capacity["storage"]] * 10**9 >= least:
                name = one.metadata.name
                break
        names.append(name)
    return names
