"""Places that are used in turn, each again only after its last use has ended. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kvengine.cuda.driver import Event


class Place(NamedTuple):
    """One to use now."""

    number: int
    free_after: Event | None
    """When its last use ends; None when there was none."""


class Ring:
    """``[0, places)``, each free, or taken, or free after an event. Owner: one thread."""

    def __init__(self, places: int) -> None:
        self._free_after: list[Event | None] = [None] * places
        self._taken = [False] * places
        self._next = 0

    def take(self) -> Place:
        """The next place in turn. Raises: RuntimeError when nobody has said when its last use ends."""
        number = self._next
        if self._taken[number]:
            raise RuntimeError(f"place {number} of {len(self._taken)} was taken and never left")
        self._taken[number] = True
        self._next = (number + 1) % len(self._taken)
        return Place(number, self._free_after[number])

    def leave(self, number: int, free_after: Event) -> None:
        """The place is free after that event. Raises: RuntimeError when it was not taken."""
        if not self._taken[number]:
            raise RuntimeError(f"place {number} of {len(self._taken)} is left, and was not taken")
        self._taken[number] = False
        self._free_after[number] = free_after

    def clear(self) -> None:
        """Nothing uses any place any more."""
        self._free_after = [None] * len(self._taken)
        self._taken = [False] * len(self._taken)
