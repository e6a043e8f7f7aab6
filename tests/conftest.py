"""What holds for all tests."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from hypothesis import HealthCheck, settings

# No test depends on how fast the machine is: how much is drawn is said by effort, not by time.
settings.register_profile("berth", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("berth")

HANGS_SECONDS = 280


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def main() -> None:
        async with asyncio.timeout(HANGS_SECONDS):
            arguments = pyfuncitem._fixtureinfo.argnames
            await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in arguments})

    asyncio.run(main())
    return True
