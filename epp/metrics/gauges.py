"""Metrics whose numbers have other owners, read on a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from epp.histogram import Histogram
from epp.metrics.tables import Metric


class Reading(NamedTuple):
    """One metric family with its current values."""

    name: str
    """Without the suffix ``_total`` of a counter."""
    help: str
    labels: tuple[str, ...]
    samples: Iterable[tuple[tuple[str, ...], float]]
    """The label values, in the order of ``labels``, and the number."""
    counter: bool = False


class Histograms(NamedTuple):
    """One family of histograms with its current values."""

    metric: Metric
    labelled: Iterable[tuple[tuple[str, ...], Histogram]]
    """The label values, in the order of ``metric.labels``, and the histogram, which is copied at once."""


ReadingSource = Callable[[], Iterable[Reading | Histograms]]
"""A callback on the event loop for each scrape; O(number of samples)."""
