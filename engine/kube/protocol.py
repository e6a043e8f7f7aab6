"""What a list and a watch of one resource do next: a state and an outcome in, an action out.

Pure: no I/O, no clock, no chance; `reflector` does what it says. ::

                   Listed                    Ended: closed
        ┌───────────────────────────────┐  ┌──────────────┐
        │                               ▼  ▼              │
     LISTING ◀───────────────────── WATCHING ─────────────┘
      │  ▲  ▲    Ended: expired        │
      │  │  │    (410, by status or    │ Ended: dropped, frozen, garbage
      │  │  │     by ERROR event)      │ Failed: refused, 429, 5xx
      │  │  │                          ▼
      │  │  └───── Waited ──────── BACKING_OFF ──── Waited ────▶ WATCHING
      │  │                             ▲
      │  │         Failed              │
      ├──┼─────────────────────────────┘
      │  │
      │  └──────── Waited ────── ABSENT ◀─┐
      └── Missing (404: no such kind) ────┘   (or a kind that we can do without is refused
                                               twice: what is known of it stays)

A watch resumes from the last version seen; only a version that expired, or an answer that makes no
sense, leads back to a list.

Source: client-go tools/cache/reflector.go.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

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


class State(msgspec.Struct, frozen=True):
    """Where the protocol stands.

    `version` is the last one seen, "" before the first list. `ask` is the version at which the next
    list may be answered: "0" any, "" the newest. `delay` is the next backoff.
    """

    phase: Phase = Phase.LISTING
    version: str = ""
    ask: str = "0"
    paged: bool = True
    delay: float = 0.0
    missed: int = 0
    """404s (or 403s) on end."""
    expired: bool = False
    """The last watch expired at once: a server that was restarted does so to all, but only once."""
    unsure: bool = False
    """The server was away, and nothing that it answered since says that it is as far as before."""


class Listed(msgspec.Struct, frozen=True):
    """The list is complete, and known as of `version`."""

    version: str


class ListExpired(msgspec.Struct, frozen=True):
    """The list cannot be had at the version asked for, or its pages expired on the way."""

    while_paging: bool


class Missing(msgspec.Struct, frozen=True):
    """404: the server has no such resource; or it is one that we can do without, and not given.

    Then (403, or 404 of what every server has) what is known of it is `kept`.
    """

    kept: bool = False


class Failed(msgspec.Struct, frozen=True):
    """No list, or no watch was opened: connection, 429, 5xx, or any other error."""

    retry_after: float = 0.0


class Ended(msgspec.Struct, frozen=True):
    """A watch is over. It gave `lines`, lasted `seconds` and brought us to `version`."""

    end: End
    version: str
    lines: int
    seconds: float
    retry_after: float = 0.0


class Waited(msgspec.Struct, frozen=True):
    """The wait is over; `back`: the server was away meanwhile, and may be another one now."""

    back: bool = False


Outcome = Listed | ListExpired | Missing | Failed | Ended | Waited


class List(msgspec.Struct, frozen=True):
    """List at `version` ("0" any, "" the newest), in pages if `paged`."""

    version: str
    paged: bool


class Watch(msgspec.Struct, frozen=True):
    """Watch what comes after `version`; `unsure`: unless the server, restored, is behind that."""

    version: str
    unsure: bool = False


class Wait(msgspec.Struct, frozen=True):
    """Wait `seconds` and up to `spread` times that more, by chance, but never less than `floor`."""

    seconds: float
    spread: float = 1.0
    floor: float = 0.0
    gone: bool = False
    """The resource is not there: whatever was known of it is deleted."""


Action = List | Watch | Wait


def step(state: State, outcome: Outcome) -> tuple[State, Action]:
    """The protocol: what to do next. Pure; never raises."""
    match outcome:
        case Listed(version):
            delay = min(state.delay, _EXPIRED_LIMIT)
            state = State(Phase.WATCHING, version, version, delay=delay, expired=state.expired)
            return state, Watch(version)
        case ListExpired(while_paging):
            if state.ask == "" and not state.paged:
                return _back_off(state, 0.0)
            # INVARIANT: each turn gives up one of the two, so this ends.
            paged = state.paged and not while_paging and state.ask != ""
            state = replace(state, ask="", paged=paged)
            return state, List(state.ask, state.paged)
        case Missing(kept):
            again = state.missed > 0
            state = replace(state, phase=Phase.ABSENT, version="", ask="0", missed=state.missed + 1)
            if not kept:
                return state, Wait(_ABSENT, spread=0.2, gone=again)
            # A server that has just started refuses everybody until it has loaded its roles.
            later, wait = _back_off(state, 0.0)
            return replace(later, phase=state.phase if again else later.phase), wait
        case Failed(retry_after):
            return _back_off(state, retry_after)
        case Waited(back):
            return _resume(replace(state, delay=0.0, unsure=True) if back else state)
        case Ended():
            return _ended(state, outcome)
        case _:
            assert_never(outcome)


def _resume(state: State) -> tuple[State, Action]:
    if state.version and state.ask == state.version:
        return replace(state, phase=Phase.WATCHING), Watch(state.version, state.unsure)
    return replace(state, phase=Phase.LISTING), List(state.ask, state.paged)


def _ended(state: State, ended: Ended) -> tuple[State, Action]:
    state = replace(state, version=ended.version, ask=ended.version, unsure=False)
    useless = ended.lines == 0 and ended.seconds < _SHORT
    if ended.end is End.EXPIRED:
        # The version stays in `ask`: a list not older than what we know. It is no longer watched.
        state = replace(state, phase=Phase.LISTING, version="")
        if useless and not state.expired:
            state = replace(state, phase=Phase.BACKING_OFF, delay=0.0, expired=True)
            return state, Wait(_AGAIN)
        if useless:
            return _back_off(state, ended.retry_after, _EXPIRED_LIMIT)
        return replace(state, expired=False), List(state.ask, state.paged)
    if not useless:
        # Whatever was before, the server is well: the backoff starts anew.
        state = replace(state, delay=0.0, expired=False)
    if ended.end is End.CLOSED and not useless:
        return replace(state, phase=Phase.WATCHING), Watch(ended.version)
    if ended.end in (End.DROPPED, End.FROZEN) and ended.seconds >= _SHORT:
        return replace(state, phase=Phase.BACKING_OFF), Wait(_AGAIN)
    if ended.lines == 0 and ended.end in (End.GARBAGE, End.ERROR):
        # The same would come again: a list is the way around it.
        state = replace(state, version="")
    return _back_off(state, ended.retry_after)


def _back_off(
    state: State, retry_after: float, limit: float = _BACKOFF_LIMIT
) -> tuple[State, Action]:
    delay = min(max(2 * state.delay, _BACKOFF), limit)
    state = replace(state, phase=Phase.BACKING_OFF, delay=delay)
    return state, Wait(delay, floor=retry_after)
