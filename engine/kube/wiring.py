"""What every room of the edge is given: time, chance, counts, and whether the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import msgspec

from engine.clock import Clock
from engine.kube.reach import Reach
from engine.telemetry import Telemetry


class Wiring(msgspec.Struct, frozen=True):
    """Time, chance, counts and reach, as arguments."""

    clock: Clock
    telemetry: Telemetry
    random: Random = msgspec.field(default_factory=Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    reach: Reach = msgspec.field(default_factory=Reach)
