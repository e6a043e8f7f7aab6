"""Why a gang does not start."""

from dsl.types import NUMBER, show
from engine.framework.gang import Membership


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
