"""Evicts requests of negative priority in flight for queued requests of higher priority.

A request is evicted only before its response has begun, so that its client can be answered with 429.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from epp.errors import Evicted
from epp.flowcontrol.admission import Resume

MOST_AT_ONCE = 2
"""Maximum number of evictions at a time. Source: the Go picker's."""
SETTLE_S, SETTLE_SCRAPED_S = 0.01, 0.5
"""How long it may take until a detector sees the freed capacity: at once with exact counts, after the next scrapes with
an engine's own numbers. Source: the Go picker's 10 ms and 500 ms."""


def unknown_wait(priority: int) -> None:
    """Return None: the wait of a request of that priority is unknown."""


class InFlight:
    """The evictable requests in flight by priority, oldest first. Owner: the event loop.

    Invariant: each request is open in the ledger. Its response may have begun, which only an attempt to end it shows.
    """

    def __init__(self) -> None:
        self.issued: Counter[int] = Counter()
        """Number of evicted requests, by the priority of the requests that waited."""
        self._priorities: dict[int, OrderedDict[int, Resume]] = {}
        self._by_pick: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_pick)

    def add(self, pick_id: int, priority: int, resume: Resume) -> None:
        """Add a request; ``resume``, called with an error, ends it unless its response has begun."""
        self._by_pick[pick_id] = priority
        self._priorities.setdefault(priority, OrderedDict())[pick_id] = resume

    def discard(self, pick_id: int) -> None:
        """Remove a request that has ended, or that must not be evicted any more."""
        priority = self._by_pick.pop(pick_id, None)
        if priority is not None:
            picks = self._priorities[priority]
            del picks[pick_id]
            if not picks:
                del self._priorities[priority]

    def end(self, below: int, most: int, wait_s: Callable[[int], float | None] = unknown_wait) -> int:
        """Evict at most ``most`` requests of a lower priority than ``below``; return how many.

        The lowest priority goes first, and of one priority the newest. ``wait_s`` returns the expected wait of a
        retried request of a priority. A request whose response has begun is removed instead of evicted.
        """
        ended = 0
        while ended < most and self._priorities:
            lowest = min(self._priorities)
            if lowest >= below:
                break
            pick_id, resume = next(reversed(self._priorities[lowest].items()))
            resume(Evicted("request evicted by flow control", wait_s=wait_s(lowest)))
            if pick_id in self._by_pick:
                self.discard(pick_id)
            else:
                ended += 1
        if ended:
            self.issued[below] += ended
        return ended
