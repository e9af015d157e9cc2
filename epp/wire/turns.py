"""How long one client may use the event loop, and in which order waiting connections go on.

uvloop passes one socket's bytes on up to 32 times, 256 KiB each, before it looks at any other socket or timer, so a
client with costly bytes would delay all others for seconds. Therefore the connections of one address have one turn in
each run of the event loop, however many they are. A connection whose address has used its turn up stops reading in the
middle of its bytes and waits in the ``TurnQueue`` of the server. All connections in that queue together have one turn
in each run, so attacked from one address, a run takes two turns plus what is in progress when they end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from time import perf_counter, thread_time
from typing import NamedTuple, Protocol

from epp.wire.http2.compression import WORK_S

TURN_S = 0.005
"""CPU time of a turn. A guess: a hundred small requests. Each turn costs some microseconds of its own."""
HEADER_BURST_S = 1.0
"""How many seconds of the share of a core may be used at once."""


class Clocks(NamedTuple):
    """The clocks that turns are measured by, in seconds."""

    wall: Callable[[], float] = perf_counter
    """Goes on while the thread waits for a core; a look at it is cheap."""
    cpu: Callable[[], float] = thread_time
    """Stands still while the thread waits for a core; a look at it is a system call."""


class Turn:
    """The CPU time for which work may go on, of which the first half is measured by the wall clock.

    Most turns end before that, and never need a look at the CPU clock. The wall clock alone would end turns in which
    the process mostly waited for a core, and each end costs a pause of the transport.
    """

    __slots__ = ("_clocks", "_cpu_until", "_run", "_until", "_wall")

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._wall = clocks.wall
        self._run = self._until = float("-inf")
        self._cpu_until: float | None = None

    def begin(self, run: float) -> bool:
        """Begin a turn unless one began in the same ``run`` of the event loop; returns whether time is left."""
        if run == self._run:
            return not self.over()
        self._run = run
        self._until, self._cpu_until = self._wall() + TURN_S / 2, None
        return True

    def renew(self) -> None:
        """Begin a new turn now."""
        self._until, self._cpu_until = self._wall() + TURN_S / 2, None

    def over(self) -> bool:
        """Return whether the turn's time is used up."""
        now = self._wall()
        return now >= self._until and self._used_up(now)

    def _used_up(self, now: float) -> bool:
        """Return whether the second half is used up, too, which is measured by the CPU clock."""
        used = self._clocks.cpu()
        if self._cpu_until is None:
            self._cpu_until = used + TURN_S / 2
        if used >= self._cpu_until:
            return True
        self._until = now + self._cpu_until - used
        return False


class HeaderBudget:
    """A token bucket for the decoding of headers, which may take ``share`` of a core in the long run."""

    __slots__ = ("_rate", "_since", "_tokens")

    def __init__(self, share: float) -> None:
        self._rate = share / WORK_S  # units of work a second
        self._since = float("-inf")
        self._tokens = HEADER_BURST_S * self._rate

    def wait(self, work: int, now: float) -> float:
        """Charge ``work``, which was done since the last call; returns for how many seconds to wait, mostly 0.

        Units: ``compression.WORK_S`` for work, seconds for ``now``.
        """
        rate = self._rate
        self._tokens = min(HEADER_BURST_S * rate, self._tokens + (now - self._since) * rate) - work
        self._since = now
        return max(0.0, -self._tokens / rate)

    def full(self, now: float) -> bool:
        """Return whether a new budget would be no better than this one."""
        return self._tokens + (now - self._since) * self._rate >= HEADER_BURST_S * self._rate


class Waiter(Protocol):
    """A connection that waits for a turn."""

    @property
    def origin(self) -> Hashable:
        """The address that shares a place in the rotation with its other connections."""

    def resume(self, turn: Turn) -> None:
        """Go on until ``turn`` is over, and join the queue again if more is left to do."""


class TurnQueue:
    """Connections that wait for a turn. Addresses take turns, and so do the connections of each address.

    Invariant: a connection is in the queue at most once; while any is, a call of ``_run`` is scheduled. Owned by the
    event loop.
    """

    def __init__(self, turn: Turn, schedule: Callable[[Callable[[], None]], object]) -> None:
        """``schedule`` calls a function once, in the next run of the event loop."""
        self._turn = turn
        self._schedule = schedule
        self._scheduled = False
        self._waiting: dict[Hashable, deque[Waiter]] = {}  # in the order of the rotation

    def add(self, waiter: Waiter) -> None:
        """Put ``waiter`` behind the other connections of its address."""
        self._waiting.setdefault(waiter.origin, deque()).append(waiter)
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self._run)

    def remove(self, waiter: Waiter) -> None:
        """Forget ``waiter``, which is gone; harmless if it does not wait."""
        if (line := self._waiting.get(waiter.origin)) is not None and waiter in line:
            line.remove(waiter)
            if not line:
                del self._waiting[waiter.origin]

    def _run(self) -> None:
        """Resume at least one connection, and more as long as the turn has time."""
        self._scheduled = False
        turn = self._turn
        turn.renew()
        try:
            while self._waiting:
                origin, line = next(iter(self._waiting.items()))
                del self._waiting[origin]
                waiter = line.popleft()
                if line:
                    self._waiting[origin] = line  # behind the other addresses
                waiter.resume(turn)
                if turn.over():
                    break
        finally:  # if one connection fails by a defect of ours, the others must not wait for ever
            if self._waiting and not self._scheduled:
                self._scheduled = True
                self._schedule(self._run)
