"""VolumeZone: a pod whose volumes say their zone or region goes where they are.

Source: kubernetes plugins/volumezone/volume_zone.go.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import SKIP_FILTER, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import Cause, Rows, Snapshot, label_column
from engine.framework.status import unresolvable
from engine.objects.storage import PersistentVolume, StorageClass
from engine.plugins.hints import differs, now, on
from engine.plugins.volumes.attached import is_stored, volumes_key
from engine.plugins.volumes.claims import (
    FIRST_CONSUMER,
    class_of,
    find_claim,
    find_class,
    find_volume,
    is_one_of,
    named_claims,
    not_found,
    waits,
)
from engine.plugins.volumes.migration import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONES_APART
from engine.pods.podinfo import PodInfo

CONFLICT: Final = unresolvable("node(s) had no available volume zone")
_STABLE: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}

Topology = tuple[str, frozenset[str]]
"""A label, and the values of which a node must have one."""


class VolumeZone:
    """Filters by the labels of persistent volumes."""

    name: Final = "VolumeZone"

    def points(self) -> Points:
        """A claim, its volume, its class or a node with another label may come."""
        comes = Action.ADD | Action.UPDATE
        waits = now(StorageClass, lambda _, __, one: one.volume_binding_mode == FIRST_CONSUMER)
        return Points(
            events=(
                on(Resource.STORAGE_CLASS, Action.ADD, waits),
                on(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
                on(Resource.PERSISTENT_VOLUME_CLAIM, comes, is_one_of(named_claims)),
                on(Resource.PERSISTENT_VOLUME, comes, differs(PersistentVolume, _topologies)),
            ),
            class_key=volumes_key,
            pre_filter=_pre_filter,
            filter=_filter,
        )


def _pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    if not is_stored(pod):
        return SKIP_FILTER
    try:
        claims = named_claims(pod.pod)
        topologies = [one for name in claims for one in _topologies_of(pod, name, snapshot)]
    except ValueError as unknown:
        return PreFilterResult(unresolvable(str(unknown)))
    if not topologies:
        return SKIP_FILTER
    return PreFilterResult(state=topologies, causes=Cause.LABELS)


def _topologies_of(pod: PodInfo, name: str, snapshot: Snapshot) -> list[Topology]:
    """What the volume of a claim says.

    Raises:
        ValueError: nothing can be said; the message is what the pod is told.
    """
    if not name:
        raise ValueError("PersistentVolumeClaim had no name")
    claim = find_claim(snapshot, pod.namespace, name)
    if claim is None:
        raise ValueError(not_found("persistentvolumeclaim", name))
    if claim.spec.volume_name:
        volume = find_volume(snapshot, claim.spec.volume_name)
        if volume is None:
            raise ValueError(not_found("persistentvolume", claim.spec.volume_name))
        return _topologies(volume)
    of_class = class_of(claim)
    if not of_class:
        raise ValueError("PersistentVolumeClaim had no pv name and storageClass name")
    if find_class(snapshot, of_class) is None:
        raise ValueError(not_found("storageclass.storage.k8s.io", of_class))
    if not waits(claim, snapshot):
        raise ValueError("PersistentVolume had no name")
    return []


def _topologies(volume: PersistentVolume) -> list[Topology]:
    found = []
    labels = volume.metadata.labels or {}
    for key in _STABLE:
        if key in labels:
            values = frozenset(each.strip() for each in labels[key].split(ZONES_APART))
            if "" not in values:  # a label that cannot be read says nothing
                found.append((key, values))
    return found


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    columns = {key: snapshot.nodes.text(*label_column(key))[rows] for key in _STABLE}
    nowhere = np.logical_and.reduce([codes < 0 for codes in columns.values()])
    fits = np.ones(len(nowhere), dtype=np.bool_)
    for key, values in state:
        codes = columns[key]
        if _STABLE[key] != key:
            codes = np.where(codes < 0, columns[_STABLE[key]], codes)
        wanted = [snapshot.dictionary.find(value) for value in values]
        fits &= (codes >= 0) & np.isin(codes, wanted)
    return Verdicts.uniform(fits | nowhere, CONFLICT)
