"""What `preempt:`, `gang:` and `quota:` come to for one pod on one snapshot; data only.

`dsl.several` makes these of a rule; who acts on them searches and counts. Amounts are in base units
(milli-cores).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

Amounts = Mapping[str, float]
#: What pods of a gang or of a quota have in common.
Key = str | float


# ---- preemption


#: Node rows and, for each, what would be evicted there (`victims.count`) -> what compares; less is
#: better.
Rank = Callable[[NDArray[np.intp], Mapping[str, NDArray[Any]]], NDArray[Any]]


class Evictions(Struct, frozen=True, eq=False, kw_only=True):
    """Who may be evicted for a pod, and what that costs.

    Attributes:
        ordered: the pod rows that may go, the first to go first.
        ranks: what chooses among nodes, the first before all others.
        limit: victims at most, None without a limit.
        across: on how many nodes at most.
        more: who else may go, wherever it is, once some go; None where one node has to do.
    """

    ordered: tuple[int, ...]
    ranks: tuple[Rank, ...]
    limit: int | None = None
    across: int = 1
    more: Callable[[Sequence[int]], tuple[int, ...]] | None = None


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

    key: Key
    minimum: float
    wait_seconds: float = 60.0
    backoff_seconds: float = 0.0
    tolerance: float = 0.0
    within: str | None = None


# ---- quotas


class Limits(Struct, frozen=True):
    """What a quota guarantees and what it allows at most; a resource that is absent has neither."""

    minimum: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)


class Pool(Struct, frozen=True):
    """What all quotas together use, and what they guarantee: the resources that some guarantees."""

    used: Amounts = field(default_factory=dict)
    minimum: Amounts = field(default_factory=dict)


class QuotaUse(Struct, frozen=True, kw_only=True):
    """The quotas as a pod finds them, and what it would add.

    Attributes:
        key: whose quota it is; None where the pod has none.
        limits: by key.
        used: by key, what the pods there are ask for.
        pool: what all together use and guarantee.
        asked: what the pod asks for.
        before: what pods nominated to a node that come before it will use of its own quota.
        nominated: by key, what those of other quotas will use.
    """

    key: Key | None
    limits: Mapping[Key, Limits]
    used: Mapping[Key, Amounts]
    pool: Pool
    asked: Amounts
    before: Amounts = field(default_factory=dict)
    nominated: Mapping[Key, Amounts] = field(default_factory=dict)


def pool_of(limits: Mapping[Key, Limits], used: Mapping[Key, Amounts]) -> Pool:
    """Returns what quotas come to together. Linear in their number."""
    names = sorted({name for one in limits.values() for name in one.minimum})
    return Pool(
        {name: sum(used[one].get(name, 0.0) for one in used if one in limits) for name in names},
        {name: sum(one.minimum.get(name, 0.0) for one in limits.values()) for name in names},
    )


class Claims(Struct, frozen=True, eq=False, kw_only=True):
    """The pods that an elastic quota may look at to make room for a pod.

    Attributes:
        ordered: (n,) their rows, the first to go first.
        nodes: (n,) the node row of each.
        keys: whose quotas they are of; None stands for none.
        key: (n,) which of `keys` each has.
        less: (n,) those that are less important than the pod.
        leaving: (n,) those that are being deleted, and go anyway.
        amounts: resource -> (n,) what each asks for, of the resources that quotas name.
        ranks: as of `Evictions`.
    """

    ordered: NDArray[np.intp]
    nodes: NDArray[np.intp]
    keys: tuple[Key | None, ...]
    key: NDArray[np.intp]
    less: NDArray[np.bool_]
    leaving: NDArray[np.bool_]
    amounts: Mapping[str, NDArray[np.float64]]
    ranks: tuple[Rank, ...]
