"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test depends on how fast the machine is: how much is drawn is said by effort, not by time.
settings.register_profile("berth", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("berth")
