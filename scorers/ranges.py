"""Check a configured number."""

from __future__ import annotations


def check_range(key: str, value: float | None, least: float, most: float | None = None) -> None:
    """Raises: ValueError naming the key, the value and what is allowed; None counts as not written."""
    if value is None:
        return
    if not least <= value or (most is not None and value > most):
        allowed = f"from {least} to {most}" if most is not None else f"at least {least}"
        raise ValueError(f"{key} is {value}; it must be {allowed}")
