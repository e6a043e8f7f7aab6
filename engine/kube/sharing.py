"""Equal parts of many pods become one object: replicas share containers, tolerations, labels.

Changes no value. What was shared must not be written to, as all decoded objects must not.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import force_setattr

from engine.memo import Memo
from engine.objects import Pod

_SPEC = ("containers", "init_containers", "tolerations", "affinity", "node_selector")
_METADATA = ("labels", "owner_references")
_STATUS = ("conditions", "container_statuses", "init_container_statuses")
_BYTES = 16 << 20
_BYTES_PER_BYTE = 4
"""What a decoded part takes, for each byte of its encoding."""


class PodSharing:
    """Remembers parts that were seen, and puts them in the place of equal ones."""

    def __init__(self) -> None:
        self._parts: Memo[bytes, Any] = Memo(_BYTES)
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, pod: Pod) -> None:
        """Replaces parts of a pod that nobody has seen yet by equal ones. About 2 microseconds."""
        self._share(pod.spec, _SPEC)
        self._share(pod.metadata, _METADATA)
        self._share(pod.status, _STATUS)

    def _share(self, struct: msgspec.Struct, fields: tuple[str, ...]) -> None:
        for name in fields:
            part = getattr(struct, name)
            if part:
                # Of equal bytes, under one name, the value is equal: the name is the type.
                key = self._encode((name, part))
                known = self._parts.get(key)
                if known is None:
                    self._parts.put(key, part, len(key) * (1 + _BYTES_PER_BYTE))
                else:
                    force_setattr(struct, name, known)
