"""The gang of the pod of a test: whether it may start, and where its members fit together.

Planned as a scheduler plans it, on the cluster of the test with the members that are pending there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsl.policytest import Rejection
from engine.collective.gangs import why_stopped, why_unfit
from engine.framework.gang import Membership
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot
from engine.planning import Rehearsal, plan
from engine.policytests.scene import Scene


@dataclass(frozen=True, slots=True)
class Group:
    """The gang of a pod: how many members have a node, and those that do not, the pod first."""

    gang: Membership
    bound: int
    assumed: int
    pods: tuple[PodInfo, ...]

    @property
    def reserved(self) -> int:
        """Members that have a node, but for the pod."""
        return self.bound + self.assumed

    @property
    def wanted(self) -> int:
        """So many have to get a node now for the gang to start, or to wait for the others."""
        needed = self.gang.minimum * (1.0 - self.gang.tolerance)
        return max(1, math.ceil(needed - self.reserved))


def group_of(scene: Scene, snapshot: Snapshot, framework: Framework) -> Group | None:
    """The gang of the scene's pod; None: it is in none."""
    found = framework.gang(scene.pod, snapshot)
    if found is None:
        return None
    key = framework.kin(scene.pod, snapshot)
    pending = [one for one in scene.queue if framework.kin(one, snapshot) == key]
    mates = [snapshot.pods.pod(row) for row in found[1].mates()]
    bound = sum(bool(one.pod.spec.node_name) for one in mates)
    return Group(found[1], bound, len(mates) - bound, (scene.pod, *pending))


def rejected(scene: Scene, framework: Framework) -> dict[str, Rejection]:
    """The nodes on which the gang does not start, with the reason; all where it may not at all."""
    group = group_of(scene, scene.snapshot, framework)
    if group is None:
        return {}
    gang, size = group.gang, group.reserved + len(group.pods)
    resting = scene.snapshot.now < gang.rests_until
    reason = why_stopped(gang.title, gang.minimum, size, resting=resting)
    if reason is not None:
        return dict.fromkeys(scene.rows, Rejection(reason, "unresolvable", gang.place))
    fits, most = _planned(scene, framework, group)
    reason = why_unfit(gang.title, gang.minimum, most, gang.within)
    no = Rejection(reason, "unschedulable", gang.place)
    return {name: no for name, row in scene.rows.items() if row not in fits}


def waits(scene: Scene, snapshot: Snapshot, framework: Framework) -> tuple[str, str]:
    """`allow`, `wait` or `reject`, and why, of the pod that is on its node in the snapshot."""
    group = group_of(scene, snapshot, framework)
    if group is None or group.reserved + 1 >= group.gang.minimum:
        return "allow", ""
    gang = group.gang
    message = f"{gang.title}: {group.reserved + 1} of {gang.minimum:g} members have a node"
    return ("reject" if scene.waited >= gang.wait_seconds else "wait"), message


def _planned(scene: Scene, framework: Framework, group: Group) -> tuple[set[int], int]:
    """The rows on which the pod may be when its gang starts, and the most members that fit."""
    snapshot, gang = scene.snapshot, group.gang
    rows = set(scene.rows.values())

    def now() -> Snapshot:
        return scene.cache.snapshot(snapshot.now, snapshot.signals)

    def attempt(column: np.ndarray | None) -> tuple[bool, int]:
        rehearsal = Rehearsal(group.pods, scene.cache, now, lambda _: framework)
        domains = None if column is None else (column, homes)
        found = plan(group.pods, group.wanted, now(), rehearsal, lambda _: framework, domains)
        return found.enough and 0 in found.rows, group.reserved + found.most

    homes = snapshot.pods.node[list(gang.mates())].tolist()
    if gang.domain is None:
        fits, most = attempt(None)
        return (rows if fits else set()), most
    allowed: set[int] = set()
    most = group.reserved
    for code in np.unique(gang.domain[gang.domain >= 0]).tolist():
        inside = gang.domain == code
        fits, there = attempt(np.where(inside, gang.domain, -1).astype(np.int32))
        most = max(most, there)
        if fits:
            allowed |= rows & set(np.flatnonzero(inside).tolist())
    return allowed, most
