"""Turns the counters into Prometheus metrics on a scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override

from epp.decision import Cause, RequestLabels
from epp.histogram import Histogram
from epp.metrics import tables
from epp.metrics.deprecated import older_histograms, older_readings
from epp.metrics.gauges import Histograms, Reading
from epp.metrics.in_flight import Flight, in_flight_readings
from epp.metrics.pool_gauges import pool_readings
from epp.metrics.telemetry import Telemetry
from scorers.base import Candidate

PREFIX_PRODUCER = "approx-prefix-cache-producer"
SELDOM = (
    tables.INPUT_TOKENS, tables.CACHED_TOKENS, tables.OUTPUT_TOKENS, tables.NTPOT, tables.TPOT, tables.ITL,
)  # fmt: skip
SLICE_HISTOGRAMS = 100
"""Number of histograms copied at a time, in less than a millisecond."""
Labelled = Iterable[tuple[tuple[str, ...], Histogram]]


class Candidates(Protocol):
    """The interface of the endpoints, ``epp.pool.pool.Pool``."""

    name: str

    def candidates(self) -> tuple[Candidate, ...]:
        """Return the endpoints as they are now."""


class Requests(Protocol):
    """The interface of the requests in flight, ``epp.pool.ledger.Ledger``."""

    @property
    def released(self) -> Mapping[Cause, int]:
        """The number of requests that have ended, by cause."""

    def labels(self) -> Iterable[RequestLabels]:
        """Return the labels of each request in flight."""

    def flights(self) -> Iterable[Flight]:
        """Return the address of each request in flight, its tokens to compute, and its labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Frozen(Collector):
    """A copy of all numbers at one moment. Any thread may turn it into metrics, which takes far longer than copying."""

    histograms: list[Histograms]
    readings: list[Reading]
    deprecated: bool
    """Whether the older names of the metrics are emitted, too."""

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        for metric, labelled in self.histograms:
            yield histogram_family(metric, labelled)
        for reading in self.readings:
            yield family(reading)
        if self.deprecated:
            for metric, labelled in older_histograms(self.histograms):
                yield histogram_family(metric, labelled)
            for reading in older_readings(self.readings):
                yield family(reading)


