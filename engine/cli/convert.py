"""`berth convert`: the configuration of another scheduler as one for Berth, policies included.

What is not the same afterwards is said on stderr, and in the policies that it is about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

from engine.cli import options
from engine.cli.refusals import of_file, reported
from engine.configuration.berth import BerthDocument
from engine.configuration.conversions import Converted, convert
from engine.configuration.scheduler import SCHEDULER_API, SchedulerDocument
from engine.configuration.settings import ConfigError, parse, settings_of, without_nulls
from engine.plugins.profiles import make_profiles
from engine.plugins.registry import IN_TREE
from engine.policy.bundle import Refusal, compile_at_once, compile_settings, in_a_line
from engine.policy.findings import new_compiler
from engine.text.display import few
from engine.text.documents import Dumper, objects_in
from engine.text.files import configuration_in

_VERSIONS: Final = [SCHEDULER_API, *(f"{SCHEDULER_API}beta{number}" for number in (3, 2, 1))]
_KIND: Final = "KubeSchedulerConfiguration"
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SORT: Final = "queueSort"
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

    def suffix(self, profile: str) -> str:
        """What tells apart what is of a profile: its name, or number; empty if it is of all."""
        if not profile:
            return ""
        names = [one["schedulerName"] for one in self.scheduler["profiles"]]
        can_be_names = all(_LABEL.fullmatch(one) for one in names)
        return f"-{profile if can_be_names else names.index(profile) + 1}"

    def names(self) -> dict[str, str]:
        """What the ConfigMaps and folders are called, by scheduler names."""
        return {one: f"policies{self.suffix(one)}" for one in sorted(self.policies)}


@click.command("convert", help="Convert a KubeSchedulerConfiguration for Berth.")
@click.argument("source", type=options.FILE)
@click.option(
    "-o", "output", metavar="DIR", type=click.Path(path_type=Path),
    help="Folder to write config.yaml and the policies to, instead of printing them.",
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
        of = objects_in(configuration_in(source))
        data = [one.get("data") for one in of if one.get("kind") == "ConfigMap"]
        texts = [str(text) for one in data if isinstance(one, dict) for text in one.values()]
        of += [one for text in texts if _KIND in text for one in objects_in(text)]
    except (OSError, ValueError) as failed:
        why = getattr(failed, "strerror", None) or failed
        raise click.ClickException(f"{source}: cannot be read: {why}") from failed
    given = [without_nulls(one) for one in of if one.get("kind") in (_KIND, "BerthConfiguration")]
    if len(given) != 1 or given[0].get("apiVersion") not in _VERSIONS:
        kinds = [one for one in given or of if one.get("kind")]
        there = few([f"{one['kind']} of {one.get('apiVersion')}" for one in kinds])
        raise click.ClickException(
            f"{source}: expected one {_KIND} of {SCHEDULER_API}, v1beta3, v1beta2 or v1beta1, in a"
            f" ConfigMap or not (it is what --config names), found {there or 'none'}"
        )
    found = _Found({**given[0], "apiVersion": SCHEDULER_API})
    if given[0]["apiVersion"] in _VERSIONS[2:]:
        weights = "TaintToleration has 3, NodeAffinity and InterPodAffinity have 2; all had 1"
        found.lost.append(f"default weights: {weights}")
    with reported(ConfigError):
        parse(str(source), SchedulerDocument, found.scheduler)
    connection = found.scheduler.get("clientConnection") or {}
    if file := connection.get("kubeconfig"):
        found.lost.append(
            f"clientConnection.kubeconfig: {file} is kept; its user needs Berth's permissions"
            " (berth install --dry-run prints them), and a Berth in a pod goes without it"
        )
    # To Berth no profile is one of its own name.
    profiles = found.scheduler["profiles"] = found.scheduler.get("profiles") or [{}]
    profiles[0].setdefault("schedulerName", "default-scheduler")
    gone = [_profile(one, f"{source}: profiles.{n}", found) for n, one in enumerate(profiles)]
    for profile in profiles if any(gone) else ():
        sort = {"enabled": [{"name": "PrioritySort"}]}
        profile["plugins"] = {**profile.get("plugins", {}), _SORT: sort}
    return found


def _profile(profile: dict[str, Any], place: str, found: _Found) -> bool:
    """Takes plugins that Berth does not have out of a profile and puts policies in their place.

    Whether one of them may have sorted: a policy does, and Berth's own must be there to give way.
    """
    name = profile["schedulerName"]
    points: dict[str, dict[str, Any]] = profile.get("plugins") or {}
    configs: list[dict[str, Any]] = profile.get("pluginConfig") or []
    args = {one["name"]: one.get("args") or {} for one in configs}
    for one in args.values():
        if one.get("apiVersion") in _VERSIONS:
            one["apiVersion"] = SCHEDULER_API
    enabled = [(point, one) for point, of in points.items() for one in of.get("enabled") or ()]
    sorts = {one["name"] for point, one in enabled if point == _SORT or one["name"] in _SORTERS}
    weights: dict[str, int] = {}
    for _, one in enabled:
        weights[one["name"]] = max(weights.get(one["name"], 0), one.get("weight") or 0)
    for plugin in dict.fromkeys([*weights, *args]):
        if plugin not in IN_TREE:
            of = "" if plugin in sorts else name
            try:
                _plugin(plugin, args.get(plugin, {}), weights.get(plugin, 0), of, found)
            except msgspec.ValidationError as wrong:
                where = f"{place}.pluginConfig: {plugin}"
                raise click.ClickException(f"{where}: {wrong}") from wrong
    left = {
        "plugins": {point: kept for point, of in points.items() if (kept := _kept(of))},
        "pluginConfig": [one for one in configs if one["name"] in IN_TREE],
    }
    for key, value in left.items():
        profile.pop(key, None)
        profile |= {key: value} if value else {}
    return any(at in (_SORT, "multiPoint") and one["name"] not in IN_TREE for at, one in enabled)


def _kept(plugins: dict[str, Any]) -> dict[str, Any]:
    enabled = [one for one in plugins.get("enabled") or () if one["name"] in IN_TREE]
    return {key: of for key, of in {**plugins, "enabled": enabled}.items() if of}


def _plugin(plugin: str, args: dict[str, Any], weight: int, profile: str, found: _Found) -> None:
    made = convert(plugin, args) or Converted("", ("no policy is known for it",))
    found.lost += [f"{plugin}: {one}" for one in made.lost]
    found.prometheus = made.prometheus or found.prometheus
    # Not the name of the policy that is used: a file is a policy, too.
    file = f"plugin-{plugin.lower()}"
    others = (texts for of, texts in found.policies.items() if of != profile)
    suffix = found.suffix(profile) if any(f"{file}.policy" in texts for texts in others) else ""
    if text := made.text(weight, suffix):
        lost = "".join(f"# {one}\n" for one in made.lost)
        text = f"# For the plugin {plugin}.\n{lost}{text}"
        there = found.policies.setdefault(profile, {})
        if there.setdefault(f"{file}{suffix}.policy", text) != text:
            raise click.ClickException(
                f"{plugin}: what sorts the queue must have the same arguments in all profiles"
            )


# ---- what comes out -----------------------------------------------------------------------------


def config_of(found: _Found, folder: Path | None = None) -> list[dict[str, Any]]:
    """The two documents of a configuration, with policies in ConfigMaps, or in a folder."""
    berth: dict[str, Any] = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration"}
    names = [one["schedulerName"] for one in found.scheduler["profiles"]]
    if len(names) == 1:
        everything = {**found.policies.pop("", {}), **found.policies.pop(names[0], {})}
        found.policies = {"": everything} if everything else {}
    sources: list[dict[str, Any]] = []
    for profile, name in found.names().items():
        of = {"profiles": [profile]} if profile else {}
        at = folder and str(folder.absolute() / name)  # from wherever it is started
        sources.append(({"dir": at} if at else {"configMap": f"berth-system/{name}"}) | of)
    if sources:
        berth["policies"] = {"sources": sources} if any(found.policies) else sources[0]
    if found.prometheus:
        berth["prometheus"] = {"url": found.prometheus}
    return [found.scheduler, berth]


def config_maps_of(found: _Found) -> list[dict[str, Any]]:
    """The ConfigMaps that the configuration names."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "berth-system"},
            "data": found.policies[profile],
        }
        for profile, name in found.names().items()
    ]


