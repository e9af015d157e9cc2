"""The terms of every endpoint's tiers, laid out for the ways in which they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from scorers.base import Mode, Slot
from scorers.prefix.terms import Terms


class TermsTable:
    """The terms of all endpoints. Requests share the tables of modes, so these are replaced, never changed."""

    def __init__(self, tiers: int, block_tokens: int) -> None:
        self.modes: list[Mapping[Slot, Mode]] = [{} for _ in range(tiers)]
        """By tier, the modes of the endpoints that are not approximate."""
        self.chunks: list[dict[Slot, int]] = [{} for _ in range(tiers)]
        """By tier, the tokens that a cache hit is a multiple of, if they are more than a block of the index."""
        self.with_horizon: set[Slot] = set()
        """The endpoints with a tier in horizon mode."""
        self._block_tokens = block_tokens
        self._terms: dict[Slot, tuple[Terms, ...]] = {}

    def __len__(self) -> int:
        return len(self._terms)

    def of(self, slot: Slot) -> tuple[Terms, ...] | None:
        """Return an endpoint's terms by tier; None for an unknown endpoint."""
        return self._terms.get(slot)

    def set(self, slot: Slot, terms: Sequence[Terms]) -> None:
        """Set the terms of an endpoint."""
        self._terms[slot] = tuple(terms)
        self.with_horizon.discard(slot)
        for tier, each in enumerate(terms):
            self._set_mode(slot, tier, each.mode)
            self.chunks[tier].pop(slot, None)
            if each.chunk_tokens > self._block_tokens:
                self.chunks[tier][slot] = each.chunk_tokens
            if each.mode is Mode.HORIZON:
                self.with_horizon.add(slot)

    def remove(self, slot: Slot) -> None:
        """Remove an endpoint; does nothing for an unknown one."""
        terms = self._terms.pop(slot, ())
        self.with_horizon.discard(slot)
        for tier in range(len(terms)):
            self.chunks[tier].pop(slot, None)
            self._set_mode(slot, tier, Mode.APPROXIMATE)

    def capacity_tokens(self, tier: int) -> int:
        """Return the capacity of all endpoints together. Units: tokens."""
        return sum([terms[tier].capacity_tokens or 0 for terms in self._terms.values()])

    def by_mode(self, tier: int, better: Mapping[Slot, Mode]) -> dict[Mode, int]:
        """Return how many endpoints are in each mode.

        ``better`` has the endpoints that another source covers, with its mode.
        """
        counts = Counter([better.get(slot) or terms[tier].mode for slot, terms in self._terms.items()])
        return {mode: counts[mode] for mode in Mode}

    def doubted(self, tier: int) -> int:
        """Return how many endpoints' engines report another capacity than is configured."""
        return sum([terms[tier].doubted_tokens is not None for terms in self._terms.values()])

    def _set_mode(self, slot: Slot, tier: int, mode: Mode) -> None:
        modes = self.modes[tier]
        if modes.get(slot, Mode.APPROXIMATE) is not mode:
            changed = {**modes, slot: mode}
            if mode is Mode.APPROXIMATE:
                del changed[slot]
            self.modes[tier] = changed
