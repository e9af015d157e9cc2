"""What makes equal prompts different prefixes: the kind of prompt, the serving model, the client's salt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from epp.parsers.canonical import encoded

LONG_SALT = 256
"""A salt with more characters than this is replaced by its digest."""


def identity(kind: bytes, model: str, cache_salt: str | None) -> bytes:
    """Return the bytes that distinguish prompts with equal data.

    A long salt is represented by its digest: clients must not decide how much memory the cache of identities takes.
    """
    salt = cache_salt or ""
    if len(salt) <= LONG_SALT:
        return joined(kind, model, salt, b"")
    return joined(kind, model, "", sha256(encoded(salt)).digest())


@lru_cache(maxsize=1024)
def joined(kind: bytes, model: str, salt: str, salt_digest: bytes) -> bytes:
    """Return the parts, each after its length, so that no two lists of parts collide."""
    parts: Sequence[bytes] = (kind, encoded(model), encoded(salt), salt_digest)
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


TOKENS = b"tokens"
"""The kind of prompts that consist of token ids only."""


def kind_of(identity: bytes) -> bytes:
    """Return the kind of prompt that ``identity`` was made with."""
    return identity[4 : 4 + int.from_bytes(identity[:4], "little")]


@lru_cache(maxsize=1024)
def as_tokens(identity: bytes) -> bytes:
    """Return the identity of the same prompt sent as token ids."""
    rest = identity[4 + int.from_bytes(identity[:4], "little") :]
    return len(TOKENS).to_bytes(4, "little") + TOKENS + rest


@lru_cache(maxsize=1024)
def of_model(identity: bytes, model: str) -> bytes:
    """Return the identity of the same prompt sent to ``model``."""
    begin = 4 + int.from_bytes(identity[:4], "little")
    end = begin + 4 + int.from_bytes(identity[begin : begin + 4], "little")
    name = encoded(model)
    return identity[:begin] + len(name).to_bytes(4, "little") + name + identity[end:]
