"""What would be if pods were gone, or other pods had come first: asked of the same policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from dsl.policytest import Rejection
from engine.policytests.scene import Rehearsal, Scene
from engine.policytests.world import SceneWorld


class Asked(Protocol):
    """The answers that dry runs ask again; see `answers.ByColumns`."""

    @property
    def world(self) -> SceneWorld:
        """The world of the scene."""

    def again(self, scene: Scene, only: frozenset[int] | None = None) -> Self:
        """The same policies about another scene, gangs left out."""

    def rejections(self) -> Mapping[str, Rejection]:
        """The nodes that do not pass."""

    def best(self) -> Sequence[str]:
        """The feasible nodes of the highest rank."""


class Evicted:
    """Implements `dsl.collective.DryRun`; equal questions are asked once."""

    def __init__(self, answers: Asked, scene: Scene) -> None:
        self._answers = answers
        self._cluster = Rehearsal(scene)
        self._fits: dict[tuple[int, frozenset[int]], bool] = {}
        self._nodes: dict[frozenset[int], tuple[int, ...]] = {}

    def fits(self, row: int, gone: frozenset[int]) -> bool:
        """See `DryRun.fits`."""
        found = self._fits.get((row, gone))
        if found is None:
            scene = self._cluster.without(gone)
            found = not self._answers.again(scene, frozenset({row})).rejections()
            self._fits[row, gone] = found
        return found

    def nodes(self, gone: frozenset[int]) -> Sequence[int]:
        """See `DryRun.nodes`."""
        found = self._nodes.get(gone)
        if found is None:
            scene = self._cluster.without(gone)
            rejected = self._answers.again(scene).rejections()
            found = tuple(row for name, row in scene.rows.items() if name not in rejected)
            self._nodes[gone] = found
        return found
