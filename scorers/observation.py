"""What was known of a request at its pick, and what was seen of it at its end: for plugins that learn."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scorers.candidate import Candidate, Mode, Tier


class Held(msgspec.Struct, frozen=True, gc=False):
    """What was believed, at the pick, of one tier of the endpoint chosen."""

    tier: Tier
    tokens: int
    """Contiguous tokens of the request's prompts, from their start; also those that a faster tier holds, too."""
    mode: Mode


class Prediction(msgspec.Struct, frozen=True):
    """What was known at the pick of a request and of the endpoint chosen, kept until the request ends."""

    candidate: Candidate
    """The endpoint as it was just before the pick: what was in flight there was ahead of this request."""
    held: tuple[Held, ...]
    """One for each tier that a producer speaks of, fastest first."""
    prompt_tokens: int
    """``Request.prompt_tokens``: at least 1, perhaps an estimate."""
    waited_s: float = 0.0
    """From the request's arrival to the pick."""

    @property
    def held_tokens(self) -> int:
        """What the endpoint holds in any tier."""
        most = 0
        for held in self.held:  # half of what ``max`` takes
            if held.tokens > most:
                most = held.tokens
        return most

    @property
    def uncached_tokens(self) -> int:
        """What the endpoint must compute."""
        return max(0, self.prompt_tokens - self.held_tokens)


class Observation(msgspec.Struct, frozen=True):
    """What was seen of a finished request, beside what was predicted of it. Whatever nobody saw is None."""

    prediction: Prediction
    status: int | None = None
    """Of HTTP."""
    streaming: bool = False
    """Whether the response was streamed: else ``ttft_s`` is the time to the whole answer."""
    ttft_s: float | None = None
    """From the pick to the first byte of the answer; events before it, which some APIs send at once, do not count."""
    duration_s: float | None = None
    """From the pick to the end."""
    prompt_tokens: int | None = None
    """As the engine counts them."""
    cached_tokens: int | None = None
    """Of those, what the engine had cached; None too for an engine that does not say."""
    cached_by_tier: Mapping[Tier, int] = {}
    """The same by the tier that it was taken from, each token once; empty for an engine that does not say."""
    output_tokens: int | None = None
