"""What `berth run` is once its flags are read; imported then, as it is large."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import yaml

from engine.app import App, RunOptions
from engine.cli import runflags
from engine.cli.loop import on_signal
from engine.cli.refusals import of_file
from engine.cli.run import open_private
from engine.cli.settings import warn_of_folder
from engine.clock import SystemClock
from engine.configuration.settings import Settings
from engine.endpoints import configuration
from engine.extenders.client import Extenders
from engine.plugins import out_of_tree
from engine.plugins.profiles import make_profiles
from engine.text.documents import Dumper

_WHY = 5
"""The level of the log from which it says why of every pod, however many there are."""
_LOG = logging.getLogger("engine")


def write_config(
    settings: Settings, config: str | None, flags: Mapping[str, Any], path: Path
) -> None:
    """Writes the whole configuration.

    Raises:
        ConfigError: it cannot be used.
    """
    _tried(settings, config, flags)
    documents = configuration(settings).values()
    with of_file(path, "written"):
        path.write_text(yaml.dump_all(documents, Dumper=Dumper, sort_keys=False), "utf-8")


async def run(
    settings: Settings,
    config: str | None,
    flags: Mapping[str, Any],
    record: Path | None,
    verbosity: int,
    stop: asyncio.Event,
) -> None:
    """See `App.run`.

    Raises:
        ConfigError, CertificateError, ListenError: it cannot be run so.
    """
    _tried(settings, config, flags)  # before a journal is overwritten
    warn_of_folder(settings.berth.policies.dir)
    serving = runflags.server_options(flags)
    with contextlib.ExitStack() as open_files:
        journal: FileIO | None = None
        if record:
            with of_file(record, "written"):
                journal = open_files.enter_context(open_private(record))
        asked = RunOptions(
            settings,
            flags["kubeconfig"],
            journal,
            verbosity >= _WHY,
            serving,
            context=flags["context"],
        )
        app = App(asked, clock=SystemClock())
        with on_signal(app.comparer.ask, signal.SIGUSR2):
            await app.run(stop)


def _tried(settings: Settings, config: str | None, flags: Mapping[str, Any]) -> None:
    notes = [*runflags.notes(flags)]
    profiles = make_profiles(settings, config)
    notes += out_of_tree.notes(profiles)
    Extenders(settings.extenders)  # their certificates are read
    for note in (*(f"{config}: {one}" for one in settings.notes), *notes):
        _LOG.warning("%s", note)
