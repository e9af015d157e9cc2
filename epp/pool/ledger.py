"""The requests that we sent and that have not ended: exact, counted in the same step as the pick.

A pick is closed once, by whoever learns first how it ended. Ends may never be reported (a lost access log, a proxy that
vanished), so each pick has a lease, and an endpoint whose own counts stay below ours takes old ones back; if their real
end is told later, it finds them here. All are counted by cause.

Owner: the event loop; not locked.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from epp.decision import UNLABELLED, Cause, RequestLabels
from epp.pool.pool import Pool
from scorers.base import Candidate, Prediction, Slot

LEASE_S = 3600.0
"""A guess: longer than any answer takes that somebody still waits for."""
REPORT_S = 2.0
"""How long after a request's end its report may take: forty times the access log's flush. A guess."""
WATCH_SCRAPES, WATCH_S = 3, 2.0
"""For how many scrapes, and how long, an endpoint's counts are watched before they are believed. A guess."""
ARRIVAL_S = 2.0
"""How old a pick must be before an endpoint is expected to have counted it. A guess, as ``epp.pool.seat.SETTLE_S``."""
HELD_S = 600.0
"""How old a pick must be before its endpoint's counts are believed against it: the stream that made it is open, or
was ``REPORT_S`` ago, and streams tell of their ends, but for those whose proxy has vanished. A guess: longer than
nearly all answers take, for a page that undercounts must not make room."""
TAKEN_BACK = 1024
"""Picks that were reconciled and are remembered for what is still told of them. A guess."""


class Ticket(msgspec.Struct, frozen=True):
    """One request in flight."""

    slot: Slot
    """Of its endpoint at the pick; another's, perhaps, once that endpoint was removed."""
    address: str
    opened_at: float
    uncached_tokens: int
    labels: RequestLabels
    """The labels under which the metrics count the request."""
    prediction: Prediction | None = None
    """What was known of the endpoint at the pick; None once another one answers, or when nobody wants to learn."""


_NONE: OrderedDict[int, Ticket] = OrderedDict()


@dataclass(slots=True)
class _Watch:
    """What an endpoint has reported since ``since``."""

    since: float
    scrapes: int = 0
    most: int = 0
    """Requests, in any one scrape."""


