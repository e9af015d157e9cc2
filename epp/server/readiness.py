"""Whether new requests should be sent to this picker, and a sentence for the operator about it.

Ready means that the picker can decide: it knows the endpoints and is not stopping. Endpoints that do not answer leave
it ready, since proxies would otherwise have no picker at all, and one picker cannot distinguish dead engines from a
fault of its own network. The sentence and the metrics show such endpoints.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

from epp.discovery.base import Discovery
from epp.metrics.telemetry import Telemetry
from epp.pool.pool import Pool
from epp.server.health import Health
from epp.server.reload import ConfigReload
from scorers.base import Silence

STARTED = time.time()
"""When this process had loaded its code, in Unix time: earlier than every request."""


class Readiness(NamedTuple):
    """The readiness, and a sentence that begins with it."""

    ready: bool
    sentence: str


def readiness(
    health: Health,
    discovery: Discovery | None,
    pool: Pool,
    *,
    scraped: bool,
    troubles: Sequence[str] = (),
    role: str = "",
    unfit: str = "",
) -> Readiness:
    """Return the readiness now.

    ``scraped`` is whether the endpoints' metrics are read, ``troubles`` what else cannot be done now: it leaves the
    picker ready, and the sentence has it. ``role`` is what the picker is in an election, as a sentence; empty without.
    ``unfit`` is why the configuration does not fit the pool; empty if it does.
    """
    if discovery is not None and not discovery.loaded:
        return _not_ready(f"there is no list of endpoints: {discovery.trouble or 'it is being read'}", troubles)
    if unfit:
        return _not_ready(unfit, troubles)
    if not health.able:
        return _not_ready("stopping", troubles)
    if not health.serving:
        return _not_ready(role, troubles)
    remark = _remark(discovery, pool, scraped=scraped)
    remarks = [*([remark] if remark else []), *troubles]
    sentence = f"ready, but {'; '.join(remarks)}" if remarks else "ready"
    return Readiness(True, f"{sentence}; {role}" if role else sentence)


def _not_ready(reason: str, troubles: Sequence[str]) -> Readiness:
    return Readiness(False, f"not ready: {'; '.join([reason, *troubles])}")


def _remark(discovery: Discovery | None, pool: Pool, *, scraped: bool) -> str:
    silent = [candidate for candidate in pool.candidates() if not candidate.fresh] if scraped else []
    if not len(pool):
        return "there are no endpoints"
    if len(silent) == len(pool) and all(candidate.silence is Silence.GONE for candidate in silent):
        return "no endpoint answers: requests get 503 until one does"
    if discovery is not None and discovery.trouble is not None:
        return f"the list of endpoints may be out of date: {discovery.trouble}"
    if silent:
        return f"{len(silent)} of {len(pool)} endpoints have no recent metrics"
    return ""


def facts(telemetry: Telemetry, pool: Pool, reload: ConfigReload | None) -> Mapping[str, str]:
    """Return what ``/readyz?verbose`` adds, for an operator without a right to the metrics: no names, no prompts.

    ``reload`` is None where no configuration is followed.
    """
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
