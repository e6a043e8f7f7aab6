"""ImageLocality: better where the pod's images are already, less so the fewer nodes have them.

Source: kubernetes plugins/imagelocality/image_locality.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

import numpy as np

from engine.framework.interface import MAX_SCORE, Points, PreScoreResult, Scores, State
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.pods.podinfo import PodInfo
from engine.text.quantity import wrap_int64

NAME: Final = "ImageLocality"
_MIB: Final = 1 << 20
_LEAST: Final = 23 * _MIB
_MOST_EACH: Final = 1000 * _MIB
_Key = tuple[tuple[tuple[str, int], ...], int]
"""Full names of images with how often each stands in the pod, and how many there are in all."""


class ImageLocality:
    """Scores by the sizes of images that are on the node, image volumes included."""

    name: Final = NAME

    def points(self) -> Points:
        """The share of nodes that have an image counts, so any node may change all scores."""
        return Points(class_key=_key, pre_score=_pre_score, score=_score)


def _key(pod: PodInfo, snapshot: Snapshot) -> _Key:
    key = pod.keys.get(NAME)
    if key is None:
        spec = pod.pod.spec
        containers = (*(spec.init_containers or ()), *(spec.containers or ()))
        names = [one.image for one in containers]
        names += [one.image.reference for one in spec.volumes or () if one.image is not None]
        counted = Counter(map(_full_name, names))
        key = pod.keys[NAME] = tuple(sorted(counted.items())), len(names)
    return key  # type: ignore[return-value]  # the memo is of any kind


def _full_name(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _pre_score(pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
    images, _ = key = _key(pod, snapshot)
    names = [name for name, _ in images]

    def version(seen: Snapshot) -> Hashable:
        """The version of scores: that of the images and the number of nodes."""
        find = seen.nodes.images.find
        there = [image.version for image in map(find, names) if image is not None]
        return (seen.nodes.count, *there) if there else 0

    now = version(snapshot)
    shared = (key, now) if now != 0 else 0  # images that are nowhere
    return PreScoreResult(causes=Cause(0), shared=shared, version=version)


def _score(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
    """0..100, by the sizes of the images between 23 MiB and 1000 MiB an image."""
    images, number = _key(pod, snapshot)
    nodes = snapshot.nodes
    total = np.zeros(nodes.size, dtype=np.int64)
    for name, times in images:
        image = nodes.images.find(name)
        if image is not None:
            spread = float(image.count) / float(nodes.count)
            total[image.rows] += wrap_int64(times * int(float(image.size) * spread))
    most = _MOST_EACH * number
    total = np.clip(total[rows], _LEAST, max(_LEAST, most))
    span = most - _LEAST
    if span <= 0:
        return np.zeros(len(total))
    scores: Scores = (MAX_SCORE * (total - _LEAST) // span).astype(np.float64)
    return scores