class Ledger:
    """Invariant: an endpoint's ``in_flight`` is the number of picks opened at its address and not closed, and its
    ``in_flight_tokens`` the sum of ``uncached_tokens`` of those whose answer was not seen to begin.

    Picks of an endpoint that was removed stay open, for they still run there: they count for no endpoint, until one at
    that address comes back.
    """

    def __init__(self, pool: Pool, *, lease_s: float = LEASE_S, held_s: float = HELD_S, first_id: int = 1) -> None:
        """Ids count up from ``first_id``. Make it a random number where ends are reported from afar: those of picks
        that an earlier picker made may still arrive, and must be nobody's."""
        self.released: Counter[Cause] = Counter()
        self.on_close: list[Callable[[int], None]] = []
        """Called with the id of every pick that is closed."""
        self._pool = pool
        self._lease_s = lease_s
        self._held_s = held_s
        self._next_id = first_id
        self._tickets: OrderedDict[int, Ticket] = OrderedDict()  # oldest first, as all dictionaries here
        self._by_address: dict[str, OrderedDict[int, Ticket]] = {}
        self._answering: set[int] = set()  # picks whose answer was seen to begin
        self._leaving: dict[int, float] = {}  # until when a report is awaited; oldest first
        self._watches: dict[str, _Watch] = {}
        self._taken_back: OrderedDict[int, Ticket] = OrderedDict()
        pool.listeners.append(self)

    def __len__(self) -> int:
        return len(self._tickets)

    def labels(self) -> Iterator[RequestLabels]:
        """Return the labels of every pick in flight."""
        return (ticket.labels for ticket in self._tickets.values())

    def flights(self) -> Iterator[tuple[str, int, RequestLabels]]:
        """Return the address of every pick in flight, its uncached tokens unless its answer has begun, its labels."""
        return ((t.address, self._uncomputed(pick_id, t), t.labels) for pick_id, t in self._tickets.items())

    def in_flight(self, address: str) -> int:
        """Picks of ``address`` that have not ended."""
        return len(self._by_address.get(address, ()))

    def busy_endpoints(self) -> int:
        """Addresses with picks that have not ended."""
        return len(self._by_address)

    def open(
        self,
        candidate: Candidate,
        uncached_tokens: int,
        now: float,
        labels: RequestLabels = UNLABELLED,
        prediction: Prediction | None = None,
    ) -> int:
        """Count a pick of ``candidate``; returns its id. Its ticket keeps ``labels`` and ``prediction``."""
        pick_id = self._next_id
        self._next_id += 1
        address = candidate.address
        self._count(pick_id, Ticket(candidate.slot, address, now, uncached_tokens, labels, prediction))
        return pick_id

    def answering(self, pick_id: int) -> None:
        """The answer has begun: the prompt is computed. Does nothing the second time, or for an id that is nobody's."""
        ticket = self._tickets.get(pick_id)
        if ticket is not None and pick_id not in self._answering:
            self._answering.add(pick_id)
            self._pool.answering(ticket.address, ticket.uncached_tokens)

    def move(self, pick_id: int, address: str, now: float) -> bool:
        """Count a pick at ``address`` from now on, for that endpoint answers it; False for one that is nobody's, is
        there already, or would be at an address that is no endpoint."""
        ticket, candidate = self._tickets.get(pick_id), self._pool.candidate(address)
        if ticket is None or candidate is None or ticket.address == address:
            return False
        self._uncount(pick_id, ticket)
        self._tickets.move_to_end(pick_id)  # as old as its count there, as all dictionaries here
        uncomputed = self._uncomputed(pick_id, ticket)
        self._count(pick_id, Ticket(candidate.slot, address, now, uncomputed, ticket.labels))
        return True

    def is_at(self, pick_id: int, address: str) -> bool:
        """Whether a pick that is open counts at ``address``."""
        ticket = self._tickets.get(pick_id)
        return ticket is not None and ticket.address == address

    def close(self, pick_id: int, cause: Cause) -> Ticket | None:
        """Uncount a pick; None when that has already happened, or when the id is nobody's."""
        ticket = self._tickets.pop(pick_id, None)
        if ticket is None:
            return None
        self._leaving.pop(pick_id, None)
        self.released[cause] += 1
        self._uncount(pick_id, ticket)
        self._answering.discard(pick_id)
        for closed in self.on_close:
            closed(pick_id)
        if cause is Cause.RECONCILED:
            self._taken_back[pick_id] = ticket
            if len(self._taken_back) > TAKEN_BACK:
                self._taken_back.popitem(last=False)
        return ticket

    def late(self, pick_id: int) -> Ticket | None:
        """A pick that was reconciled, whose real end is told after all; once, and None for any other."""
        return self._taken_back.pop(pick_id, None)

    def leave(self, pick_id: int, now: float) -> None:
        """The request is over; how it ended will be reported soon, or never."""
        if pick_id in self._tickets:
            self._leaving[pick_id] = now + REPORT_S

    def expire(self, now: float) -> list[tuple[int, Cause]]:
        """The picks whose report or lease is overdue; the caller ends them. O(those)."""
        over = []
        for pick_id, until in self._leaving.items():
            if until > now:
                break
            over.append((pick_id, Cause.UNREPORTED))
        for pick_id, ticket in self._tickets.items():
            if ticket.opened_at + self._lease_s > now:
                break
            over.append((pick_id, Cause.LEASE_EXPIRED))
        return over

    def reconcile(self, address: str, engine_requests: int, began_at: float) -> list[tuple[int, Cause]]:
        """The oldest picks of ``address`` that its engine no longer has; the caller ends them.

        Conservative: what is open now and was open before a number of scrapes has run through all of them, so an
        engine that counted fewer requests in each has lost the difference. Requests that ended and are about to be
        reported are not among those, nor are requests on their way; picks younger than ``HELD_S`` are never taken
        back. Other clients' requests hide such losses.
        """
        watch = self._watches.get(address)
        if watch is None or began_at < watch.since:
            watch = self._watches[address] = _Watch(began_at)
        watch.scrapes += 1
        watch.most = max(watch.most, engine_requests)
        if watch.scrapes < WATCH_SCRAPES or began_at - watch.since < WATCH_S:
            return []
        del self._watches[address]
        book = self._by_address.get(address, _NONE)
        if len(book) <= watch.most:
            return []
        young = 0
        for ticket in reversed(book.values()):
            if ticket.opened_at < watch.since - ARRIVAL_S:
                break
            young += 1
        lost = max(0, len(book) - young - watch.most)
        held = watch.since - self._held_s
        return [(pick_id, Cause.RECONCILED) for pick_id, t in islice(book.items(), lost) if t.opened_at < held]

    def unwatch(self, address: str) -> None:
        """Begin anew with ``address``: a scrape failed, and what its engine counted meanwhile is unknown."""
        self._watches.pop(address, None)

    def _count(self, pick_id: int, ticket: Ticket) -> None:
        self._tickets[pick_id] = ticket
        book = self._by_address.get(ticket.address)
        if book is None:
            book = self._by_address[ticket.address] = OrderedDict()
        book[pick_id] = ticket
        self._pool.pick(ticket.address, pick_id, ticket.uncached_tokens, ticket.opened_at)

    def _uncount(self, pick_id: int, ticket: Ticket) -> None:
        book = self._by_address[ticket.address]
        del book[pick_id]
        if not book:
            del self._by_address[ticket.address]
        self._pool.end(ticket.address, pick_id, self._uncomputed(pick_id, ticket))

    def _uncomputed(self, pick_id: int, ticket: Ticket) -> int:
        return 0 if pick_id in self._answering else ticket.uncached_tokens

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Perhaps it was away for a moment only."""
        if book := self._by_address.get(candidate.address):
            tokens = sum(self._uncomputed(pick_id, ticket) for pick_id, ticket in book.items())
            self._pool.resume(candidate.address, len(book), tokens)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Its picks stay open."""
        self.unwatch(address)

    def engine_reported(self, candidate: Candidate) -> None:
        """Not our business."""
