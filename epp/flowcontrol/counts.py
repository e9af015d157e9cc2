"""The metrics of the queues in front of the endpoints.

Source: the Go picker's names, labels and bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from epp.decision import RequestLabels
from epp.flowcontrol.controller import FlowController
from epp.flowcontrol.detectors import UtilizationDetector
from epp.flowcontrol.eviction import InFlight
from epp.flowcontrol.queue import QueueOutcome
from epp.histogram import Histogram
from epp.metrics.gauges import Histograms, Reading
from epp.metrics.series import RequestTable
from epp.metrics.tables import Metric
from epp.pool.candidates import serving
from scorers.base import Candidate

_NAME = "llm_d_epp_flow_control"
_OVERHEAD = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_FLOW = ("fairness_id", "priority", "inference_pool", "model_name", "target_model_name")
_BAND = ("priority", "inference_pool")

QUEUE_DURATION = Metric(
    f"{_NAME}_request_queue_duration_seconds",
    "From a request's arrival at the queues to its outcome there; 0 for one that need not wait.",
    ("fairness_id", "priority", "outcome", "inference_pool", "model_name", "target_model_name"),
    (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
CYCLE = Metric(
    f"{_NAME}_dispatch_cycle_duration_seconds",
    "One pass over the queues, with the placing of those sent on.",
    (),
    _OVERHEAD,
)
ENQUEUE_DURATION = Metric(
    f"{_NAME}_request_enqueue_duration_seconds",
    "To look whether a request may go on, and to let it wait if not.",
    ("fairness_id", "priority", "outcome"),
    _OVERHEAD,
)
WAITS = "NotYetFinalized"
"""The outcome label of a request that was queued."""


class FlowCounts:
    """The ``QueueListener`` that counts for the metrics. No method raises. Owner: the event loop."""

    def __init__(self, table: RequestTable) -> None:
        """``table`` maps labels that clients chose to a limited number of label sets."""
        self._table = table
        self.outcomes: Counter[tuple[QueueOutcome, int]] = Counter()
        self.waiting: dict[RequestLabels, tuple[int, int]] = {}
        """Queued requests and bytes, by labels."""
        self.durations: dict[tuple[RequestLabels, QueueOutcome], Histogram] = {}
        self.enqueueing: dict[tuple[str, int, str], Histogram] = {}
        self.cycle = Histogram(CYCLE.bounds)

    def enqueued(self, labels: RequestLabels, size_bytes: int) -> None:
        """Count a request that was queued."""
        labels = self._table(labels).labels
        requests, total = self.waiting.get(labels, (0, 0))
        self.waiting[labels] = (requests + 1, total + size_bytes)

    def left(self, labels: RequestLabels, size_bytes: int) -> None:
        """Uncount a request that left its queue."""
        labels = self._table(labels).labels
        requests, total = self.waiting.get(labels, (1, size_bytes))
        self.waiting[labels] = (requests - 1, total - size_bytes)

    def finished(self, labels: RequestLabels, outcome: QueueOutcome, waited_s: float) -> None:
        """Count the outcome of a request, and its wait."""
        self.outcomes[outcome, self._table(labels).labels.priority] += 1
        labels = self._table.owner(labels).labels
        histogram = self.durations.get((labels, outcome))
        if histogram is None:
            histogram = self.durations[labels, outcome] = Histogram(QUEUE_DURATION.bounds)
        histogram.observe(waited_s)

    def admitted(self, labels: RequestLabels, outcome: str, seconds: float) -> None:
        """Observe that admitting or queueing a request took ``seconds``."""
        labels = self._table.owner(labels).labels
        key = (labels.fairness_id, labels.priority, outcome)
        histogram = self.enqueueing.get(key)
        if histogram is None:
            histogram = self.enqueueing[key] = Histogram(ENQUEUE_DURATION.bounds)
        histogram.observe(seconds)

    def histograms(self, pool: str) -> Iterator[Histograms]:
        """Yield every histogram of the queues."""
        durations: list[tuple[tuple[str, ...], Histogram]] = []
        for (labels, outcome), histogram in self.durations.items():
            model, target, flow, priority = labels
            durations.append(((flow, str(priority), outcome.value, pool, model, target), histogram))
        yield Histograms(QUEUE_DURATION, durations)
        yield Histograms(CYCLE, [((), self.cycle)])
        enqueueing = [((flow, str(priority), outcome), h) for (flow, priority, outcome), h in self.enqueueing.items()]
        yield Histograms(ENQUEUE_DURATION, enqueueing)

    def readings(self, pool: str) -> Iterator[Reading]:
        """Yield the counters and gauges that need no controller."""
        yield Reading(
            f"{_NAME}_requests",
            "Requests by how their time in the queues ended.",
            ("outcome", *_BAND),
            [((outcome.value, str(priority), pool), n) for (outcome, priority), n in self.outcomes.items()],
            counter=True,
        )
        sizes = []
        for (model, target, flow, priority), held in self.waiting.items():
            sizes.append(((flow, str(priority), pool, model, target), held))
        yield Reading(f"{_NAME}_queue_size", "Requests that wait.", _FLOW, [(key, n) for key, (n, _) in sizes])
        yield Reading(f"{_NAME}_queue_bytes", "Bodies that wait.", _FLOW, [(key, size) for key, (_, size) in sizes])


def controller_readings(
    pool: str, controller: FlowController, candidates: Callable[[], tuple[Candidate, ...]]
) -> Iterator[Reading]:
    """Yield how full the pool and the queues are."""
    saturation = controller.gauge.read()
    yield Reading(
        f"{_NAME}_pool_saturation",
        "How full the pool is; 1 and above lets requests wait. effective is the fullest stage; an empty pool is 1.",
        ("inference_pool", "stage"),
        [((pool, stage), value) for stage, value in saturation._asdict().items() if value is not None],
    )
    detector = controller.gauge.detector
    if isinstance(detector, UtilizationDetector):
        yield Reading(
            f"{_NAME}_stale_endpoints",
            "Endpoints that count as full because their metrics are not read any more.",
            ("detector",),
            [((detector.name,), sum(not c.fresh for c in serving(candidates())))],
        )
    bands, settings = controller.bands, controller.settings
    shares = {
        "requests": [b.size / max(1, b.settings.max_requests) for b in bands],
        "bytes": [b.size_bytes / max(1, b.settings.max_bytes) for b in bands],
    }
    for unit, column in shares.items():
        samples = [((str(b.priority), pool), share) for b, share in zip(bands, column, strict=True)]
        yield Reading(f"{_NAME}_capacity_utilization_{unit}", f"Share of a band's limit in {unit}.", _BAND, samples)
    for unit, held, limit in (
        ("requests", controller.size, settings.max_requests),
        ("bytes", controller.size_bytes, settings.max_bytes),
    ):
        if limit is not None:
            share = [((pool,), held / max(1, limit))]
            text = f"Share of the limit of all bands in {unit}."
            yield Reading(f"{_NAME}_global_capacity_utilization_{unit}", text, ("inference_pool",), share)


def eviction_readings(pool: str, in_flight: InFlight) -> Iterator[Reading]:
    """Yield the numbers of evicted requests."""
    yield Reading(
        f"{_NAME}_revocations_issued",
        "Requests in flight that were ended, by the priority of those who waited.",
        _BAND,
        [((str(priority), pool), n) for priority, n in in_flight.issued.items()],
        counter=True,
    )
    yield Reading(
        f"{_NAME}_revocations",
        "The same by outcome; an end is our own act, so each is confirmed at once.",
        ("outcome", "inference_pool"),
        [(("confirmed", pool), in_flight.issued.total())],
        counter=True,
    )
