"""A command that is told to end, and told again while it does."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import channels
from engine.app import App, RunOptions
from engine.cli.loop import run_in_loop
from engine.clock import SystemClock
from engine.configuration.settings import Settings
from tests.engine.kube.test_session_and_writer import kubeconfig

PROGRAM = """
import asyncio, os, signal, sys

number = int(sys.argv[1])
signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup

from engine.cli.loop import until_told

class Loop(asyncio.SelectorEventLoop):
    def _close_self_pipe(self):
        super()._close_self_pipe()
        os.kill(os.getpid(), number)

    def close(self):
        os.kill(os.getpid(), number)
        super().close()
        os.kill(os.getpid(), number)

async def main():
    with until_told() as told:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        await told.wait()
        print("told")

with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(main())
os.kill(os.getpid(), number)
print("ended")
"""
NOHUP = """
import asyncio, os, signal

signal.signal(signal.SIGHUP, signal.SIG_IGN)

from engine.cli.loop import until_told

async def main():
    with until_told() as told:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.1)
        print(told.is_set())

asyncio.run(main())
"""

IMPORTING = """
import os, signal

from engine.cli import run

def told(name):
    os.kill(os.getpid(), signal.SIGTERM)
    return run.importlib_import(name)

run.importlib_import, run.import_module = run.import_module, told
run.command(["--leader-elect=false", "--policies", "none"], standalone_mode=False)
print("ended")
"""


def ends(program, *arguments):
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_process_that_is_told_again_while_it_ends_ends_as_if_told_once(number):
    assert ends(PROGRAM, str(int(number))) == (0, "told\nended\n", "")


def test_who_is_told_while_the_scheduler_is_imported_ends_cleanly(tmp_path):
    (tmp_path / "a.policy").write_text("score: 1\n", "utf-8")
    code, said, why = ends(IMPORTING.replace("none", str(tmp_path)))
    assert (code, said) == (0, "ended\n"), why


def test_who_is_told_while_the_server_is_not_even_connected_waits_for_no_connection(monkeypatch):
    monkeypatch.setattr(channels, "_CONNECT_SECONDS", 1e6)

    async def started_and_told(server):
        stop = asyncio.Event()
        app = App(RunOptions(Settings(), kubeconfig(server)), clock=SystemClock())
        running = asyncio.create_task(app.run(stop))
        await asyncio.wait({running}, timeout=0.5)
        stop.set()
        async with asyncio.timeout(60):
            await running

    with socket.create_server(("127.0.0.1", 0)) as silent:
        run_in_loop(started_and_told(f"https://127.0.0.1:{silent.getsockname()[1]}"))


def test_a_terminal_that_closes_does_not_end_what_was_started_with_nohup():
    assert ends(NOHUP) == (0, "False\n", "")


def test_a_container_that_is_told_while_it_starts_ends():
    """Its first process is kept from signals that it has no handler for."""
    apart = ["unshare", "--user", "--map-root-user", "--fork", "--pid", "--kill-child"]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no process here may be the first of its own")
    berth = subprocess.Popen(
        [*apart, sys.executable, "-m", "engine", "run", "--kubeconfig=no/such", "--secure-port=0"],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{berth.pid}/task/{berth.pid}/children")
    while berth.poll() is None:
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGTERM)
        time.sleep(0.01)
    assert berth.returncode == 128 + signal.SIGTERM


def test_a_handshake_that_was_given_up_is_no_fault(caplog):
    async def main():
        loop = asyncio.get_running_loop()
        for why in ("unable ...; the handler is closed", "of ours"):
            loop.call_exception_handler({"message": "Fatal", "exception": RuntimeError(why)})

    with caplog.at_level(logging.ERROR, "asyncio"):
        run_in_loop(main())
    assert [str(one.exc_info[1]) for one in caplog.records] == ["of ours"]
