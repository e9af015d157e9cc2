"""Checks of configured values. A message that begins with a key and a colon has that key added to its path."""

from __future__ import annotations

from math import inf


def check_range(key: str, value: float | None, least: float, most: float | None = None) -> None:
    """Check that ``value`` is finite and in range; None counts as not configured.

    Raises: ValueError naming the key, the value and what is allowed.
    """
    if value is None:
        return
    if not least <= value < inf or (most is not None and value > most):
        allowed = f"from {least} to {most}" if most is not None else f"at least {least}"
        raise ValueError(f"{key} is {value}; it must be {allowed}")


def check_written(key: str, value: object) -> None:
    """Check that a required ``value`` was configured.

    Raises: ValueError naming the key if the value is missing.
    """
    if value is None or value in ("", ()):
        raise ValueError(f"{key}: missing; it must be written")
