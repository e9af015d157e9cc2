"""The requests that we sent and that have not ended: exact, counted in the same step as the pick.

A pick is closed once, by whoever learns first how it ended. Ends may never be reported (a lost access log, a proxy that
vanished), so each pick has a lease, and an endpoint whose own counts stay below ours takes the oldest ones back. Both
are counted by cause.

Owner: the event loop; not locked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from epp.decision import Cause
from epp.pool import Pool
from scorers.base import Candidate, Slot

LEASE_S = 3600.0
"""A guess: longer than any answer takes that somebody still waits for."""
SURPLUS_SCRAPES, SURPLUS_S = 5, 3.0
"""How often in a row, and for how long, an engine must report fewer requests than we count before the oldest surplus is
released. An end is reported within the access log's flush of 50 ms, so 3 s of disagreement is a lost report. A guess."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request in flight."""

    slot: Slot
    address: str
    opened_at: float
    uncached_tokens: int
    story: object


@dataclass(slots=True)
class _Surplus:
    """How long an endpoint has reported fewer requests than we count, and the least surplus seen meanwhile."""

    since: float
    scrapes: int
    least: int


class Ledger:
    """Invariant: an endpoint's ``in_flight`` is the number of picks opened since it was added and not closed."""

    def __init__(self, pool: Pool, *, lease_s: float = LEASE_S) -> None:
        self.released: Counter[Cause] = Counter()
        self._pool = pool
        self._lease_s = lease_s
        self._next_id = 1
        self._tickets: dict[int, Ticket] = {}  # in the order of opening
        self._by_slot: dict[Slot, dict[int, None]] = {}
        self._surplus: dict[Slot, _Surplus] = {}
        pool.listeners.append(self)

    def __len__(self) -> int:
        return len(self._tickets)

    def open(self, candidate: Candidate, uncached_tokens: int, now: float, story: object = None) -> int:
        """Count a pick of ``candidate``; returns its id."""
        pick_id = self._next_id
        self._next_id += 1
        self._tickets[pick_id] = Ticket(candidate.slot, candidate.address, now, uncached_tokens, story)
        self._by_slot.setdefault(candidate.slot, {})[pick_id] = None
        self._pool.pick(candidate.slot, pick_id, uncached_tokens, now)
        return pick_id

    def close(self, pick_id: int, cause: Cause) -> Ticket | None:
        """Uncount a pick; None when that has already happened, or when the id is nobody's."""
        ticket = self._tickets.pop(pick_id, None)
        if ticket is None:
            return None
        self.released[cause] += 1
        if self._by_slot.get(ticket.slot, {}).pop(pick_id, 0) is None:  # else its endpoint was removed meanwhile
            self._pool.end(ticket.slot, pick_id)
        return ticket

    def expire(self, now: float) -> list[tuple[int, Cause]]:
        """The picks whose lease is over; the caller ends them."""
        over = []
        for pick_id, ticket in self._tickets.items():
            if ticket.opened_at + self._lease_s > now:
                break
            over.append((pick_id, Cause.LEASE_EXPIRED))
        return over

    def reconcile(self, slot: Slot, engine_requests: int, began_at: float) -> list[tuple[int, Cause]]:
        """The oldest picks that the endpoint, by its own count at ``began_at``, no longer has; the caller ends them."""
        older = [i for i in self._by_slot.get(slot, ()) if self._tickets[i].opened_at < began_at]
        surplus = len(older) - engine_requests
        if surplus <= 0:
            self._surplus.pop(slot, None)
            return []
        seen = self._surplus.setdefault(slot, _Surplus(began_at, 0, surplus))
        seen.scrapes += 1
        seen.least = min(seen.least, surplus)
        if seen.scrapes < SURPLUS_SCRAPES or began_at - seen.since < SURPLUS_S:
            return []
        del self._surplus[slot]
        settled = [i for i in older if self._tickets[i].opened_at < seen.since]
        return [(pick_id, Cause.RECONCILED) for pick_id in settled[: seen.least]]

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Nothing is in flight there yet."""

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        """Its requests stay in flight until they end, but count for no endpoint: the slot is another's soon."""
        self._by_slot.pop(slot, None)
        self._surplus.pop(slot, None)

    def engine_reported(self, candidate: Candidate) -> None:
        """Not our business."""
