"""`berth run`: the scheduler against a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from io import FileIO
from pathlib import Path
from typing import Any

import click
import yaml

from engine import __version__
from engine.app import App, RunOptions
from engine.cli import options, runflags
from engine.cli.logs import log_of_a_process
from engine.cli.loop import on_signal, run_until_told
from engine.cli.refusals import of_file, reported
from engine.cli.settings import ELECTION, warn_of_folder, with_flags
from engine.clock import SystemClock
from engine.configuration.settings import ConfigError, load
from engine.endpoints import configuration
from engine.extenders.client import Extenders
from engine.kube.errors import LeaseLost
from engine.plugins import out_of_tree
from engine.plugins.profiles import make_profiles
from engine.serving.certificates import CertificateError
from engine.serving.server import ListenError
from engine.text.documents import Dumper

_WHY = 5
"""The level of the log from which it says why of every pod, however many there are."""
_LOG = logging.getLogger("engine")


@click.command("run", help="Run the scheduler against a cluster.")
@options.KUBECONFIG
@options.CONTEXT
@click.option("--config", metavar="FILE", help="Configuration file.")
@options.POLICIES
@options.POLICY_CONFIGMAP
@click.option("--scheduler-name", metavar="NAME", help="schedulerName to serve.  [default: berth]")
@ELECTION
@options.PROMETHEUS_URL
@click.option("--record", type=options.FILE, help="Write a journal that `berth replay` can check.")
@runflags.SERVING
@click.option(
    "--pod-max-in-unschedulable-pods-duration",
    metavar="DURATION",
    default="5m",
    help="How long a pod that fits nowhere waits at most for its next try.  [default: 5m]",
)
@click.option("--write-config-to", type=options.FILE, help="Write the configuration and exit.")
@options.LOGGING_FORMAT
@options.VERBOSITY
@runflags.STOCK
@click.version_option(__version__, prog_name="berth")
@reported(ConfigError, CertificateError, ListenError)
def command(
    *,
    config: str | None,
    record: Path | None,
    write_config_to: Path | None,
    verbosity: int,
    logging_format: str,
    **flags: Any,  # noqa: ANN401 - each has its own type
) -> None:
    """Runs until SIGTERM or SIGINT, then ends cleanly."""
    log_of_a_process(verbosity, as_json=logging_format == "json")
    settings = with_flags(load(config), flags)
    notes = [*runflags.notes(flags)]
    profiles = make_profiles(settings, config)  # before a journal is overwritten
    notes += out_of_tree.notes(profiles)
    Extenders(settings.extenders)  # their certificates are read
    for note in (*(f"{config}: {one}" for one in settings.notes), *notes):
        _LOG.warning("%s", note)
    if write_config_to:
        documents = configuration(settings).values()
        with of_file(write_config_to, "written"):
            write_config_to.write_text(
                yaml.dump_all(documents, Dumper=Dumper, sort_keys=False), "utf-8"
            )
        return
    warn_of_folder(settings.berth.policies.dir)
    serving = runflags.server_options(flags)
    with contextlib.ExitStack() as open_files:
        journal: FileIO | None = None
        if record:
            with of_file(record, "written"):
                journal = open_files.enter_context(open_private(record))
        whom, why = flags["kubeconfig"], verbosity >= _WHY
        _run(RunOptions(settings, whom, journal, why, serving, context=flags["context"]))


def open_private(path: Path) -> FileIO:
    """Opens a file for writing, unbuffered, that nobody but its owner may read, nor could before.

    Journals hold pods, kubeconfigs credentials.

    Raises:
        OSError: it cannot be written.
    """
    file = FileIO(path, "w", opener=lambda name, how: os.open(name, how, 0o600))
    if path.is_file():
        # Whoever may write to another's file may do so; it is theirs to hide.
        with contextlib.suppress(PermissionError):
            os.fchmod(file.fileno(), 0o600)
    return file


def _run(asked: RunOptions) -> None:
    async def run(stop: asyncio.Event) -> None:
        app = App(asked, clock=SystemClock())
        with on_signal(app.comparer.ask, signal.SIGUSR2):
            await app.run(stop)

    try:
        run_until_told(run)
    except LeaseLost as lost:
        # As kube-scheduler: whoever restarts us gets a follower that knows nothing wrong.
        _LOG.critical("Leader election lost: %s", lost)
        sys.exit(1)
    _LOG.info("Stopped; no binding is in flight")
