"""The tokens of announced blocks, in the form of ``scorers.base.Prompt.data``."""

from __future__ import annotations

import sys
from array import array
from hashlib import shake_256
from typing import Any

import msgspec

from epp.kvevents.follower.decoding import BlockStored
from epp.kvevents.follower.run import BYTES_PER_TOKEN

MOST_TOKENS = 1 << 22
"""Maximum number of tokens of one event; more than any model's context."""
MOST_BLOCK_TOKENS = 1 << 16
MOST_NAME_BYTES = 4096
"""The longest name of an adapter. Each prompt that uses the adapter keeps a copy."""


class Malformed(Exception):
    """Raised for an event that contradicts itself; the message says how."""


def salt_and_data(event: BlockStored, lora: str) -> tuple[str, bytes]:
    """Return the salt of the prompt's first blocks, and the token bytes of all blocks.

    If a block depends on more than its tokens (images, embeddings), its bytes are a digest of all of it.

    Raises: Malformed.
    """
    count, size = len(event.block_hashes), event.block_size
    if not 0 < size <= MOST_BLOCK_TOKENS or not 0 < len(event.token_ids) == count * size <= MOST_TOKENS:
        raise Malformed(f"{len(event.token_ids)} tokens for {count} blocks of {size}")
    if len(lora) > MOST_NAME_BYTES:
        raise Malformed(f"an adapter whose name has {len(lora)} characters")
    try:
        packed = array("I", event.token_ids)
    except (OverflowError, TypeError) as error:
        raise Malformed(str(error)) from error
    if sys.byteorder == "big":
        packed.byteswap()
    data, salt = bytearray(packed.tobytes()), ""
    for n, keys in enumerate(event.extra_keys or ()):
        more = [key for key in keys or () if key != lora]
        if not n and event.parent_block_hash is None:
            salt = "".join([key for key in more if isinstance(key, str)])
            more = [key for key in more if not isinstance(key, str)]
        if more and n < count:
            begin, end = n * size * BYTES_PER_TOKEN, (n + 1) * size * BYTES_PER_TOKEN
            data[begin:end] = _standing_for(more, bytes(data[begin:end]))
    return salt, bytes(data)


def _standing_for(more: list[Any], tokens: bytes) -> bytes:
    return shake_256(msgspec.msgpack.encode(more) + tokens).digest(len(tokens))
