"""The queues on the event loop: what happened elsewhere leads to one pass of the controller, soon and once.

an end, a scrape, an endpoint ─► changed ─► one pass ─► resume …
a coarse timer ─► expiry, and a look at what nobody reported
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
"""While anybody waits. Expiry is late by no more; what makes room is heard of at once. A guess."""


class WaitingRoom:
    """An admission. Owner: the event loop; without a task of its own, and without a timer while nobody waits."""

    def __init__(self, controller: FlowController, counts: FlowCounts, clock: Callable[[], float]) -> None:
        self.controller = controller
        self._counts = counts
        self._clock = clock
        self.in_flight = InFlight()
        """Those that may be ended for others."""
        self._settled_at = float("-inf")
        self._pass: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, arrival: Arrival, resume: Resume) -> QueueEntry | None:
        """See ``FlowController.admit``."""
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
        """Something has happened after which somebody may go on."""
        if self._pass is None and self.controller.size:
            self._pass = asyncio.get_running_loop().call_soon(self._run)

    def patience_s(self) -> float:
        """As the settings say."""
        return self.controller.patience_s()

    def placed(self, arrival: Arrival, pick_id: int, resume: Resume) -> None:
        """A request is in flight."""
        if arrival.request.priority < 0 and self.controller.settings.enable_eviction:
            self.in_flight.add(pick_id, arrival.request.priority, resume)

    def ended(self, pick_id: int, labels: RequestLabels, outcome: Outcome) -> None:
        """A request has ended."""
        self.in_flight.discard(pick_id)
        if outcome.usage is not None:
            band = self.controller.settings.band(labels.priority)
            band.fairness.completed(labels.fairness_id, outcome.usage, self._clock())

    def use(self, settings: FlowSettings) -> None:
        """Go by ``settings`` from now on; those who wait stay."""
        self.controller.use(settings)
        self.changed()

    def release(self) -> None:
        """Send everybody on, some at a time: there are no queues any more."""
        self._stop()
        if self.controller.release():
            self._pass = asyncio.get_running_loop().call_soon(self.release)

    def close(self) -> None:
        """Send everybody away, and let nobody wait from now on."""
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
        """Make room for those who still wait, where that may be done at others' cost."""
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
