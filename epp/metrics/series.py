"""The counters and histograms of one set of request labels, and how many such sets there may be.

Clients choose model names and fairness ids, and a client that invents a new one for every request must not make the
metrics page, our memory or the Prometheus server's grow without limit. Beyond a limit, requests are therefore counted
under the label value ``other``, and a counter says how many were. A counter costs one line of the page and a set of
histograms some 250, so far fewer label sets have histograms of their own than have counters. The names that came first
keep their series until a restart.
"""

from __future__ import annotations

from collections import Counter

from epp.client import shortened
from epp.decision import RequestLabels
from epp.histogram import Histogram
from epp.metrics import tables

OTHER = "other"
MAX_NAMES = 1000
"""Maximum number of distinct model names, and of fairness ids. Source: the Go picker's limit."""
MAX_LABEL_SETS = 1000
"""Maximum number of label sets with counters of their own: 1,000 by 1,000 names would be a million sets. A guess."""
MAX_FOLDED_SETS = 250
"""Maximum number of further sets with the fairness id ``other``, so that invented ids do not hide the used models."""
MAX_HISTOGRAM_SETS = 64
"""Maximum number of label sets with histograms of their own. With ``MAX_FOLDED_HISTOGRAM_SETS`` more, the largest page
that clients can make stays below 8 MB. Source: ``benchmarks/picker/metrics_page.py``."""
MAX_FOLDED_HISTOGRAM_SETS = 16
"""Maximum number of further sets of histograms, one for all fairness ids of a model."""
MAX_NAME_BYTES = 96
_CONTROL = {ord(c): "\ufffd" for c in map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029))}
"""Control characters. They are legal in the text format once escaped, but some parsers take some of them for the end of
a line."""


class RequestSeries:
    """Counters of one label set, with histograms of its own or those of the ``owner`` that it shares them with.

    Histograms of rare observations exist from the first observation on. Owner: the event loop.
    """

    __slots__ = ("duration", "errors", "histograms", "labels", "owner", "requests", "response_size", "size")

    def __init__(self, labels: RequestLabels, owner: RequestSeries | None = None) -> None:
        self.labels = labels
        self.owner = owner or self
        """The series under whose labels the histograms are exposed."""
        self.requests = 0
        self.errors: Counter[str] = Counter()
        self.size: Histogram = owner.size if owner else Histogram(tables.SIZE.bounds)
        self.duration: Histogram = owner.duration if owner else Histogram(tables.DURATION.bounds)
        self.response_size: Histogram = owner.response_size if owner else Histogram(tables.RESPONSE_SIZE.bounds)
        self.histograms: dict[tuple[tables.Metric, bool], Histogram] = owner.histograms if owner else {}
        """The histograms by metric, and by whether the response was streamed if that is a label of the metric."""

    def observe(self, metric: tables.Metric, value: float, *, streaming: bool = False) -> None:
        """Count ``value`` in the histogram of ``metric``."""
        self.histogram(metric, streaming=streaming).observe(value)

    def histogram(self, metric: tables.Metric, *, streaming: bool = False) -> Histogram:
        """Return the histogram of ``metric``, which is made at the first call."""
        histogram = self.histograms.get((metric, streaming))
        if histogram is None:
            histogram = self.histograms[metric, streaming] = Histogram(metric.bounds)
        return histogram


class Names:
    """Maps the first ``limit`` distinct names to themselves, and all later ones to ``other``."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def bounded(self, name: str) -> str:
        """Return ``name`` as a label that can be written: short, valid Unicode, one of a bounded number."""
        name = shortened(name, MAX_NAME_BYTES)
        if not name.isprintable():
            name = name.translate(_CONTROL)
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name


class RequestTable:
    """All series by their labels. Owner: the event loop."""

    def __init__(self) -> None:
        self._models = Names()
        self._fairness_ids = Names()
        self._series: dict[RequestLabels, RequestSeries] = {}
        self._partly_folded = 0
        self._owners: dict[RequestLabels, RequestSeries] = {}
        self.folded: dict[str, int] = dict.fromkeys(
            ("model_name", "target_model_name", "fairness_id", "all", "histograms"), 0
        )
        """The number of requests by the label whose value became ``other``; *all* if no label set was left,
        *histograms* if the counters are of the request's own labels and the histograms are not."""

    def __call__(self, labels: RequestLabels) -> RequestSeries:
        """Return the series that counts requests with ``labels``."""
        return self._series.get(labels) or self._add(labels)

    def received(self, labels: RequestLabels) -> RequestSeries:
        """Return the series for a new request, which is counted as folded if its labels were replaced."""
        series = self._series.get(labels)
        if series is None:
            series = self._add(labels)
            self._count_folded(labels, series.labels)
        if series.owner is not series:
            self.folded["histograms"] += 1
        return series

    def all(self) -> tuple[RequestSeries, ...]:
        """Return every series that has counters."""
        return tuple(self._series.values())

    def owners(self) -> tuple[RequestSeries, ...]:
        """Return every series that has histograms of its own; their labels differ."""
        return tuple(self._owners.values())

    def owner(self, labels: RequestLabels) -> RequestSeries:
        """Return the series whose histograms count requests with ``labels``."""
        return self(labels).owner

    def _add(self, labels: RequestLabels) -> RequestSeries:
        bounded = RequestLabels(
            self._models.bounded(labels.model_name),
            self._models.bounded(labels.target_model_name),
            self._fairness_ids.bounded(labels.fairness_id),
            labels.priority,
        )
        return self._series.get(bounded) or self._room(bounded) or self._added(ALL_OTHER)

    def _room(self, labels: RequestLabels) -> RequestSeries | None:
        """Return a series for ``labels``, or for all fairness ids of its models; None if there is room for neither."""
        if len(self._series) - self._partly_folded < MAX_LABEL_SETS:
            return self._added(labels)
        labels = labels._replace(fairness_id=OTHER)
        if labels not in self._series:
            if self._partly_folded >= MAX_FOLDED_SETS:
                return None
            self._partly_folded += 1
        return self._added(labels)

    def _added(self, labels: RequestLabels) -> RequestSeries:
        series = self._series.get(labels)
        if series is None:
            owner = self._owner_for(labels)
            series = owner if owner.labels == labels else RequestSeries(labels, owner)
            self._series[labels] = series
        return series

    def _owner_for(self, labels: RequestLabels) -> RequestSeries:
        """Return the series with the histograms for ``labels``: its own, or its model's, or the common ones."""
        owners = self._owners
        wanted = labels
        if len(owners) >= MAX_HISTOGRAM_SETS and wanted not in owners:
            wanted = labels._replace(fairness_id=OTHER)
            if len(owners) >= MAX_HISTOGRAM_SETS + MAX_FOLDED_HISTOGRAM_SETS and wanted not in owners:
                wanted = ALL_OTHER
        if wanted not in owners:
            owners[wanted] = RequestSeries(wanted)
        return owners[wanted]

    def _count_folded(self, requested: RequestLabels, counted: RequestLabels) -> None:
        if counted == ALL_OTHER:
            self.folded["all"] += 1
            return
        for name in ("model_name", "target_model_name", "fairness_id"):
            if getattr(counted, name) == OTHER != getattr(requested, name):
                self.folded[name] += 1


ALL_OTHER = RequestLabels(OTHER, OTHER, OTHER, 0)
"""The labels of requests for which no further label set is left."""
