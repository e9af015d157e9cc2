"""Sets of (endpoint, tier) pairs, each set as one integer.

Bit ``slot * tiers + tier`` stands for one tier of one endpoint, so one operation on whole integers follows all tiers of
all endpoints down a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, count

from scorers.base import Slot

FEW = 24
"""Up to this many pairs are processed one by one, 0.1 µs each. More are processed all at once: 2 µs for 4 endpoints, 5
for 100 and 16 for 1,000, however few of them hold anything."""
_AS_BOOLEANS = bytes.maketrans(b"01", b"\0\1")


def held_by_tier(
    groups: Sequence[tuple[int, int]], single: Sequence[tuple[int, int]], tiers: int
) -> tuple[dict[Slot, int], ...]:
    """Return, for each tier, the amount by endpoint, given ``(holders, amount)`` groups without a common holder.

    ``single`` are further groups, of one holder each. Tiers that hold the same may share one table, so the tables must
    not be changed.
    """
    if sum([holders.bit_count() for holders, _ in groups]) <= FEW:
        tables = _one_by_one(groups, tiers)
    else:
        tables = _all_at_once(groups, tiers)
        if single:
            tables = [table.copy() for table in tables]
    for holder, amount in single:
        slot, tier = divmod(holder.bit_length() - 1, tiers)
        tables[tier][Slot(slot)] = amount
    return tuple(tables)


def _all_at_once(groups: Sequence[tuple[int, int]], tiers: int) -> list[dict[Slot, int]]:
    rows = [(_bits(holders), amount) for holders, amount in groups]
    tables: list[dict[Slot, int]] = []
    before: list[bytes] | None = None
    for tier in range(tiers):
        columns = [bits[tier::tiers].rstrip(b"\0") for bits, _ in rows]
        tables.append(tables[-1] if columns == before else _table(columns, rows))
        before = columns
    return tables


def _one_by_one(groups: Sequence[tuple[int, int]], tiers: int) -> list[dict[Slot, int]]:
    tables: list[dict[Slot, int]] = [{} for _ in range(tiers)]
    for holders, amount in groups:
        while holders:
            lowest = holders & -holders
            slot, tier = divmod(lowest.bit_length() - 1, tiers)
            tables[tier][Slot(slot)] = amount
            holders ^= lowest
    return tables


def slots_of(holders: int, tiers: int) -> set[Slot]:
    """Return the endpoints that are holders in any tier."""
    bits = _bits(holders)
    return {slot for tier in range(tiers) for slot in _slots(bits[tier::tiers])}


def _table(columns: list[bytes], rows: list[tuple[bytes, int]]) -> dict[Slot, int]:
    table: dict[Slot, int] = {}
    for column, (_, amount) in zip(columns, rows, strict=True):
        table.update(dict.fromkeys(_slots(column), amount))
    return table


def _bits(holders: int) -> bytes:
    """Return one byte, 0 or 1, for each bit, lowest first."""
    return bin(holders)[:1:-1].encode().translate(_AS_BOOLEANS)


def _slots(column: bytes) -> compress[Slot]:
    return compress(count(), column)  # type: ignore[arg-type]
