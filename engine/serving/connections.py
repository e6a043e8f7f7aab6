"""The connections of a server, so many at most: whoever opens thousands has only those of others.

They are counted as they are accepted, for one that says nothing takes a descriptor, too; without
any the process can open neither a file nor a connection to the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Final

from engine.serving.certificates import Served

MOST: Final = 256
_LOG = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 1.0


class Connections:
    """Those that there are; where one more comes, the one that was idle longest is closed."""

    def __init__(self) -> None:
        self._idle: dict[int, socket.socket] = {}
        self._busy: dict[int, socket.socket] = {}

    async def accept(
        self,
        listener: socket.socket,
        made: Callable[[], asyncio.BaseProtocol],
        served: Served | None,
    ) -> None:
        """Accepts until cancelled, one in a turn of the loop; `made` makes what speaks with it."""
        loop = asyncio.get_running_loop()

        async def begin(new: socket.socket) -> None:
            context = None if served is None else served.context
            with contextlib.suppress(OSError):  # TLS that fails, or does not begin in a minute
                await loop.connect_accepted_socket(made, new, ssl=context)

        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    new, _ = await loop.sock_accept(listener)
                except OSError as failed:  # others have taken all that there are
                    _LOG.warning("no connection can be accepted: %s", failed.strerror)
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                self._came(new)
                group.create_task(begin(new))
                await asyncio.sleep(0)  # what can be accepted at once is so without a turn

    def _came(self, new: socket.socket) -> None:
        for some in (self._idle, self._busy):
            for gone in [fd for fd, one in some.items() if one.fileno() < 0]:
                del some[gone]
        if len(self._idle) + len(self._busy) >= MOST:
            rest = self._idle or self._busy
            with contextlib.suppress(OSError):  # the other side was first
                rest.pop(next(iter(rest))).shutdown(socket.SHUT_RDWR)  # its transport closes it
        self._idle[new.fileno()] = new

    @contextlib.contextmanager
    def busy(self, descriptor: int) -> Iterator[None]:
        """Meanwhile the connection is closed only where all are busy."""
        one = self._idle.pop(descriptor, None)
        if one is not None:
            self._busy[descriptor] = one
        try:
            yield
        finally:
            one = self._busy.pop(descriptor, None)
            if one is not None and one.fileno() == descriptor:
                self._idle[descriptor] = one
