"""One request of a run, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from epp.lab.engine.job import NO_HITS, Hits
from epp.lab.fleet.prompts import Ask

if TYPE_CHECKING:
    from epp.lab.fleet.replica import Replica


@dataclass(slots=True)
class Record:
    """The times and the outcome of one request. Units: virtual seconds, tokens."""

    ask: Ask
    arrived_at: float
    endpoint: int
    pick_id: int
    predicted_tokens: int | None
    """The cached tokens that the picker predicted; None for a request that bypassed the pickers."""
    picker: Replica | None = None
    """The picker that picked the endpoint."""
    admitted_at: float = 0.0
    first_at: float = 0.0
    ended_at: float = 0.0
    hits: Hits = NO_HITS
    refused: str = ""
    """Who refused the request, and why; empty for one that was served."""
