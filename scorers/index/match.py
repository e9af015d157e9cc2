"""What the prefix index answers: of one prompt, and of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scorers.base import Prompt, Slot
from scorers.index.tree import Walk


class Statistics(NamedTuple):
    """A snapshot of the index."""

    endpoints: int
    blocks: int
    """(block, endpoint) pairs: what each endpoint holds in any tier, summed."""
    runs: int
    """(run, endpoint) pairs."""
    tokens_by_tier: tuple[int, ...]
    """Held by all endpoints together."""


@dataclass(slots=True)
class Match:
    """What is known of one prompt. True until the index changes, so as long as the generations are equal."""

    prompt: Prompt
    blocks: int
    """Full ones of the prompt, up to the limit."""
    total_tokens: int
    """In those blocks."""
    held: tuple[dict[Slot, int], ...]
    """By tier: contiguous tokens from the start by endpoint, without those that hold nothing."""
    walked: Walk
    generation: int
