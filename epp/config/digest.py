"""How a text of a configuration is named, so that the one in use can be compared with the one that is meant."""

from __future__ import annotations

import hashlib


def digest(text: bytes) -> str:
    """Return the first 16 digits of the SHA-256 of a file's bytes."""
    return hashlib.sha256(text).hexdigest()[:16]
