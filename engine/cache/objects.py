"""API objects of one kind by key: as the server has them, or as we assume they will be.

Decides nothing. A key is `namespace/name`, or the name alone where there are no namespaces.

    (unknown) ── put ──▶ known ── assume ──▶ assumed ── put (another version) ──▶ known
                           ▲                    │
                           └───── restore ──────┘

Source: kubernetes plugins/volumebinding/passive_assume_cache.go.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from engine.objects import object_key

LOG_KEYS: Final = 1 << 14
Objects = Mapping[str, Any]
TextOf = Callable[[Any], str]


class ObjectStore:
    """The objects of one kind; `version` counts changes."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Empty; `changed` is told of every change."""
        self._changed = changed
        self.objects: dict[str, Any] = {}
        self.version = 0
        # The server's version of assumed objects.
        self._said: dict[str, Any] = {}
        self._log: deque[str] = deque(maxlen=LOG_KEYS)
        self._indexes: dict[str, tuple[TextOf, dict[str, dict[str, Any]]]] = {}

    def put(self, item: Any) -> None:  # noqa: ANN401 - any struct with metadata
        """The server says so. A version that is not the assumed one's ends the assumption."""
        key = object_key(item.metadata)
        if key in self._said:
            self._said[key] = item
            if self.objects[key].metadata.resource_version == item.metadata.resource_version:
                return
            del self._said[key]
        self._replace(key, item)

    def remove(self, key: str) -> None:
        """It is gone, assumed or not."""
        self._said.pop(key, None)
        if key in self.objects:
            self._replace(key, None)

    def assume(self, item: Any) -> bool:  # noqa: ANN401 - any struct with metadata
        """Assumes a new version of the object; False if the server has changed it meanwhile."""
        key = object_key(item.metadata)
        said = self.said(key)
        if said is None or said.metadata.resource_version != item.metadata.resource_version:
            return False
        self._said[key] = said
        self._replace(key, item)
        return True

    def restore(self, key: str, resource_version: str) -> None:
        """Takes back an assumption made on that version; a newer object stays."""
        said = self._said.get(key)
        if said is not None and self.objects[key].metadata.resource_version == resource_version:
            del self._said[key]
            self._replace(key, said)

    def said(self, key: str) -> Any:  # noqa: ANN401 - any struct with metadata
        """What the server says of it, None if it has none."""
        return self._said.get(key, self.objects.get(key))

    def changed_since(self, version: int) -> list[str] | None:
        """The keys of what changed after `version`; None if the log does not reach back."""
        behind = self.version - version
        if behind > len(self._log):
            return None
        return list(dict.fromkeys(islice(reversed(self._log), max(behind, 0))))

    def by(self, index: str, of: TextOf) -> Mapping[str, Objects]:
        """The objects by a text of theirs, then by key; built on first use, kept up to date."""
        known = self._indexes.get(index)
        if known is None:
            known = of, {}
            for key, item in self.objects.items():
                known[1].setdefault(of(item), {})[key] = item
            self._indexes[index] = known
        return known[1]

    def _replace(self, key: str, item: Any) -> None:  # noqa: ANN401 - any struct or None
        old = self.objects.get(key)
        for index, (of, groups) in list(self._indexes.items()):
            try:
                if old is not None:
                    text = of(old)
                    del groups[text][key]
                    if not groups[text]:
                        del groups[text]
                if item is not None:
                    groups.setdefault(of(item), {})[key] = item
            except Exception:  # noqa: BLE001 - a plugin's, which meets it when it asks again
                del self._indexes[index]
        if item is None:
            del self.objects[key]
        else:
            self.objects[key] = item
        self._log.append(key)
        self.version += 1
        self._changed()


class ObjectStores:
    """The objects of all kinds."""

    def __init__(self) -> None:
        self._stores = defaultdict[str, ObjectStore](lambda: ObjectStore(self.versions.clear))
        self.versions: dict[tuple[str, ...], int] = {}
        """What `version` said since the last change of an object."""

    def of(self, kind: str) -> ObjectStore:
        """Those of a kind."""
        return self._stores[kind]

    def version(self, kinds: tuple[str, ...]) -> int:
        """See `Snapshot.objects_version`."""
        stores = [self._stores[kind] for kind in kinds if kind in self._stores]
        version = self.versions[kinds] = sum([store.version for store in stores])
        return version
