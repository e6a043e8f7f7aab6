"""`berth up`: an embedded cluster that stays, with the scheduler on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import tempfile
from functools import partial
from pathlib import Path

import click
import yaml

from engine.app import App, RunOptions
from engine.cli import options
from engine.cli.logs import log_to_stderr
from engine.cli.loop import run_until_told
from engine.cli.refusals import Refusal, of_file
from engine.cli.run import open_private
from engine.clock import SystemClock
from engine.configuration.settings import Settings
from engine.embedded import EmbeddedCluster

_NAMESPACE = "berth-system"
_CONFIG_MAP = "policies"
_NO_RULE = "# No rule, and off: add your policies as further keys NAME.policy.\nmode: off\n"
"""As in a fresh installation: a scheduler without any policy places no pod."""


@click.command("up", help="Keep an embedded cluster running to try things on.")
@click.option("--nodes", type=click.IntRange(1, 5000), default=12, show_default=True,
              help="Number of simulated nodes.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Its port; 0: a free one.")
@click.option("--kubeconfig", type=options.WRITTEN,
              help="Where to write the kubeconfig.  [default: a temporary file]")  # fmt: skip
@click.option("--scheduler/--no-scheduler", default=True, show_default=True,
              help=f"Run Berth on it, too, by ConfigMap {_NAMESPACE}/{_CONFIG_MAP}.")  # fmt: skip
def command(nodes: int, port: int, kubeconfig: Path | None, *, scheduler: bool) -> None:
    """Runs until SIGTERM or SIGINT."""
    log_to_stderr(logging.INFO, "%(asctime)s %(levelname).1s %(message)s")
    with contextlib.ExitStack() as cleanup:
        if kubeconfig is None:
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="berth-"))
            kubeconfig = Path(folder) / "kubeconfig"
        run_until_told(partial(_up, nodes, port, kubeconfig, scheduler=scheduler))


async def _up(
    nodes: int, port: int, kubeconfig: Path, stop: asyncio.Event, *, scheduler: bool
) -> None:
    clock = SystemClock()
    cluster = EmbeddedCluster(nodes=nodes, clock=clock, port=port)
    try:
        await cluster.start()
    except OSError as taken:
        why = os.strerror(taken.errno or 0).lower()
        raise Refusal(f"cannot listen on port {port}: {why}; give another") from taken
    try:
        with of_file(kubeconfig, "written"), open_private(kubeconfig) as file:
            file.write(yaml.safe_dump(cluster.kubeconfig()).encode())
        cluster.create("namespaces", {"metadata": {"name": _NAMESPACE}})
        click.echo(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}")
        click.echo("# kubectl get nodes -L test", err=True)
        click.echo(f"# metrics of the nodes: --prometheus-url {cluster.prometheus_url}", err=True)
        if not scheduler:
            await stop.wait()
            return
        cluster.create(
            "configmaps",
            {
                "metadata": {"name": _CONFIG_MAP, "namespace": _NAMESPACE},
                "data": {"none.policy": _NO_RULE},
            },
            namespace=_NAMESPACE,
        )
        source = f"{_NAMESPACE}/{_CONFIG_MAP}"
        click.echo(f"# schedulerName: berth; its policies are in ConfigMap {source}", err=True)
        state = f"{_NAMESPACE}/berth"  # where `berth status` looks
        await App(options_of(cluster, source, state), clock=clock).run(stop)
    finally:
        await cluster.stop()


def options_of(cluster: EmbeddedCluster, config_map: str, state: str | None = None) -> RunOptions:
    """For a scheduler on an embedded cluster, with the policies of a ConfigMap."""
    policies = {"configMap": config_map, "state": state}
    berth = {"policies": policies, "prometheus": {"url": cluster.prometheus_url}}
    return RunOptions(Settings.model_validate({"berth": berth}), cluster.kubeconfig())
