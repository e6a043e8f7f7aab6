"""One child process of the tests: started, watched, signalled and always ended."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
_PROCESSORS = len(os.sched_getaffinity(0))
_libc = ctypes.CDLL(None, use_errno=True)


def free_port() -> int:
    """A loopback TCP port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(what: str, holds: Callable[[], bool], *, seconds: float = 30.0) -> None:
    """Poll until `holds()`; `what` names it in the failure.

    The time is that of a machine with nothing else to do: where more wants to run than there are
    processors, a second counts for what one of them has of it.

    Raises:
        TimeoutError: it did not become true in time.
    """
    left, now = seconds, time.monotonic()
    while not holds():
        if left < 0:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(0.02)
        before, now = now, time.monotonic()
        left -= (now - before) * min(1.0, _PROCESSORS / max(1, _running()))


def _running() -> int:
    """How many threads run or want to. Source: proc_loadavg(5)."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


class Process:
    """A program with its output in a file; it dies with pytest, however pytest ends."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self._popen: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    @property
    def running(self) -> bool:
        """Whether the process lives (a stopped one does)."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the running process."""
        assert self._popen is not None
        return self._popen.pid

    def start(self) -> None:
        """Start it, or start it again."""
        assert not self.running, f"{self.name} runs already"
        with self.log.open("ab") as out:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._popen is not None
        self._popen.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP, and back once no thread runs any more: on a busy machine some go on a while."""
        self.signal(signal.SIGSTOP)
        wait_until(f"{self.name} stopped", lambda: _states(self.pid) <= {"T"})

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        self.signal(signal.SIGCONT)

    def stop(self, *, seconds: float = 10.0) -> int:
        """SIGTERM, then SIGKILL if it takes longer; returns the exit code."""
        if self._popen is None:
            return 0
        if self.running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._popen.returncode

    def kill(self) -> None:
        """SIGKILL, as a crash would be."""
        if self._popen is not None and self.running:
            self._popen.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(10)

    def tail(self, lines: int = 15) -> str:
        """The end of its output, for failure messages."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _states(pid: int) -> set[str]:
    """The states of its threads. Source: proc_pid_stat(5)."""
    stats = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
