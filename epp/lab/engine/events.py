"""KV events of a simulated engine, in vLLM's format: what its GPU cache and its CPU tier store and remove.

The engine has only the names of blocks; the server registers the tokens of each prompt as it arrives (``learn``). As in
vLLM, all events of one moment form one batch, and consecutive blocks share one event; each removal is an event of its
own.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from typing_extensions import override

from epp.lab.engine.cpu import CpuBlocks
from epp.lab.engine.engine import Engine
from epp.lab.engine.gpu import GpuBlocks
from epp.lab.engine.preset import Preset
from epp.lab.engine.publisher import EventPublisher
from epp.lab.engine.tokens import TOKEN_BYTES, BlockKey

GPU, CPU = "GPU", "CPU"
Recorder = Callable[[str, BlockKey, bool], None]
"""A callback with the medium, the block, and whether the block is present there from now on."""


class RecordingGpuBlocks(GpuBlocks):
    """GPU blocks that report each named block that comes or goes."""

    def __init__(self, capacity: int, record: Recorder) -> None:
        super().__init__(capacity)
        self._record = record

    @override
    def take(self, hits: Sequence[BlockKey], private: int) -> None:
        oldest = self.oldest(max(0, private - self._free + len(hits)))  # these may be evicted; `hits` are pinned first
        super().take(hits, private)
        for key in oldest:
            if key not in self._idle and key not in self._pinned:
                self._record(GPU, key, False)

    @override
    def name(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey]:
        known = {key for key in keys if key in self._idle}
        named = super().name(keys)
        for key in named:
            if key not in known:
                self._record(GPU, key, True)
        return named

    @override
    def reset(self) -> None:
        gone = list(self._idle)
        super().reset()
        for key in gone:
            self._record(GPU, key, False)


class RecordingCpuBlocks(CpuBlocks):
    """CPU blocks that report each stored block that comes or goes."""

    def __init__(self, capacity: int, record: Recorder) -> None:
        super().__init__(capacity)
        self._record = record

    @override
    def prepare_store(self, keys: Sequence[BlockKey], now: float = 0.0) -> list[BlockKey]:
        oldest = list(islice(self._idle, 2 * len(keys)))  # these may be evicted; `keys` become the newest first
        new = super().prepare_store(keys, now)
        for key in oldest:
            if key not in self._idle:
                self._record(CPU, key, False)
        return new

    @override
    def complete_store(self, keys: Sequence[BlockKey], now: float = 0.0) -> None:
        super().complete_store(keys, now)
        for key in keys:
            self._record(CPU, key, True)


class Block(NamedTuple):
    """What an event contains about one block."""

    parent: BlockKey | None
    tokens: bytes
    salt: str
    adapter: str


class EngineEvents:
    """Publishes what one engine stores and removes. Owner: the running event loop."""

    def __init__(self, preset: Preset, publisher: EventPublisher) -> None:
        self.engine = Engine(
            preset,
            RecordingGpuBlocks(preset.gpu_blocks, self._record),
            RecordingCpuBlocks(preset.cpu_blocks, self._record),
        )
        """The engine whose events these are."""
        self._block_tokens = preset.block_tokens
        self._publisher = publisher
        self._loop = asyncio.get_running_loop()
        self._blocks: dict[BlockKey, Block] = {}
        self._users: dict[BlockKey, int] = {}  # users of a block: media that have it, and jobs that may bring it
        self._changes: list[tuple[str, BlockKey, bool]] = []

    def learn(self, keys: Sequence[BlockKey], data: bytes, salt: str, adapter: str = "") -> None:
        """Register the tokens of a prompt whose full blocks are named ``keys``."""
        size, parent = self._block_tokens * TOKEN_BYTES, None
        for n, key in enumerate(keys):
            self._users[key] = self._users.get(key, 0) + 1
            self._blocks[key] = Block(parent, data[n * size : (n + 1) * size], salt if not n else "", adapter)
            parent = key

    def forget(self, keys: Sequence[BlockKey]) -> None:
        """Release the blocks of a prompt whose request is over."""
        for key in keys:
            self._unused(key)

    def _record(self, medium: str, key: BlockKey, here: bool) -> None:
        if not self._changes:
            self._loop.call_soon(self._publish)
        self._changes.append((medium, key, here))
        if here:
            self._users[key] = self._users.get(key, 0) + 1

    def _publish(self) -> None:
        changes, self._changes = self._changes, []
        events: list[dict[str, object]] = []
        last: tuple[str, BlockKey | None] = ("", None)
        for medium, key, here in changes:
            name = name_of(key)
            block = self._blocks.get(key)
            if not here:
                events.append({"type": "BlockRemoved", "block_hashes": [name], "medium": medium, "group_idx": 0})
                last = ("", None)
            elif block is not None and events and last == (medium, block.parent) and block.parent is not None:
                events[-1]["block_hashes"].append(name)  # type: ignore[attr-defined]
                events[-1]["token_ids"].extend(array("I", block.tokens))  # type: ignore[attr-defined]
                last = (medium, key)
            elif block is not None:
                events.append(self._stored(medium, name, block))
                last = (medium, key)
        for _, key, here in changes:
            if not here:
                self._unused(key)
        if events:
            self._publisher.publish(events, rank=0)

    def _stored(self, medium: str, name: int, block: Block) -> dict[str, object]:
        event: dict[str, object] = {
            "type": "BlockStored",
            "block_hashes": [name],
            "parent_block_hash": None if block.parent is None else name_of(block.parent),
            "token_ids": list(array("I", block.tokens)),
            "block_size": self._block_tokens,
            "lora_id": None,
            "medium": medium,
            "lora_name": block.adapter or None,
            "group_idx": 0,
        }
        if extra_keys := [key for key in (block.adapter, block.salt) if key]:
            event["extra_keys"] = [extra_keys]
        return event

    def _unused(self, key: BlockKey) -> None:
        left = self._users.get(key, 0) - 1
        if left > 0:
            self._users[key] = left
        else:
            self._users.pop(key, None)
            self._blocks.pop(key, None)


def name_of(key: BlockKey) -> int:
    """Return a block's name as vLLM publishes it: the last eight bytes of its hash."""
    return int.from_bytes(key[-8:], "big") if isinstance(key, bytes) else hash(key) & (1 << 64) - 1
