"""How far each endpoint's events can be trusted, by slot and by source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scorers.base import Candidate, Slot
from scorers.precise.index import TIERS

FULL = 0.95
"""A tier that is filled to this share with known blocks holds next to nothing else. A guess."""
NOT_STARTED = "not started"
"""The reason that stands for an endpoint that the feed has not reported on yet."""


@dataclass(slots=True)
class EndpointStatus:
    """What one endpoint's engine has reported, and how complete that is."""

    source: int
    slot: Slot
    address: str
    why: str = NOT_STARTED
    """Why it is uncertain what the endpoint holds; empty if it is certain."""
    known: int = 0
    """The tiers whose contents are completely known, one bit for each of ``TIERS``."""
    tokens: tuple[int, ...] = (0,) * len(TIERS)
    gaps: int = 0
    restarts: int = 0
    capacity: tuple[int, ...] = (0,) * len(TIERS)
    """Capacity of each tier as the engine reports it; 0 if it does not."""
    block_tokens: int | None = None
    """Tokens per block of GPU memory, as the engine reports it."""
    live: bool = False
    """Whether the feed receives everything that is published now."""

    @property
    def trusted(self) -> int:
        """The tiers that can be trusted, one bit each: reported completely, or full of what was reported."""
        full = 0
        if self.live:
            for bit, (held, capacity) in enumerate(zip(self.tokens, self.capacity, strict=True)):
                full |= (capacity > 0 and held >= FULL * capacity) << bit
        return self.known | full


class StatusTable:
    """The status of every endpoint. Each endpoint has a source, under which the feed reports what it holds.

    Sources have small numbers, which are positions in bit masks. A number is reused once it was released.
    """

    def __init__(self) -> None:
        self._by_slot: dict[Slot, EndpointStatus] = {}
        self._by_source: dict[int, EndpointStatus] = {}
        self._free: list[int] = []
        self._next = 0

    def __iter__(self) -> Iterator[EndpointStatus]:
        """Iterate over all endpoints, in the order in which they were added."""
        return iter(self._by_slot.values())

    def add(self, candidate: Candidate) -> EndpointStatus:
        """Give a new endpoint a source, and return its status; its slot must not be in use."""
        if self._free:
            source = self._free.pop()
        else:
            source, self._next = self._next, self._next + 1
        status = EndpointStatus(source, candidate.slot, candidate.address)
        self._by_slot[candidate.slot] = self._by_source[source] = status
        return status

    def remove(self, slot: Slot) -> EndpointStatus | None:
        """Remove an endpoint, whose source stays taken until ``release``; None for an unknown one."""
        status = self._by_slot.pop(slot, None)
        if status is not None:
            del self._by_source[status.source]
        return status

    def release(self, source: int) -> None:
        """Let another endpoint have ``source``, since nothing is held under it any more.

        Does nothing for the source of an endpoint that was not removed.
        """
        if source not in self._by_source:
            self._free.append(source)

    def of(self, slot: Slot) -> EndpointStatus | None:
        """Return the status of an endpoint; None for an unknown one."""
        return self._by_slot.get(slot)

    def of_source(self, source: int) -> EndpointStatus | None:
        """Return the status of the endpoint that has ``source``; None if no endpoint has it."""
        return self._by_source.get(source)
