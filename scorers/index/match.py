"""What the prefix index reports: about one prompt, and about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scorers.base import Prompt, Slot
from scorers.index.tree import Walk


class Statistics(NamedTuple):
    """A snapshot of the index's size."""

    endpoints: int
    blocks: int
    """Number of (block, endpoint) pairs: what each endpoint holds in any tier, summed."""
    runs: int
    """Number of (run, endpoint) pairs."""
    tokens_by_tier: tuple[int, ...]
    """Tokens that all endpoints hold together, by tier."""


@dataclass(slots=True)
class Match:
    """What the index holds of one prompt. Valid until the index changes, so as long as the generations are equal."""

    prompt: Prompt
    blocks: int
    """Full blocks of the prompt, up to the limit."""
    total_tokens: int
    """Number of tokens in those blocks."""
    held: tuple[dict[Slot, int], ...]
    """By tier: contiguous tokens from the start, by endpoint; endpoints that hold nothing are absent."""
    walked: Walk
    generation: int
