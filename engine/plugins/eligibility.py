"""Which nodes a pod's own words allow: its nodeSelector and required node affinity, and no cordon.

What of the pod decides is one key, so that pods alike share a class; the key says all.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import BoolColumn, Rows, Snapshot
from engine.memo import Memo
from engine.objects import Affinity, NodeSelector
from engine.plugins.node_selector import Selector, Term, parse_labels, parse_selector

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
    return mask & matching(key, snapshot, slice(0, snapshot.nodes.size)) if key else mask


def matching(key: bytes, snapshot: Snapshot, rows: Rows) -> BoolColumn:
    """Which of the rows match, cordoned or not."""
    mask = np.ones(len(snapshot.nodes.present[rows]), np.bool_)
    if key:
        labels, required = _parsed(key)
        if labels is not None:
            mask &= labels.mask(snapshot, rows)
        if required is not None:
            mask &= required.mask(snapshot, rows)
    return mask


_known: Final[Memo[bytes, tuple[Term | None, Selector | None]]] = Memo(_BYTES)


def _parsed(key: bytes) -> tuple[Term | None, Selector | None]:
    known = _known.get(key)
    if known is not None:
        return known
    labels, required = msgspec.msgpack.decode(key, type=_Key)
    parsed = parse_labels(labels), None if required is None else parse_selector(required)
    return _known.put(key, parsed, len(key) * _BYTES_PER_BYTE)
