"""`berth convert`: the configuration of another scheduler as one for Berth, policies included.

What is not the same afterwards is said on stderr, and in the policies that it is about.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

from engine.cli import options
from engine.cli.refusals import reported, written
from engine.config import (
    BerthDocument,
    ConfigError,
    SchedulerDocument,
    parse,
    settings_of,
    without_nulls,
)
from engine.conversions import Converted, convert
from engine.documents import Dumper, Loader
from engine.files import configuration_in
from engine.plugins.profiles import make_profiles
from engine.plugins.registry import is_in_tree
from engine.policy.bundle import Refusal, compile_at_once, compile_settings, in_a_line
from engine.policy.findings import new_compiler

_VERSIONS: Final = ("v1", "v1beta3")
_GROUP: Final = "kubescheduler.config.k8s.io"
_POLICIES: Final = "policies"
_SORT: Final = "queueSort"
_OWN_SORT: Final = "PrioritySort"
_EVERYWHERE: Final = "multiPoint"
_SORTERS: Final = ("Coscheduling", "QOSSort")
"""Plugins that sort wherever they are enabled."""


@dataclass(slots=True)
class _Found:
    """What becomes of a configuration."""

    scheduler: dict[str, Any]
    policies: dict[str, dict[str, str]] = field(default_factory=dict)
    """Scheduler name, empty for all profiles -> name of a file -> its text."""
    lost: list[str] = field(default_factory=list)
    prometheus: str = ""


@click.command("convert", help="Turn a KubeSchedulerConfiguration into one for Berth.")
@click.argument("source", type=options.FILE)
@click.option(
    "-o", "output", metavar="DIR", type=click.Path(path_type=Path),
    help="Write config.yaml and the policies there instead of printing them.",
)  # fmt: skip
def command(source: Path, output: Path | None) -> None:
    """Plugins of others become policies; those of the stock scheduler stay as they are."""
    found = converted(source)
    config = config_of(found, output)
    _check(source, config, found)
    if output is None:
        click.echo(_as_text([*config, *config_maps_of(found)]), nl=False)
    else:
        _write(output, config, found)
    for one in found.lost:
        click.echo(f"not the same: {one}", err=True)


def converted(source: Path) -> _Found:
    """What becomes of a file.

    Raises:
        click.ClickException: it is not such a configuration.
    """
    try:
        documents = [one for one in yaml.load_all(configuration_in(source), Loader) if one]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as failed:
        raise click.ClickException(f"{source}: cannot be read: {failed}") from failed
    of = [without_nulls(one) for one in documents if isinstance(one, dict)]
    known = [f"{_GROUP}/{version}" for version in _VERSIONS]
    if len(of) != 1 or of[0].get("apiVersion") not in known:
        there = " and ".join(f"{one.get('kind')} of {one.get('apiVersion')}" for one in of)
        there += "; give what stands in its `data`" if there == "ConfigMap of v1" else ""
        raise click.ClickException(
            f"{source}: expected one KubeSchedulerConfiguration of {' or '.join(known)}, found"
            f" {there or 'none'}"
        )
    found = _Found({**of[0], "apiVersion": known[0], "kind": "KubeSchedulerConfiguration"})
    with reported(ConfigError):
        parse(str(source), SchedulerDocument, found.scheduler)
    for number, profile in enumerate(found.scheduler.get("profiles") or ()):
        _profile(profile, f"{source}: profiles.{number}", found)
    return found


def _profile(profile: dict[str, Any], place: str, found: _Found) -> None:
    """Takes plugins that Berth does not have out of a profile and puts policies in their place."""
    name = profile.get("schedulerName", "default-scheduler")
    points: dict[str, dict[str, Any]] = profile.get("plugins") or {}
    configs: list[dict[str, Any]] = profile.get("pluginConfig") or []
    args = {one["name"]: one.get("args") or {} for one in configs}
    enabled = [(point, one) for point, of in points.items() for one in of.get("enabled") or ()]
    sorts = {one["name"] for point, one in enabled if point == _SORT or one["name"] in _SORTERS}
    weights: dict[str, int] = {}
    for _, one in enabled:
        weights[one["name"]] = max(weights.get(one["name"], 0), one.get("weight") or 0)
    for plugin in dict.fromkeys([*weights, *args]):
        if not is_in_tree(plugin):
            of = "" if plugin in sorts else name
            try:
                _plugin(plugin, args.get(plugin, {}), weights.get(plugin, 0), of, found)
            except msgspec.ValidationError as wrong:
                where = f"{place}.pluginConfig: {plugin}"
                raise click.ClickException(f"{where}: {wrong}") from wrong
    left = {
        "plugins": {point: kept for point, of in points.items() if (kept := _kept(point, of))},
        "pluginConfig": [one for one in configs if is_in_tree(one["name"])],
    }
    for key, value in left.items():
        profile.pop(key, None)
        profile |= {key: value} if value else {}


def _kept(point: str, plugins: dict[str, Any]) -> dict[str, Any]:
    enabled = plugins.get("enabled") or []
    kept = {**plugins, "enabled": [one for one in enabled if is_in_tree(one["name"])]}
    if point in (_SORT, _EVERYWHERE) and len(kept["enabled"]) < len(enabled):
        # A policy sorts in its place, and Berth's own sort must be there to give way.
        disabled = plugins.get("disabled") or []
        stays = [one for one in disabled if point != _SORT and one["name"] != _OWN_SORT]
        kept["disabled"] = stays
    return {key: value for key, value in kept.items() if value}


def _plugin(plugin: str, args: dict[str, Any], weight: int, profile: str, found: _Found) -> None:
    made = convert(plugin, args) or Converted("", ("no policy is known for it",))
    found.lost += [f"{plugin}: {one}" for one in made.lost]
    found.prometheus = made.prometheus or found.prometheus
    # Not the name of the policy that is used: a file is a policy, too.
    file = f"plugin-{plugin.lower()}"
    taken = {one for of, texts in found.policies.items() if of != profile for one in texts}
    suffix = _suffix(profile, file, ".policy", taken)
    if text := made.text(weight, suffix):
        lost = "".join(f"# {one}\n" for one in made.lost)
        text = f"# For the plugin {plugin}.\n{lost}{text}"
        there = found.policies.setdefault(profile, {})
        if there.setdefault(f"{file}{suffix}.policy", text) != text:
            raise click.ClickException(
                f"{plugin}: what sorts the queue must be the same, with its"
                " arguments, in all profiles that have it"
            )


# ---- what comes out -----------------------------------------------------------------------------


def config_of(found: _Found, folder: Path | None = None) -> list[dict[str, Any]]:
    """The two documents of a configuration, with policies in ConfigMaps, or in a folder."""
    berth: dict[str, Any] = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration"}
    profiles = found.scheduler.get("profiles") or [{}]
    names = [one.get("schedulerName", "default-scheduler") for one in profiles]
    if len(names) == 1:
        everything = {**found.policies.pop("", {}), **found.policies.pop(names[0], {})}
        found.policies = {"": everything} if everything else {}
    if list(found.policies) == [""]:
        berth["policies"] = _place(_POLICIES, folder)
    elif found.policies:
        berth["policies"] = {
            "sources": [
                {**_place(name, folder), **({"profiles": [profile]} if profile else {})}
                for profile, name in _names(found.policies).items()
            ]
        }
    if found.prometheus:
        berth["prometheus"] = {"url": found.prometheus}
    return [found.scheduler, berth]


def _place(name: str, folder: Path | None) -> dict[str, str]:
    """Where policies are read; a folder from wherever it is started."""
    if folder is None:
        return {"configMap": f"berth-system/{name}"}
    return {"dir": f"{folder.absolute() / name}"}


def _names(profiles: Iterable[str]) -> dict[str, str]:
    """What their ConfigMaps and folders are called, by scheduler names, which may be any text."""
    found: dict[str, str] = {}
    for profile in sorted(profiles):
        taken = {*found.values(), *([_POLICIES] if profile else ())}
        found[profile] = _POLICIES + _suffix(profile, _POLICIES, "", taken)
    return found


def _suffix(profile: str, before: str, after: str, taken: Container[str]) -> str:
    """The first of a profile that makes a name which is not taken; empty if none is needed."""
    named = f"-{re.sub('[^a-z0-9]+', '-', profile.lower()).strip('-') or 'profile'}"
    further = (f"{named}-{number}" for number in count(2))
    return next(one for one in chain(("", named), further) if before + one + after not in taken)


def config_maps_of(found: _Found) -> list[dict[str, Any]]:
    """The ConfigMaps that the configuration names."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "berth-system"},
            "data": found.policies[profile],
        }
        for profile, name in _names(found.policies).items()
    ]


