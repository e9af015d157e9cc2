"""What is counted for one set of request labels, and how many such sets there may be.

Model names and fairness ids come from clients, and whoever invents a new one for every request must fill neither our
memory nor the scraper's: beyond a limit they are all counted as ``other``.
"""

from __future__ import annotations

from collections import Counter

from epp.decision import RequestLabels
from epp.telemetry import tables
from epp.telemetry.histogram import Histogram

OTHER = "other"
MAX_NAMES = 1000
"""Model names, and fairness ids, that are told apart. Source: the Go picker's limit."""
MAX_LABEL_SETS = 1000
"""Of all labels together, since 1000 by 1000 names would be a million sets. A guess: 25 MB of metrics at most."""
MAX_LABEL_CHARACTERS = 256


class RequestSeries:
    """Owner: the event loop. Histograms of what is seldom observed exist once it was."""

    __slots__ = ("duration", "errors", "histograms", "labels", "requests", "response_size", "size")

    def __init__(self, labels: RequestLabels) -> None:
        self.labels = labels
        self.requests = 0
        self.errors: Counter[str] = Counter()
        self.size = Histogram(tables.SIZE.bounds)
        self.duration = Histogram(tables.DURATION.bounds)
        self.response_size = Histogram(tables.RESPONSE_SIZE.bounds)
        self.histograms: dict[tuple[tables.Metric, bool], Histogram] = {}
        """By metric, and whether the response was streamed where the metric says so."""

    def observe(self, metric: tables.Metric, value: float, *, streaming: bool = False) -> None:
        """Count ``value`` in the histogram of ``metric``."""
        histogram = self.histograms.get((metric, streaming))
        if histogram is None:
            histogram = self.histograms[metric, streaming] = Histogram(metric.bounds)
        histogram.observe(value)


class Names:
    """The first ``limit`` different names; all later ones are ``other``."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def bounded(self, name: str) -> str:
        """``name`` as a label that can be written: short, valid Unicode, one of a bounded number."""
        name = name[:MAX_LABEL_CHARACTERS].encode("utf-8", "replace").decode()
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name


class RequestTable:
    """The series by labels. Owner: the event loop."""

    def __init__(self) -> None:
        self._models = Names()
        self._fairness_ids = Names()
        self._series: dict[RequestLabels, RequestSeries] = {}

    def __call__(self, labels: RequestLabels) -> RequestSeries:
        """The series that counts requests with ``labels``."""
        return self._series.get(labels) or self._add(labels)

    def all(self) -> tuple[RequestSeries, ...]:
        """Every series."""
        return tuple(self._series.values())

    def _add(self, labels: RequestLabels) -> RequestSeries:
        bounded = RequestLabels(
            self._models.bounded(labels.model_name),
            self._models.bounded(labels.target_model_name),
            self._fairness_ids.bounded(labels.fairness_id),
            labels.priority,
        )
        if bounded not in self._series and len(self._series) >= MAX_LABEL_SETS:
            bounded = RequestLabels(OTHER, OTHER, OTHER, 0)
        return self._series.setdefault(bounded, RequestSeries(bounded))
