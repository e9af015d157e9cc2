"""What was known about a request at its pick, and what was seen of it at its end: for plugins that learn."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scorers.candidate import Candidate, Mode, Tier


class Held(msgspec.Struct, frozen=True, gc=False):
    """What the chosen endpoint was expected to hold in one tier, at the pick."""

    tier: Tier
    tokens: int
    """Contiguous tokens of the request's prompts, from their start; includes those that a faster tier holds, too."""
    mode: Mode


class Prediction(msgspec.Struct, frozen=True):
    """What was known at the pick about the request and the chosen endpoint, kept until the request ends."""

    candidate: Candidate
    """The endpoint just before the pick: what was in flight there was ahead of this request."""
    held: tuple[Held, ...]
    """One entry per tier that a producer covers, fastest first."""
    prompt_tokens: int
    """``Request.prompt_tokens``: at least 1, perhaps an estimate."""
    waited_s: float = 0.0
    """Time from the request's arrival to its pick. Units: seconds."""

    @property
    def held_tokens(self) -> int:
        """Prompt tokens that the endpoint was expected to hold in any tier."""
        most = 0
        for held in self.held:  # takes half as long as ``max``
            if held.tokens > most:
                most = held.tokens
        return most

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that the endpoint was expected to compute."""
        return max(0, self.prompt_tokens - self.held_tokens)


class Observation(msgspec.Struct, frozen=True):
    """What was seen of a finished request, beside what was predicted for it. A value that was not seen is None."""

    prediction: Prediction
    status: int | None = None
    """The HTTP status of the response."""
    streaming: bool = False
    """Whether the response was streamed; if not, ``ttft_s`` is the time to the whole response."""
    ttft_s: float | None = None
    """From the pick to the first byte of the answer; events before it, which some APIs send at once, do not count."""
    duration_s: float | None = None
    """Time from the pick to the end of the request."""
    prompt_tokens: int | None = None
    """Prompt tokens as the engine counts them."""
    cached_tokens: int | None = None
    """How many of those the engine had cached; also None if the engine does not report it."""
    cached_by_tier: Mapping[Tier, int] = {}
    """The same by the tier that each token was taken from, each token counted once; empty if the engine does not report
    it."""
    output_tokens: int | None = None
    """Generated tokens as the engine counts them."""
