"""What quotas say of a pod, and whom a quota may evict to get back what it lent.

Amounts count where some quota names them: a quota that does not name a resource has no maximum of
it, and a minimum of 0 if another quota has one.

Source: kubernetes-sigs/scheduler-plugins pkg/capacityscheduling at 903da7df; what differs: the
check of all minimums together is made again without the victims (#683).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from dsl.collective import Amounts, Claims, Evictions, Limits, QuotaUse
from dsl.plan import NO_QUOTAS, Plan, QuotaRule, Quotas, Stop, Subject, World
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
        if _sum(name, used, use.asked, use.before) > most
    ]


def over_all_minimums(use: QuotaUse) -> list[str]:
    """Returns the resources of which all quotas together would use more than they guarantee."""
    if use.key is None:
        return []
    return [
        name
        for name in guaranteed(use.limits)
        if _sum(name, *use.used.values(), use.asked, *coming(use))
        > _sum(name, *(one.minimum for one in use.limits.values()))
    ]


def over_minimum_with_pod(use: QuotaUse) -> list[str]:
    """Returns the resources of which the pod's quota would use more than its own minimum."""
    if use.key is None:
        return []
    names = guaranteed(use.limits)
    own = use.limits.get(use.key, _NONE).minimum
    together = [use.used.get(use.key, {}), use.asked, use.before]
    return [name for name in names if _sum(name, *together) > own.get(name, 0.0)]


def coming(use: QuotaUse) -> list[Amounts]:
    """Returns what nominated pods will take before this one, of all quotas together.

    In its own quota those at least as important; of other quotas those within their minimum.
    """
    names = guaranteed(use.limits)
    others = (
        amounts
        for key, amounts in use.nominated.items()
        if not is_over_minimum(use.used.get(key, {}), use.limits[key], names)
    )
    return [use.before, *others]


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


def over(plan: Plan, subject: Subject, world: World, objects: Quotas = NO_QUOTAS) -> Stop | None:
    """Returns which quota of a policy the pod would exceed; `objects` are those of the cluster."""
    for rule in plan.quotas:
        said = why_not(rule, subject, world, objects)
        if said is not None:
            return Stop(rule, rule.status, said)
    return None


def why_not(rule: QuotaRule, subject: Subject, world: World, objects: Quotas) -> str | None:
    """Returns why the pod does not fit into its quota, in the policy's words if it has some."""
    said = exceeded(rule.use(subject, world, objects), elastic=rule.core.elastic)
    if said is None:
        return None
    text = rule.message(subject, world)
    return said if text is None else text


def reclaimed(rule: QuotaRule, subject: Subject, world: World, objects: Quotas) -> Evictions | None:
    """Returns whom an elastic quota evicts for the pod; None: this quota evicts nobody."""
    if not rule.core.elastic:
        return None
    use = rule.use(subject, world, objects)
    return reclaim(use, rule.claims(subject, world, use))


def reclaim(use: QuotaUse, claims: Claims) -> Evictions:
    """Returns who may go.

    Within its minimum a pod gets back what others use beyond theirs; beyond it, and without a
    quota, it replaces less important pods of its own.
    """
    keys = claims.keys
    if use.key is not None and not over_minimum_with_pod(use):
        may = [pod for pod in claims.ordered if keys[pod] != use.key and keys[pod] in use.limits]
        taken = lenders(use, keys, claims.amounts)
        return Evictions(ordered=tuple(may), cost=claims.cost, taken=taken)
    own = [pod for pod in claims.ordered if pod in claims.less]
    if use.key is None:
        own = [pod for pod in own if keys[pod] not in use.limits]
    else:
        own = [pod for pod in own if keys[pod] == use.key]
    return Evictions(ordered=tuple(own), cost=claims.cost)


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
