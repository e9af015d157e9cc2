"""One request of a run, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from epp.lab.engine.job import NO_HITS, Finished, Hits
from epp.lab.fleet.prompts import Ask


class Picker(Protocol):
    """Receives the outcome of its picks. ``Replica`` is one."""

    def refused(self, record: Record) -> None:
        """Report that the engine refused the request."""

    def started(self, record: Record) -> None:
        """Report that the request's answer has started."""

    def finished(self, record: Record, event: Finished) -> None:
        """Report that the request has ended; all its times are known."""


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
