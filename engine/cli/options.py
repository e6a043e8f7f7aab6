"""Options that several commands take, each written once: its name, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from engine.cli.logs import level_of

F = TypeVar("F", bound=Callable[..., Any])


class _File(click.Path):
    """A path that help calls FILE."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's signature
        return "FILE"


FILE: Final = _File(path_type=Path)
READABLE: Final = _File(path_type=Path, exists=True, dir_okay=False)
"""A file that is there."""
WRITTEN: Final = _File(path_type=Path, dir_okay=False)
"""A file that is made, or written anew."""
KUBECONFIG: Final = click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig of the cluster; else the pod's service account, $KUBECONFIG, ~/.kube/config.",
)
CONTEXT: Final = click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
FORMAT: Final = click.option(
    "--format",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
POLICIES: Final = click.option("--policies", metavar="DIR", help="Folder of .policy files.")
POLICY_CONFIGMAP: Final = click.option(
    "--policy-configmap", metavar="NS/NAME", help="ConfigMap with NAME.policy keys."
)
PROMETHEUS_URL: Final = click.option(
    "--prometheus-url", metavar="URL", help="Prometheus to read metrics from."
)
LOGGING_FORMAT: Final = click.option(
    "--logging-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Format of log lines.  [default: text]",
)
_verbosity: Final = partial(
    click.option, "-v", "--v", "verbosity", type=level_of, metavar="LEVEL", default="2"
)
VERBOSITY: Final = _verbosity(
    help="Log level; 0: no line per pod, 2: one, 4: more, 5: also why this node.  [default: 2]"
)
QUIET_VERBOSITY: Final = _verbosity(hidden=True)


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Adds several options, which help shows in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def listening(
    flag: str, port: int, of: str, *, address: str, where: str, least: int = 1
) -> Callable[[F], F]:
    """Where a server listens, and with what certificate; `of` says what has the port."""
    return together(
        click.option(
            flag,
            "secure_port",
            type=click.IntRange(least, 65535),
            metavar="PORT",
            default=port,
            show_default=True,
            help=of,
        ),
        click.option("--bind-address", metavar="ADDRESS", default=address, help=where),
        click.option(
            "--tls-cert-file", metavar="FILE", default="", help="Certificate.  [default: its own]"
        ),
        click.option("--tls-private-key-file", metavar="FILE", default="", help="Its private key."),
    )
