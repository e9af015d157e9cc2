"""How long one connection may keep the event loop, and how much of a core its headers may take.

uvloop hands one socket's bytes out up to 32 times, 256 KiB each, before it looks at any other socket or timer; so a
client that found costly bytes would hold up everybody for seconds. A connection's turn ends in the middle of a read
instead, and goes on once the others had theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from epp.wire.http2.compression import WORK_S

TURN_S = 0.005
"""A guess: a hundred small requests. What a turn costs besides is some microseconds."""
HEADER_BURST_S = 1.0
"""Of how many seconds the share of a core may be taken at once."""


class Turn:
    """One connection's turn. Owned by its link; ``clock`` is in seconds and does not stand still within a turn."""

    __slots__ = ("_clock", "_header_work", "_rate", "_run", "_since", "_tokens", "_until")

    def __init__(self, header_share: float, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._rate = header_share / WORK_S  # units of work a second
        self._run = self._until = self._since = float("-inf")
        self._header_work = 0
        self._tokens = HEADER_BURST_S * self._rate

    def begin(self, run: float) -> None:
        """Begin a turn unless one began in the same ``run`` of the loop."""
        if run != self._run:
            self._run, self._until = run, self._clock() + TURN_S

    def over(self) -> bool:
        """Whether it is the others' turn."""
        return self._clock() >= self._until

    def header_wait(self, work: int, now: float) -> float:
        """Return how many seconds to wait since all the headers so far took ``work``; mostly 0."""
        if work == self._header_work:
            return 0.0
        rate = self._rate
        tokens = min(HEADER_BURST_S * rate, self._tokens + (now - self._since) * rate) - (work - self._header_work)
        self._tokens, self._since, self._header_work = tokens, now, work
        return max(0.0, -tokens / rate)
