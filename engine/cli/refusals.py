"""What is no fault of ours ends a command with its message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def reported(*kinds: type[Exception]) -> Iterator[None]:
    """What is raised of these kinds says itself what is wrong, and is no traceback's business."""
    try:
        yield
    except BrokenPipeError:  # nobody reads any longer, as of `berth status | head`
        raise
    except kinds as wrong:
        raise click.ClickException(str(wrong)) from wrong


@contextmanager
def written(path: Path) -> Iterator[None]:
    """A file that the user named is written."""
    try:
        yield
    except OSError as failed:
        raise click.ClickException(f"{path}: cannot be written: {failed.strerror}") from failed
