"""How far an engine's clock is ahead of ours, from what it says on its page and when we had the page.

Hosts' clocks differ by seconds, and ours here starts anywhere. What is compared with an engine's times is brought to
our clock by this difference; the length of the way back is all that is left of the error.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
"""For how long a reading counts. A guess: two clocks drift apart by some milliseconds in that time, and a clock that
was set back is followed after it."""


class ClockDifference:
    """The largest ``engine's clock - our clock at receipt`` of the last minute.

    The page was written before it was received, so each reading is too small by as long as that took, and never too
    large: the largest is that of the fastest answer. A clock that stands still between two pages was not read for the
    second (an engine with several front ends tells the time of its last step), so that reading does not count.
    O(1) on average.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._largest: deque[tuple[float, float]] = deque()  # received at, difference; falling
        self._last_engine_s = 0.0

    @property
    def seconds(self) -> float | None:
        """Engine's minus ours; None before the first reading. Too small by the way back of the fastest answer."""
        return self._largest[0][1] if self._largest else None

    def read(self, engine_s: float, received_at: float) -> None:
        """A page that came at ``received_at`` said ``engine_s``."""
        if engine_s == self._last_engine_s:
            return
        self._last_engine_s = engine_s
        largest, difference = self._largest, engine_s - received_at
        while largest and largest[-1][1] <= difference:
            largest.pop()
        largest.append((received_at, difference))
        while largest[0][0] < received_at - self._window_s:
            largest.popleft()
