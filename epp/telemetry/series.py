"""What is counted for one set of request labels, and how many such sets there may be.

Model names and fairness ids come from clients, and whoever invents a new one for every request must fill neither our
memory nor the scraper's: beyond a limit they are counted as ``other``, and how many requests were is counted, too.
Names are never forgotten, so whoever comes first keeps his; a counter of folded requests that rises says that the
limits are used up.
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
"""Of all labels together, since 1000 by 1000 names would be a million sets. A guess."""
MAX_FOLDED_SETS = 250
"""Beside those, of sets whose fairness id alone is ``other``: who invents ids does not hide which models are used."""
MAX_LABEL_CHARACTERS = 256
_CONTROL = {ord(c): "\ufffd" for c in map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029))}
"""Legal in the text format once escaped, and yet more than one parser takes some of them for the end of a line."""


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
        self.histogram(metric, streaming=streaming).observe(value)

    def histogram(self, metric: tables.Metric, *, streaming: bool = False) -> Histogram:
        """That of ``metric``, from now on among those that exist."""
        histogram = self.histograms.get((metric, streaming))
        if histogram is None:
            histogram = self.histograms[metric, streaming] = Histogram(metric.bounds)
        return histogram


class Names:
    """The first ``limit`` different names; all later ones are ``other``."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def bounded(self, name: str) -> str:
        """``name`` as a label that can be written: short, valid Unicode, one of a bounded number."""
        name = name[:MAX_LABEL_CHARACTERS].encode("utf-8", "replace").decode()
        if not name.isprintable():
            name = name.translate(_CONTROL)
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
        self._partly_folded = 0
        self.folded: dict[str, int] = dict.fromkeys(("model_name", "target_model_name", "fairness_id", "all"), 0)
        """Requests, by the label whose value became ``other``; *all* where the sets of labels had run out."""

    def __call__(self, labels: RequestLabels) -> RequestSeries:
        """The series that counts requests with ``labels``."""
        return self._series.get(labels) or self._add(labels)

    def received(self, labels: RequestLabels) -> RequestSeries:
        """The same, for a request that is new: where its labels are too many, it is counted as folded."""
        series = self._series.get(labels)
        if series is None:
            series = self._add(labels)
            self._note(labels, series.labels)
        return series

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
        known = self._series.get(bounded) or self._room(bounded)
        return known or self._series.setdefault(NOBODY, RequestSeries(NOBODY))

    def _room(self, labels: RequestLabels) -> RequestSeries | None:
        """A new series for ``labels``, or one for all fairness ids of its models; None if there is room for neither."""
        if len(self._series) - self._partly_folded < MAX_LABEL_SETS:
            return self._series.setdefault(labels, RequestSeries(labels))
        labels = labels._replace(fairness_id=OTHER)
        if labels not in self._series:
            if self._partly_folded >= MAX_FOLDED_SETS:
                return None
            self._partly_folded += 1
        return self._series.setdefault(labels, RequestSeries(labels))

    def _note(self, said: RequestLabels, counted: RequestLabels) -> None:
        if counted == NOBODY:
            self.folded["all"] += 1
            return
        for name in ("model_name", "target_model_name", "fairness_id"):
            if getattr(counted, name) == OTHER != getattr(said, name):
                self.folded[name] += 1


NOBODY = RequestLabels(OTHER, OTHER, OTHER, 0)
"""Where everybody is counted for whom there is no room."""
