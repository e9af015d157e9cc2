"""How far an engine's clock is ahead of ours, from the times on its pages and the times when we received them.

The clocks of hosts differ by seconds, and ours starts at an arbitrary time. An engine's times are converted to our
clock by this difference. The remaining error is the time that a page takes to reach us.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
"""How long a reading counts. A guess: two clocks drift apart by some milliseconds in that time, and a clock that was
set back is followed after it.
"""


class ClockDifference:
    """The largest value of ``engine's clock - our clock at receipt`` in the last minute.

    A page is written before it is received, so each reading is too small by the time in between, and never too large:
    the largest reading is that of the fastest response. If two pages show the same time, the clock was not read for the
    second one (an engine with several front ends reports the time of its last step), and that reading does not count.

    O(1) on average.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._largest: deque[tuple[float, float]] = deque()  # (received at, difference), by falling difference
        self._last_engine_s = 0.0

    @property
    def seconds(self) -> float | None:
        """The engine's clock minus ours; None before the first reading.

        It is too small by the time that the fastest response took to reach us.
        """
        return self._largest[0][1] if self._largest else None

    def read(self, engine_s: float, received_at: float) -> None:
        """Add a reading: a page received at ``received_at`` shows the time ``engine_s``."""
        if engine_s == self._last_engine_s:
            return
        self._last_engine_s = engine_s
        largest, difference = self._largest, engine_s - received_at
        while largest and largest[-1][1] <= difference:
            largest.pop()
        largest.append((received_at, difference))
        while largest[0][0] < received_at - self._window_s:
            largest.popleft()
