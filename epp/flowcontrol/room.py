"""The queues on the event loop: changes elsewhere lead to one pass of the controller, soon and once.

an end, a scrape, an endpoint ─► changed ─► one pass ─► resume …
a coarse timer ─► a pass for expiry, and for changes that were not reported
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from epp.decision import Outcome, RequestLabels
from epp.flowcontrol.admission import Arrival, Resume
from epp.flowcontrol.controller import FlowController
from epp.flowcontrol.counts import WAITS, FlowCounts
from epp.flowcontrol.detectors import ConcurrencyDetector
from epp.flowcontrol.eviction import MOST_AT_ONCE, SETTLE_S, SETTLE_SCRAPED_S, InFlight
from epp.flowcontrol.queue import QueueEntry, QueueOutcome
from epp.flowcontrol.settings import FlowSettings

LOOK_EVERY_S = 0.25
"""The interval of passes while requests wait, and so how late an expiry may be. Freed capacity triggers a pass at once.
A guess."""


class WaitingRoom:
    """The admission with queues. It has no task, and no timer while the queues are empty. Owner: the event loop."""

    def __init__(self, controller: FlowController, counts: FlowCounts, clock: Callable[[], float]) -> None:
        self.controller = controller
        self._counts = counts
        self._clock = clock
        self.in_flight = InFlight()
        """The requests in flight that may be evicted."""
        self._settled_at = float("-inf")
        self._pass: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, arrival: Arrival, resume: Resume) -> QueueEntry | None:
        """Admit or queue a request, as ``FlowController.admit`` does."""
        began = self._clock()
        outcome = QueueOutcome.REJECTED_CAPACITY.value
        try:
            entry = self.controller.admit(arrival, resume)
            outcome = QueueOutcome.DISPATCHED.value if entry is None else WAITS
        finally:
            self._counts.admitted(arrival.labels, outcome, self._clock() - began)
        if entry is not None:
            self.changed()
        return entry

    def changed(self) -> None:
        """Plan a pass, because queued requests may be able to go on."""
        if self._pass is None and self.controller.size:
            self._pass = asyncio.get_running_loop().call_soon(self._run)

    def patience_s(self) -> float:
        """Return the longest possible wait by the settings."""
        return self.controller.patience_s()

    def placed(self, arrival: Arrival, pick_id: int, resume: Resume) -> None:
        """Note a request in flight, if it may be evicted."""
        if arrival.request.priority < 0 and self.controller.settings.enable_eviction:
            self.in_flight.add(pick_id, arrival.request.priority, resume)

    def ended(self, pick_id: int, labels: RequestLabels, outcome: Outcome) -> None:
        """Note that a request has ended, and charge its usage."""
        self.in_flight.discard(pick_id)
        if outcome.usage is not None:
            band = self.controller.settings.band(labels.priority)
            band.fairness.completed(labels.fairness_id, outcome.usage, self._clock())

    def use(self, settings: FlowSettings) -> None:
        """Use ``settings`` from now on. Queued requests stay."""
        self.controller.use(settings)
        self.changed()

    def release(self) -> None:
        """Dispatch all queued requests in batches, because the queues are being removed."""
        self._stop()
        if self.controller.release():
            self._pass = asyncio.get_running_loop().call_soon(self.release)

    def close(self) -> None:
        """Refuse all queued requests, and queue none from now on."""
        self.controller.close()
        self._stop()

    def _run(self) -> None:
        self._pass = None
        began = self._clock()
        self.controller.expire()
        more = self.controller.dispatch()
        if not more:
            self._evict()
        self._counts.cycle.observe(self._clock() - began)
        if more:
            self.changed()
        if not self.controller.size:
            self._stop()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)

    def _evict(self) -> None:
        """Evict requests in flight for those that still wait, if the settings allow it."""
        controller, now = self.controller, self._clock()
        blocked = controller.blocked()
        if blocked is None or not controller.settings.enable_eviction or now < self._settled_at:
            return
        priority, waiting = blocked
        if not controller.gauge.empty and self.in_flight.end(
            below=priority, most=min(MOST_AT_ONCE, waiting), wait_s=controller.expected_wait_s
        ):
            exact = isinstance(controller.gauge.detector, ConcurrencyDetector)
            self._settled_at = now + (SETTLE_S if exact else SETTLE_SCRAPED_S)

    def _look(self) -> None:
        self._timer = None
        self._run()

    def _stop(self) -> None:
        for handle in (self._pass, self._timer):
            if handle is not None:
                handle.cancel()
        self._pass = self._timer = None
