"""A handler that checks that what it is told makes sense, and remembers it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.objects import ObjectMeta, Pod, object_key


@dataclass
class Recorder:
    known: dict[str, Pod] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)
    synced: int = 0

    def on_add(self, obj: Pod) -> None:
        key = object_key(obj.metadata)
        assert key not in self.known
        assert obj.metadata.uid not in self.dead, "came back from the dead"
        self.known[key] = obj
        self.calls.append(f"add {_text(obj)}")

    def on_update(self, old: Pod, new: Pod) -> None:
        key = object_key(new.metadata)
        assert self.known[key] is old
        assert old.metadata.uid == new.metadata.uid
        assert int(old.metadata.resource_version) < int(new.metadata.resource_version)
        self.known[key] = new
        self.calls.append(f"update {_text(old)} {_text(new)}")

    def on_delete(self, obj: Pod) -> None:
        old = self.known.pop(object_key(obj.metadata))
        assert old.metadata.uid == obj.metadata.uid
        self.dead.add(obj.metadata.uid)
        self.calls.append(f"delete {_text(old)}")

    def on_synced(self) -> None:
        self.synced += 1
        self.calls.append("synced")

    def on_unreadable(self, meta: ObjectMeta, reason: str) -> None:
        assert reason
        self.unreadable.append(meta.name)
        self.calls.append(f"unreadable {meta.name}")


def _text(obj: Pod) -> str:
    return f"{obj.metadata.name}@{obj.metadata.resource_version}"
