"""Options that several commands take, each written once: its name, and what it says of itself."""

from __future__ import annotations

from typing import Final

import click

from engine.cli.logs import VERBOSITY

KUBECONFIG: Final = click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Cluster to use; else its pod's, $KUBECONFIG, ~/.kube/config.",
)
POLICIES: Final = click.option("--policies", metavar="DIR", help="Folder of .policy files.")
POLICY_CONFIGMAP: Final = click.option(
    "--policy-configmap", metavar="NS/NAME", help="ConfigMap of NAME.policy keys."
)
PROMETHEUS_URL: Final = click.option(
    "--prometheus-url", metavar="URL", help="Where metrics are asked for."
)
KEY: Final = click.option("--tls-private-key-file", metavar="FILE", default="", help="Its key.")
LOGGING_FORMAT: Final = click.option(
    "--logging-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="How lines are written.  [default: text]",
)
QUIET_VERBOSITY: Final = click.option(
    "-v", "--v", "verbosity", type=VERBOSITY, metavar="LEVEL", default="2", hidden=True
)
