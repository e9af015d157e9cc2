"""The admission of a picker, whichever its configuration asks for, now and after the next change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from epp.decision import Outcome, RequestLabels
from epp.errors import Shed
from epp.flowcontrol.admission import Admission, Arrival, Resume
from epp.flowcontrol.controller import FlowController
from epp.flowcontrol.counts import FlowCounts, controller_readings, eviction_readings
from epp.flowcontrol.room import WaitingRoom
from epp.flowcontrol.saturation import Gauge
from epp.flowcontrol.settings import AdmissionPlan
from epp.metrics.gauges import Histograms, Reading
from epp.metrics.series import RequestTable
from epp.pool.pool import Pool


class Shedding:
    """An admission. Owner: the event loop."""

    def __init__(self, gauge: Gauge) -> None:
        self.gauge = gauge

    def admit(self, arrival: Arrival, resume: Resume) -> None:  # noqa: ARG002
        """Go on. An empty pool is not full: that there is no endpoint is the better answer. Raises: Shed."""
        if arrival.request.priority < 0 and self.gauge.read().effective >= 1.0 and not self.gauge.empty:
            raise Shed("system saturated, sheddable request dropped")

    def patience_s(self) -> float:
        """Nobody waits here."""
        return 0.0

    def placed(self, arrival: Arrival, pick_id: int, resume: Resume) -> None:
        """Not our business."""

    def ended(self, pick_id: int, labels: RequestLabels, outcome: Outcome) -> None:
        """Not our business."""

    def close(self) -> None:
        """Nobody waits here."""


class Gate:
    """Owner: the event loop."""

    def __init__(self, pool: Pool, table: RequestTable, clock: Callable[[], float]) -> None:
        self.room: WaitingRoom | None = None
        """Those who wait; None while there are no queues."""
        self._pool = pool
        self._clock = clock
        self._counts = FlowCounts(table)

    def use(self, plan: AdmissionPlan) -> Admission | None:
        """The admission that ``plan`` asks for, None when it asks for none; those who wait stay, or go on.

        Nobody can have a negative priority that no objective gives, and then there is nothing to look at.
        """
        if plan.flow is not None:
            if self.room is not None:
                self.room.use(plan.flow)
            else:
                gauge = Gauge(plan.flow.detector, self._pool.candidates)
                controller = FlowController(plan.flow, gauge, self._counts, self._clock)
                self.room = WaitingRoom(controller, self._counts, self._clock)
                self._pool.on_change.append(self.room.changed)
            return self.room
        if self.room is not None:
            self._pool.on_change.remove(self.room.changed)
            self.room.release()
            self.room = None
        if any(priority < 0 for priority in plan.objectives.values()):
            return Shedding(Gauge(plan.detector, self._pool.candidates))
        return None

    def close(self) -> None:
        """Send away all who wait, and let nobody wait from now on."""
        if self.room is not None:
            self.room.close()

    def readings(self) -> Iterator[Reading | Histograms]:
        """For ``Telemetry.gauge_source``; nothing while there are no queues."""
        if self.room is not None:
            yield from self._counts.readings(self._pool.name)
            yield from self._counts.histograms(self._pool.name)
            yield from controller_readings(self._pool.name, self.room.controller, self._pool.candidates)
            if self.room.controller.settings.enable_eviction:
                yield from eviction_readings(self._pool.name, self.room.in_flight)
