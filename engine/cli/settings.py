"""What the flags of a command make of the settings of a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from pydantic.alias_generators import to_camel

from engine.cli import options
from engine.configuration.berth import PoliciesSection, PrometheusSection
from engine.configuration.forms import duration_of, seconds
from engine.configuration.scheduler import LeaderElection
from engine.configuration.settings import ConfigError, Settings, parse
from engine.pods.selectors import SelectorError, read_selector
from engine.policy.folder import ENDING
from engine.policy.sources import policies_in
from engine.text.display import nearest

_LOG = logging.getLogger("engine")

_ELECTION: Final = {
    "leader_elect": "Elect a leader, which schedules; the other replicas stand by."
    "  [default: true]",
    "lease_duration": "How long the lease holds without a renewal.  [default: 15s]",
    "renew_deadline": "How long the leader may fail to renew before it exits.  [default: 10s]",
    "retry_period": "Time between two attempts to renew or take the lease.  [default: 2s]",
    "resource_lock": "Kind of the lock: only `leases`.",
    "resource_name": "Name of the lease.  [default: berth]",
    "resource_namespace": "Namespace of the lease.  [default: kube-system]",
}
"""Fields of `LeaderElection`, whose names are those of the flags."""


def _flag_of(field: str) -> str:
    return field if field == "leader_elect" else f"leader_elect_{field}"


def _of_election(field: str, text: str) -> Callable[[options.F], options.F]:
    flag = f"--{_flag_of(field).replace('_', '-')}"
    if field == "leader_elect":
        # Go's way: alone it means true.
        return click.option(
            flag, is_flag=False, flag_value="true", type=bool, metavar="BOOL", help=text
        )
    return click.option(flag, metavar=field.rpartition("_")[2].upper(), help=text)


ELECTION: Final = options.together(*(_of_election(*one) for one in _ELECTION.items()))
"""The flags of leader election."""


def with_flags(settings: Settings, flags: dict[str, Any], *, also: str = "") -> Settings:
    """Flags win over the file; those that a command does not have are not given.

    `also` is the name of a profile that is not the file's.

    Raises:
        ConfigError: flags contradict each other, or what they and the file come to cannot be.
    """
    folder, config_map = flags.get("policies"), flags.get("policy_configmap")
    if folder and config_map:
        raise ConfigError("--policies and --policy-configmap exclude each other; give one")
    if config_map:
        parse("--policy-configmap", PoliciesSection, {"configMap": config_map})
    berth = settings.berth
    if folder or config_map:
        policies = berth.policies.model_copy(
            update={"dir": folder, "config_map": config_map, "sources": []}
        )
        berth = berth.model_copy(update={"policies": policies})
    if flags.get("prometheus_url"):
        asked = parse("--prometheus-url", PrometheusSection, {"url": flags["prometheus_url"]})
        prometheus = berth.prometheus.model_copy(update={"url": asked.url})
        berth = berth.model_copy(update={"prometheus": prometheus})
    update: dict[str, Any] = {"berth": berth}
    if flags.get("scheduler_name"):
        if len(settings.profiles) > 1:
            raise ConfigError("--scheduler-name is for one profile, and the file has several")
        [only] = settings.profiles
        named = only.model_copy(update={"scheduler_name": flags["scheduler_name"]})
        update["profiles"] = (named,)
    longest = flags.get("pod_max_in_unschedulable_pods_duration")
    if longest:
        try:
            update["max_in_unschedulable_seconds"] = seconds(duration_of(longest))
        except ValueError as wrong:
            raise ConfigError(f"--pod-max-in-unschedulable-pods-duration: {wrong}") from wrong
    both = settings.model_copy(update=update)
    _check_sources(both, [*(one.scheduler_name for one in both.profiles), also])
    return _with_election(both, flags)


def _check_sources(settings: Settings, names: Sequence[str]) -> None:
    """Refuses sources whose policies would be in force for nobody, or could not be asked for.

    Raises:
        ConfigError: there is one; the text names the field.
    """
    for number, source in enumerate(settings.berth.policies.sources):
        where = f"policies.sources.{number}"
        for name in source.profiles:
            if name not in names:
                said = f"no profile is called {name!r}{nearest(name, names)}"
                raise ConfigError(f"{where}.profiles: {said}")
        try:
            read_selector(source.selector or "")
        except SelectorError as wrong:
            raise ConfigError(f"{where}.selector: {wrong}") from wrong


def warn_of_folder(folder: str | None) -> None:
    """Says at once what would else be said when the cluster is there."""
    files, why = ({}, ()) if folder is None else policies_in(Path(folder))
    if folder is not None and not files:
        wrong = f"has no file whose name ends in {ENDING}"
        if files is None:
            wrong = f"cannot be read ({'; '.join(why)})" if why else "does not exist"
        _LOG.warning("folder %s %s: no pod is scheduled until it has policies", folder, wrong)


def _with_election(settings: Settings, flags: Mapping[str, Any]) -> Settings:
    """Settings with what the flags say of leader election; they win over the file.

    Raises:
        ConfigError: what they say together cannot be.
    """
    said = {to_camel(field): flags.get(_flag_of(field)) for field in _ELECTION}
    given = {field: value for field, value in said.items() if value is not None}
    if not given:
        return settings
    document = {**settings.election.model_dump(by_alias=True), **given}
    election = parse("--leader-elect", LeaderElection, document)
    return settings.model_copy(update={"election": election})
