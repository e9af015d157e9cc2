"""Token ids packed into bytes."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence


def packed(ids: Sequence[int]) -> bytes:
    """Return the ids as little-endian uint32. Raises: OverflowError for a number out of range."""
    numbers = array("I", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
