"""The store of one kind against a naive model: what is assumed ends with the server's next word."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cache.objects import ObjectStore
from engine.objects import ObjectMeta, object_key
from engine.objects.storage import PersistentVolume, PersistentVolumeSpec

NAMES = st.sampled_from(["a", "b", "c"])
CLASSES = st.sampled_from(["fast", "slow", ""])
VERSIONS = st.integers(1, 3)


def volume(name: str, version: int, of_class: str) -> PersistentVolume:
    meta = ObjectMeta(name=name, resource_version=str(version))
    return PersistentVolume(meta, PersistentVolumeSpec(storage_class_name=of_class))


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = ObjectStore(lambda: None)
        self.by_class = self.store.by("class", lambda one: one.spec.storage_class_name)
        self.said: dict[str, PersistentVolume] = {}
        self.assumed: dict[str, PersistentVolume] = {}

    @rule(name=NAMES, version=VERSIONS, of_class=CLASSES)
    def the_server_says(self, name, version, of_class):
        one = volume(name, version, of_class)
        if name in self.assumed and self.assumed[name].metadata != one.metadata:
            del self.assumed[name]
        self.store.put(one)
        self.said[name] = one

    @rule(name=NAMES)
    def it_goes(self, name):
        self.store.remove(name)
        self.said.pop(name, None)
        self.assumed.pop(name, None)

    @rule(name=NAMES, version=VERSIONS, of_class=CLASSES)
    def it_is_assumed(self, name, version, of_class):
        one = volume(name, version, of_class)
        known = name in self.said and self.said[name].metadata == one.metadata
        assert self.store.assume(one) is known
        if known:
            self.assumed[name] = one

    @rule(name=NAMES, version=VERSIONS)
    def it_is_taken_back(self, name, version):
        self.store.restore(name, str(version))
        if name in self.assumed and self.assumed[name].metadata.resource_version == str(version):
            del self.assumed[name]

    @invariant()
    def it_holds_what_the_model_holds(self):
        seen = {**self.said, **self.assumed}
        assert self.store.objects == seen
        assert {name: self.store.said(name) for name in self.said} == self.said
        groups = {}
        for name, one in seen.items():
            groups.setdefault(one.spec.storage_class_name, {})[name] = one
        assert self.by_class == groups


TestStoreMachine = StoreMachine.TestCase


def test_the_version_counts_changes_that_are_seen():
    store = ObjectStore(lambda: None)
    store.put(volume("a", 1, "fast"))
    assert store.version == 1
    store.remove("b")
    store.restore("a", "1")
    assert store.version == 1
    assert store.assume(volume("a", 1, "slow"))
    store.put(volume("a", 1, "fast"))
    assert (store.version, store.objects["a"].spec.storage_class_name) == (2, "slow")


def test_keys_have_the_namespace_of_kinds_that_have_one():
    assert object_key(ObjectMeta("a", "ns")) == "ns/a"
    assert object_key(ObjectMeta("a")) == "a"
