"""Sets of (endpoint, tier) pairs as one integer each.

Bit ``slot * tiers + tier`` stands for one tier of one endpoint, so one operation on whole integers follows all tiers
of all endpoints down a path.
"""

from __future__ import annotations

from itertools import compress, count

from scorers.base import Slot

_AS_BOOLEANS = bytes.maketrans(b"01", b"\0\1")


def bits_of(holders: int) -> bytes:
    """One byte, 0 or 1, for each bit, lowest first."""
    return bin(holders)[:1:-1].encode().translate(_AS_BOOLEANS)


def slots_in(bits: bytes, tiers: int, tier: int) -> compress[Slot]:
    """The endpoints that hold in ``tier``, of ``bits_of(holders)``."""
    return compress(count(), bits[tier::tiers])  # type: ignore[arg-type]


def slots_of(holders: int, tiers: int) -> set[Slot]:
    """The endpoints that hold in any tier."""
    bits = bits_of(holders)
    return {slot for tier in range(tiers) for slot in slots_in(bits, tiers, tier)}
