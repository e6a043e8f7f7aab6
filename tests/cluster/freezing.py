"""`berth run` that stops itself, as a frozen machine does, with a decision in its hands.

Once: by whoever decides about the pod `freeze-me` first and finds the file FREEZE_ONCE. The binding
has not been begun then.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

from engine.app import App, Hooks, RunOptions
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_until_told
from engine.cli.run import command
from engine.cli.settings import with_flags
from engine.clock import SystemClock
from engine.configuration.settings import load
from engine.framework.decision import Placed
from engine.kube.errors import LeaseLost

POD = "freeze-me"
ONCE = "FREEZE_ONCE"


def freeze(placed: Placed) -> None:
    """Stops here until it is continued from outside."""
    if placed.decision.pod.name == POD:
        try:
            Path(os.environ[ONCE]).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGSTOP)


async def run(options: RunOptions, stop: asyncio.Event) -> None:
    await App(options, clock=SystemClock(), hooks=Hooks([freeze])).run(stop)


if __name__ == "__main__":
    log_of_a_process(2, as_json=False)
    flags = command.make_context("run", sys.argv[1:]).params
    try:
        settings = with_flags(load(flags["config"]), flags)
        run_until_told(partial(run, RunOptions(settings, flags["kubeconfig"])))
    except LeaseLost as lost:
        sys.exit(f"Leader election lost: {lost}")
