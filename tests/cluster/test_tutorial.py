"""Every step of docs/tutorial.md, in a shell, with the output that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import binaries

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
#: A file that the reader writes, or a command with what it prints.
STEP = re.compile(
    r"`(?P<file>[\w.]+)`[^`\n]*:\n\n```\w+\n(?P<text>(?:.*\n)*?)```"
    r"|^    \$ (?P<command>.*)\n(?P<shown>(?:    (?!\$).*\n)*)",
    re.MULTILINE,
)
#: What only shows is asked again until it shows what the page says: a cluster takes its time.
SHOWS = ("kubectl get", "kubectl describe", "berth explain pod")
HANG = 120


class Reader:
    """Somebody who follows the page to the letter: one folder, one shell."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.started: list[subprocess.Popen] = []
        kubectl = binaries.binary("kubectl").parent
        path = [str(Path(sys.executable).parent), str(kubectl), os.environ["PATH"]]
        self._shell = os.environ | {"PATH": ":".join(path), "COLUMNS": "120"}

    def does(self, command: str, shown: str) -> None:
        if export := re.fullmatch(r"export (\w+)=\$PWD/(.*)", command):
            self._shell[export[1]] = str(self.folder / export[2])
            return
        log = self.folder / f"{len(self.started)}.log"
        if command.endswith(" &"):
            with log.open("wb") as output:
                words = ["sh", "-c", "exec " + command.removesuffix(" &")]
                self.started.append(self._popen(words, stdout=output, stderr=output))
        deadline = time.monotonic() + HANG
        while True:
            printed = log.read_text() if command.endswith(" &") else self._printed(command)
            if matches(shown, printed):
                return
            waits = command.endswith(" &") or command.startswith(SHOWS)
            if not waits or time.monotonic() > deadline:
                pytest.fail(f"$ {command}\n{printed}\n--- is not\n{shown}")
            time.sleep(0.2)

    def _printed(self, command: str) -> str:
        words = ["sh", "-c", command]
        with self._popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as one:
            return one.communicate(timeout=HANG)[0].decode()

    def _popen(self, words: list[str], **outputs) -> subprocess.Popen:
        return subprocess.Popen(words, cwd=self.folder, env=self._shell, **outputs)

    def leaves(self) -> None:
        for one in reversed(self.started):
            one.terminate()
            assert one.wait(HANG) == 0


def matches(shown: str, printed: str) -> bool:
    """Whether it was printed: `...` is anything, and one blank as good as another."""
    words = [re.escape(word).replace(r"\.\.\.", ".*") for word in shown.split()]
    return not words or bool(re.fullmatch(r"\s+".join(words), printed.strip(), re.DOTALL))


@pytest.fixture
def reader(tmp_path):
    made = Reader(tmp_path)
    yield made
    made.leaves()


def test_every_step_does_what_the_page_says(reader):
    steps = list(STEP.finditer(PAGE.read_text("utf-8")))
    assert len(steps) > 25
    for step in steps:
        if step["file"]:
            (reader.folder / step["file"]).write_text(step["text"])
        else:
            reader.does(step["command"], step["shown"])
