"""A bundle and the in-tree plugins as one profile's framework: what decides, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework, PluginError
from engine.policy.plugin import PolicyPlugin, Worlds
from engine.policy.reloader import Bundle


def framework_of(
    in_tree: Sequence[Weighted],
    bundle: Bundle,
    *,
    scheduler_name: str,
    seed: int,
    worlds: Worlds,
    on_fault: Callable[[PluginError], None] | None = None,
) -> Framework:
    """In-tree plugins first, then policies by (order, name); policies that are off have no say."""
    enforced = sorted(
        (plan for plan in bundle.plans if plan.mode == "enforce"),
        key=lambda plan: (plan.order, plan.name),
    )
    policies = [Weighted(PolicyPlugin(plan, worlds), plan.weight) for plan in enforced]
    if any(plan.sorts for plan in enforced):
        in_tree = [one for one in in_tree if one.plugin.points().sort_key is None]
    profile = Profile(scheduler_name, (*in_tree, *policies), seed)
    return Framework(profile, bundle=bundle.hash, on_fault=on_fault)


def worlds_of(zone: tzinfo, gpus: Sequence[str]) -> Worlds:
    """What all policies of a profile share."""
    return Worlds(zone, gpus)
