"""`berth run`: the scheduler against a cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any, Final

import click

from engine import __version__
from engine.cli import options, runflags
from engine.cli.logs import log_of_a_process
from engine.cli.loop import on_signal, run_until_told
from engine.cli.refusals import of_file, reported
from engine.cli.settings import ELECTION, warn_of_folder, with_flags
from engine.clock import SystemClock
from engine.configuration.settings import ConfigError, Settings, load
from engine.garbage import seldom
from engine.kube.errors import LeaseLost
from engine.serving.certificates import CertificateError
from engine.serving.server import ListenError

_APP: Final = "engine.app"
"""With all that a scheduler is made of."""
_WHY: Final = 5
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
    if write_config_to:
        _write_config(settings, config, flags, write_config_to)
        return

    async def run(stop: asyncio.Event) -> None:
        with seldom():  # in a thread, so that a signal is heard meanwhile
            await asyncio.to_thread(import_module, _APP)
        _tried(settings, config, flags)  # before a journal is overwritten
        if not stop.is_set():
            await _run(settings, flags, record, verbosity, stop)

    try:
        run_until_told(run)
    except LeaseLost as lost:
        # As kube-scheduler: whoever restarts us gets a follower that knows nothing wrong.
        _LOG.critical("Leader election lost: %s", lost)
        sys.exit(1)
    _LOG.info("Stopped; no binding is in flight")


async def _run(
    settings: Settings,
    flags: Mapping[str, Any],
    record: Path | None,
    verbosity: int,
    stop: asyncio.Event,
) -> None:
    from engine.app import App, RunOptions

    warn_of_folder(settings.berth.policies.dir)
    serving = runflags.server_options(flags)
    with ExitStack() as open_files:
        journal: FileIO | None = None
        if record:
            with of_file(record, "written"):
                journal = open_files.enter_context(open_private(record))
        why, context = verbosity >= _WHY, flags["context"]
        asked = RunOptions(settings, flags["kubeconfig"], journal, why, serving, context=context)
        app = App(asked, clock=SystemClock())
        with on_signal(app.comparer.ask, signal.SIGUSR2):
            await app.run(stop)


def _write_config(
    settings: Settings, config: str | None, flags: Mapping[str, Any], path: Path
) -> None:
    import yaml

    from engine.endpoints import configuration
    from engine.text.documents import Dumper

    _tried(settings, config, flags)
    documents = configuration(settings).values()
    with of_file(path, "written"):
        path.write_text(yaml.dump_all(documents, Dumper=Dumper, sort_keys=False), "utf-8")


def _tried(settings: Settings, config: str | None, flags: Mapping[str, Any]) -> None:
    """Tells what has no effect.

    Raises:
        ConfigError: it cannot be run so.
    """
    from engine.extenders.client import Extenders
    from engine.plugins import out_of_tree
    from engine.plugins.profiles import make_profiles

    notes = [*runflags.notes(flags)]
    notes += out_of_tree.notes(make_profiles(settings, config))
    Extenders(settings.extenders)  # their certificates are read
    for note in (*(f"{config}: {one}" for one in settings.notes), *notes):
        _LOG.warning("%s", note)


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
