"""The pure core of flow control, which queues, dispatches and refuses requests. No I/O, no task; a clock is given.

    admit ─► goes on, or waits in its band ─► dispatch: bands from the highest priority down, in each band the next
             flow, in that flow the first request by its order; a band stops at its ceiling, and so do all below it

Laws, tested as properties: a queued request is resumed once, or cancelled; limits are never exceeded; no request goes
on while a queued one of higher priority could.

Source: the Go picker's flow control, with its words for outcomes. The Go picker queues every request and dispatches one
per millisecond; here a request that need not wait is never queued, and nothing runs unless something has changed.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import deque
from collections.abc import Callable
from itertools import count
from operator import neg
from typing import Protocol

from epp.decision import RequestLabels
from epp.errors import EppError, NoEndpoints, QueueFull, ShuttingDown, WaitedTooLong
from epp.flowcontrol.admission import MOST_PATIENCE_S, Arrival, Resume
from epp.flowcontrol.band import Band
from epp.flowcontrol.departures import Departures
from epp.flowcontrol.queue import FEW, LATE_S, FlowQueue, QueueEntry, QueueOutcome
from epp.flowcontrol.saturation import Gauge
from epp.flowcontrol.settings import FlowSettings

log = logging.getLogger(__name__)

BATCH = 64
"""Maximum number of requests dispatched at a time, so that streams are read in between. A guess: some 10 ms."""


class QueueListener(Protocol):
    """Receives queue events, for the metrics."""

    def enqueued(self, labels: RequestLabels, size_bytes: int) -> None:
        """A request was queued."""

    def left(self, labels: RequestLabels, size_bytes: int) -> None:
        """A request left its queue."""

    def finished(self, labels: RequestLabels, outcome: QueueOutcome, waited_s: float) -> None:
        """A request left flow control after ``waited_s``, 0 if it was never queued."""


class FlowController:
    """All queues, and what decides on them. Owner: the event loop."""

    def __init__(
        self, settings: FlowSettings, gauge: Gauge, listener: QueueListener, clock: Callable[[], float]
    ) -> None:
        self.size = 0
        """Number of queued requests."""
        self.size_bytes = 0
        """Size of their bodies."""
        self.closed = False
        self.settings = settings
        self.gauge = gauge
        self._listener = listener
        self._clock = clock
        self._numbers = count()
        self._bands: dict[int, Band] = {}
        self._priorities: list[int] = []  # the highest first
        self._departures = Departures()
        self._by_age: deque[QueueEntry] = deque()  # includes entries that are gone, until they are the majority
        self._bounded = FlowQueue()  # entries whose proxies stop waiting, the first to do so first
        self.use(settings)

    def __len__(self) -> int:
        return self.size

    @property
    def bands(self) -> list[Band]:
        """All bands, the highest priority first."""
        return [self._bands[priority] for priority in self._priorities]

    def admit(self, arrival: Arrival, resume: Resume) -> QueueEntry | None:
        """Return None if ``arrival`` may go on at once, which the caller must then place; else its queue entry.

        Raises: QueueFull, NoEndpoints, ShuttingDown; nothing has changed then.
        """
        band = self._band(arrival.request.priority)
        now = self._clock()
        if not self._behind(band.priority) and self._has_room(band.priority):
            band.settings.fairness.served(arrival.request, now)
            self._listener.finished(arrival.labels, QueueOutcome.DISPATCHED, 0.0)
            return None
        if self.closed:
            self._listener.finished(arrival.labels, QueueOutcome.REJECTED_OTHER, 0.0)
            raise ShuttingDown("the picker is shutting down and its endpoints are full; try again")
        self._check(band, arrival)
        if not self.size:
            self._departures.began(now)
        entry = QueueEntry(self, arrival, resume, now, band.settings.fairness.flow(arrival.request))
        self._add(band, entry)
        self._by_age.append(entry)
        self._listener.enqueued(arrival.labels, arrival.size_bytes)
        return entry

    def dispatch(self, most: int = BATCH) -> bool:
        """Dispatch at most ``most`` requests; return whether more may be able to go on."""
        for _ in range(most):
            entry = self._next()
            if entry is None:
                return False
            request = entry.arrival.request
            band = self._bands[request.priority]
            now = self._clock()
            band.settings.fairness.served(request, now)
            band.served(entry)
            self._departures.left(now)
            self._finish(entry, QueueOutcome.DISPATCHED, None)
        return self.size > 0

    def patience_s(self) -> float:
        """Return the longest possible wait, with a margin."""
        ttl_s = self.settings.ttl_s
        if ttl_s is None:
            return MOST_PATIENCE_S
        return min(MOST_PATIENCE_S, max(ttl_s, self.settings.no_endpoint_ttl_s) + LATE_S)

    def bound(self, entry: QueueEntry, until_s: float) -> None:
        """Let the queued ``entry`` expire at ``until_s`` at the latest, whatever the settings; called once."""
        entry.until_s = until_s
        self._bounded.push(until_s, next(self._numbers), entry)

    def expire(self) -> None:
        """Refuse the requests that have waited too long. O(those)."""
        limit_s = self._limit_s()
        while limit_s is not None and (entry := self._oldest()) is not None:
            if entry.enqueued_s + limit_s > self._clock():
                break
            self._expired(entry, limit_s)
        while self._bounded.size:
            entry = self._bounded.head()
            assert entry.until_s is not None  # noqa: S101 - what is bounded has one
            if entry.until_s > self._clock():
                break
            self._expired(entry, entry.until_s - entry.enqueued_s)

    def next_expiry(self) -> float | None:
        """Return when the next request expires by the current settings, or None."""
        entry, limit_s = self._oldest(), self._limit_s()
        times = [] if entry is None or limit_s is None else [entry.enqueued_s + limit_s]
        if self._bounded.size and (until_s := self._bounded.head().until_s) is not None:
            times.append(until_s)
        return min(times, default=None)

    def cancelled(self, entry: QueueEntry) -> None:
        """Remove ``entry``, which must be queued, because its client has left."""
        arrival = self._remove(entry)
        self._listener.finished(arrival.labels, QueueOutcome.EVICTED_CANCELLED, self._clock() - entry.enqueued_s)

    def close(self) -> None:
        """Refuse all queued requests, and queue none from now on."""
        self.closed = True
        while (entry := self._oldest()) is not None:
            self._finish(entry, QueueOutcome.EVICTED_OTHER, ShuttingDown("the picker is shutting down; try again"))

    def release(self, most: int = BATCH) -> bool:
        """Dispatch at most ``most`` requests, the oldest first, whatever the load; return whether others are left."""
        for _ in range(most):
            entry = self._oldest()
            if entry is None:
                return False
            self._finish(entry, QueueOutcome.DISPATCHED, None)
        return self.size > 0

    def use(self, settings: FlowSettings) -> None:
        """Use ``settings`` from now on. Queued requests stay, in the order of the new settings.

        No request is refused because a limit has become smaller. O(n log n).
        """
        waiting = [entry for entry in self._by_age if not entry.gone]
        self.settings = settings
        self.gauge.use(settings.detector)
        self._bands = {}
        self._priorities = []
        self.size = self.size_bytes = 0
        for priority in settings.bands:
            self._band(priority)
        for entry in waiting:
            band = self._band(entry.arrival.request.priority)
            entry.flow = band.settings.fairness.flow(entry.arrival.request)
            self._add(band, entry)

    def blocked(self) -> tuple[int, int] | None:
        """Return the highest priority with queued requests, and their number; None if the queues are empty."""
        for band in self.bands:
            if band.size:
                return band.priority, band.size
        return None

    def expected_wait_s(self, priority: int) -> float | None:
        """Return how long a request of ``priority`` that arrives now would wait, or None for no estimate."""
        ahead = sum(band.size for band in self.bands if band.priority >= priority)
        return self._departures.wait_s(ahead, self._clock())

    def _next(self) -> QueueEntry | None:
        if not self.size:
            return None
        saturation = self.gauge.read().effective
        ceilings = self.settings.limits.ceilings(saturation, self._priorities)
        for priority, ceiling in zip(self._priorities, ceilings, strict=True):
            band = self._bands[priority]
            if band.size:
                return band.head(self._clock()) if saturation < ceiling else None
        return None

    def _has_room(self, priority: int) -> bool:
        saturation = self.gauge.read().effective
        ceilings = self.settings.limits.ceilings(saturation, self._priorities)
        return saturation < ceilings[self._priorities.index(priority)]

    def _behind(self, priority: int) -> bool:
        """Return whether requests of this or a higher priority are queued."""
        if not self.size:
            return False
        return any(self._bands[other].size for other in self._priorities if other >= priority)

    def _check(self, band: Band, arrival: Arrival) -> None:
        """Refuse ``arrival`` if it cannot be queued. Raises: NoEndpoints, QueueFull."""
        if self.gauge.empty and self.settings.no_endpoint_ttl_s <= 0:
            self._refuse(arrival, "there is no endpoint, and flowControl.noEndpointRequestTTL is 0")
        full = self.settings.full(self.size, self.size_bytes, arrival.size_bytes) or band.full(arrival.size_bytes)
        if full is not None:
            self._refuse(arrival, f"{full}; try again later")

    def _refuse(self, arrival: Arrival, sentence: str) -> None:
        empty = self.gauge.empty
        outcome = QueueOutcome.REJECTED_NO_ENDPOINTS if empty else QueueOutcome.REJECTED_CAPACITY
        self._listener.finished(arrival.labels, outcome, 0.0)
        raise (
            NoEndpoints(sentence)
            if empty
            else QueueFull(sentence, wait_s=self.expected_wait_s(arrival.request.priority))
        )

    def _expired(self, entry: QueueEntry, limit_s: float) -> None:
        if self.gauge.empty:
            message = f"no endpoint came within {limit_s:g} s; try again later"
            self._finish(entry, QueueOutcome.EVICTED_NO_ENDPOINTS, NoEndpoints(message))
        else:
            message = f"the endpoints were full for the {limit_s:g} s that a request may wait; try again later"
            wait_s = self.expected_wait_s(entry.arrival.request.priority)
            self._finish(entry, QueueOutcome.EVICTED_TTL, WaitedTooLong(message, wait_s=wait_s))

    def _limit_s(self) -> float | None:
        return self.settings.no_endpoint_ttl_s if self.gauge.empty else self.settings.ttl_s

    def _band(self, priority: int) -> Band:
        band = self._bands.get(priority)
        if band is None:
            band = self._bands[priority] = Band(priority, self.settings.band(priority))
            insort(self._priorities, priority, key=neg)
        return band

    def _add(self, band: Band, entry: QueueEntry) -> None:
        band.add(entry, next(self._numbers), self.settings.ttl_s)
        self.size += 1
        self.size_bytes += entry.arrival.size_bytes

    def _oldest(self) -> QueueEntry | None:
        by_age = self._by_age
        while by_age and by_age[0].gone:
            by_age.popleft()
        return by_age[0] if by_age else None

    def _remove(self, entry: QueueEntry) -> Arrival:
        """Remove ``entry`` and the references that it holds; return its request."""
        arrival = entry.arrival
        entry.resume = None
        del entry.arrival
        if entry.until_s is not None:
            self._bounded.forget()
        self._bands[arrival.request.priority].forget(entry, arrival)
        self.size -= 1
        self.size_bytes -= arrival.size_bytes
        if len(self._by_age) > 2 * self.size + FEW:
            self._by_age = deque(other for other in self._by_age if not other.gone)
        self._listener.left(arrival.labels, arrival.size_bytes)
        return arrival

    def _finish(self, entry: QueueEntry, outcome: QueueOutcome, error: EppError | None) -> None:
        resume = entry.resume
        arrival = self._remove(entry)
        self._listener.finished(arrival.labels, outcome, self._clock() - entry.enqueued_s)
        try:
            if resume is not None:
                resume(error)
        except Exception:  # one stream must not take the others down
            log.exception("request %r: what waited for it failed", arrival.request.id)
