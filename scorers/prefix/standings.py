"""What every endpoint's tiers are taken to be, laid out for who asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from scorers.base import Mode, Slot
from scorers.prefix.terms import Terms


class Standings:
    """The terms of all endpoints. Requests share the tables of modes, so these are replaced, never changed."""

    def __init__(self, tiers: int, block_tokens: int) -> None:
        self.modes: list[Mapping[Slot, Mode]] = [{} for _ in range(tiers)]
        """By tier, of the endpoints that are not approximate."""
        self.chunks: list[dict[Slot, int]] = [{} for _ in range(tiers)]
        """By tier, what a hit is a multiple of, where that is more than a block of the index."""
        self.followed: set[Slot] = set()
        """Those with a tier in horizon mode."""
        self._block_tokens = block_tokens
        self._terms: dict[Slot, tuple[Terms, ...]] = {}

    def __len__(self) -> int:
        return len(self._terms)

    def of(self, slot: Slot) -> tuple[Terms, ...] | None:
        """By tier; None for an unknown endpoint."""
        return self._terms.get(slot)

    def set(self, slot: Slot, terms: Sequence[Terms]) -> None:
        """From now on these hold."""
        self._terms[slot] = tuple(terms)
        self.followed.discard(slot)
        for tier, each in enumerate(terms):
            self._set_mode(slot, tier, each.mode)
            self.chunks[tier].pop(slot, None)
            if each.chunk_tokens > self._block_tokens:
                self.chunks[tier][slot] = each.chunk_tokens
            if each.mode is Mode.HORIZON:
                self.followed.add(slot)

    def remove(self, slot: Slot) -> None:
        """The endpoint is gone; does nothing for an unknown one."""
        terms = self._terms.pop(slot, ())
        self.followed.discard(slot)
        for tier in range(len(terms)):
            self.chunks[tier].pop(slot, None)
            self._set_mode(slot, tier, Mode.APPROXIMATE)

    def capacity_tokens(self, tier: int) -> int:
        """Of all endpoints together."""
        return sum([terms[tier].capacity_tokens or 0 for terms in self._terms.values()])

    def by_mode(self, tier: int, better: Mapping[Slot, Mode]) -> dict[Mode, int]:
        """How many endpoints are known in which way; ``better`` are those of which somebody else knows more."""
        counts = Counter([better.get(slot) or terms[tier].mode for slot, terms in self._terms.items()])
        return {mode: counts[mode] for mode in Mode}

    def doubted(self, tier: int) -> int:
        """Endpoints whose engines say that they hold less than what is configured."""
        return sum([terms[tier].doubted_tokens is not None for terms in self._terms.values()])

    def _set_mode(self, slot: Slot, tier: int, mode: Mode) -> None:
        modes = self.modes[tier]
        if modes.get(slot, Mode.APPROXIMATE) is not mode:
            changed = {**modes, slot: mode}
            if mode is Mode.APPROXIMATE:
                del changed[slot]
            self.modes[tier] = changed
