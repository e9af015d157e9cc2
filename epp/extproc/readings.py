"""The counts of the access log's entries, as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from epp.extproc.access_log import AccessLog
from epp.metrics.gauges import Reading, Source


def access_log_readings(access_log: AccessLog) -> Source:
    """What became of the entries of the proxy's access log."""

    def read() -> Iterator[Reading]:
        yield Reading(
            "tierwise_access_log_entries",
            "Entries of the proxy's access log, by what they told: ended (closed a pick), without_pick, "
            "closed_path (not open to clients), unmatched (closed before), garbage.",
            ("result",),
            [((name,), count) for name, count in asdict(access_log.statistics()).items() if name != "entries"],
            counter=True,
        )

    return read
