"""Which prompts are being served where: a prompt that an engine works on is in use until that ends."""

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
    """Until when its use has been noted."""


class Flights:
    """Invariant: the flights of a slot are in the order of ``noted_s``. O(1) for each call and flight.

    Owner: the prefix cache.
    """

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._by_slot: dict[Slot, OrderedDict[int, Flight]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def begin(self, pick_id: int, flight: Flight) -> None:
        """A request goes out; ``noted_s`` is not before that of any other flight of the slot."""
        self._slots[pick_id] = flight.slot
        self._by_slot.setdefault(flight.slot, OrderedDict())[pick_id] = flight

    def end(self, pick_id: int) -> Flight | None:
        """It is over; None for one that is not known (any more)."""
        slot = self._slots.pop(pick_id, None)
        if slot is None:
            return None
        flights = self._by_slot[slot]
        flight = flights.pop(pick_id)
        if not flights:
            del self._by_slot[slot]
        return flight

    def noted_by(self, slot: Slot, until_s: float, now: float) -> Iterator[Flight]:
        """Those of ``slot`` whose use has not been noted after ``until_s``; it is from now on."""
        flights = self._by_slot.get(slot)
        while flights:
            pick_id, flight = next(iter(flights.items()))
            if flight.noted_s > until_s:
                return
            flight.noted_s = now
            flights.move_to_end(pick_id)
            yield flight

    def forget(self, slot: Slot) -> None:
        """The endpoint is gone."""
        for pick_id in self._by_slot.pop(slot, ()):
            del self._slots[pick_id]
