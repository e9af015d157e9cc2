"""Requests of negative priority in flight, ended for others of higher priority that wait.

Only while nothing of the answer was seen, so that its client gets an answer: 429.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from epp.errors import Evicted
from epp.flowcontrol.admission import Resume

MOST_AT_ONCE = 2
"""Ended at a time. Source: the Go picker's."""
SETTLE_S, SETTLE_SCRAPED_S = 0.01, 0.5
"""How long the room that this makes may take to be seen: exact counts at once, an engine's own at its next scrapes.
Source: the Go picker's 10 ms and 500 ms."""


def unknown_wait(priority: int) -> None:
    """Return None: the wait of a request of that priority is unknown."""


class InFlight:
    """By priority, oldest first. Owner: the event loop.

    Invariant: an entry's request is open in the ledger; it may have begun to answer, which shows when it is tried.
    """

    def __init__(self) -> None:
        self.issued: Counter[int] = Counter()
        """Requests ended, by the priority of those who waited."""
        self._priorities: dict[int, OrderedDict[int, Resume]] = {}
        self._by_pick: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_pick)

    def add(self, pick_id: int, priority: int, resume: Resume) -> None:
        """``resume`` ends the request when it is called with an error, if it still can."""
        self._by_pick[pick_id] = priority
        self._priorities.setdefault(priority, OrderedDict())[pick_id] = resume

    def discard(self, pick_id: int) -> None:
        """It has ended, or must not be ended any more."""
        priority = self._by_pick.pop(pick_id, None)
        if priority is not None:
            picks = self._priorities[priority]
            del picks[pick_id]
            if not picks:
                del self._priorities[priority]

    def end(self, below: int, most: int, wait_s: Callable[[int], float | None] = unknown_wait) -> int:
        """End at most ``most`` requests of lower priority than ``below``: the lowest first, of these the newest.
        ``wait_s`` says how long one of some priority would wait if it came again.

        Returns how many; those that have begun to answer are let go on, and forgotten.
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
