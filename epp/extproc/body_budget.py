"""How many bytes of request bodies the picker holds, all exchanges together, and their limit."""

from __future__ import annotations

from collections.abc import Iterator

from epp.errors import HoldsTooMuch
from epp.metrics.gauges import Reading

MAX_HELD_BYTES = 1 << 30
PIECE_BYTES = 64
"""What a piece costs besides its bytes: an object and its place in a list."""


class BodyBudget:
    """An account of one process. Owner: the event loop.

    Invariant: ``held`` is what was taken and not given back, and at most ``limit``.
    """

    def __init__(self, limit: int = MAX_HELD_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.refusals = 0
        """Requests that were refused for the limit's sake."""

    def take(self, piece: bytes) -> int:
        """Hold one more piece; returns what is to be given back for it. Raises: HoldsTooMuch, and holds no more."""
        cost = len(piece) + PIECE_BYTES
        if self.held + cost > self.limit:
            self.refusals += 1
            raise HoldsTooMuch(
                f"the picker holds {self.held:,} bytes of request bodies already, and --max-held-bytes is "
                f"{self.limit:,}; try again"
            )
        self.held += cost
        return cost

    def give_back(self, cost: int) -> None:
        """What ``take`` returned, or a sum of it."""
        self.held -= cost

    def readings(self) -> Iterator[Reading]:
        """For ``Telemetry.gauge_source``."""
        for name, text, value, counter in (
            ("held_request_bytes", "Request bodies that are incomplete or wait, and 64 for each piece.", self.held, 0),
            ("held_request_bytes_limit", "How many there may be (--max-held-bytes).", self.limit, 0),
            ("held_request_bytes_refusals", "Requests refused because there were as many.", self.refusals, 1),
        ):
            yield Reading(f"tierwise_{name}", text, (), [((), value)], counter=bool(counter))
