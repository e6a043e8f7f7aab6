"""What `preempt:`, `gang:` and `quota:` come to for one pod on one snapshot; data only.

`dsl.several` makes these of a rule; who acts on them searches and counts. Amounts are in base units
(milli-cores).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

Amounts = Mapping[str, float]


# ---- preemption


class Budget(Struct, frozen=True):
    """A disruption budget: the pod rows that it covers, and how many of them may still go."""

    pods: frozenset[int]
    allowed: int


class Evictions(Struct, frozen=True, eq=False, kw_only=True):
    """Who may be evicted for a pod, and what that costs.

    Attributes:
        ordered: the pod rows that may go, the first to go first.
        taken: which of some of them, in their order, go together; quotas stop at their minimum.
        cost: node row, victims and broken budgets -> what compares; less is better.
        limit: victims at most, None without a limit.
        across: on how many nodes at most.
    """

    ordered: tuple[int, ...]
    cost: Callable[[int, Sequence[int], int], tuple[Any, ...]]
    taken: Callable[[Sequence[int]], tuple[int, ...]] = tuple
    limit: int | None = None
    across: int = 1


class DryRun(Protocol):
    """Asks all filters and quotas about the pod while some pod rows are thought away."""

    def fits(self, row: int, gone: frozenset[int]) -> bool:
        """Whether the node of a row takes the pod."""

    def nodes(self, gone: frozenset[int]) -> Sequence[int]:
        """All node rows that take the pod."""


class Preemption(Struct, frozen=True):
    """What a search for victims found.

    Attributes:
        row: the node row to nominate; -1 where nothing helps.
        victims: the pod rows to evict, the first to go first.
        violations: how many of them a disruption budget protects.
        runs: dry runs that it took.
        cut_short: whether the bound on dry runs ended the search.
    """

    row: int = -1
    victims: tuple[int, ...] = ()
    violations: int = 0
    runs: int = 0
    cut_short: bool = False


# ---- gangs


class GangTerms(Struct, frozen=True, kw_only=True):
    """What the gang of a pod asks for, whoever its members are.

    Attributes:
        key: what its members have in common, within one namespace.
        minimum: how many members start together; NaN where nothing says so.
        wait_seconds: how long members wait for each other.
        backoff_seconds: how long it rests after it failed.
        tolerance: the share of the minimum that may be missing when its members are planned.
        within: the domain of nodes that holds the whole gang, None where it may be scattered.
    """

    key: str | float
    minimum: float
    wait_seconds: float = 60.0
    backoff_seconds: float = 0.0
    tolerance: float = 0.0
    within: str | None = None


class Gang(Struct, frozen=True, kw_only=True):
    """The gang of a pod, which is a member itself and in none of the tuples before it is placed.

    Attributes:
        key: what its members have in common, within one namespace.
        minimum: how many members start together; NaN where nothing says so.
        bound: pod rows of members that are bound.
        assumed: pod rows of members that have a node and wait for their binding.
        pending: rows of members in the table `queue`.
        placed: whether the pod is among `assumed`: from `reserve` on.
        wait_seconds: how long members wait for each other.
        rests_until: epoch seconds before which a gang that failed is not tried; NaN: it may be.
        tolerance: the share of the minimum that may be missing when its members are planned.
        within: the domain of nodes that holds the whole gang, None where it may be scattered.
    """

    key: str | float
    minimum: float
    bound: tuple[int, ...] = ()
    assumed: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()
    placed: bool = False
    wait_seconds: float = 60.0
    rests_until: float = float("nan")
    tolerance: float = 0.0
    within: str | None = None

    @property
    def reserved(self) -> int:
        """Members that have a node."""
        return len(self.bound) + len(self.assumed)

    @property
    def size(self) -> int:
        """All members there are."""
        return self.reserved + len(self.pending) + (0 if self.placed else 1)


#: The pod itself among the members to place; others are rows of the table `queue`.
SELF = -1


class Placer(Protocol):
    """Places members of a gang one after the other, on one snapshot."""

    def place(
        self, member: int, allowed: frozenset[int] | None, before: Sequence[tuple[int, int]]
    ) -> int | None:
        """Returns the node row that a member gets; None: no node takes it.

        Args:
            member: `SELF` or a row of the table `queue`.
            allowed: the node rows it may go to; None: all.
            before: members that are placed already, and their node rows.
        """


class GangPlan(Struct, frozen=True):
    """Where the members of a gang fit together.

    Attributes:
        placements: domain -> member and node row; without `within` the domain is empty.
        allowed: the node rows where the pod may go; None: wherever it fits alone.
        most: the most members that would be running in any domain.
    """

    placements: Mapping[str, tuple[tuple[int, int], ...]]
    allowed: frozenset[int] | None
    most: int

    @property
    def fits(self) -> bool:
        """Whether the gang may start."""
        return bool(self.placements)


# ---- quotas


class Limits(Struct, frozen=True):
    """What a quota guarantees and what it allows at most; a resource that is absent has neither."""

    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)


class QuotaUse(Struct, frozen=True, kw_only=True):
    """The quotas as a pod finds them, and what it would add.

    Attributes:
        key: whose quota it is; None where the pod has none.
        limits: by key.
        used: by key, what the pods there are ask for.
        asked: what the pod asks for.
        before: what pods nominated to a node that come before it will use of its own quota.
        nominated: by key, what those of other quotas will use.
    """

    key: str | float | None
    limits: Mapping[str | float, Limits]
    used: Mapping[str | float, Amounts]
    asked: Amounts
    before: Amounts = field(default_factory=dict)
    nominated: Mapping[str | float, Amounts] = field(default_factory=dict)


class Claims(Struct, frozen=True, eq=False, kw_only=True):
    """The pods that an elastic quota may look at to make room for a pod.

    Attributes:
        ordered: their rows, the first to go first.
        keys: whose quota each is of, None where it has none.
        less: those that are less important than the pod.
        amounts: what each asks for, of the resources that quotas name.
        cost: as of `Evictions`.
    """

    ordered: tuple[int, ...]
    keys: Mapping[int, str | float | None]
    less: frozenset[int]
    amounts: Mapping[int, Amounts]
    cost: Callable[[int, Sequence[int], int], tuple[Any, ...]]
