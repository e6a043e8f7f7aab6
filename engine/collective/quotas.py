"""What quotas say of a pod, and whom a quota may evict to get back what it lent.

Amounts count where some quota names them: a quota that does not name a resource has no maximum of
it, and a minimum of 0 if another quota has one.

Source: kubernetes-sigs/scheduler-plugins pkg/capacityscheduling at 903da7df; what differs: the
check of all minimums together is made again without the victims (#683).
"""

from collections.abc import Iterable, Sequence
from typing import Final, cast

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from dsl.collective import Amounts, Claims, Evictions, Limits, QuotaUse
from dsl.schema import request_unit
from dsl.types import NUMBER, TEXT, number_of, quoted, show
from engine.pods.podinfo import BUILT_IN

_NONE: Final = Limits()
#: Quotas that a rejection names.
_BORROWERS: Final = 3


def over_maximum(use: QuotaUse) -> list[str]:
    """Returns the resources of which the pod would bring its quota above the maximum."""
    if use.key is None:
        return []
    most = _compared(use, use.limits.get(use.key, _NONE).maximum)
    return _over(most, use.used.get(use.key, {}), use.asked, use.before)


def over_all_minimums(use: QuotaUse) -> list[str]:
    """Returns the resources of which all quotas together would use more than they guarantee."""
    if use.key is None:
        return []
    return _over(use.pool.minimum, use.pool.used, use.asked, *coming(use))


def over_minimum_with_pod(use: QuotaUse) -> list[str]:
    """Returns the resources of which the pod's quota would use more than its own minimum."""
    if use.key is None:
        return []
    own = use.limits.get(use.key, _NONE).minimum
    least = _compared(use, {name: own.get(name, 0.0) for name in use.pool.minimum})
    return _over(least, use.used.get(use.key, {}), use.asked, use.before)


def _compared(use: QuotaUse, amounts: Amounts) -> Amounts:
    """Returns those of resources that every node has, and those that the pod asks for.

    A pod that needs no card is not held by the cards that others of its quota use.
    """
    asks = {name for part in (use.asked, use.before) for name, amount in part.items() if amount}
    return {name: amounts[name] for name in amounts if name in BUILT_IN or name in asks}


def coming(use: QuotaUse) -> list[Amounts]:
    """Returns what nominated pods will take before this one, of all quotas together.

    In its own quota those at least as important; of other quotas those within their minimum.
    """
    others = (
        amounts
        for key, amounts in use.nominated.items()
        if not is_over_minimum(use.used.get(key, {}), use.limits[key], use.pool.minimum)
    )
    return [use.before, *others]


def is_over_minimum(used: Amounts, own: Limits, names: Iterable[str]) -> bool:
    """Whether a quota uses more than it is guaranteed of any of these resources."""
    return any(used.get(name, 0.0) > own.minimum.get(name, 0.0) for name in names)


def exceeded(use: QuotaUse, *, elastic: bool) -> str | None:
    """Returns why the pod does not fit into the quotas, with amounts; None: it does."""
    if use.key is None:
        return None
    above = over_maximum(use)
    if above:
        name, own = above[0], use.used.get(use.key, {})
        counts, most = _counts(use, name, own, use.before), use.limits[use.key].maximum
        return f"{_name(use.key)}: no more {name}: {counts}, at most {_amount(name, most)}"
    short = over_all_minimums(use) if elastic else []
    if short:
        name, pool = short[0], use.pool
        counts = _counts(use, name, pool.used, *coming(use))
        words = f"{_name(use.key)}: no {name} left to borrow: {counts}"
        return f"{words}, {_amount(name, pool.minimum)} guaranteed to all{_borrowers(use, name)}"
    return None


def _name(key: str | float) -> str:
    return f"quota of {quoted(key, TEXT if isinstance(key, str) else NUMBER)}"


def _amount(name: str, amounts: Amounts) -> str:
    return show(amounts.get(name, 0.0), number_of(request_unit(name)))


def _counts(use: QuotaUse, name: str, used: Amounts, *coming: Amounts) -> str:
    promised = _sum(name, *coming)
    words = f"{_amount(name, used)} used"
    if promised:
        words += f", {_amount(name, {name: promised})} promised"
    return f"{words}, {_amount(name, use.asked)} asked for"


