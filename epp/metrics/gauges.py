"""Numbers that somebody else keeps, read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from epp.histogram import Histogram
from epp.metrics.tables import Metric


class Reading(NamedTuple):
    """One metric family as its owner knows it at this moment."""

    name: str
    """Without the suffix ``_total`` of a counter."""
    help: str
    labels: tuple[str, ...]
    samples: Iterable[tuple[tuple[str, ...], float]]
    """Label values, in the order of ``labels``, and the number."""
    counter: bool = False


class Histograms(NamedTuple):
    """One family of histograms as its owner knows it at this moment."""

    metric: Metric
    labelled: Iterable[tuple[tuple[str, ...], Histogram]]
    """Label values, in the order of ``metric.labels``, and the histogram, which is copied at once."""


ReadingSource = Callable[[], Iterable[Reading | Histograms]]
"""Called on the event loop at every scrape; O(what it reports)."""
