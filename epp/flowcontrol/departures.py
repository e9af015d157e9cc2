"""How fast requests leave the queues, and so how long one would wait that came now."""

from __future__ import annotations

WINDOW_S = 10.0
"""A guess: some scrapes' worth of room, and soon enough to notice that a pool has grown."""
LEAST_S = 1.0
"""Before so much time has passed, departures are too few to tell a rate by."""


class Departures:
    """Requests that were sent on from the queues in the last one to two windows, or since the queues were last empty;
    in more time where nothing was asked or sent on meanwhile.

        expected wait = requests ahead / rate,    rate = departures / seconds watched

    Owner: the controller, which says when the queues begin to fill.
    """

    __slots__ = ("_before", "_count", "_since_s", "_turn_s")

    def __init__(self) -> None:
        self.began(0.0)

    def began(self, now: float) -> None:
        """The queues were empty until now."""
        self._since_s = self._turn_s = now
        self._before = self._count = 0

    def left(self, now: float) -> None:
        """A request was sent on."""
        self._turn(now)
        self._count += 1

    def wait_s(self, ahead: int, now: float) -> float | None:
        """How long ``ahead`` requests take to leave; None where too little was seen to say."""
        self._turn(now)
        seconds, departures = now - self._since_s, self._before + self._count
        if departures == 0 and seconds < LEAST_S:
            return None
        return ahead * max(seconds, LEAST_S) / max(departures, 1)

    def _turn(self, now: float) -> None:
        if now - self._turn_s >= WINDOW_S:
            self._since_s, self._before = self._turn_s, self._count
            self._turn_s, self._count = now, 0
