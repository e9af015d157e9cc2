"""One request of a run, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from epp.lab.engine.job import NO_HITS, Finished, Hits
from epp.lab.fleet.prompts import Ask


class Picker(Protocol):
    """Learns what became of its picks."""

    def refused(self, record: Record) -> None:
        """The engine refused the request."""

    def started(self, record: Record) -> None:
        """The request's answer has begun."""

    def finished(self, record: Record, event: Finished) -> None:
        """The request is over, and all its times are known."""


@dataclass(slots=True)
class Record:
    """The times and the outcome of one request. Units: virtual seconds, tokens."""

    ask: Ask
    arrived_at: float
    endpoint: int
    pick_id: int
    predicted_tokens: int | None
    """The cached tokens that the picker predicted; None for a request that bypassed the pickers."""
    picker: Picker | None = None
    """The picker that picked the endpoint."""
    admitted_at: float = 0.0
    first_at: float = 0.0
    ended_at: float = 0.0
    hits: Hits = NO_HITS
    refused: str = ""
    """Who refused the request, and why; empty for one that was served."""
