"""Makes the admission that the configuration asks for, and keeps queued requests across configuration changes."""

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
    """The admission without queues: refuses requests of negative priority while the pool is full, and no others.

    Owner: the event loop.
    """

    def __init__(self, gauge: Gauge) -> None:
        self.gauge = gauge

    def admit(self, arrival: Arrival, resume: Resume) -> None:  # noqa: ARG002
        """Return None: the request goes on. An empty pool does not count as full, since the error for it is more exact.

        Raises: Shed.
        """
        if arrival.request.priority < 0 and self.gauge.read().effective >= 1.0 and not self.gauge.empty:
            raise Shed("system saturated, sheddable request dropped")

    def patience_s(self) -> float:
        """Return 0, since there are no queues."""
        return 0.0

    def placed(self, arrival: Arrival, pick_id: int, resume: Resume) -> None:
        """Do nothing: without queues, no request is evicted."""

    def ended(self, pick_id: int, labels: RequestLabels, outcome: Outcome) -> None:
        """Do nothing: without queues, no usage is charged."""

    def close(self) -> None:
        """Do nothing, since there are no queues."""


class Gate:
    """Holds the waiting room, if the configuration has queues. Owner: the event loop."""

    def __init__(self, pool: Pool, table: RequestTable, clock: Callable[[], float]) -> None:
        self.room: WaitingRoom | None = None
        """The queued requests; None while there are no queues."""
        self._pool = pool
        self._clock = clock
        self._counts = FlowCounts(table)

    def use(self, plan: AdmissionPlan) -> Admission | None:
        """Return the admission that ``plan`` asks for, or None. Queued requests stay, or go on if queues are removed.

        Only an objective can give a request a negative priority; without one, nothing can be shed.
        """
        if plan.flow is not None:
            if self.room is not None:
                if self.room.controller.settings is not plan.flow:
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
        """Refuse all queued requests, and queue none from now on."""
        if self.room is not None:
            self.room.close()

    def readings(self) -> Iterator[Reading | Histograms]:
        """Yield the metrics for ``Telemetry.gauge_source``; none while there are no queues."""
        if self.room is not None:
            yield from self._counts.readings(self._pool.name)
            yield from self._counts.histograms(self._pool.name)
            yield from controller_readings(self._pool.name, self.room.controller, self._pool.candidates)
            if self.room.controller.settings.enable_eviction:
                yield from eviction_readings(self._pool.name, self.room.in_flight)
