"""Counts the results of tokenizing requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from epp.histogram import Histogram
from epp.metrics.gauges import Histograms, Reading
from epp.metrics.tables import Metric
from epp.tokens.model.answer import NoTokenIds

TOKENIZED, SENT, GONE = "tokenized", "sent_as_tokens", "client_gone"

SECONDS = Metric(
    "tierwise_tokenize_seconds",
    "From a request's receipt to its token ids, or to the end of the wait for them.",
    (),
    (5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 30),
)


class TokenCounts:
    """Counts, waits and durations of the tokenizing step. Owner: the event loop."""

    def __init__(self) -> None:
        self.results: Counter[str | NoTokenIds] = Counter()
        self.seconds = Histogram(SECONDS.bounds)
        self.waiting = 0

    def readings(self) -> Iterator[Reading | Histograms]:
        """Yield the metrics for the Prometheus page."""
        yield Reading(
            "tierwise_tokenized_requests",
            "Requests by whether their token ids are known, and if not why.",
            ("result",),
            [((r.value if isinstance(r, NoTokenIds) else r,), count) for r, count in self.results.items()],
            counter=True,
        )
        yield Reading("tierwise_tokenize_waiting", "Requests that wait for token ids.", (), [((), self.waiting)])
        yield Histograms(SECONDS, [((), self.seconds)])
