"""Volumes of drivers that left the tree, as the CSI volumes that they are now.

Reads volumes and says what they come to; asks nothing about nodes.

Source: k8s.io/csi-translation-lib translate.go, plugins/*.go; kubernetes
plugins/nodevolumelimits/utils.go (isCSIMigrationOn).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec

from engine.objects import Disk, DiskSources, NodeSelector, NodeSelectorTerm, SelectorRequirement
from engine.objects.storage import PersistentVolume

MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONES_APART: Final = "__"
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")
_GCE_PARTS: Final = 3
_UNKNOWN: Final = "UNSPECIFIED"

Labels = Mapping[str, str]
HandleOf = Callable[[Disk, Labels], str]


def _ebs_handle(disk: Disk, labels: Labels) -> str:
    if not disk.volume_id.startswith("aws://"):
        return disk.volume_id
    found = urlsplit(disk.volume_id).path.strip("/")
    if _EBS_VOLUME.fullmatch(found) is None:
        raise ValueError(f"Invalid format for AWS volume ({disk.volume_id})")
    return found


def _gce_handle(disk: Disk, labels: Labels) -> str:
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(ZONES_APART)
    if len(zones) == 1:
        return f"projects/{_UNKNOWN}/zones/{zones[0] or _UNKNOWN}/disks/{disk.pd_name}"
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != _GCE_PARTS:
            raise ValueError(f"failed to get region from zones: zone in unexpected format: {zone}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise ValueError(f"failed to get region from zones: {', '.join(sorted(regions))}")
    return f"projects/{_UNKNOWN}/regions/{regions.pop()}/disks/{disk.pd_name}"


def _azure_handle(disk: Disk, labels: Labels) -> str:
    if disk.kind is not None and disk.kind.lower() != "managed":
        raise ValueError(f"kind({disk.kind}) is not supported in csi migration")
    return disk.disk_uri


def _volume_id(disk: Disk, labels: Labels) -> str:
    return disk.volume_id


@dataclass(frozen=True, slots=True)
class Migration:
    """A driver that left the tree.

    `handle` names a volume of it for the CSI driver; None: its volumes are never counted as CSI
    ones. `topology` is the CSI driver's word for zone, empty if its volumes keep their topology.
    """

    source: str
    plugin: str
    driver: str
    handle: HandleOf | None = None
    topology: str = ""


_ALL: Final = (
    Migration(
        "gce_persistent_disk",
        "kubernetes.io/gce-pd",
        "pd.csi.storage.gke.io",
        _gce_handle,
        "topology.gke.io/zone",
    ),
    Migration(
        "aws_elastic_block_store",
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        _ebs_handle,
        "topology.ebs.csi.aws.com/zone",
    ),
    Migration(
        "cinder",
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        _volume_id,
        "topology.cinder.csi.openstack.org/zone",
    ),
    Migration("azure_disk", "kubernetes.io/azure-disk", "disk.csi.azure.com", _azure_handle),
    Migration("portworx_volume", "kubernetes.io/portworx-volume", "pxd.portworx.com", _volume_id),
    Migration("azure_file", "kubernetes.io/azure-file", "file.csi.azure.com"),
    Migration("vsphere_volume", "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
)
BY_PLUGIN: Final = {one.plugin: one for one in _ALL}


def migration_of(sources: DiskSources) -> Migration | None:
    """The driver that left the tree and that the volume is of; None for all others."""
    return next((one for one in _ALL if getattr(sources, one.source) is not None), None)


def csi_handle(of: Migration, sources: DiskSources, labels: Labels) -> str:
    """What the CSI driver calls the volume.

    Raises:
        ValueError: it cannot be told.
    """
    assert of.handle is not None
    return of.handle(getattr(sources, of.source), labels)


def csi_affinity(of: Migration, volume: PersistentVolume) -> NodeSelector | None:
    """The volume's node affinity in the CSI driver's words.

    Raises:
        ValueError: the volume cannot be translated.
    """
    labels = volume.metadata.labels or {}
    csi_handle(of, volume.spec, labels)
    affinity = volume.spec.node_affinity
    required = None if affinity is None else affinity.required
    return _in_csi_words(required, labels, of.topology) if of.topology else required


def _in_csi_words(
    required: NodeSelector | None, labels: Labels, topology: str
) -> NodeSelector | None:
    terms = list((required.node_selector_terms if required else None) or ())
    zone, region = _words(terms, labels)
    if _values(terms, zone):
        terms = _renamed(terms, zone, topology)
    elif zone in labels:
        zones = sorted({each.strip() for each in labels[zone].split(ZONES_APART)} - {""})
        if zones:
            there = SelectorRequirement(topology, "In", zones)
            terms = [_with(term, there) for term in terms or [NodeSelectorTerm()]]
    if region == BETA_REGION and _values(terms, region):
        terms = _renamed(terms, region, REGION)
    return NodeSelector(terms) if terms else required


def _words(terms: list[NodeSelectorTerm], labels: Labels) -> tuple[str, str]:
    """The labels for zone and region that the volume uses."""
    keys = {each.key for term in terms for each in term.match_expressions or ()}
    for zone, region in ((ZONE, REGION), (BETA_ZONE, BETA_REGION)):
        if zone in keys:
            return zone, region
    if ZONE not in labels and BETA_ZONE in labels:
        return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _values(terms: list[NodeSelectorTerm], key: str) -> bool:
    return any(e.key == key and e.values for term in terms for e in term.match_expressions or ())


def _renamed(terms: list[NodeSelectorTerm], key: str, new: str) -> list[NodeSelectorTerm]:
    replace = msgspec.structs.replace
    return [
        replace(
            term,
            match_expressions=[
                replace(each, key=new) if each.key == key else each
                for each in term.match_expressions or ()
            ],
        )
        for term in terms
    ]


def _with(term: NodeSelectorTerm, more: SelectorRequirement) -> NodeSelectorTerm:
    expressions = [*(term.match_expressions or ()), more]
    return msgspec.structs.replace(term, match_expressions=expressions)
