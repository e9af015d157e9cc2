"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test asserts how long anything takes, nor how long its examples take to be made.
settings.register_profile("tierwise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tierwise")
