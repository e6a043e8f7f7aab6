"""Who would have to go so that a gang can start: nobody is evicted for members that start nothing.

Each member that fits nowhere is asked about as any pod is, with the victims of those before it
gone and those before it in their place. Whatever is tried is taken back before this returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cache import Cache
from engine.choice import Chosen
from engine.framework.decision import PostFilterResult
from engine.framework.podinfo import PodInfo
from engine.gangs.turn import Turn
from engine.placement import Placement
from engine.queue import QueuedPod


@dataclass(frozen=True, slots=True)
class Rescue:
    """What helps: for each member that evicting makes room for, where and whom.

    `waits`: nothing is to be done but to wait for victims that are going already.
    """

    found: Sequence[tuple[QueuedPod, PostFilterResult]] = ()
    waits: bool = False


def rescue(turn: Turn, members: Sequence[QueuedPod], placement: Placement, cache: Cache) -> Rescue:
    """What would let enough members start; nothing found: there is no way, or it is only to wait.

    Args:
        turn: of the gang, of which no member has a node by it.
        members: those that wait.
        placement: decides and asks.
        cache: is as before afterwards.
    """
    there: list[Chosen] = []
    found: list[tuple[QueuedPod, PostFilterResult]] = []
    away: list[tuple[PodInfo, str]] = []
    waits = False
    try:
        for queued in members:
            if len(there) + len(found) >= turn.missing:
                break
            answer = placement.choose_member(queued)
            if isinstance(answer, Chosen):
                there.append(answer)
                continue
            result = placement.rescue(answer)
            if result is None or not result.status.ok or not result.nominated:
                waits |= result is not None and result.nominated is None
                continue
            if any(cache.is_assumed(one.pod.uid) for one in result.evictions):
                continue  # it is not on its node yet, so it cannot be thought away
            away += [
                (one.pod, node)
                for one in result.evictions
                if (node := cache.node_of(one.pod.uid)) is not None
            ]
            for one in result.evictions:
                cache.remove_pod(one.pod.uid)
            cache.assume(queued.pod, result.nominated)
            found.append((queued, result))
        enough = len(there) + len(found) >= turn.missing
    finally:
        for queued, _ in reversed(found):
            cache.forget(queued.pod.uid)
        for chosen in reversed(there):
            placement.give_back(chosen, tell=False)
        for pod, node in reversed(away):
            cache.add_pod(pod, node)
    return Rescue(found) if enough and found else Rescue(waits=waits)
