"""Whether the pods of a gang may start: enough of them, rested, and room for all at once.

A gang is planned whole, on one snapshot, before any member takes room: half a gang never blocks the
nodes that another half waits for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl.collective import SELF, Gang, GangPlan, Placer
from dsl.plan import Permission, World
from dsl.types import NUMBER, TEXT, quoted, show

_LABEL: Final = "label:"


def title(key: str | float) -> str:
    """Returns how messages call a gang."""
    return f"gang {quoted(key, TEXT if isinstance(key, str) else NUMBER)}"


def gang_name(key: str | float) -> str:
    """Returns the name of a gang in its namespace."""
    return key if isinstance(key, str) else f"{key:g}"


def stop(gang: Gang, now: float) -> str | None:
    """Returns why no member may be tried at all; None: they may."""
    return why_stopped(title(gang.key), gang.minimum, gang.size, resting=now < gang.rests_until)


def why_stopped(called: str, minimum: float, size: int, *, resting: bool) -> str | None:
    """Returns why no member of a gang may be tried at all; None: they may."""
    if minimum != minimum:
        return f"{called} does not say how many members it needs"
    if size < minimum:
        needed = show(minimum, NUMBER)
        return f"{called} has {size} of the {needed} members that it needs"
    if resting:
        return f"{called} failed a moment ago and rests"
    return None


def why_unfit(called: str, minimum: float, most: int, within: str) -> str:
    """Returns why the members of a gang cannot start together."""
    where = f" in one {within}" if within else ""
    return f"{called}: {most} of the {show(minimum, NUMBER)} members that it needs fit{where}"


def permission(gang: Gang, waited: float) -> Permission:
    """Returns whether a member that has a node may be bound, and what it waits for."""
    if gang.reserved >= gang.minimum:
        return Permission("allow")
    needed = show(gang.minimum, NUMBER)
    text = f"{title(gang.key)}: {gang.reserved} of {needed} members have a node"
    verdict = "reject" if waited >= gang.wait_seconds else "wait"
    return Permission(verdict, None, gang.wait_seconds, "Unschedulable", text)


def plan(
    gang: Gang, world: World, placer: Placer, larger_first: Sequence[int] | None = None
) -> GangPlan:
    """Places the pod and all pending members on one snapshot.

    Members are placed in their order, the pod first; where they do not fit so, once more in the
    order of `larger_first` if that is given. With `within` each domain is tried alone, and only
    that of the members that have a node where there are any.

    Complexity: two calls of `placer` a member and domain.
    """
    members = (SELF, *gang.pending)
    orders = [members] if larger_first is None else [members, tuple(larger_first)]
    if gang.within is None:
        placed, most = _best(gang, placer, None, orders)
        return GangPlan({} if placed is None else {"": placed}, None, most)
    domains = domains_of(gang.within, world)
    homes = _homes(gang, world, domains)
    placements: dict[str, tuple[tuple[int, int], ...]] = {}
    most = gang.reserved
    for name in sorted(domains):
        if homes is None or name in homes:
            placed, there = _best(gang, placer, domains[name], orders)
            most = max(most, there)
            if placed is not None:
                placements[name] = placed
    allowed = frozenset(row for name in placements for row in domains[name])
    return GangPlan(placements, allowed, most)


def why_not(gang: Gang, found: GangPlan) -> str:
    """Returns why the members of a gang cannot start together."""
    within = "" if gang.within is None else domain_words(gang.within)
    return why_unfit(title(gang.key), gang.minimum, found.most, within)


def domain_words(within: str) -> str:
    """Returns how messages call a domain."""
    return within.removeprefix(_LABEL)


def _best(
    gang: Gang,
    placer: Placer,
    allowed: frozenset[int] | None,
    orders: Iterable[Sequence[int]],
) -> tuple[tuple[tuple[int, int], ...] | None, int]:
    """Returns the first placement that is enough, and the most members that any order placed."""
    most = gang.reserved
    for order in orders:
        placed = _place(order, allowed, placer)
        there = gang.reserved + len(placed)
        most = max(most, there)
        missing = max(gang.minimum - there, 0.0)
        if missing <= gang.tolerance * gang.minimum and any(one == SELF for one, _ in placed):
            return placed, most
    return None, most


def _place(
    members: Iterable[int], allowed: frozenset[int] | None, placer: Placer
) -> tuple[tuple[int, int], ...]:
    placed: list[tuple[int, int]] = []
    for member in members:
        row = placer.place(member, allowed, placed)
        if row is not None:
            placed.append((member, row))
    return tuple(placed)


def code_column(within: str, world: World) -> NDArray[np.int32]:
    """Returns (N,) the domain of each node as a code of the dictionary, -1 without one."""
    field, _, key = within.partition(":")
    field = "name" if field == "node" else field
    found = np.where(world.present, world.node_text(f"node.{field}", key or None), -1)
    return found.astype(np.int32, copy=False)


def domains_of(within: str, world: World) -> Mapping[str, frozenset[int]]:
    """Returns the node rows of each domain; nodes without one are in none."""
    codes = code_column(within, world)
    texts = world.dictionary.texts
    return {
        texts[code]: frozenset(np.flatnonzero(codes == code).tolist())
        for code in np.unique(codes).tolist()
        if code >= 0
    }


def _homes(
    gang: Gang, world: World, domains: Mapping[str, frozenset[int]]
) -> frozenset[str] | None:
    """Returns the only domain that the gang may use; None: any, as no member has a node yet.

    Empty where members are in several domains or in none: then nothing is within one.
    """
    nodes = {int(world.pod_node[pod]) for pod in (*gang.bound, *gang.assumed)}
    if not nodes:
        return None
    around = [name for name, rows in domains.items() if nodes <= rows]
    return frozenset(around)
