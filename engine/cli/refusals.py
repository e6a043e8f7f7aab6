"""What is no fault of ours ends a command with its message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from engine.cli.logs import logged_as_json


class Refusal(click.ClickException):
    """The end, and why: a line of the log where that is for programs to read."""

    def show(self, file: IO[Any] | None = None) -> None:
        """See `click.ClickException.show`."""
        if not logged_as_json(self.message):
            super().show(file)


class Unusable(Refusal):
    """One whose command has another meaning for an exit with 1."""

    exit_code = 2


@contextmanager
def reported(*kinds: type[Exception]) -> Iterator[None]:
    """What is raised of these kinds says itself what is wrong, and is no traceback's business."""
    try:
        yield
    except BrokenPipeError:  # nobody reads any longer, as of `berth status | head`
        raise
    except kinds as wrong:
        raise Refusal(str(wrong)) from wrong


@contextmanager
def of_file(path: str | Path, done: str, otherwise: type[Refusal] = Refusal) -> Iterator[None]:
    """A file that the user named is `read` or `written`."""
    try:
        yield
    except OSError as failed:
        raise otherwise(f"{path}: cannot be {done}: {failed.strerror}") from failed
