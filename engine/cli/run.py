"""`berth run`: the scheduler against a cluster."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any, Final

import click

from engine import __version__
from engine.cli import options, runflags
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_until_told
from engine.cli.refusals import reported
from engine.cli.settings import ELECTION, with_flags
from engine.configuration.settings import ConfigError, load
from engine.garbage import seldom
from engine.kube.errors import LeaseLost
from engine.serving.certificates import CertificateError
from engine.serving.server import ListenError

_RUNNING: Final = "engine.cli.running"
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
    if write_config_to:
        import_module(_RUNNING).write_config(settings, config, flags, write_config_to)
        return

    with seldom():
        running = import_module(_RUNNING)
    try:
        run_until_told(partial(running.run, settings, config, flags, record, verbosity))
    except LeaseLost as lost:
        # As kube-scheduler: whoever restarts us gets a follower that knows nothing wrong.
        _LOG.critical("Leader election lost: %s", lost)
        sys.exit(1)
    _LOG.info("Stopped; no binding is in flight")


def open_private(path: Path) -> FileIO:
    """Opens a file for writing, unbuffered, that nobody but its owner may read, nor could before.

    Journals hold pods, kubeconfigs credentials.

    Raises:
        OSError: it cannot be written.
    """
    file = FileIO(path, "w", opener=lambda name, how: os.open(name, how, 0o600))
    if path.is_file():
        # Whoever may write to another's file may do so; it is theirs to hide.
        with suppress(PermissionError):
            os.fchmod(file.fileno(), 0o600)
    return file
