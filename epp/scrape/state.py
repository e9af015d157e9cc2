"""How reading an endpoint's metrics goes, for people who ask."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class ScrapeState(msgspec.Struct, frozen=True):
    """Units: seconds."""

    age_s: float
    """Since the last reading that succeeded began; since the endpoint was added, where none has."""
    interval_s: float
    """In force."""
    stale: bool
    error: str | None
    """Of the last reading; None after a success."""
    errors: Mapping[str, int]
    """Since the start, by reason."""
