"""Blocks on their way between the CPU tier and the GPU."""

from __future__ import annotations

from collections import deque

from epp.lab.engine.cpu import CpuBlocks, Lane
from epp.lab.engine.job import Load, Sequence, Store
from epp.lab.engine.preset import Preset
from epp.lab.engine.tally import Tally
from epp.lab.engine.tokens import BlockKey


class Transfers:
    """Loads and stores, each on a lane of its own, one after the other.

    Blocks that are loaded are pinned meanwhile, and a block is loaded once at a time. Owner: one engine.
    """

    def __init__(self, preset: Preset, cpu: CpuBlocks, tally: Tally) -> None:
        self._cpu = cpu
        self._tally = tally
        self._block_bytes = preset.block_bytes
        self._load_lane = Lane(preset.load_bytes_per_s, preset.transfer_latency_s)
        self._store_lane = Lane(preset.store_bytes_per_s, preset.transfer_latency_s)
        self.loads: deque[Load] = deque()
        """Under way, in order of completion, as one lane carries them."""
        self._loading: dict[BlockKey, Load] = {}
        self._stores: deque[Store] = deque()

    def next_at(self) -> float | None:
        """When the next one is done."""
        load = self.loads[0].done_at if self.loads else None
        store = self._stores[0].done_at if self._stores else None
        if load is None or store is None:
            return store if load is None else load
        return min(load, store)

    def is_due(self, at: float) -> bool:
        """Whether one is done by ``at``."""
        loads, stores = self.loads, self._stores
        return bool((loads and loads[0].done_at <= at) or (stores and stores[0].done_at <= at))

    def loading(self, key: BlockKey) -> Load | None:
        """The load that brings ``key``."""
        return self._loading.get(key)

    def load(self, sequence: Sequence, keys: list[BlockKey], now: float) -> None:
        """Bring ``keys``, all in the CPU tier, to ``sequence``."""
        self._cpu.pin(keys)
        load = Load(sequence, keys, self._load_lane.reserve(len(keys) * self._block_bytes, now))
        self.loads.append(load)
        self._loading.update((key, load) for key in keys)
        self._tally.loaded_blocks += len(keys)

    def store(self, keys: tuple[BlockKey, ...], now: float) -> None:
        """Copy those of ``keys`` that are not in the CPU tier, as far as there is room."""
        new = self._cpu.prepare_store(keys, now)
        if new:
            done_at = self._store_lane.reserve(len(new) * self._block_bytes, now)
            self._stores.append(Store(new, keys, done_at))
            self._tally.stored_blocks += len(new)

    def complete(self, at: float) -> list[Load]:
        """Account for what is done by ``at``; returns the loads among it."""
        while self._stores and self._stores[0].done_at <= at:
            store = self._stores.popleft()
            self._cpu.complete_store(store.keys, store.done_at)
            self._cpu.touch(store.used, store.done_at)
        done = []
        while self.loads and self.loads[0].done_at <= at:
            load = self.loads.popleft()
            for key in load.keys:
                self._loading.pop(key, None)
            self._cpu.unpin(load.keys, load.done_at)
            done.append(load)
        return done
