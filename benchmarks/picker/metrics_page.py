"""What does a metrics page cost when clients have invented as many names as the picker keeps apart?

Columns: label sets, lines and size of the page, milliseconds for copying the numbers on the event loop (in total, and
the longest slice, between which requests are served), seconds for writing and compressing the page in a thread.

Run: ``python -m benchmarks.picker.metrics_page [--json]``.
"""

from __future__ import annotations

import gzip
import json
import sys
import time

from prometheus_client import CollectorRegistry, generate_latest

from epp.decision import Cause, Outcome, RequestLabels, Usage
from epp.histogram import Histogram
from epp.metrics.exposition import Exposition
from epp.metrics.tables import ITL
from epp.metrics.telemetry import Telemetry
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool

COUNTS = (5, 100, 5000)


def measured(names: int) -> dict[str, float]:
    """Return the figures of one page after requests with ``names`` different models and fairness ids."""
    pool = Pool("bench")
    pool.replace([Endpoint(f"10.0.0.{i}:8000") for i in range(1, 5)])
    telemetry = Telemetry()
    for number in range(names):
        labels = RequestLabels(f"model-{number % 900}", f"model-{number % 900}", f"tenant-{number % 999}", 0)
        telemetry.request_received(labels, 1000)
        outcome = Outcome(Cause.COMPLETED, 200, duration_s=2.0, ttft_s=0.5, response_bytes=300, streaming=True)
        outcome.usage, outcome.gaps = Usage(50, 20, 16), Histogram(ITL.bounds)
        outcome.gaps.observe(0.03)
        telemetry.ended(labels, outcome)
    exposition = Exposition(telemetry, pool, Ledger(pool))
    slices, ended = [], time.perf_counter()
    for frozen in exposition.freezing():  # noqa: B007 - the last one is whole
        slices.append(time.perf_counter() - ended)
        ended = time.perf_counter()
    copied = time.perf_counter()
    registry = CollectorRegistry()
    registry.register(frozen)
    page = generate_latest(registry)
    compressed = gzip.compress(page, compresslevel=1)
    written = time.perf_counter()
    return {
        "label_sets": len(telemetry.requests.all()),
        "lines": page.count(b"\n"),
        "page_mb": len(page) / 1e6,
        "gzip_mb": len(compressed) / 1e6,
        "copy_ms": sum(slices) * 1e3,
        "slice_ms": max(slices) * 1e3,
        "write_s": written - copied,
    }


def main() -> None:
    """Print a table, or JSON."""
    rows = [measured(names) for names in COUNTS]
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    print("".join(f"{name:>12}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value:12.2f}" if value % 1 else f"{value:12.0f}" for value in row.values()))


if __name__ == "__main__":
    main()
