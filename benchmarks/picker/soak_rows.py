"""The rows of a soak, and the verdict on them: what was lost, and what grows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.rig.trend import Trend, trend

WARM_UP = 0.2
"""The share of the rows, from the first on, that no line goes through: caches and the allocator fill up."""
SHARES = {"p50_ms": 0.15, "p99_ms": 0.3, "cpu_us": 0.15, "fds": 0.1}
"""Growth over the run, as a share of the median, that is still judged flat. Guesses: a shared machine is uneven."""
RSS_MB_PER_HOUR = 10.0
"""Growth of resident memory that is still judged flat, whatever the length of the run: half of the smallest leak that a
run has to find (``tests/benchmarks/test_soak.py``). Each half of the rows has to rise by half of it, too: a heap
keeps what one burst has taken, which is a step, and a leak goes on."""


@dataclass
class Slice:
    """One row. Units are in the names; ``cpu_us`` is per request, of the picker's process."""

    minute: float
    requests: int
    refused: int
    lost: int
    p50_ms: float
    p99_ms: float
    cpu_us: int
    rss_mb: float
    fds: int
    index_blocks: int
    in_flight: int
    load_average: float


@dataclass(frozen=True)
class Filled:
    """What clients and endpoints had filled before the first row."""

    seconds: float
    requests: int
    pairs: int
    """Pairs of model and endpoint with a counter: the largest of the bounded tables."""
    rss_mb: float


@dataclass
class Outcome:
    """All rows, and what is left when the last response has come."""

    filled: Filled
    slices: list[Slice]
    left_in_flight: int
    endpoint_changes: int
    first_refusal: str
    trends: dict[str, Trend]
    grows: list[str]

    @property
    def failed(self) -> bool:
        """Whether anything was refused, lost, left in flight, or grows."""
        bad = sum(row.refused + row.lost for row in self.slices)
        return bool(bad or self.left_in_flight or self.grows)


def judged(slices: Sequence[Slice]) -> tuple[dict[str, Trend], list[str]]:
    """Return the trend per minute of each column that is judged, and the names of the columns that grow."""
    warm = slices[int(len(slices) * WARM_UP) :]
    minutes = [row.minute for row in warm]
    span = minutes[-1] - minutes[0]
    columns = {name: [float(getattr(row, name)) for row in warm] for name in ("rss_mb", *SHARES)}
    trends = {name: trend(minutes, values) for name, values in columns.items()}
    limits = {name: share * statistics.median(columns[name]) for name, share in SHARES.items()}
    limits["rss_mb"] = RSS_MB_PER_HOUR / 60 * span
    grows = [name for name, line in trends.items() if line.grows(span, by=limits[name])]
    if "rss_mb" in grows and not rises_in_both_halves(minutes, columns["rss_mb"], RSS_MB_PER_HOUR / 60 / 2):
        grows.remove("rss_mb")
    return trends, grows


def rises_in_both_halves(minutes: Sequence[float], values: Sequence[float], by: float) -> bool:
    """Return whether the line through each half of the rows rises by more than ``by`` a minute."""
    half = len(values) // 2
    halves = trend(minutes[:half], values[:half]), trend(minutes[half:], values[half:])
    return all(line.slope > by for line in halves)
