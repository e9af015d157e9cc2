"""An engine's numbers at one moment, and what a scraper reads from them."""

from __future__ import annotations

from epp.lab.engine.engine import Engine
from epp.pool.seat import EngineMetrics
from scorers.base import Tier, TierReport


class EnginePage:
    """An engine's metrics page as of its creation. Most pages are never read, so it is a few plain numbers."""

    __slots__ = (
        "_cpu_at_horizon", "_cpu_horizon_s", "_cpu_stored", "_engine", "_gpu_at_horizon", "_gpu_cached",
        "_gpu_horizon_s", "_gpu_used", "_metrics", "_running", "_tells_tiers", "_waiting",
    )  # fmt: skip

    def __init__(self, engine: Engine, *, tells_tiers: bool) -> None:
        self._engine, self._tells_tiers = engine, tells_tiers
        self._metrics: EngineMetrics | None = None
        self._waiting, self._running = engine.waiting, engine.running
        gpu, cpu = engine.gpu, engine.cpu
        self._gpu_used = gpu.used
        if tells_tiers:
            self._gpu_cached, self._gpu_horizon_s, self._gpu_at_horizon = gpu.cached, gpu.horizon_s, gpu.at_horizon
            self._cpu_stored, self._cpu_horizon_s, self._cpu_at_horizon = cpu.stored, cpu.horizon_s, cpu.at_horizon

    @property
    def metrics(self) -> EngineMetrics:
        """The numbers as the scraper reads them; always the same object."""
        if self._metrics is None:
            preset = self._engine.preset
            self._metrics = EngineMetrics(
                waiting=self._waiting,
                running=self._running,
                kv_usage=self._gpu_used / self._engine.gpu.capacity,
                block_tokens=preset.block_tokens,
                gpu_blocks=preset.gpu_blocks,
                tiers=self._tiers() if self._tells_tiers else {},
            )
        return self._metrics

    def _tiers(self) -> dict[Tier, TierReport]:
        """Return kvengine's report of both tiers. Picker and engines share one clock here."""
        block, gpu_blocks, cpu_blocks = (
            self._engine.preset.block_tokens, self._engine.gpu.capacity, self._engine.cpu.capacity,
        )  # fmt: skip
        return {
            Tier.GPU: TierReport(
                gpu_blocks * block,
                self._gpu_cached * block,
                self._gpu_horizon_s,
                1,
                True,
                block,
                horizon_tokens=self._gpu_at_horizon * block,
            ),
            Tier.CPU: TierReport(
                cpu_blocks * block,
                self._cpu_stored * block,
                self._cpu_horizon_s,
                int(cpu_blocks > 0),
                False,
                block,
                horizon_tokens=self._cpu_at_horizon * block,
            ),
        }
