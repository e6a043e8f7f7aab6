"""A TCP proxy on loopback between a scheduler and its API server: cuts, silences, holds up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

_CHUNK = 65_536


class Proxy:
    """Passes bytes on, each direction of each connection in a thread of its own.

    `to_server` and `to_client` are gates: while one is shut nothing passes in that direction, of
    connections that there are; with `refuse` new ones are cut at once.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.to_server, self.to_client = threading.Event(), threading.Event()
        self.to_server.set()
        self.to_client.set()
        self.refuse = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        """Ends all connections that there are."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                _end(one)

    def silence(self) -> None:
        """Connections that there are stay open and carry nothing any more, as behind a dead NAT."""
        self._silent |= {one for pair in self._pairs for one in pair}

    def close(self) -> None:
        """Ends everything."""
        self.refuse = True
        _end(self._listener)
        self.to_server.set()
        self.to_client.set()
        self.cut()
        for thread in self._threads:
            thread.join(timeout=10)
        self._listener.close()

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._pairs.append((client, server))
            for source, sink, gate in (
                (client, server, self.to_server.wait),
                (server, client, self.to_client.wait),
            ):
                self._start(self._pass, source, sink, gate)

    def _pass(self, source: socket.socket, sink: socket.socket, gate: Callable[[], bool]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                gate()
                if source not in self._silent:
                    sink.sendall(data)
        if source not in self._silent:
            _end(source)
            _end(sink)
        source.close()


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
