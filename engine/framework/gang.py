"""The gang of a pod, as a plugin defines it: which pods start together, and on which terms."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from engine.framework.snapshot import CodeColumn

MAYBE_NAN: Final = "may be NaN"
Unknown = Annotated[float, MAYBE_NAN]
"""A number, or NaN where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What a pod's gang asks for, and where its members are.

    Attributes:
        key: equal for the members of one gang; the queue finds those that wait by it.
        namespace: of all its members.
        name: of the gang within its namespace.
        title: how messages call it.
        minimum: how many members start together; NaN if it is not known.
        lacks: the missing object that should define the minimum.
        shortage: the resources that its group asks for and the cluster lacks; empty if none.
        wait_seconds: how long members that have a node wait for the others.
        rests_until: seconds since the epoch before which it is not tried again; NaN: it may be.
        tolerance: the share of the minimum that may be missing while the others wait.
        since: seconds since the epoch; of two gangs that block each other the later one yields.
        place: file and line of the rule.
        domain: (N,) code of the domain of each node, -1 without one: all members go to nodes of
            one. None: anywhere.
        within: how messages call a domain.
        fullest: the fullest domain is chosen; else the one with the node of the best score.
        mates: the rows of its other members among the pods on nodes.
    """

    key: Hashable
    namespace: str
    name: str
    title: str
    minimum: Unknown
    lacks: str
    shortage: Callable[[], str]
    wait_seconds: float
    rests_until: Unknown
    tolerance: float
    since: Unknown
    place: str
    domain: CodeColumn | None
    within: str
    fullest: bool
    mates: Callable[[], Sequence[int]]

    def why_stopped(self, size: int, *, resting: bool) -> str | None:
        """Why none of so many members may be tried at all; None: they may."""
        if self.minimum != self.minimum:
            lacks = f": {self.lacks}" if self.lacks else ""
            return f"{self.title} does not say how many members it needs{lacks}"
        if size < self.minimum:
            return f"{self.title} has {size} of the {self.minimum:g} members that it needs"
        if resting:
            return f"{self.title} failed a moment ago and rests"
        short = self.shortage()
        return f"{self.title}: {short}" if short else None

    def why_unfit(self, most: int) -> str:
        """Why its members cannot start together."""
        where = f" in one {self.within}" if self.within else ""
        return f"{self.title}: {most} of the {self.minimum:g} members that it needs fit{where}"

    def why_waiting(self, there: int) -> str:
        """Why members that have nodes are not bound to them yet."""
        return f"{self.title}: {there} of {self.minimum:g} members have a node"
