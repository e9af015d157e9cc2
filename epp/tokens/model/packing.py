"""Token ids as bytes."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence


def packed(ids: Sequence[int]) -> bytes:
    """Little-endian uint32. Raises: OverflowError for a number that is none."""
    numbers = array("I", ids)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
