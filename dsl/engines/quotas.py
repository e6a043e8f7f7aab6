"""What quotas say of a pod, and whom a quota may evict to get back what it lent.

Amounts count where some quota names them: a quota that does not name a resource has no maximum of
it, and a minimum of 0 if another quota has one.

Source: kubernetes-sigs/scheduler-plugins pkg/capacityscheduling at 903da7df; what differs: the
check of all minimums together is made again without the victims (#683).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dsl.collective import Amounts, Limits, QuotaUse
from dsl.types import NUMBER, TEXT, quoted

_NONE: Final = Limits()


def over_maximum(use: QuotaUse) -> list[str]:
    """Returns the resources of which the pod would bring its quota above the maximum."""
    if use.key is None:
        return []
    used = use.used.get(use.key, {})
    return [
        name
        for name, most in use.limits.get(use.key, _NONE).maximum.items()
        if _sum(name, used, use.asked, use.ahead) > most
    ]


def over_all_minimums(use: QuotaUse) -> list[str]:
    """Returns the resources of which all quotas together would use more than they guarantee."""
    if use.key is None:
        return []
    return [
        name
        for name in guaranteed(use.limits)
        if _sum(name, *use.used.values(), use.asked, use.ahead_in_all)
        > _sum(name, *(one.minimum for one in use.limits.values()))
    ]


def over_minimum_with_pod(use: QuotaUse) -> list[str]:
    """Returns the resources of which the pod's quota would use more than its own minimum."""
    if use.key is None:
        return []
    names = guaranteed(use.limits)
    own = use.limits.get(use.key, _NONE).minimum
    together = [use.used.get(use.key, {}), use.asked, use.ahead]
    return [name for name in names if _sum(name, *together) > own.get(name, 0.0)]


def is_over_minimum(used: Amounts, own: Limits, names: Iterable[str]) -> bool:
    """Whether a quota uses more than it is guaranteed of any of these resources."""
    return any(used.get(name, 0.0) > own.minimum.get(name, 0.0) for name in names)


def guaranteed(limits: Mapping[str | float, Limits]) -> list[str]:
    """Returns the resources that some quota has a minimum of, by name."""
    return sorted({name for one in limits.values() for name in one.minimum})


def exceeded(use: QuotaUse, *, elastic: bool) -> str | None:
    """Returns why the pod does not fit into the quotas; None: it does, or has none."""
    if use.key is None:
        return None
    quota = f"quota of {quoted(use.key, TEXT if isinstance(use.key, str) else NUMBER)}"
    above = over_maximum(use)
    if above:
        return f"{quota}: no more {above[0]}"
    short = over_all_minimums(use) if elastic else []
    if short:
        return f"{quota}: no {short[0]} left to borrow"
    return None


def _sum(name: str, *parts: Amounts) -> float:
    # Whole base units, so the order does not matter.
    return sum(one.get(name, 0.0) for one in parts)


def lenders(
    use: QuotaUse,
    keys: Mapping[int, str | float | None],
    amounts: Mapping[int, Amounts],
) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Returns who of some pods, in order, goes so that their quotas come down to their minimums.

    `keys` and `amounts` are those of each pod row. A pod is taken while its quota is still over
    its minimum without those taken before.
    """
    names = guaranteed(use.limits)

    def taken(pods: Sequence[int]) -> tuple[int, ...]:
        left = {key: dict(one) for key, one in use.used.items()}
        out = []
        for pod in pods:
            key = keys[pod]
            if key is None or key not in left:
                continue
            if is_over_minimum(left[key], use.limits.get(key, _NONE), names):
                out.append(pod)
                for name, amount in amounts[pod].items():
                    left[key][name] = left[key].get(name, 0.0) - amount
        return tuple(out)

    return taken
