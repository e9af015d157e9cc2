"""The ledger of requests in flight: exact, since each is counted in the same step as its pick.

A pick is closed once, by the first report of its end. An end may never be reported (a lost access log, a proxy that
vanished). So each pick has a lease, and old picks are closed if their endpoint's own counts stay below ours; their real
end, if it is reported later, still finds them here. All ends are counted by cause.

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
"""How long a pick stays open without a report of its end. A guess: longer than any response that a client waits for."""
REPORT_S = 2.0
"""How long after a request's end its report may arrive: forty times the access log's flush interval. A guess."""
WATCH_SCRAPES, WATCH_S = 3, 2.0
"""For how many scrapes, and how long, an endpoint's counts are compared before picks are closed. A guess."""
ARRIVAL_S = 2.0
"""How old a pick must be before an endpoint is expected to have counted it. A guess, as ``epp.pool.seat.SETTLE_S``."""
HELD_S = 600.0
"""How old a pick must be before its endpoint's counts can close it. Its stream is open, or was ``REPORT_S`` ago, and
streams report their ends unless their proxy has vanished. A guess: longer than nearly all responses take, since a page
that undercounts must not free capacity."""
TAKEN_BACK = 1024
"""Maximum number of reconciled picks that are kept for a late report of their end. A guess."""


class Ticket(msgspec.Struct, frozen=True):
    """One request in flight."""

    slot: Slot
    """The slot of its endpoint at the pick. Once that endpoint is removed, another one may have the slot."""
    address: str
    opened_at: float
    uncached_tokens: int
    labels: RequestLabels
    """The labels under which the metrics count the request."""
    prediction: Prediction | None = None
    """What was known of the endpoint at the pick; None if another one responds, or if nothing learns from the response.
    """
    identity: str = ""
    """Of the endpoint, as ``Endpoint.identity``: requests to one never count for a later one at its address."""


_Place = tuple[str, str]
"""An endpoint's address and identity."""
_NONE: OrderedDict[int, Ticket] = OrderedDict()


@dataclass(slots=True)
class _Watch:
    """The reports of an endpoint since ``since``."""

    since: float
    scrapes: int = 0
    most: int = 0
    """The largest number of requests in one scrape."""


