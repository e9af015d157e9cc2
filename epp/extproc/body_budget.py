"""How many bytes of request bodies the picker holds, all exchanges together, and their limit."""

from __future__ import annotations

from collections.abc import Iterator

from epp.errors import HoldsTooMuch
from epp.metrics.gauges import Reading

MAX_HELD_BYTES = 1 << 30
PIECE_BYTES = 64
"""The cost of a piece besides its bytes: an object and its place in a list."""


class BodyBudget:
    """The account of all request bodies in a process. Owner: the event loop.

    Invariant: ``held`` is what was taken and not given back, and at most ``limit``.
    """

    def __init__(self, limit: int = MAX_HELD_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.refusals = 0
        """Requests that were refused because of the limit."""

    def take(self, piece: bytes) -> int:
        """Charge one more piece; returns the amount to give back. Raises: HoldsTooMuch, with nothing charged."""
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
        """Give back an amount that ``take`` returned, or a sum of such amounts."""
        self.held -= cost

    def readings(self) -> Iterator[Reading]:
        """Return the account, for ``Telemetry.gauge_source``."""
        for name, text, value, counter in (
            ("held_request_bytes", "Request bodies that are incomplete or wait, and 64 for each piece.", self.held, 0),
            ("held_request_bytes_limit", "How many there may be (--max-held-bytes).", self.limit, 0),
            ("held_request_bytes_refusals", "Requests refused because there were as many.", self.refusals, 1),
        ):
            yield Reading(f"tierwise_{name}", text, (), [((), value)], counter=bool(counter))
