"""The identity of the engine behind an address, and the detection of its restarts.

An engine's caches live as long as its process, so the process's start time identifies it. vLLM exports it as the usual
``process_start_time_seconds``; if several processes share one page, only kvengine exports it. The size of the cache is
part of the identity, since one process may run another engine after a reconfiguration. The models are not: a process
serves the models that it was started with, and adapters are part of a prefix's hash.
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
    """The interface of ``epp.pool.pool.Pool`` that is used here."""

    def engine(self, address: str) -> EngineMetrics | None:
        """Return the last numbers of the engine at ``address``."""


def identity(engine: EngineMetrics | None) -> str | None:
    """Return a comparable identity of ``engine``, or None if its start time is unknown."""
    if engine is None or engine.started_s is None:
        return None
    return f"{engine.started_s!r} {engine.gpu_blocks} {engine.block_tokens}"


class Restarts:
    """Detects restarted engines. It is a listener of the pool, behind those that must see a report first."""

    def __init__(self, engines: EngineTable, forget: Callable[[Candidate], None]) -> None:
        """``forget`` is called with an endpoint whose cache is empty, because its engine was restarted."""
        self.seen = 0
        self._engines = engines
        self._forget = forget
        self._began: dict[str, float] = {}  # by address

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics for ``Telemetry.gauge_source``."""
        text = "Engines that were started again, and whose endpoints count as empty since."
        yield Reading("tierwise_engine_restarts", text, (), [((), self.seen)], counter=True)

    def endpoint_added(self, candidate: Candidate) -> None:
        """Start without a known start time for a new endpoint."""
        self._began.pop(candidate.address, None)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Drop the start time of a removed endpoint."""
        self._began.pop(address, None)

    def engine_reported(self, candidate: Candidate) -> None:
        """Compare the engine's start time with the last known one."""
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
