"""One batch of KV events as an engine publishes it: bytes in, typed events out.

Two forms are in use, and the decoder tries one after the other: events as maps with a ``type`` (vLLM 0.11 and later),
and events as arrays that begin with the type. Both may end early; missing fields have their defaults. Hashes are
integers or bytes. Of bytes only the last eight count, which is what engines publish when they publish integers.

Source: vLLM 0.32, ``vllm/distributed/kv_events.py``; the array form is that of earlier versions.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Hash: TypeAlias = int | bytes
ExtraKeys: TypeAlias = list[list[Any] | None]


class Unreadable(Exception):
    """Raised for a batch that cannot be decoded; the message has the reason."""


class BlockStored(msgspec.Struct, tag="BlockStored", tag_field="type", gc=False):
    """Blocks that are in the engine's cache from now on."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None = None
    token_ids: list[int] = []
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: ExtraKeys | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class BlockRemoved(msgspec.Struct, tag="BlockRemoved", tag_field="type", gc=False):
    """Blocks that are no longer in the engine's cache."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared", tag_field="type", gc=False):
    """The engine's own prefix cache, which is in GPU memory, was cleared."""


class _StoredRow(BlockStored, tag="BlockStored", array_like=True, gc=False):
    pass


class _RemovedRow(BlockRemoved, tag="BlockRemoved", array_like=True, gc=False):
    pass


class _ClearedRow(AllBlocksCleared, tag="AllBlocksCleared", array_like=True, gc=False):
    pass


Event: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


class _MapBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class _RowBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_StoredRow | _RemovedRow | _ClearedRow]
    data_parallel_rank: int | None = None


class _RawBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The decoded contents of one message."""

    events: list[Event]
    rank: int
    """The engine's data-parallel rank that published the batch."""
    unknown: int = 0
    """How many events of unknown kinds were skipped."""


_maps = msgspec.msgpack.Decoder(_MapBatch).decode
_rows = msgspec.msgpack.Decoder(_RowBatch).decode
_raws = msgspec.msgpack.Decoder(_RawBatch).decode
_each = (
    msgspec.msgpack.Decoder(BlockStored | BlockRemoved | AllBlocksCleared).decode,
    msgspec.msgpack.Decoder(_StoredRow | _RemovedRow | _ClearedRow).decode,
)
_KNOWN = frozenset(("BlockStored", "BlockRemoved", "AllBlocksCleared"))


def decode(payload: bytes) -> Batch:
    """Return the events in ``payload``. Raises: Unreadable."""
    try:
        batch: _MapBatch | _RowBatch = _maps(payload)
    except (msgspec.DecodeError, RecursionError):
        try:
            batch = _rows(payload)
        except (msgspec.DecodeError, RecursionError):
            return _one_by_one(payload)
    return Batch(batch.events, batch.data_parallel_rank or 0)  # type: ignore[arg-type]


def _one_by_one(payload: bytes) -> Batch:
    """Decode a batch event by event, and skip events of unknown kinds. Raises: Unreadable."""
    events: list[Event] = []
    unknown = 0
    try:
        batch = _raws(payload)
        for raw in batch.events:
            event = _event(raw)
            if event is None:
                unknown += 1
            else:
                events.append(event)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    return Batch(events, batch.data_parallel_rank or 0, unknown)


def _event(raw: msgspec.Raw) -> Event | None:
    """Return the decoded event, or None for an event of an unknown kind.

    Raises: msgspec.DecodeError for a broken event of a known kind.
    """
    for decoder in _each:
        try:
            return decoder(raw)  # type: ignore[no-any-return]
        except msgspec.ValidationError:
            continue
    found = msgspec.msgpack.decode(raw)
    kind = found.get("type") if isinstance(found, dict) else found[0] if isinstance(found, list) and found else None
    if not isinstance(kind, str) or kind in _KNOWN:
        raise msgspec.DecodeError(f"not an event: {str(found)[:80]}")
    return None


def hash_of(value: Hash) -> int:
    """Return a block's hash as an integer, whichever way the engine writes it."""
    return value if type(value) is int else int.from_bytes(value[-8:], "big")  # type: ignore[index]
