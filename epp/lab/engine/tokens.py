"""Prompts as pseudo-tokens, and the names of their cached blocks.

A token is four bytes of UTF-8, so extending a text never changes the tokens of its beginning, and its token count comes
out near that of a real tokenizer for English. A block is named by a BLAKE2b of its parent's name and its own bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import TypeAlias

TOKEN_BYTES = 4

BlockKey: TypeAlias = Hashable
"""Names a block and everything before it. The server uses digests; a benchmark may use any cheap key."""

FILLER = (
    "The model behind this endpoint is simulated, so these words mean nothing; they only take as long to come as real "
    "ones would. Each of them costs a step of the engine, and the first of them waits for the prompt. "
).encode("ascii")


def render_chat(messages: Sequence[tuple[str, str]]) -> str:
    """Return the prompt of a chat: every (role, content), then the turn that the model is to fill."""
    return "".join(f"<|{role}|>\n{content}\n" for role, content in messages) + "<|assistant|>\n"


def count(data: bytes) -> int:
    """Return the number of tokens in ``data``; at least 1, since an engine starts every prompt with one."""
    return max(1, -(-len(data) // TOKEN_BYTES))


def from_ids(ids: Sequence[int]) -> bytes:
    """Return token ids as bytes, four to a token."""
    return array("I", ids).tobytes()


def ids(data: bytes) -> list[int]:
    """Return the ``count(data)`` token ids of ``data``; the last one is padded with zero bytes."""
    return list(array("I", data.ljust(count(data) * TOKEN_BYTES, b"\0")))


def text(numbers: Sequence[int]) -> str:
    """Return the text of token ids, without the padding of the last; invalid UTF-8 becomes replacement characters."""
    return from_ids(numbers).rstrip(b"\0").decode(errors="replace")


def block_keys(identity: bytes, data: bytes, block_tokens: int) -> tuple[bytes, ...]:
    """Return the names of the full blocks of ``data``; equal only for equal ``identity`` and bytes up to their ends."""
    size = block_tokens * TOKEN_BYTES
    parent = blake2b(identity, digest_size=16).digest()
    keys: list[bytes] = []
    for end in range(size, len(data) + 1, size):
        parent = blake2b(parent + data[end - size : end], digest_size=16).digest()
        keys.append(parent)
    return tuple(keys)


def filler(first: int, last: int) -> str:
    """Return the text of generated tokens ``first`` to ``last - 1``; the same at every endpoint."""
    begin, end = first * TOKEN_BYTES, last * TOKEN_BYTES
    period = len(FILLER)
    copies = -(-end // period) or 1
    return (FILLER * copies)[begin:end].decode("ascii")
