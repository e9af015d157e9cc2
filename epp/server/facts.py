"""What ``/readyz?verbose`` adds for an operator without a right to the metrics: no names, and no prompts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version

from epp.metrics.telemetry import Telemetry
from epp.pool.pool import Pool
from epp.server.reload import ConfigReload

STARTED = time.time()
"""When this process began, in Unix time."""


def facts(telemetry: Telemetry, pool: Pool, reload: ConfigReload | None) -> Mapping[str, str]:
    """Return a line's name and value for each fact; ``reload`` is None where no configuration is followed."""
    found = {
        "version": version("tierwise"),
        "started": f"{STARTED:.3f}",
        "clock": f"{time.time():.3f}",
        "endpoints": str(len(pool)),
        "requests": str(sum(series.requests for series in telemetry.requests.all())),
    }
    if reload is not None:
        found["configuration-digest"] = reload.digest
        found["configuration-current"] = str(reload.current).lower()
    return found
