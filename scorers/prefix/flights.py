"""Which prompts are being served where: a prompt is in use until the request that the engine works on ends."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from scorers.base import Slot
from scorers.index.tree import Node


class Flight(msgspec.Struct, gc=False, eq=False):
    """One request's prompts, as the index recorded them."""

    slot: Slot
    runs: tuple[tuple[Node, int, int], ...]
    """For each prompt its last run, the blocks up to there, and how many of them the endpoint held before."""
    noted_s: float
    """The time until which the use of the prompts has been noted."""


class Flights:
    """The requests in flight, by endpoint.

    Invariant: the flights of a slot are in the order of ``noted_s``. O(1) for each call and flight.

    Owner: the prefix cache.
    """

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._by_slot: dict[Slot, OrderedDict[int, Flight]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def begin(self, pick_id: int, flight: Flight) -> None:
        """Add a request that goes out; ``noted_s`` must not be before that of any other flight of the slot."""
        self._slots[pick_id] = flight.slot
        self._by_slot.setdefault(flight.slot, OrderedDict())[pick_id] = flight

    def end(self, pick_id: int) -> Flight | None:
        """Remove and return a flight; None if it is unknown, or was removed with its endpoint."""
        slot = self._slots.pop(pick_id, None)
        if slot is None:
            return None
        flights = self._by_slot[slot]
        flight = flights.pop(pick_id)
        if not flights:
            del self._by_slot[slot]
        return flight

    def noted_by(self, slot: Slot, until_s: float, now: float) -> Iterator[Flight]:
        """Yield the flights of ``slot`` whose use was last noted at ``until_s`` or before; note their use at
        ``now``."""
        flights = self._by_slot.get(slot)
        while flights:
            pick_id, flight = next(iter(flights.items()))
            if flight.noted_s > until_s:
                return
            flight.noted_s = now
            flights.move_to_end(pick_id)
            yield flight

    def forget(self, slot: Slot) -> None:
        """Remove all flights of an endpoint that was removed."""
        for pick_id in self._by_slot.pop(slot, ()):
            del self._slots[pick_id]
