"""A command that is told to end, and told again while it does."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys

from engine.cli.loop import until_told

number = int(sys.argv[1])

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_again_while_it_ends_ends_as_if_told_once(number):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(number))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "told\nended\n", "")
