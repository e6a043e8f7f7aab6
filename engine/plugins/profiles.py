"""A profile of a KubeSchedulerConfiguration -> its plugins: which, where, in which order, how much.

Source: kubernetes pkg/scheduler/apis/config/v1/default_plugins.go (mergePluginSet) and
framework/runtime/framework.go (expandMultiPointPlugins).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from engine.configuration.scheduler import (
    EnabledPlugin,
    PluginConfig,
    PluginSet,
    ProfileDocument,
    ignored,
)
from engine.configuration.settings import ConfigError, Settings
from engine.framework.defaults import DEFAULT_WEIGHTS
from engine.framework.interface import Plugin
from engine.framework.profile import Changed, Profile, Weighted, without
from engine.framework.runtime import Framework
from engine.plugins.no_nodes import Extenders
from engine.plugins.node_resources_fit import NAME as FIT
from engine.plugins.registry import make_plugin
from engine.text.display import nearest

_ALL: Final = "*"
_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "DefaultBinder": ("bind", "binder"),
        "DynamicResources": ("pre_enqueue", "filter", "reserve", "pre_bind"),
        "VolumeBinding": ("pre_bind",),
    }
)
"""Points of kube-scheduler without a counterpart here; a profile may name them."""
OURS_ALONE: Final = {("preScore", "DynamicResources"), ("preScore", "ImageLocality")}
"""Points that our plugins have and kube-scheduler's lack, to say what a score depends on."""
FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "preEnqueue": ("pre_enqueue",),
        "queueSort": ("sort_key",),
        "preFilter": ("pre_filter",),
        "filter": ("filter",),
        "postFilter": ("post_filter",),
        "preScore": ("pre_score",),
        "score": ("score", "normalize"),
        "reserve": ("reserve",),
        "permit": ("permit",),
        "preBind": ("pre_bind",),
        "bind": ("bind", "binder"),
        "postBind": ("post_bind",),
    }
)
"""Extension points of a configuration -> fields of `Points`."""


def make_profiles(settings: Settings, source: str | None = None) -> list[Profile]:
    """The profiles of a process, with new plugins; `source` is the file, to be named.

    Raises:
        ConfigError: one of them cannot be used; one line with the place.
    """
    head = f"{source}: " if source else ""
    names = [one.scheduler_name for one in settings.profiles]
    for name in settings.berth.profiles:
        if name not in names:
            raise ConfigError(f"{head}profiles.{name}: no such profile{nearest(name, names)}")
    made: list[Profile] = []
    sorters = set()
    for number, document in enumerate(settings.profiles):
        try:
            looked_at = _less(document, ignored(settings.extenders))
            profile = make_profile(looked_at, settings.berth.seed)
            sorters.add(Framework(profile).sorter.name)
            if len(sorters) > 1:
                raise ValueError("queueSort must be the same for all profiles")  # noqa: TRY301 - as what else is wrong with one
        except ValueError as wrong:
            raise ConfigError(f"{head}profiles.{number}: {wrong}") from wrong
        if settings.extenders:
            profile = replace(profile, plugins=(*profile.plugins, Weighted(Extenders())))
        own = settings.berth.profiles.get(profile.scheduler_name)
        made.append(profile if own is None else replace(profile, node_selector=own.node_selector))
    return made


def _less(document: ProfileDocument, resources: Sequence[str]) -> ProfileDocument:
    """The profile whose NodeResourcesFit does not look at these resources, as an extender does."""
    if not resources:
        return document
    configs = {one.name: one for one in document.plugin_config}
    args = configs[FIT].args if FIT in configs else {}
    args = {**args, "ignoredResources": [*(args.get("ignoredResources") or ()), *resources]}
    configs[FIT] = PluginConfig(name=FIT, args=args)
    return document.model_copy(update={"plugin_config": list(configs.values())})


