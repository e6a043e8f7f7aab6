"""What would be if other pods had come first: asked of the same policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from dsl.collective import SELF, Gang
from engine.framework.podinfo import CPU, MEMORY, PodInfo
from engine.policytests.objects import GPU
from engine.policytests.scene import Rehearsal, Scene
from engine.policytests.world import SceneWorld


class Asked(Protocol):
    """The answers that dry runs ask again; see `answers.ByColumns`."""

    @property
    def world(self) -> SceneWorld:
        """The world of the scene."""

    def again(self, scene: Scene, only: frozenset[int] | None = None) -> Self:
        """The same policies about another scene, gangs left out."""

    def best(self) -> Sequence[str]:
        """The feasible nodes of the highest rank."""


class Members:
    """Places members of a gang where they rank best. Implements `dsl.collective.Placer`."""

    def __init__(self, answers: Asked, scene: Scene) -> None:
        self._answers = answers
        self._scene = scene
        self._cluster = Rehearsal(scene)
        self._queue = answers.world.pod_table("queue").snapshot.pods

    def _pod(self, member: int) -> PodInfo:
        return self._scene.pod if member == SELF else self._queue.pod(member)

    def place(
        self, member: int, allowed: frozenset[int] | None, before: Sequence[tuple[int, int]]
    ) -> int | None:
        """See `Placer.place`; of equal nodes the first of the file."""
        there = [(self._pod(one), row) for one, row in before]
        scene = self._cluster.about(self._pod(member), there)
        best = self._answers.again(scene, allowed).best()
        return scene.rows[best[0]] if best else None

    def larger_first(self, gang: Gang) -> list[int]:
        """The members by what they ask for, those that are hard to place first."""

        def size(member: int) -> tuple[int, ...]:
            asked = self._pod(member).requests
            return tuple(-asked.get(name, 0) for name in (GPU, CPU, MEMORY))

        return sorted((SELF, *gang.pending), key=size)
