"""`berth run` that stops itself, as a frozen machine does, with a decision in its hands.

Once: by whoever decides about the pod `freeze-me` first and finds the file FREEZE_ONCE. The binding
has not been begun then.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from engine.app import App, Hooks, RunOptions
from engine.cli.logs import log_of_a_process
from engine.cli.loop import run_in_loop
from engine.cli.run import command, with_flags
from engine.cli.stopping import until_told
from engine.clock import SystemClock
from engine.config import load
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


async def run(options: RunOptions) -> None:
    app = App(options, clock=SystemClock(), hooks=Hooks([freeze]))
    with until_told() as stop:
        await app.run(stop)


if __name__ == "__main__":
    log_of_a_process(2, as_json=False)
    flags = command.make_context("run", sys.argv[1:]).params
    try:
        run_in_loop(run(RunOptions(with_flags(load(flags["config"]), flags), flags["kubeconfig"])))
    except LeaseLost as lost:
        sys.exit(f"Leader election lost: {lost}")
