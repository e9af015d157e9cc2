"""Places that are used in turn, each of them again only after its last use has ended. Calls no driver."""

from __future__ import annotations

from typing import NamedTuple

from kvengine.cuda.driver import Event


class Place(NamedTuple):
    """A place in the ring that may be used now."""

    number: int
    free_after: Event | None
    """The event at which its last use ends; None if it was not used before."""


class Ring:
    """The state of the places ``[0, places)``: free, taken, or free after an event. Owner: one thread."""

    def __init__(self, places: int) -> None:
        self._free_after: list[Event | None] = [None] * places
        self._taken = [False] * places
        self._next = 0

    def take(self) -> Place:
        """Take the next place in turn. Raises: RuntimeError when its last use was never ended by ``leave``."""
        number = self._next
        if self._taken[number]:
            raise RuntimeError(f"place {number} of {len(self._taken)} was taken and never left")
        self._taken[number] = True
        self._next = (number + 1) % len(self._taken)
        return Place(number, self._free_after[number])

    def leave(self, number: int, free_after: Event) -> None:
        """Make a place free after an event. Raises: RuntimeError when it was not taken."""
        if not self._taken[number]:
            raise RuntimeError(f"place {number} of {len(self._taken)} is left, and was not taken")
        self._taken[number] = False
        self._free_after[number] = free_after

    def clear(self) -> None:
        """Make all places free: none of them is in use any more."""
        self._free_after = [None] * len(self._taken)
        self._taken = [False] * len(self._taken)
