"""Protocols through which the core sees the API server; `engine.kube` implements them, `app` wires.

All are called from one event loop. None retries without bound, and an
unknown outcome is returned as such.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.framework.effects import Bind, Emit, Evict, Patch, SetUnschedulable


class BindOutcome(StrEnum):
    """The outcome of a binding."""

    BOUND = "bound"
    """It is bound to our node: created now, or found so (a 409 that names it, or a GET)."""
    TAKEN = "taken"
    """It is bound to another node: drop ours, nothing to requeue."""
    GONE = "gone"
    """The pod or this UID of it no longer exists, or it is being deleted."""
    REFUSED = "refused"
    """The server surely did not bind it (4xx). Forget and requeue."""
    PUT_OFF = "put_off"
    """The same, for a reason that is not the pod or its node.

    The server is away or overloaded (429 exhausted, refused connection).
    """
    UNKNOWN = "unknown"
    """Sent, no answer, and the server cannot be asked now.

    Stays assumed until a GET has answered.
    """


class Binder(Protocol):
    """Writes bindings."""

    async def bind(self, effect: Bind) -> tuple[BindOutcome, str]:
        """One attempt.

        The text says why, for BOUND it is empty. Never raises for network causes.
        """
        ...

    async def resolve(self, effect: Bind) -> tuple[BindOutcome, str]:
        """Asks with a GET what became of a binding of unknown outcome; UNKNOWN if it cannot say."""
        ...


class PodStatusWriter(Protocol):
    """Writes pod conditions, in the background."""

    def set_unschedulable(self, effect: SetUnschedulable) -> None:
        """PodScheduled=False is to be patched; the newest of a pod is, and the rest are not."""
        ...

    async def withdraw(self, uid: str) -> None:
        """Drops what is not sent yet; what is on its way has arrived when this returns.

        To be waited for before the pod is bound: a late condition would say that it is not.
        """
        ...


class EffectWriter(Protocol):
    """Writes what plugins want done; returns why it could not, empty if it could."""

    async def patch(self, effect: Patch) -> str:
        """Applies the patch."""
        ...

    async def evict(self, effect: Evict) -> str:
        """Sets the condition DisruptionTarget, then deletes; a pod that is gone is evicted."""
        ...


class EventSink(Protocol):
    """Takes Events and never blocks."""

    def emit(self, effect: Emit) -> None:
        """Buffers the Event. Dropped, and counted, only when the bounded buffer is full."""
        ...


@dataclass(frozen=True, slots=True)
class Edge:
    """The API server, as far as the scheduler writes to it.

    `pause` waits between two questions about a binding of unknown outcome.
    """

    binder: Binder
    statuses: PodStatusWriter
    events: EventSink
    writer: EffectWriter
    pause: Callable[[float], Awaitable[None]]
