"""Whether new requests should be sent to this picker, and a sentence for the operator about it.

Ready means that the picker can decide: it knows the endpoints and is not stopping. Endpoints that do not answer leave
it ready, since proxies would otherwise have no picker at all, and one picker cannot distinguish dead engines from a
fault of its own network. The sentence and the metrics show such endpoints.
"""

from __future__ import annotations

from typing import NamedTuple

from epp.discovery.base import Discovery
from epp.pool.pool import Pool
from epp.server.health import Health
from scorers.base import Silence


class Readiness(NamedTuple):
    """The readiness, and a sentence that begins with it."""

    ready: bool
    sentence: str


def readiness(health: Health, discovery: Discovery | None, pool: Pool, *, scraped: bool) -> Readiness:
    """Return the readiness now; ``scraped`` is whether the endpoints' metrics are read."""
    if discovery is not None and not discovery.loaded:
        return Readiness(False, f"not ready: no list of endpoints yet: {discovery.trouble or 'it is being read'}")
    if not health.serving:
        return Readiness(False, "not ready: stopping")
    silent = [candidate for candidate in pool.candidates() if not candidate.fresh] if scraped else []
    if not len(pool):
        return Readiness(True, "ready, but there are no endpoints")
    if len(silent) == len(pool) and all(candidate.silence is Silence.GONE for candidate in silent):
        return Readiness(True, "ready, but no endpoint answers: requests get 503 until one does")
    if discovery is not None and discovery.trouble is not None:
        return Readiness(True, f"ready, but the list of endpoints may be out of date: {discovery.trouble}")
    if silent:
        return Readiness(True, f"ready, but {len(silent)} of {len(pool)} endpoints have no recent metrics")
    return Readiness(True, "ready")
