"""A bundle and the plugins of profiles as frameworks: what decides, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from engine.framework.interface import Points
from engine.framework.profile import Changed, Profile, Weighted, without
from engine.framework.runtime import MEMO_BYTES, Framework, Frameworks, PluginError
from engine.framework.status import unresolvable
from engine.policy.bundle import Bundle
from engine.policy.preemption import PolicyPreemption, preempts
from engine.policy.quotas import plugin_of
from engine.policy.shadow import enforced
from engine.policy.world import Worlds

if TYPE_CHECKING:
    from engine.configuration.berth import BerthDocument


def frameworks_of(
    profiles: Sequence[Profile],
    bundle: Bundle,
    *,
    worlds: Worlds,
    on_fault: Callable[[PluginError], None] | None = None,
) -> Frameworks:
    """A profile's plugins first, then its policies by (order, name).

    Policies that are off or in shadow have no say, a canary has one about its share of the pods.

    Raises:
        ValueError: see `Framework`.
    """
    deciding = enforced(bundle.plans)
    worlds.plugins = {plan.name: plugin_of(plan, worlds) for plan in deciding}
    policies = {plan.name: Weighted(worlds.plugins[plan.name], plan.weight) for plan in deciding}

    def ruled(profile: Profile) -> Profile:
        """With its policies behind its plugins, and before them what is said of preemption."""
        name = profile.scheduler_name
        mine = [one for one in deciding if name in bundle.profiles.get(one.name, (name,))]
        first = [Weighted(PolicyPreemption(mine, worlds))] if any(map(preempts, mine)) else []
        awaited = bundle.waits.get(name)
        first += [] if awaited is None else [Weighted(PoliciesAwaited(awaited))]
        behind = _shared([policies[one.name] for one in mine], profile, bundle)
        own = map(unsorted, profile.plugins) if sorts else profile.plugins
        order, after = dict(profile.order), profile.order.get("postFilter")
        if after is not None:  # a configured one would put them behind
            order["postFilter"] = (*(one.plugin.name for one in first), *after)
        return replace(profile, plugins=(*first, *own, *behind), order=order)

    sorts = any(plan.sorts for plan in deciding)

    def unsorted(one: Weighted) -> Weighted:
        """Without a say in the order of the queue."""
        return replace(one, plugin=Changed(one.plugin, partial(without, frozenset({"sort_key"}))))

    return Frameworks(
        [
            Framework(
                ruled(one),
                bundle=bundle.hash,
                on_fault=on_fault,
                memo_bytes=MEMO_BYTES // len(profiles),
            )
            for one in profiles
        ]
    )


def worlds_of(berth: BerthDocument) -> Worlds:
    """What policies share under this configuration."""
    return Worlds(ZoneInfo(berth.time_zone), berth.gpu_resources)


class PoliciesAwaited:
    """Holds all pods of a profile that has no good policies yet."""

    name = "PoliciesAwaited"

    def __init__(self, source: str) -> None:
        self._why = unresolvable(
            f"the policies of {source}, which are for this profile, are not usable"
        )

    def points(self) -> Points:
        """A gate, which other rules in force open."""
        return Points(pre_enqueue=lambda _pod, _snapshot: self._why)


def _shared(policies: Sequence[Weighted], profile: Profile, bundle: Bundle) -> Sequence[Weighted]:
    """The policies, those of each namespace with no more weight together than is their share."""

    def scores(one: Weighted) -> float:
        return one.weight if one.plugin.points().score is not None else 0.0

    if not bundle.tenants:
        return policies
    of = bundle.tenants
    everyones = [one for one in policies if one.plugin.name not in of]
    whole = sum(map(scores, (*profile.plugins, *everyones)))
    if not whole:
        return policies
    most = whole * bundle.share / (1 - bundle.share)
    # There may be a thousand: their points are asked for once, by the framework.
    scoring = {plan.name for plan in bundle.plans if plan.scores}
    weights: dict[str, float] = {}
    for one in policies:
        if one.plugin.name in of:
            namespace, own = of[one.plugin.name], one.weight * (one.plugin.name in scoring)
            weights[namespace] = weights.get(namespace, 0.0) + own

    def bounded(one: Weighted) -> Weighted:
        total = weights.get(of.get(one.plugin.name, ""), 0.0)
        return replace(one, weight=one.weight * most / total) if total > most else one

    return [*map(bounded, policies)]


def framework_of(profile: Profile, bundle: Bundle, *, worlds: Worlds) -> Framework:
    """`frameworks_of`, of a single profile."""
    [only] = frameworks_of([profile], bundle, worlds=worlds)
    return only
