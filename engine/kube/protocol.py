"""What a list and a watch of one resource do next: an outcome in, how long to wait out.

Pure: no I/O, no clock, no chance; `reflector` lists or watches as it says. ::

                   listed                    ended: closed
        ┌───────────────────────────────┐  ┌──────────────┐
        │                               ▼  ▼              │
     LISTING ◀───────────────────── WATCHING ─────────────┘
      │  ▲  ▲    ended: expired        │
      │  │  │    (410, by status or    │ ended: dropped, frozen, garbage
      │  │  │     by ERROR event)      │ failed: refused, 429, 5xx
      │  │  │                          ▼
      │  │  └───── go_on ───────── BACKING_OFF ──── go_on ─────▶ WATCHING
      │  │                             ▲
      │  │         failed              │
      ├──┼─────────────────────────────┘
      │  │
      │  └──────── go_on ─────── ABSENT ◀─┐
      └── missing (404: no such kind) ────┘   (or a kind that we can do without is refused
                                               twice: what is known of it stays)

A watch resumes from the last version seen; only a version that expired, or an answer that makes no
sense, leads back to a list.

Source: client-go tools/cache/reflector.go.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

_BACKOFF: Final = 0.8
_BACKOFF_LIMIT: Final = 10.0
_EXPIRED_LIMIT: Final = 2.0
"""... where lists are good, and only the watches from them are not. All times are in seconds."""
_AGAIN: Final = 0.05
"""A watch that was good and broke off is opened again after so long."""
_SHORT: Final = 0.5
"""A watch that ends sooner was not good, and without a line it counts as a failure."""
_ABSENT: Final = 60.0
"""How often a resource that the server lacks is asked for."""


class Phase(Enum):
    """What the reflector is about."""

    LISTING = "listing"
    WATCHING = "watching"
    BACKING_OFF = "backing-off"
    ABSENT = "absent"


class End(Enum):
    """How a watch ended after the server had accepted it."""

    CLOSED = "closed"
    DROPPED = "connection dropped"
    FROZEN = "no line in time"
    GARBAGE = "not a watch event"
    ERROR = "error event"
    EXPIRED = "version expired"


class Wait(msgspec.Struct, frozen=True):
    """Wait `seconds` and up to `spread` times that more, by chance, but never less than `floor`."""

    seconds: float
    spread: float = 1.0
    floor: float = 0.0
    gone: bool = False
    """The resource is not there: whatever was known of it is deleted."""


class Course:
    """Where the protocol stands; each method is told an outcome, and None is no wait at all."""

    def __init__(self) -> None:
        self.phase = Phase.LISTING
        self.version = ""
        """The last one seen, from which is watched next; "": a list is next."""
        self.ask = "0"
        """The version at which that list may be answered: "0" any, "" the newest."""
        self.paged = True
        self.missed = 0
        """404s (or 403s) on end."""
        self.unsure = False
        """The server was away, and nothing that it answered since says that it is as far as before:
        one that was restored may be behind."""
        self._delay = 0.0
        self._expired = False
        """The last watch expired at once: a server that was restarted does so to all, but once."""

    def go_on(self, *, back: bool) -> None:
        """The next list or watch begins; `back`: the server was away, and may be another one."""
        self.phase = Phase.WATCHING if self.version else Phase.LISTING
        if back:
            self._delay, self.unsure = 0.0, True

    def listed(self, version: str) -> None:
        """The list is complete, and known as of `version`."""
        self.version = self.ask = version
        self.paged, self.missed, self.unsure = True, 0, False
        self._delay = min(self._delay, _EXPIRED_LIMIT)

    def list_expired(self, *, while_paging: bool) -> Wait | None:
        """The list cannot be had at the version asked for, or its pages expired on the way."""
        if self.ask == "" and not self.paged:
            return self.failed()
        # INVARIANT: each turn gives up one of the two, so this ends.
        self.paged = self.paged and not while_paging and self.ask != ""
        self.ask = ""
        return None

    def missing(self, *, kept: bool) -> Wait:
        """404: the server has no such resource; or it is one that we can do without, and not given.

        Then (403, or 404 of what every server has) what is known of it is `kept`.
        """
        again = self.missed > 0
        self.missed += 1
        self.version, self.ask = "", "0"
        # A server that has just started refuses everybody until it has loaded its roles.
        wait = self.failed() if kept else Wait(_ABSENT, spread=0.2, gone=again)
        if again or not kept:
            self.phase = Phase.ABSENT
        return wait

    def ended(
        self, end: End, version: str, lines: int, seconds: float, retry_after: float = 0.0
    ) -> Wait | None:
        """A watch is over. It gave `lines`, lasted `seconds` and brought us to `version`."""
        self.version = self.ask = version
        self.unsure = False
        useless = lines == 0 and seconds < _SHORT
        if end is End.EXPIRED:
            # The version stays in `ask`: a list not older than what we know. It is not watched.
            self.version = ""
            first, self._expired = not self._expired, useless
            if useless and first:
                self._delay = 0.0
                return self._back_off(Wait(_AGAIN))
            return self.failed(retry_after, _EXPIRED_LIMIT) if useless else None
        if not useless:
            # Whatever was before, the server is well: the backoff starts anew.
            self._delay, self._expired = 0.0, False
            if end is End.CLOSED:
                return None
        if end in (End.DROPPED, End.FROZEN) and seconds >= _SHORT:
            return self._back_off(Wait(_AGAIN))
        if lines == 0 and end in (End.GARBAGE, End.ERROR):
            # The same would come again: a list is the way around it.
            self.version = ""
        return self.failed(retry_after)

    def failed(self, retry_after: float = 0.0, limit: float = _BACKOFF_LIMIT) -> Wait:
        """No list, or no watch was opened: connection, 429, 5xx, or any other error."""
        self._delay = min(max(2 * self._delay, _BACKOFF), limit)
        return self._back_off(Wait(self._delay, floor=retry_after))

    def _back_off(self, wait: Wait) -> Wait:
        self.phase = Phase.BACKING_OFF
        return wait
