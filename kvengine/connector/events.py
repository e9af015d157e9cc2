"""KV events of the CPU tier, in vLLM's format: chunks that can be loaded, and chunks that no longer can.

A chunk is loaded as a whole. So it is announced as one block of the chunk's size, named by the hash of its last block,
with the chunk before it as its parent. A chunk is useless without those before it, so it is announced only once they
are. When a chunk is evicted, the removal of all chunks after it is announced, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from vllm.v1.core.kv_cache_utils import (
    BlockHash,
    generate_block_hash_extra_keys,
    maybe_convert_block_hash,
    to_event_extra_keys,
)

from kvengine.index import ChunkKey

if TYPE_CHECKING:
    from vllm.v1.request import Request

MEDIUM = "CPU"


@dataclass(slots=True)
class Announcement:
    """What an event reports about a chunk."""

    parent: ChunkKey | None
    """The chunk before it; None for a prompt's first chunk."""
    token_ids: list[int]
    extra_keys: tuple[Any, ...] | None
    lora_id: int | None
    lora_name: str | None


class Events:
    """The chunks that are being stored, stored or announced, and the events that are waiting to be published.

    Invariant: a chunk is announced exactly while it and all chunks before it are stored. Owner: the scheduler.
    """

    def __init__(self, *, chunk_tokens: int, salt_bytes: int) -> None:
        self._chunk_tokens = chunk_tokens
        self._salt_bytes = salt_bytes
        self._pending: dict[ChunkKey, Announcement] = {}
        self._stored: dict[ChunkKey, Announcement] = {}
        self._announced: set[ChunkKey] = set()
        self._children: dict[ChunkKey, set[ChunkKey]] = {}
        self._events: list[KVCacheEvent] = []

    def storing(self, request: Request, chain: Sequence[ChunkKey], keys: Iterable[ChunkKey]) -> None:
        """Note that ``keys`` are being stored. ``chain``: all of the request's chunks in order, including ``keys``."""
        position = {key: number for number, key in enumerate(chain)}
        lora = request.lora_request
        for key in keys:
            number = position[key]
            begin, end = number * self._chunk_tokens, (number + 1) * self._chunk_tokens
            self._pending[key] = Announcement(
                parent=chain[number - 1] if number else None,
                token_ids=list(request.all_token_ids[begin:end]),
                extra_keys=untagged(generate_block_hash_extra_keys(request, begin, end, 0)[0]),
                lora_id=lora.adapter_id if lora else None,
                lora_name=lora.name if lora else None,
            )

    def stored(self, keys: Iterable[ChunkKey], kept: Collection[ChunkKey]) -> None:
        """Announce the chunks in ``kept``, after the store of ``keys`` has ended.

        ``kept``: the keys among ``keys`` that a lookup can find.
        """
        for key in keys:
            announcement = self._pending.pop(key, None)
            if announcement is None or key not in kept:
                continue
            self._stored[key] = announcement
            if announcement.parent is not None:
                self._children.setdefault(announcement.parent, set()).add(key)
            self._announce(key)

    def gone(self, keys: Iterable[ChunkKey]) -> None:
        """Announce that ``keys`` are no longer stored."""
        taken_back: list[ChunkKey] = []
        for key in keys:
            announcement = self._stored.pop(key, None)
            if announcement is None:
                continue
            if announcement.parent is not None:
                siblings = self._children.get(announcement.parent, set())
                siblings.discard(key)
                if not siblings:
                    self._children.pop(announcement.parent, None)
            taken_back += self._take_back(key)
        if taken_back:
            hashes = [self._hash(key) for key in taken_back]
            self._events.append(BlockRemoved(block_hashes=hashes, medium=MEDIUM))

    def take(self) -> list[KVCacheEvent]:
        """Return the events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _announce(self, key: ChunkKey) -> None:
        """Announce ``key`` if its parent is announced, and then the stored chunks that waited for it."""
        waiting = [key]
        while waiting:
            each = waiting.pop()
            announcement = self._stored.get(each)
            if announcement is None or each in self._announced:
                continue
            if announcement.parent is not None and announcement.parent not in self._announced:
                continue
            self._announced.add(each)
            self._events.append(
                BlockStored(
                    block_hashes=[self._hash(each)],
                    parent_block_hash=None if announcement.parent is None else self._hash(announcement.parent),
                    token_ids=announcement.token_ids,
                    block_size=self._chunk_tokens,
                    lora_id=announcement.lora_id,
                    medium=MEDIUM,
                    lora_name=announcement.lora_name,
                    extra_keys=[announcement.extra_keys] if announcement.extra_keys else None,
                    group_idx=0,
                    locality="LOCAL",
                )
            )
            waiting.extend(self._children.get(each, ()))

    def _take_back(self, key: ChunkKey) -> list[ChunkKey]:
        """Withdraw ``key`` and all announced chunks after it; return them, the last ones first.

        In this order, no subscriber ever sees a block without its parent.
        """
        taken_back: list[ChunkKey] = []
        waiting = [key]
        while waiting:
            each = waiting.pop()
            if each in self._announced:
                self._announced.discard(each)
                taken_back.append(each)
                waiting.extend(self._children.get(each, ()))
        return taken_back[::-1]

    def _hash(self, key: ChunkKey) -> Any:
        return maybe_convert_block_hash(BlockHash(key[self._salt_bytes :]))


def untagged(extra_keys: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return the keys as vLLM publishes them: each value without the name of its kind."""
    published: list[tuple[Any, ...] | None] = to_event_extra_keys([extra_keys]) or [None]
    return published[0]
