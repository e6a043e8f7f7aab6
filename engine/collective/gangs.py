"""What gangs and their domains are called, and why a gang does not start."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl.types import NUMBER, TEXT, quoted, show
from dsl.world import World
from engine.framework.gang import Membership

_LABEL: Final = "label:"


def title(key: str | float) -> str:
    """Returns how messages call a gang."""
    return f"gang {quoted(key, TEXT if isinstance(key, str) else NUMBER)}"


def gang_name(key: str | float) -> str:
    """Returns the name of a gang in its namespace."""
    return key if isinstance(key, str) else f"{key:g}"


def why_stopped(gang: Membership, size: int, *, resting: bool) -> str | None:
    """Returns why no member of a gang may be tried at all; None: they may."""
    if gang.minimum != gang.minimum:
        lacks = f": {gang.lacks}" if gang.lacks else ""
        return f"{gang.title} does not say how many members it needs{lacks}"
    if size < gang.minimum:
        needed = show(gang.minimum, NUMBER)
        return f"{gang.title} has {size} of the {needed} members that it needs"
    if resting:
        return f"{gang.title} failed a moment ago and rests"
    short = gang.shortage()
    return f"{gang.title}: {short}" if short else None


def why_unfit(called: str, minimum: float, most: int, within: str) -> str:
    """Returns why the members of a gang cannot start together."""
    where = f" in one {within}" if within else ""
    return f"{called}: {most} of the {show(minimum, NUMBER)} members that it needs fit{where}"


def why_waiting(called: str, minimum: float, there: int) -> str:
    """Returns why members of a gang that have nodes are not bound to them yet."""
    return f"{called}: {there} of {minimum:g} members have a node"


def domain_words(within: str) -> str:
    """Returns how messages call a domain."""
    return within.removeprefix(_LABEL)


def code_column(within: str, world: World) -> NDArray[np.int32]:
    """Returns (N,) the domain of each node as a code of the dictionary, -1 without one."""
    field, _, key = within.partition(":")
    field = "name" if field == "node" else field
    found = np.where(world.present, world.node_text(f"node.{field}", key or None), -1)
    return found.astype(np.int32, copy=False)
