"""A decision as a running scheduler remembers it, asked for over its own server."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import click

from engine.display import one_line

_SECONDS: Final = 10.0
_MOST_BYTES: Final = 4 * 1024 * 1024
_NOT_FOUND, _UNAUTHORIZED, _FORBIDDEN = 404, 401, 403


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
    if urlsplit(scheduler).scheme != "https":
        raise click.ClickException(f"{scheduler} is no address of a scheduler; write https://...")
    url = f"{scheduler.rstrip('/')}/debug/decisions?{urlencode({'pod': pod})}"
    request = urllib.request.Request(url)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=_trusting(ca_file, insecure=insecure)),
    )
    try:
        if token_file is not None:
            token = token_file.read_text("utf-8").strip()
            request.add_header("Authorization", f"Bearer {token}")
        with opener.open(request, timeout=_SECONDS) as answer:
            return dict(json.loads(answer.read(_MOST_BYTES)))
    except urllib.error.HTTPError as refused:
        raise click.ClickException(_refusal(refused)) from refused
    except (OSError, ValueError) as failed:
        why = one_line(str(getattr(failed, "reason", failed)))
        raise click.ClickException(f"{scheduler} cannot be asked: {why}") from failed


def _trusting(ca_file: Path | None, *, insecure: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file and str(ca_file))
    except OSError as failed:
        raise click.ClickException(f"{ca_file}: {one_line(str(failed))}") from failed
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _refusal(refused: urllib.error.HTTPError) -> str:
    with refused:
        said = one_line(refused.read(_MOST_BYTES).decode("utf-8", "replace"))
    if refused.code in (_UNAUTHORIZED, _FORBIDDEN):
        return f"{said or refused.code}; give --token-file with a token that may get it"
    return said if refused.code == _NOT_FOUND else f"{refused.code}: {said}"


def lines_of(record: Mapping[str, Any]) -> Iterator[str]:
    """The record in words."""
    pod, nodes = record["pod"], record["nodes"]
    yield f"{pod}, as decided at {record['at']} by bundle {record['bundle'] or 'none'}"
    if "node" in record:
        yield f"  goes to {record['node']}: {record['feasible']} of {nodes} nodes can take it"
    else:
        yield f"  {record['message']}"
    for one in record.get("rejected", ()):
        yield f"  {one['nodes']:>5} rejected by {one['plugin']}: {'; '.join(one['reasons'])}"
    for one in record.get("best", ()):
        given = ", ".join(f"{s['plugin']} {s['score']:g} x {s['weight']:g}" for s in one["scores"])
        yield f"  {one['total']:>8g} {one['node']}: {given}"
    if record.get("nominated"):
        yield f"  is promised {record['nominated']}; goes once these are gone:"
        yield from (f"    {victim}" for victim in record.get("evicts", ()))
