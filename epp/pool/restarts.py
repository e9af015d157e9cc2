"""Which engine is behind an address, so that what another one held there is not believed of it.

An engine's caches live as long as its process: it is known by when that began. vLLM says so by the usual
``process_start_time_seconds``; where several processes share one page it does not, but kvengine does. The size of its
cache is part of it, since one process may hold another engine after a reconfiguration. What it serves is not: a process
serves what it was started with, and adapters are part of a prefix's name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from epp.metrics.gauges import Reading
from epp.pool.seat import EngineMetrics
from scorers.base import Candidate, Slot

log = logging.getLogger(__name__)


class EngineTable(Protocol):
    """``epp.pool.pool.Pool``."""

    def engine(self, address: str) -> EngineMetrics | None:
        """What the engine at ``address`` said last."""


def identity(engine: EngineMetrics | None) -> str | None:
    """Of ``engine``, to be compared; None when it does not say when it began."""
    if engine is None or engine.started_s is None:
        return None
    return f"{engine.started_s!r} {engine.gpu_blocks} {engine.block_tokens}"


class Restarts:
    """Notices engines that were started again. A listener of the pool, behind whoever is to be told last."""

    def __init__(self, engines: EngineTable, forget: Callable[[Candidate], None]) -> None:
        """``forget`` is called with an endpoint that holds nothing any more."""
        self.seen = 0
        self._engines = engines
        self._forget = forget
        self._began: dict[str, float] = {}  # by address

    def readings(self) -> Iterator[Reading]:
        """For ``Telemetry.gauge_source``."""
        text = "Engines that were started again, and whose endpoints count as empty since."
        yield Reading("tierwise_engine_restarts", text, (), [((), self.seen)], counter=True)

    def endpoint_added(self, candidate: Candidate) -> None:
        """Nothing is known of it."""
        self._began.pop(candidate.address, None)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Forget it."""
        self._began.pop(address, None)

    def engine_reported(self, candidate: Candidate) -> None:
        """Compare its beginning with the one that was known."""
        engine = self._engines.engine(candidate.address)
        began_s = engine.started_s if engine is not None else None
        if began_s is None:
            return
        before_s = self._began.get(candidate.address)
        self._began[candidate.address] = began_s
        if before_s is not None and before_s != began_s:
            self.seen += 1
            log.info("endpoint %s: its engine was started again, and holds nothing", candidate.address)
            self._forget(candidate)