def _borrowers(use: QuotaUse, name: str) -> str:
    """Returns who uses most beyond what is guaranteed to them."""
    beyond = {
        key: used.get(name, 0.0) - use.limits[key].minimum.get(name, 0.0)
        for key, used in use.used.items()
        if key in use.limits
    }
    most = [key for key in beyond if beyond[key] > 0]
    most.sort(key=lambda key: (-beyond[key], str(key)))
    told = [
        f"{key} uses {_amount(name, use.used[key])} of {_amount(name, use.limits[key].minimum)}"
        for key in most[:_BORROWERS]
    ]
    return f" ({', '.join(told)})" if told else ""


def reclaim(use: QuotaUse, claims: Claims) -> Evictions:
    """Returns who may go.

    Within its minimum a pod gets back what others use beyond theirs; beyond it, and without a
    quota, it replaces less important pods of its own. Who is being deleted goes anyway.
    """

    def more(taken: Sequence[int]) -> tuple[int, ...]:
        # What goes from one node counts for all: a lender keeps its minimum.
        leaving = claims.leaving | np.isin(claims.ordered, taken)
        rest = structs.replace(claims, leaving=leaving, nodes=np.zeros_like(claims.nodes))
        return tuple(claims.ordered[_may_go(use, rest) & ~leaving].tolist())

    stay = _may_go(use, claims) & ~claims.leaving
    # First those that go anyway, so that they are the last to be given back.
    ordered = np.concatenate((claims.ordered[claims.leaving], claims.ordered[stay]))
    return Evictions(ordered=tuple(ordered.tolist()), ranks=claims.ranks, more=more)


def without_guaranteed(use: QuotaUse, claims: Claims, evictions: Evictions) -> Evictions:
    """Returns the same without pods of other quotas but those that these would give back."""
    if evictions.across > 1:  # what goes from one node counts for all
        claims = structs.replace(claims, nodes=np.zeros_like(claims.nodes))
    others = np.array([one in use.limits and one != use.key for one in claims.keys], np.bool_)
    kept = others[claims.key] & ~_lent(use, claims, others) & ~claims.leaving
    rows = np.array(evictions.ordered, np.intp)
    left = rows[~np.isin(rows, claims.ordered[kept])]
    return structs.replace(evictions, ordered=tuple(left.tolist()))


def _may_go(use: QuotaUse, claims: Claims) -> NDArray[np.bool_]:
    """Returns (n,) who may go."""
    own = np.array([one == use.key for one in claims.keys], np.bool_)
    limited = np.array([one in use.limits for one in claims.keys], np.bool_)
    if use.key is None:
        return np.asarray(claims.less & ~limited[claims.key])
    if over_minimum_with_pod(use):
        return np.asarray(claims.less & own[claims.key])
    return _lent(use, claims, limited & ~own)


def _lent(use: QuotaUse, claims: Claims, lenders: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns (n,) who of each node goes so that the quotas of others come down to their minimums.

    A pod goes while its quota is still over its minimum without those of its node that go before,
    and without all that leave already. Of what all quotas together have no more, nobody gives back
    what is guaranteed to him because he uses more of something else.
    """
    stay, short = ~claims.leaving, over_all_minimums(use)
    holds = sum((claims.amounts[name] for name in short), np.zeros(len(stay))) > 0
    # Pods of one node and quota side by side, the first to go first.
    group = claims.nodes * len(claims.keys) + claims.key
    sort = np.argsort(group, kind="stable")
    first = np.searchsorted(group[sort], group[sort])
    over = np.zeros(len(group), np.bool_)
    for name in use.pool.minimum:
        amounts = np.where(stay, claims.amounts[name], 0.0)
        going = np.bincount(claims.key, claims.amounts[name] - amounts, len(claims.keys))
        spare = np.array(
            [
                use.used.get(one, {}).get(name, 0.0)
                - use.limits.get(one, _NONE).minimum.get(name, 0.0)
                for one in cast("tuple[str, ...]", claims.keys)
            ]
        )
        before = np.concatenate(([0.0], np.cumsum(amounts[sort])))
        lent = (spare - going)[claims.key[sort]] > before[:-1] - before[first]
        over[sort] |= lent if name in short else lent & ~holds[sort]
    return over & lenders[claims.key] & stay


def _sum(name: str, *parts: Amounts) -> float:
    # Whole base units, so the order does not matter.
    return sum(one.get(name, 0.0) for one in parts)


def _over(most: Amounts, *parts: Amounts) -> list[str]:
    return [name for name, limit in most.items() if _sum(name, *parts) > limit]