def _check(source: Path, config: list[dict[str, Any]], found: _Found) -> None:
    """Tries what came out as a start would; what cannot run is lost, not hidden."""
    with reported(ConfigError):
        scheduler = parse(str(source), SchedulerDocument, config[0])
        berth = parse(str(source), BerthDocument, config[1])
        make_profiles(settings_of(scheduler, berth), str(source))
    folders = [
        one.folder if berth.policies.in_folders else "" for one in berth.policies.all_sources
    ]
    files = {
        f"{folder}{name}": text
        for folder, profile in zip(folders, _names(found.policies), strict=True)
        for name, text in found.policies[profile].items()
    }
    made = compile_at_once(new_compiler(), files, compile_settings(berth))
    if isinstance(made, Refusal):
        found.lost += [in_a_line(one) for one in made.diagnostics if one.is_error]


class _Dumper(Dumper):
    """Policies as blocks, so that they can be read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _as_text(documents: list[dict[str, Any]]) -> str:
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000))


def _write(folder: Path, config: list[dict[str, Any]], found: _Found) -> None:
    with written(folder):
        for profile, called in _names(found.policies).items():
            (folder / called).mkdir(parents=True, exist_ok=True)
            for name, text in found.policies[profile].items():
                (folder / called / name).write_text(text, encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(_as_text(config), encoding="utf-8")
    there = sum(map(len, found.policies.values()))
    click.echo(f"written: {folder / 'config.yaml'}; policies: {there}", err=True)
