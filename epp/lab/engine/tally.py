"""The counters behind an engine's metrics. They are plain numbers; the exposition is made on each scrape."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from epp.lab.engine.job import Hits

# Source: vLLM's buckets of the same metrics. Units: seconds.
TTFT_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
REQUEST_BUCKETS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class Histogram:
    """A histogram of observations by bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count ``value`` in its bucket."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, observations up to it) pairs, as Prometheus writes them, ``+Inf`` last."""
        names = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self._counts), strict=True))


class Tally:
    """Totals since the engine started. Units: tokens, blocks, requests, seconds."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.gpu_hit_tokens = 0
        self.cpu_hit_tokens = 0
        self.completed = 0
        self.preemptions = 0
        self.loaded_blocks = 0
        self.stored_blocks = 0
        self.ttft = Histogram(TTFT_BUCKETS_S)
        self.queue = Histogram(REQUEST_BUCKETS_S)
        self.e2e = Histogram(REQUEST_BUCKETS_S)

    def started(self, prompt_tokens: int, hits: Hits, now: float, submitted_at: float, admitted_at: float) -> None:
        """Count a request whose first token came at ``now``."""
        self.prompt_tokens += prompt_tokens
        self.gpu_hit_tokens += hits.gpu
        self.cpu_hit_tokens += hits.cpu
        self.ttft.observe(now - submitted_at)
        self.queue.observe(admitted_at - submitted_at)

    def finished(self, duration_s: float) -> None:
        """Count a request whose last token came."""
        self.completed += 1
        self.e2e.observe(duration_s)
