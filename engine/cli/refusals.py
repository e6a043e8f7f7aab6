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
def written(path: Path) -> Iterator[None]:
    """A file that the user named is written."""
    try:
        yield
    except OSError as failed:
        raise Refusal(f"{path}: cannot be written: {failed.strerror}") from failed
