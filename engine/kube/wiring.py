"""What every room of the edge is given: time, chance, counts, and whether the server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from engine.clock import Clock
from engine.kube.reach import Reach
from engine.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Wiring:
    """Time, chance, counts and reach, as arguments."""

    clock: Clock
    telemetry: Telemetry
    random: Random = field(default_factory=Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    reach: Reach = field(default_factory=Reach)
