"""The state of both tiers as numbers, for routers."""

from __future__ import annotations

from kvengine.connector.device_watch import DeviceWatch
from kvengine.connector.geometry import Geometry
from kvengine.connector.messages import Readiness
from kvengine.copiers.base import Direction
from kvengine.index import ChunkIndex
from kvengine.plan import Planner
from kvengine.settings import Settings


def tier_gauges(
    shape: Geometry, settings: Settings, watch: DeviceWatch, index: ChunkIndex, capacity_slots: int
) -> dict[str, dict[str, float]]:
    """Return each gauge's value by name and tier; ``statistics.TIER_GAUGES`` documents the names."""
    chunk_tokens = shape.chunk_tokens
    token_bytes = shape.block_bytes * shape.workers / shape.block_tokens
    stores = shape.stores and settings.local_cpu
    tokens = {
        "capacity": (watch.capacity * shape.block_tokens, capacity_slots * chunk_tokens),
        "resident": (watch.resident * shape.block_tokens, index.ready * chunk_tokens),
        "pinned": (watch.pinned * shape.block_tokens, index.pinned * chunk_tokens),
    }
    if not shape.prefix_caching:  # lookups find nothing on the device
        tokens["capacity"], tokens["resident"] = (0, tokens["capacity"][1]), (0, tokens["resident"][1])
    gauges: dict[str, tuple[float, float]] = {}
    for name, (gpu, cpu) in tokens.items():
        gauges[f"{name}_tokens"] = (gpu, cpu)
        gauges[f"{name}_bytes"] = (gpu * token_bytes, cpu * token_bytes)
    gauges["block_tokens"] = (shape.block_tokens, chunk_tokens)
    gauges["store_after"] = (float(shape.prefix_caching), settings.store_after if stores else 0)
    gauges["stores_decoded"] = (float(shape.prefix_caching), float(stores and settings.store_decode))
    gauges["eviction_horizon_timestamp_seconds"] = (watch.horizon_s, index.horizon_s)
    gauges["horizon_resident_tokens"] = (watch.at_horizon * shape.block_tokens, index.at_horizon * chunk_tokens)
    return {name: {"gpu": gpu, "cpu": cpu} for name, (gpu, cpu) in gauges.items()}


def arena_gauges(readiness: Readiness) -> dict[str, float]:
    """Return each gauge's value by name; ``statistics.ARENA_GAUGES`` documents the names."""
    return {
        "first_ready_seconds": readiness.first_ready_s,
        "ready_seconds": readiness.ready_s,
        "pin_seconds": readiness.pin_s,
        "longest_pin_seconds": readiness.longest_pin_s,
    }


def state_of(watch: DeviceWatch, planner: Planner, capacity_slots: int) -> tuple[float, ...]:
    """Return everything variable that the gauges are computed from: comparing it is cheaper than computing them."""
    index = planner.index
    return (
        watch.resident, watch.pinned, watch.horizon_s, watch.evicted,
        capacity_slots, index.ready, index.pinned, index.horizon_s,
        *(planner.jobs.count(direction) for direction in Direction),
    )  # fmt: skip
