"""Flags of `berth run` that are kube-scheduler's: names, defaults and meaning are its own.

Source: kubernetes cmd/kube-scheduler/app/options, component-base config/options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_ELECTION: Final = {
    "leader_elect": (
        "leaderElect",
        "Whether several replicas elect who schedules; the others stand by.  [default: true]",
    ),
    "leader_elect_lease_duration": (
        "leaseDuration",
        "For how long others wait once the leader is silent.  [default: 15s]",
    ),
    "leader_elect_renew_deadline": (
        "renewDeadline",
        "After so long without a renewal the leader ends.  [default: 10s]",
    ),
    "leader_elect_retry_period": (
        "retryPeriod",
        "Between two renewals, or two looks at another's lease.  [default: 2s]",
    ),
    "leader_elect_resource_lock": ("resourceLock", "Only `leases`."),
    "leader_elect_resource_name": ("resourceName", "Name of the lease.  [default: berth]"),
    "leader_elect_resource_namespace": (
        "resourceNamespace",
        "Namespace of the lease.  [default: kube-system]",
    ),
}


def election(command: F) -> F:
    """Adds the flags of leader election."""
    for name, (_, text) in reversed(_ELECTION.items()):
        flag = f"--{name.replace('_', '-')}"
        if name == "leader_elect":
            # Go's way: alone it means true.
            add = click.option(
                flag, is_flag=False, flag_value="true", type=bool, metavar="BOOL", help=text
            )
        else:
            add = click.option(flag, metavar=name.rsplit("_", 1)[-1].upper(), help=text)
        command = add(command)
    return command


def with_election(settings: Any, flags: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see engine.cli
    """Settings with what the flags say of leader election; they win over the file.

    Raises:
        ConfigError: what they say together cannot be.
    """
    from engine.config import parse
    from engine.sections import LeaderElection

    given = {field: flags.get(name) for name, (field, _) in _ELECTION.items()}
    given = {field: value for field, value in given.items() if value is not None}
    if not given:
        return settings
    document = {**settings.election.model_dump(by_alias=True), **given}
    return settings.model_copy(
        update={"election": parse("--leader-elect", LeaderElection, document)}
    )