class Ledger:
    """The open picks, by id and by endpoint.

    Invariant: an endpoint's ``in_flight`` is the number of its open picks, and its ``in_flight_tokens`` is the sum of
    ``uncached_tokens`` of those whose response was not seen to begin.

    Picks of a removed endpoint stay open, since they still run there. They count again if an endpoint with that address
    and identity is added.
    """

    def __init__(self, pool: Pool, *, lease_s: float = LEASE_S, held_s: float = HELD_S, first_id: int = 1) -> None:
        """Ids count up from ``first_id``. It should be random if ends are reported by another process: reports about
        picks of an earlier picker may still arrive, and must not match an id."""
        self.released: Counter[Cause] = Counter()
        self.on_close: list[Callable[[int], None]] = []
        """Callbacks for the id of each pick that is closed."""
        self._pool = pool
        self._lease_s = lease_s
        self._held_s = held_s
        self._next_id = first_id
        self._tickets: OrderedDict[int, Ticket] = OrderedDict()  # oldest first, as in all dictionaries here
        self._books: dict[_Place, OrderedDict[int, Ticket]] = {}
        self._answering: set[int] = set()  # picks whose response was seen to begin
        self._leaving: dict[int, float] = {}  # the time until which a report is awaited; oldest first
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
        """Return the number of open picks at ``address``."""
        return len(self._books.get(self._place(address), ()))

    def busy_endpoints(self) -> int:
        """Return the number of endpoints with open picks."""
        return len(self._books)

    def open(
        self,
        candidate: Candidate,
        uncached_tokens: int,
        now: float,
        labels: RequestLabels = UNLABELLED,
        prediction: Prediction | None = None,
    ) -> int:
        """Count a pick of ``candidate``; return its id. Its ticket keeps ``labels`` and ``prediction``."""
        pick_id = self._next_id
        self._next_id += 1
        address = candidate.address
        identity = self._place(address)[1]
        self._count(pick_id, Ticket(candidate.slot, address, now, uncached_tokens, labels, prediction, identity))
        return pick_id

    def answering(self, pick_id: int) -> None:
        """Note that the response has begun, so the prompt is computed. Does nothing at a further call or for an unknown
        id."""
        ticket = self._tickets.get(pick_id)
        if ticket is not None and pick_id not in self._answering:
            self._answering.add(pick_id)
            if self._is_there(ticket):
                self._pool.answering(ticket.address, ticket.uncached_tokens)

    def move(self, pick_id: int, address: str, now: float) -> bool:
        """Reassign a pick to the endpoint that turned out to serve it.

        Return False if the pick is unknown or already there, or if ``address`` is not in the pool.
        """
        ticket, candidate = self._tickets.get(pick_id), self._pool.candidate(address)
        if ticket is None or candidate is None or ticket.address == address:
            return False
        self._uncount(pick_id, ticket)
        self._tickets.move_to_end(pick_id)  # its age counts from now, so that the order by age holds
        uncomputed = self._uncomputed(pick_id, ticket)
        identity = self._place(address)[1]
        self._count(pick_id, Ticket(candidate.slot, address, now, uncomputed, ticket.labels, identity=identity))
        return True

    def is_at(self, pick_id: int, address: str) -> bool:
        """Return whether the pick is open at ``address``."""
        ticket = self._tickets.get(pick_id)
        return ticket is not None and ticket.address == address

    def close(self, pick_id: int, cause: Cause) -> Ticket | None:
        """Close a pick; return its ticket, or None if it is already closed or unknown."""
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
        """Return, once, the ticket of a reconciled pick whose real end is reported after all; else None."""
        return self._taken_back.pop(pick_id, None)

    def leave(self, pick_id: int, now: float) -> None:
        """Note that the request is over; the report of its end is overdue after ``REPORT_S``."""
        if pick_id in self._tickets:
            self._leaving[pick_id] = now + REPORT_S

    def expire(self, now: float) -> list[tuple[int, Cause]]:
        """Return the picks whose report or lease is overdue; the caller closes them. O(those)."""
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
        """Return the oldest picks of ``address`` that its engine no longer has; the caller closes them.

        Conservative: a pick that was open before and after a number of scrapes was open in all of them, so an engine
        that counted fewer requests in each has lost the difference. This excludes requests that ended and are about to
        be reported, and requests on their way; picks younger than ``HELD_S`` are never closed. Other clients' requests
        hide such losses.
        """
        watch = self._watches.get(address)
        if watch is None or began_at < watch.since:
            watch = self._watches[address] = _Watch(began_at)
        watch.scrapes += 1
        watch.most = max(watch.most, engine_requests)
        if watch.scrapes < WATCH_SCRAPES or began_at - watch.since < WATCH_S:
            return []
        del self._watches[address]
        book = self._books.get(self._place(address), _NONE)
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
        """Start the comparison for ``address`` anew, because a scrape failed and its engine's counts are unknown."""
        self._watches.pop(address, None)

    def _count(self, pick_id: int, ticket: Ticket) -> None:
        self._tickets[pick_id] = ticket
        place = ticket.address, ticket.identity
        book = self._books.get(place)
        if book is None:
            book = self._books[place] = OrderedDict()
        book[pick_id] = ticket
        self._pool.pick(ticket.address, pick_id, ticket.uncached_tokens, ticket.opened_at)

    def _uncount(self, pick_id: int, ticket: Ticket) -> None:
        place = ticket.address, ticket.identity
        book = self._books[place]
        del book[pick_id]
        if not book:
            del self._books[place]
        if self._is_there(ticket):
            self._pool.end(ticket.address, pick_id, self._uncomputed(pick_id, ticket))

    def _place(self, address: str) -> _Place:
        endpoint = self._pool.endpoint(address)
        return address, endpoint.identity if endpoint is not None else ""

    def _is_there(self, ticket: Ticket) -> bool:
        """Whether the endpoint at the ticket's address is the one that was picked."""
        endpoint = self._pool.endpoint(ticket.address)
        return endpoint is not None and endpoint.identity == ticket.identity

    def _uncomputed(self, pick_id: int, ticket: Ticket) -> int:
        return 0 if pick_id in self._answering else ticket.uncached_tokens

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Count the open picks of an endpoint that was removed and added again, if it is the same one."""
        if book := self._books.get(self._place(candidate.address)):
            tokens = sum(self._uncomputed(pick_id, ticket) for pick_id, ticket in book.items())
            self._pool.resume(candidate.address, len(book), tokens)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Keep the picks of a removed endpoint open."""
        self.unwatch(address)

    def engine_reported(self, candidate: Candidate) -> None:
        """Do nothing: the ledger does not depend on an engine's reports."""