class Exposition(Collector):
    """Reads the counters, the pool and the ledger. Owner: the event loop, where its methods are to be called."""

    def __init__(
        self,
        telemetry: Telemetry,
        pool: Candidates,
        ledger: Requests,
        *,
        build_ref: str = "",
        commit: str = "",
        deprecated: bool = False,
    ) -> None:
        self._telemetry = telemetry
        self._pool = pool
        self._ledger = ledger
        self._build = (commit, build_ref)
        self._deprecated = deprecated

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        return self.freeze().collect()

    def freeze(self) -> Frozen:
        """Return a copy of all numbers."""
        *_, frozen = self.freezing()
        return frozen

    def freezing(self) -> Iterator[Frozen]:
        """Make the copy in slices; the yielded copy grows, and is complete when the iterator ends.

        Requests may be served between two slices, so the numbers of one page may be from slightly different times.
        """
        histograms, readings = [Histograms(*family) for family in self._histograms()], list(self._readings())
        for source in self._telemetry.sources:
            for read in source():
                if isinstance(read, Histograms):
                    histograms.append(read)
                else:
                    readings.append(read)
        frozen = Frozen([], [reading._replace(samples=list(reading.samples)) for reading in readings], self._deprecated)
        found = [(metric, list(each)) for metric, each in histograms]  # these may grow between slices
        yield frozen
        copied = 0
        for metric, each in found:
            copies: list[tuple[tuple[str, ...], Histogram]] = []
            frozen.histograms.append(Histograms(metric, copies))
            for labels, histogram in each:
                copies.append((labels, histogram.copy()))
                copied += 1
                if copied % SLICE_HISTOGRAMS == 0:
                    yield frozen
        yield frozen

    def _histograms(self) -> Iterator[tuple[tables.Metric, Labelled]]:
        counters = self._telemetry
        yield from self._of_requests()
        yield tables.SCHEDULER, [((), counters.decision.coarser(tables.SCHEDULER.bounds))]
        yield tables.DECISION, [((), counters.decision)]
        yield tables.REQUEST_PROCESSING, [((), counters.request_phase)]
        yield tables.RESPONSE_PROCESSING, [((), counters.response_phase)]
        yield tables.PLUGIN, counters.plugins.items()
        types = counters.producers
        hits = [((types.get(name, PREFIX_PRODUCER), name), both) for name, both in counters.hits.items()]
        yield tables.HIT_RATIO, [(labels, ratios) for labels, (ratios, _) in hits]
        yield tables.HIT_BYTES, [(labels, sizes) for labels, (_, sizes) in hits]

    def _of_requests(self) -> Iterator[tuple[tables.Metric, Labelled]]:
        every = [(values(series.labels), series) for series in self._telemetry.requests.owners()]
        received = [(labels, series) for labels, series in every if any(series.size.counts)]
        yield tables.SIZE, [(labels, series.size) for labels, series in received]
        yield tables.DURATION, [(labels, series.duration) for labels, series in received]
        yield tables.RESPONSE_SIZE, [(labels, series.response_size) for labels, series in received]
        for metric in SELDOM:
            seen = [(labels, series.histograms.get((metric, False))) for labels, series in every]
            yield metric, [(labels, histogram) for labels, histogram in seen if histogram]
        ttft = [
            ((*labels, word), series.histograms.get((tables.TTFT, streaming)))
            for labels, series in every
            for streaming, word in ((False, "false"), (True, "true"))
        ]
        yield tables.TTFT, [(labels, histogram) for labels, histogram in ttft if histogram]

    def _readings(self) -> Iterator[Reading]:
        counters, every = self._telemetry, self._telemetry.requests.all()
        yield counted(tables.REQUESTS, [(values(s.labels), s.requests) for s in every])
        yield counted(tables.ERRORS, [((*values(s.labels), code), n) for s in every for code, n in s.errors.items()])
        yield gauged(tables.RUNNING, self._running())
        yield counted(tables.ATTEMPTS, self._attempts())
        yield counted(tables.HIT_TOKENS, [((tier.value,), n) for tier, n in counters.hit_tokens.items()])
        yield gauged(tables.SAMPLE_RATIO, [((), counters.sample_ratio)])
        yield gauged(tables.INFO, [(self._build, 1)])
        released = self._ledger.released
        yield counted(tables.ENDED, [((cause.value,), released.get(cause, 0)) for cause in Cause])
        yield counted(tables.FOLDED, [((label,), n) for label, n in counters.requests.folded.items()])
        candidates = self._pool.candidates()
        yield from pool_readings(self._pool.name, candidates)
        yield from in_flight_readings(candidates, self._ledger.flights(), counters.requests)

    def _running(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """Return the requests in flight by labels, counted from the ledger, whose entries cannot leak; 0 for labels
        without any."""
        table = self._telemetry.requests
        running = Counter(table(labels).labels for labels in self._ledger.labels())
        return [(values(series.labels), running[series.labels]) for series in table.all()]

    def _attempts(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for (model, name, address), count in self._telemetry.attempts.items():
            namespace, _, bare = name.rpartition("/")
            yield ("success", model, bare or address, namespace, address.rpartition(":")[2]), count
        for model, count in self._telemetry.failed_attempts.items():
            yield ("failure", model, "", "", ""), count


def values(labels: RequestLabels) -> tuple[str, ...]:
    """Return the label values in the order of ``tables.REQUEST_LABELS``."""
    return (labels.model_name, labels.target_model_name, labels.fairness_id, str(labels.priority))


def counted(metric: tables.Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Reading:
    """Return ``metric`` as a counter."""
    return Reading(metric.name, metric.help, metric.labels, samples, counter=True)


def gauged(metric: tables.Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Reading:
    """Return ``metric`` as a gauge."""
    return Reading(metric.name, metric.help, metric.labels, samples)


def family(reading: Reading) -> Metric:
    """Return the counter or gauge in the library's form."""
    kind = CounterMetricFamily if reading.counter else GaugeMetricFamily
    result = kind(reading.name, reading.help, labels=reading.labels)
    for labels, value in reading.samples:
        result.add_metric(labels, value)
    return result


def histogram_family(metric: tables.Metric, histograms: Labelled) -> Metric:
    """Return the histogram in the library's form, whose buckets are cumulative."""
    result = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(floatToGoString(float(bound)) for bound in metric.bounds), "+Inf"]  # type: ignore[no-untyped-call]
    for labels, histogram in histograms:
        below, buckets = 0, []
        for bound, count in zip(bounds, histogram.counts, strict=True):
            below += count
            buckets.append((bound, below))
        result.add_metric(labels, buckets, histogram.total)
    return result
