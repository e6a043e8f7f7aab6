"""Equal parts of many pods become one object, and what nobody reads of pods on nodes is dropped.

Replicas share containers, tolerations, labels; short words that many pods have are one text each,
but none that `sys.intern` knows: Python 3.12 keeps those for ever, and users make up names.
What was shared must not be written to, as all decoded objects must not.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from engine.memo import Memo
from engine.objects import Pod, Volume
from engine.pods.podinfo import is_settled

_SPEC = ("containers", "init_containers", "tolerations", "affinity", "node_selector", "volumes")
_METADATA = ("labels", "owner_references")
_STATUS = ("conditions", "container_statuses", "init_container_statuses")
_SPEC_WORDS = (
    "scheduler_name",
    "service_account_name",
    "priority_class_name",
    "runtime_class_name",
    "preemption_policy",
)
_WHOLE: Final = ("status", "spec")
_STATUS_WORDS = ("phase", "qos_class", "nominated_node_name")
_BYTES = 16 << 20
_BYTES_PER_BYTE = 4
"""What a decoded part takes, for each byte of its encoding."""
_BYTES_OF_A_WORD = 64
"""... and a word beside its letters."""
_SOURCES: Final = tuple([field for field in Volume.__struct_fields__ if field != "name"])

_OF_METADATA: Final = {
    "annotations": "annotations", "created": "creation_timestamp", "owners": "owner_references",
}  # fmt: skip
_STATUSES: Final = "statuses"
EVERYTHING: Final = frozenset({*_OF_METADATA, _STATUSES})
"""What of a pod on a node is dropped if no plugin reads it: of its metadata, and of its status."""


class PodSharing:
    """Remembers parts that were seen, and puts them in the place of equal ones.

    `keep` names what of `EVERYTHING` somebody reads of pods on nodes.
    """

    def __init__(self, keep: frozenset[str] = EVERYTHING) -> None:
        self._parts: Memo[bytes | str, Any] = Memo(_BYTES)
        self._encode = msgspec.msgpack.Encoder().encode
        self.keep(keep)

    def keep(self, parts: frozenset[str]) -> None:
        """Pods that come from now on keep these parts."""
        self.kept = parts
        self._drops = [field for name, field in _OF_METADATA.items() if name not in parts]
        self._drops_of_status = () if _STATUSES in parts else _STATUS

    def __call__(self, pod: Pod, old: Pod | None = None) -> None:
        """Makes a pod that nobody has seen yet as small as it can be; `old` is how it was."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        self._intern(meta, ("namespace",))
        volumes = spec.volumes
        if volumes and not any(getattr(one, source) for one in volumes for source in _SOURCES):
            force_setattr(spec, "volumes", None)  # they say nothing that is read
        if spec.node_name and self.kept != EVERYTHING and _is_at_rest(pod):
            for field in self._drops:
                force_setattr(meta, field, None)
            for field in self._drops_of_status:
                force_setattr(status, field, None)
        self._share(meta, _METADATA, old and old.metadata)
        if spec.node_name:
            force_setattr(pod, "bound_to", spec.node_name)
            force_setattr(spec, "node_name", "")
            self._intern(pod, ("bound_to",))
        self._share(pod, _WHOLE, old)
        if pod.status is status:  # the first of its kind
            self._intern(status, _STATUS_WORDS)
            self._share(status, _STATUS, None)
        if pod.spec is spec:
            self._intern(spec, _SPEC_WORDS)
            self._share(spec, _SPEC, None)

    def _share(
        self, struct: msgspec.Struct, fields: tuple[str, ...], old: msgspec.Struct | None
    ) -> None:
        for name in fields:
            part = getattr(struct, name)
            if part:
                if old is not None and (known := getattr(old, name)) == part:
                    force_setattr(struct, name, known)
                    continue
                # Of equal bytes, under one name, the value is equal: the name is the type.
                key = self._encode((name, part))
                known = self._parts.get(key)
                if known is None:
                    self._parts.put(key, part, len(key) * (1 + _BYTES_PER_BYTE))
                else:
                    force_setattr(struct, name, known)

    def _intern(self, struct: msgspec.Struct, fields: tuple[str, ...]) -> None:
        for name in fields:
            word = getattr(struct, name)
            if word:
                known = self._parts.get(word)
                if known is None:
                    self._parts.put(word, word, len(word) + _BYTES_OF_A_WORD)
                else:
                    force_setattr(struct, name, known)


def _is_at_rest(pod: Pod) -> bool:
    """Not where plugins read the status: a resize in flight, and who evicted a pod that goes."""
    return pod.metadata.deletion_timestamp is None and is_settled(pod)
