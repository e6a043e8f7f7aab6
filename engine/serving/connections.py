"""The connections of a server, so many at most: whoever opens thousands has only those of others.

They are counted as they are accepted, for one that says nothing takes a descriptor, too; without
any the process can neither renew its lease nor read a token.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

MOST: Final = 256


class _Listener(socket.socket):
    came: Callable[[socket.socket], None]

    def accept(self) -> tuple[socket.socket, Any]:
        """See `socket.socket.accept`."""
        new, peer = super().accept()
        self.came(new)
        return new, peer


class Connections:
    """Those that there are; where one more comes, the one that was idle longest is closed."""

    def __init__(self) -> None:
        self._idle: dict[int, socket.socket] = {}
        self._busy: dict[int, socket.socket] = {}

    def listener(self, bound: int) -> socket.socket:
        """A socket like the one with this descriptor, whose connections are counted."""
        made = _Listener(fileno=os.dup(bound))
        made.came = self._came
        return made

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
