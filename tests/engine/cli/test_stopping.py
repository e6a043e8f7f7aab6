"""A command that is told to end, and told again while it does."""

import signal
import subprocess
import sys

import pytest

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


def test_a_terminal_that_closes_does_not_end_what_was_started_with_nohup():
    assert ends(NOHUP) == (0, "False\n", "")
