"""The requests in flight by endpoint and flow, counted from the ledger on a scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from epp.decision import RequestLabels
from epp.metrics import tables
from epp.metrics.gauges import Reading
from epp.metrics.series import OTHER, RequestTable
from scorers.base import Candidate

PRODUCER = "inflight-load-producer"
"""The Go picker's name for the plugin that keeps these numbers; here the ledger does."""
MAX_SERIES = 1000
"""Maximum number of series; beyond it, all flows of an endpoint are counted as one. A guess, as ``MAX_LABEL_SETS``."""

Flight: TypeAlias = tuple[str, int, RequestLabels]
"""One request in flight: its endpoint's address, its tokens to compute, its labels."""


def in_flight_readings(
    candidates: Sequence[Candidate], flights: Iterable[Flight], table: RequestTable
) -> Iterator[Reading]:
    """Yield the requests and tokens in flight of each endpoint and flow."""
    names = {c.address: c.name for c in candidates}
    requests: Counter[tuple[str, ...]] = Counter()
    tokens: Counter[tuple[str, ...]] = Counter()
    for address, uncomputed, labels in flights:
        flow = table(labels).labels
        namespace, _, name = names.get(address, "").rpartition("/")
        key = (name or address, namespace, PRODUCER, flow.fairness_id, str(flow.priority))
        if key not in requests and len(requests) >= MAX_SERIES:
            key = (name or address, namespace, PRODUCER, OTHER, "0")
        requests[key] += 1
        tokens[key] += uncomputed
    for metric, counts in ((tables.IN_FLIGHT_REQUESTS, requests), (tables.IN_FLIGHT_TOKENS, tokens)):
        yield Reading(metric.name, metric.help, metric.labels, counts.items())
