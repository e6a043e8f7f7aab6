"""A bundle and the plugins of profiles as frameworks: what decides, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import tzinfo

from dsl.plan import Plan
from engine.framework.frameworks import Frameworks
from engine.framework.profile import Profile, Restricted, Weighted
from engine.framework.runtime import MEMO_BYTES, Framework, PluginError
from engine.policy.bundle import Bundle
from engine.policy.plugin import Worlds
from engine.policy.preempting import PolicyPreemption, preempts
from engine.policy.quotas import plugin_of
from engine.policy.shares import in_force


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
    enforced = sorted(
        filter(None, map(in_force, bundle.plans)),
        key=lambda plan: (plan.order, plan.name),
    )
    policies = {plan.name: Weighted(plugin_of(plan, worlds), plan.weight) for plan in enforced}

    def of(profile: Profile) -> list[Plan]:
        own = profile.scheduler_name
        return [one for one in enforced if own in bundle.profiles.get(one.name, (own,))]

    def ruled(profile: Profile) -> Profile:
        """With its policies behind its plugins, and before them what is said of preemption."""
        mine = of(profile)
        first = [Weighted(PolicyPreemption(mine, worlds))] if any(map(preempts, mine)) else []
        behind = [policies[one.name] for one in mine]
        plugins = (*first, *own(profile.plugins), *behind)
        return replace(_in_front(profile, first), plugins=plugins)

    own = _unsorted if any(plan.sorts for plan in enforced) else tuple
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


def framework_of(profile: Profile, bundle: Bundle, *, worlds: Worlds) -> Framework:
    """`frameworks_of`, of a single profile."""
    [only] = frameworks_of([profile], bundle, worlds=worlds)
    return only


def _in_front(profile: Profile, first: Sequence[Weighted]) -> Profile:
    """The same where a configured order of PostFilter would put these behind."""
    names = profile.order.get("postFilter")
    if names is None or not first:
        return profile
    order = {**profile.order, "postFilter": (*(one.plugin.name for one in first), *names)}
    return replace(profile, order=order)


def _unsorted(plugins: Sequence[Weighted]) -> tuple[Weighted, ...]:
    """The same, without a say in the order of the queue."""
    return tuple(
        replace(one, plugin=Restricted(one.plugin, frozenset({"sort_key"}))) for one in plugins
    )


def worlds_of(zone: tzinfo, gpus: Sequence[str]) -> Worlds:
    """What all policies of a process share."""
    return Worlds(zone, gpus)
