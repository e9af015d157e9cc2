"""The state of reading an endpoint's metrics, for the debug port."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class ScrapeState(msgspec.Struct, frozen=True):
    """The state of one endpoint's readings. Units: seconds."""

    age_s: float
    """The time since the start of the last successful reading, or since the endpoint was added if there is none."""
    interval_s: float
    """The interval in force."""
    stale: bool
    error: str | None
    """The error of the last reading; None after a success."""
    errors: Mapping[str, int]
    """The number of errors since the endpoint was added, by reason."""
