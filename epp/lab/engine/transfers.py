"""Blocks in transfer between the CPU tier and the GPU."""

from __future__ import annotations

from collections import deque

from epp.lab.engine.cpu import CpuBlocks, Lane
from epp.lab.engine.job import Load, Sequence, Store
from epp.lab.engine.preset import Preset
from epp.lab.engine.tally import Tally
from epp.lab.engine.tokens import BlockKey


class Transfers:
    """Loads and stores, each on a lane of its own, one after the other.

    Blocks are pinned while they are loaded, and a block is loaded only once at a time. Owner: one engine.
    """

    def __init__(self, preset: Preset, cpu: CpuBlocks, tally: Tally) -> None:
        self._cpu = cpu
        self._tally = tally
        self._block_bytes = preset.block_bytes
        self._load_lane = Lane(preset.load_bytes_per_s, preset.transfer_latency_s)
        self._store_lane = Lane(preset.store_bytes_per_s, preset.transfer_latency_s)
        self.loads: deque[Load] = deque()
        """Loads under way, in the order of completion, since one lane carries them."""
        self._loading: dict[BlockKey, Load] = {}
        self._stores: deque[Store] = deque()

    def next_at(self) -> float | None:
        """Return when the next transfer is done; None if none is under way."""
        load = self.loads[0].done_at if self.loads else None
        store = self._stores[0].done_at if self._stores else None
        if load is None or store is None:
            return store if load is None else load
        return min(load, store)

    def is_due(self, at: float) -> bool:
        """Return whether a transfer is done by ``at``."""
        loads, stores = self.loads, self._stores
        return bool((loads and loads[0].done_at <= at) or (stores and stores[0].done_at <= at))

    def loading(self, key: BlockKey) -> Load | None:
        """Return the load that brings ``key``; None if there is none."""
        return self._loading.get(key)

    def load(self, sequence: Sequence, keys: list[BlockKey], now: float) -> None:
        """Start to load ``keys``, all in the CPU tier, for ``sequence``."""
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
        """Complete all transfers that are done by ``at`` and return the loads among them."""
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