def _check(source: Path, config: list[dict[str, Any]], found: _Found) -> None:
    """Tries what came out as a start would; what cannot run is lost, not hidden."""
    with reported(ConfigError):
        scheduler = parse(str(source), SchedulerDocument, config[0])
        berth = parse(str(source), BerthDocument, config[1])
        settings = settings_of(scheduler, berth)
        make_profiles(settings, str(source))
    found.lost += settings.notes
    of = berth.policies
    folders = [one.folder if of.in_folders else "" for one in of.all_sources]
    files = {
        f"{folder}{name}": text
        for folder, profile in zip(folders, found.names(), strict=True)
        for name, text in found.policies[profile].items()
    }
    made = compile_at_once(new_compiler(), files, compile_settings(berth))
    if isinstance(made, Refusal):
        found.lost += [in_a_line(one) for one in made.diagnostics if one.is_error]


def _as_text(documents: list[dict[str, Any]]) -> str:
    return str(yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=1000))


def _write(folder: Path, config: list[dict[str, Any]], found: _Found) -> None:
    with of_file(folder, "written"):
        for profile, called in found.names().items():
            (folder / called).mkdir(parents=True, exist_ok=True)
            for name, text in found.policies[profile].items():
                (folder / called / name).write_text(text, encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(_as_text(config), encoding="utf-8")
    there = sum(map(len, found.policies.values()))
    click.echo(f"written: {folder / 'config.yaml'}; policies: {there}", err=True)
