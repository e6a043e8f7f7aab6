"""A decision as a running scheduler remembers it, asked for over its own server."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from engine.channels import Answer, Broken, Channels, NotConnected
from engine.configuration.forms import is_address
from engine.text.display import cause, one_line
from engine.tls import trusting

_SECONDS: Final = 10.0
_MOST_BYTES: Final = 4 * 1024 * 1024
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 200, 401, 403, 404


def record_of(
    pod: str,
    scheduler: str,
    token_file: Path | None = None,
    ca_file: Path | None = None,
    *,
    insecure: bool = False,
) -> dict[str, Any]:
    """The newest decision about a pod (`namespace/name`) by the scheduler at an address.

    Raises:
        click.ClickException: the scheduler has none, or cannot be asked; the text says why.
    """
    if not (scheduler.startswith("https://") and is_address(scheduler)):
        raise click.ClickException(f"{scheduler} is not a scheduler's address; write https://...")
    try:
        tls = trusting(str(ca_file) if ca_file else None, anybody=insecure)
    except OSError as failed:
        raise click.ClickException(f"{ca_file}: {cause(failed)}") from failed
    headers = {}
    try:
        if token_file is not None:
            headers["Authorization"] = f"Bearer {token_file.read_text('utf-8').strip()}"
        channels = Channels(scheduler.rstrip("/"), tls, most_body_bytes=_MOST_BYTES)
        path = f"/debug/decisions?{urlencode({'pod': pod})}"
        answer, pieces = asyncio.run(channels.ask_once("GET", path, headers, _SECONDS))
        answer.body = b"".join(pieces)
        if answer.status == _OK:
            return dict(json.loads(answer.body))
    except (OSError, ValueError, Broken, NotConnected) as failed:
        raise click.ClickException(f"{scheduler} cannot be asked: {_why(failed)}") from failed
    raise click.ClickException(_refusal(answer))


def _why(failed: Exception) -> str:
    failed = failed.cause if isinstance(failed, NotConnected) else failed
    if isinstance(failed, ssl.SSLCertVerificationError):
        return f"{failed.verify_message}; give its CA as --ca-file, or --insecure"
    return "no answer in time" if isinstance(failed, TimeoutError) else cause(failed)


def _refusal(answer: Answer) -> str:
    said = one_line(answer.body.decode("utf-8", "replace"))
    if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
        return f"{said or answer.status}; give --token-file with a token that may read it"
    return said if answer.status == _NOT_FOUND else f"{answer.status}: {said}"