def make_profile(document: ProfileDocument, seed: int = 0) -> Profile:
    """The profile with new plugins.

    Raises:
        ValueError: a plugin is unknown, has no such point, or has arguments that it does not take.
    """
    plugins = document.plugins
    for point in ("multiPoint", *FIELDS):
        names = [one.name for one in plugins.at(point).enabled]
        if len(set(names)) < len(names):
            raise ValueError(f"plugins.{point}: a plugin is enabled twice")
    multi = _merged(
        [EnabledPlugin(name=name, weight=weight) for name, weight in DEFAULT_WEIGHTS.items()],
        plugins.multi_point,
    )
    arguments = {one.name: one.args for one in document.plugin_config}
    named = [one for point in FIELDS for one in plugins.at(point).enabled]
    made = {one.name: make_plugin(one.name, arguments.get(one.name)) for one in (*multi, *named)}
    for name in arguments.keys() - made.keys():
        make_plugin(name, arguments[name])  # kube-scheduler checks them all the same
    has = {name: fields_of(plugin) for name, plugin in made.items()}
    at = {point: _at_point(point, plugins.at(point), multi, has) for point in FIELDS}
    if not at["bind"]:
        raise ValueError("at least one bind plugin is needed")
    order = [one.name for one in multi]
    order += [name for name in made if name not in order]
    weights = {one.name: one.weight or 1 for one in at["score"]}
    return Profile(
        document.scheduler_name,
        tuple(
            [
                Weighted(_restricted(made[name], has[name], at), weights.get(name, 1))
                for name in order
            ]
        ),
        seed,
        {
            point: names
            for point, ones in at.items()
            for names in (tuple([one.name for one in ones]),)
            if list(names) != [name for name in order if name in names]
        },
    )


def _merged(defaults: Sequence[EnabledPlugin], custom: PluginSet) -> list[EnabledPlugin]:
    """What is enabled twice takes the place it has by default, unless that is disabled."""
    off = {one.name for one in custom.disabled}
    again = {one.name: one for one in custom.enabled}
    kept = []
    if _ALL not in off:
        kept = [again.pop(one.name, one) for one in defaults if one.name not in off]
    return [*kept, *again.values()]


def _at_point(
    point: str, own: PluginSet, multi: Sequence[EnabledPlugin], has: Mapping[str, frozenset[str]]
) -> list[EnabledPlugin]:
    """The order there: named for it and by multiPoint, by multiPoint alone, then the others."""
    for one in own.enabled:
        if has[one.name].isdisjoint(FIELDS[point]) or (point, one.name) in OURS_ALONE:
            raise ValueError(f"plugins.{point}: plugin {one.name!r} has no such point")
    off = {one.name for one in own.disabled}
    by_name = {one.name: one for one in own.enabled}
    everywhere = [one for one in multi if _ALL not in off and one.name not in off]
    everywhere = [one for one in everywhere if not has[one.name].isdisjoint(FIELDS[point])]
    both = {one.name for one in everywhere} & by_name.keys()
    return [
        *(one for one in own.enabled if one.name in both),
        *(one for one in everywhere if one.name not in both),
        *(one for one in own.enabled if one.name not in both),
    ]


def fields_of(plugin: Plugin) -> frozenset[str]:
    """The fields of `Points` that the plugin fills."""
    points = plugin.points()
    every = [one for fields in FIELDS.values() for one in fields]
    own = [one for one in every if getattr(points, one) is not None]
    return frozenset([*own, *_ELSEWHERE.get(plugin.name, ())])


def _restricted(
    plugin: Plugin, has: frozenset[str], at: Mapping[str, Sequence[EnabledPlugin]]
) -> Plugin:
    off = has - {
        field
        for point, fields in FIELDS.items()
        if any(one.name == plugin.name for one in at[point])
        for field in fields
    }
    for before, after in (("pre_filter", "filter"), ("pre_score", "score")):
        if after in has - off:
            off -= {before}  # it cannot do without
    return Changed(plugin, partial(without, off)) if off else plugin
