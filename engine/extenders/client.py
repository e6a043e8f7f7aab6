"""One extender over HTTP: a verb and a body in, the body of the answer out, or why there is none.

No redirects, and no second try after an answer. Every failure names the address.

Source: kubernetes pkg/scheduler/extender.go: makeTransport, send; client-go transport.TLSConfigFor.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from engine import __version__
from engine.channels import Broken, Channels, Late, NotConnected, header_lines, load_pair, trusting
from engine.config import ConfigError
from engine.display import cause, one_line
from engine.extenders.messages import BadAnswer
from engine.extendersections import ExtenderDocument, ExtenderTLS
from engine.sections import seconds

T = TypeVar("T")

MOST_BYTES: Final = 64 << 20
"""Of an answer: 5,000 nodes are about 30 MB when they are sent back whole."""
_OK: Final = 200
_LINES: Final = header_lines(
    {
        "User-Agent": f"berth/{__version__}",
        "Content-Type": "application/json",
        "Accept": "application/json",
    }
)
_FAULTS: Final = (NotConnected, Broken, Late, TimeoutError, OSError)


class ExtenderError(Exception):
    """An extender was asked and gave no answer that can be used; one line with its address."""


class Client:
    """See the module; used inside one event loop."""

    def __init__(self, document: ExtenderDocument) -> None:
        """Reads the certificates.

        Raises:
            ConfigError: they cannot be used.
        """
        self.url = document.url_prefix.rstrip("/")
        self._seconds = seconds(document.http_timeout)
        tls = document.tls_config or ExtenderTLS()
        self._channels = Channels(
            self.url,
            _context(self.url, document) if self.url.startswith("https:") else None,
            tls.server_name or None,
            most_body_bytes=MOST_BYTES,
        )

    async def ask(
        self,
        verb: str,
        body: bytes,
        read: Callable[[bytes], T],
        *,
        may_leave: Callable[[], bool] | None = None,
    ) -> T:
        """One POST; `read` makes something of the answer's body.

        `may_leave` is of what changes something: it is asked when the body is about to leave, and
        that leaves once. Anything else may be sent again where a connection proves to be closed.

        Raises:
            ExtenderError: there is no answer in time, or none that `read` understands.
        """
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._channels.request(
                    "POST",
                    f"/{verb}",
                    _LINES,
                    body,
                    again=may_leave is None,
                    silence=self._seconds,
                    may_leave=may_leave,
                )
        except TimeoutError as error:
            why = f"no answer within {self._seconds:g} s"
            raise ExtenderError(f"extender {self.url}/{verb}: {why}") from error
        except _FAULTS as error:
            raise ExtenderError(f"extender {self.url}/{verb}: {cause(error)}") from error
        if answer.status != _OK:
            raise ExtenderError(f"extender {self.url}/{verb}: it answers HTTP {answer.status}")
        try:
            return read(answer.body)
        except BadAnswer as bad:
            raise ExtenderError(f"extender {self.url}/{verb}: {bad}") from bad

    def close(self) -> None:
        """Closes its connections."""
        self._channels.close()


def _context(url: str, document: ExtenderDocument) -> ssl.SSLContext:
    """Whom to trust: the CA given; anybody, if it is told to, or has none and `enableHTTPS`.

    Raises:
        ConfigError: a file or what it holds cannot be used.
    """
    tls = document.tls_config or ExtenderTLS()
    try:
        context = trusting(
            None if tls.ca_data else tls.ca_file or None,
            base64.b64decode(tls.ca_data).decode("ascii") if tls.ca_data else None,
            anybody=tls.insecure or (document.enable_https and not (tls.ca_file or tls.ca_data)),
        )
        if tls.cert_file or tls.cert_data:
            given = (tls.cert_file, tls.cert_data), (tls.key_file, tls.key_data)
            load_pair(context, *(_content(file, data) for file, data in given))
    except (OSError, ValueError) as error:
        files = ", ".join(filter(None, (tls.ca_file, tls.cert_file, tls.key_file)))
        why = one_line(getattr(error, "strerror", None) or str(error))
        of = f" ({files})" if files else ""
        raise ConfigError(f"extenders: {url}: certificates cannot be used{of}: {why}") from error
    return context


def _content(file: str, data: str) -> bytes:
    return base64.b64decode(data) if data else Path(file).read_bytes()
