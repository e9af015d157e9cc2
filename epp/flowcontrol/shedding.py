"""Without queues: requests of negative priority are refused while the pool is full, all others go on."""

from __future__ import annotations

from epp.decision import Outcome, RequestLabels
from epp.errors import Shed
from epp.flowcontrol.admission import Arrival, Resume
from epp.flowcontrol.saturation import Gauge


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
