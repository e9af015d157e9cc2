"""The rate at which requests leave the queues, and the expected wait that follows from it."""

from __future__ import annotations

WINDOW_S = 10.0
"""A guess: several scrapes long, and short enough to notice that a pool has grown."""
LEAST_S = 1.0
"""The shortest time over which a rate is computed: before, there are too few departures."""


class Departures:
    """Counts the requests that left the queues in the last one to two windows, or since the queues were last empty.

    The count reaches further back if nothing left and no wait was computed in the meantime.

        expected wait = requests ahead / rate,    rate = departures / seconds watched

    Owner: the controller, which calls ``began`` when the queues begin to fill.
    """

    __slots__ = ("_before", "_count", "_since_s", "_turn_s")

    def __init__(self) -> None:
        self.began(0.0)

    def began(self, now: float) -> None:
        """Start anew: the queues were empty until ``now``."""
        self._since_s = self._turn_s = now
        self._before = self._count = 0

    def left(self, now: float) -> None:
        """Count a request that left the queues."""
        self._turn(now)
        self._count += 1

    def wait_s(self, ahead: int, now: float) -> float | None:
        """Return how long ``ahead`` requests take to leave the queues, or None if too few have left to estimate it."""
        self._turn(now)
        seconds, departures = now - self._since_s, self._before + self._count
        if departures == 0 and seconds < LEAST_S:
            return None
        return ahead * max(seconds, LEAST_S) / max(departures, 1)

    def _turn(self, now: float) -> None:
        if now - self._turn_s >= WINDOW_S:
            self._since_s, self._before = self._turn_s, self._count
            self._turn_s, self._count = now, 0
