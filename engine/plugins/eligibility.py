"""Which nodes a pod's own words allow: its nodeSelector and required node affinity, and no cordon.

What of the pod decides is one key, so that pods alike share a class; the key says all.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.framework.snapshot import BoolColumn, Snapshot
from engine.memo import Memo
from engine.objects import Affinity, NodeSelector
from engine.plugins.node_selector import Selector, matching, parse_required
from engine.pods.podinfo import PodInfo

_BYTES: Final = 2 << 20
_BYTES_PER_BYTE: Final = 5
_Key = tuple[list[tuple[str, str]], NodeSelector | None]


def eligibility_key(pod: PodInfo) -> bytes:
    """The pod's selector and required node affinity, empty without any."""
    spec = pod.pod.spec
    affinity = (spec.affinity or Affinity()).node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not spec.node_selector and required is None:
        return b""
    return msgspec.msgpack.encode((sorted((spec.node_selector or {}).items()), required))


def eligible(key: bytes, snapshot: Snapshot) -> BoolColumn:
    """(N,) nodes that match and are not cordoned."""
    mask = snapshot.nodes.present & ~snapshot.nodes.unschedulable
    return mask & matching(required(key), snapshot, slice(0, snapshot.nodes.size)) if key else mask


_known: Final[Memo[bytes, tuple[Selector, ...]]] = Memo(_BYTES)


def required(key: bytes) -> tuple[Selector, ...]:
    """What a node has to match, all of it, cordoned or not."""
    if not key:
        return ()
    known = _known.get(key)
    if known is not None:
        return known
    parsed = parse_required(*msgspec.msgpack.decode(key, type=_Key))
    return _known.put(key, parsed, len(key) * _BYTES_PER_BYTE)
