"""A bundle and the plugins of profiles as frameworks: what decides, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo

from engine.framework.frameworks import Frameworks
from engine.framework.profile import Profile, Restricted, Weighted
from engine.framework.runtime import MEMO_BYTES, Framework, PluginError
from engine.policy.bundle import Bundle
from engine.policy.plugin import PolicyPlugin, Worlds


def frameworks_of(
    profiles: Sequence[Profile],
    bundle: Bundle,
    *,
    worlds: Worlds,
    on_fault: Callable[[PluginError], None] | None = None,
) -> Frameworks:
    """A profile's plugins first, then its policies by (order, name).

    Policies that are off have no say.

    Raises:
        ValueError: see `Framework`.
    """
    enforced = sorted(
        (plan for plan in bundle.plans if plan.mode == "enforce"),
        key=lambda plan: (plan.order, plan.name),
    )
    policies = {plan.name: Weighted(PolicyPlugin(plan, worlds), plan.weight) for plan in enforced}

    def of(profile: Profile) -> Iterator[Weighted]:
        for name, policy in policies.items():
            if profile.scheduler_name in bundle.profiles.get(name, (profile.scheduler_name,)):
                yield policy

    own = _unsorted if any(plan.sorts for plan in enforced) else tuple
    return Frameworks(
        [
            Framework(
                replace(one, plugins=(*own(one.plugins), *of(one))),
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


def _unsorted(plugins: Sequence[Weighted]) -> tuple[Weighted, ...]:
    """The same, without a say in the order of the queue."""
    return tuple(
        replace(one, plugin=Restricted(one.plugin, frozenset({"sort_key"}))) for one in plugins
    )


def worlds_of(zone: tzinfo, gpus: Sequence[str]) -> Worlds:
    """What all policies of a process share."""
    return Worlds(zone, gpus)
