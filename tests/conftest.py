"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("tierwise", deadline=None)  # no test asserts how long anything takes
settings.load_profile("tierwise")
