"""Find where a prompt is cached, as the engines themselves report it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from typing_extensions import override

from scorers.base import CachedPrefix, Candidate, Mode, Producer, Request, Slot, Tier
from scorers.precise.cache import PreciseCache
from scorers.precise.index import TIERS
from scorers.precise.parameters import IndexerConfig, PreciseParameters
from scorers.precise.prompts import token_prompts
from scorers.prefix.parameters import ApproxPrefixParameters
from scorers.prefix.producer import ApproxPrefixProducer

GUESSED = (Tier.GPU, Tier.CPU)
"""Tiers whose contents can be estimated without events."""


class Guess(ApproxPrefixProducer):
    """The fallback for endpoints that are not known precisely.

    The configuration does not name it, so a tier of unknown capacity counts as empty without a warning.
    """

    is_configured = False

    def __init__(self, tier: Tier, producer: PrecisePrefixProducer) -> None:
        super().__init__(ApproxPrefixParameters(tier=tier), producer.name_of(tier))
        self._producer = producer

    @override
    def better_modes(self) -> Mapping[Slot, Mode]:
        """Return the endpoints that are known precisely."""
        source = self._producer.source
        return source.modes(self.tier) if source is not None else {}


class PrecisePrefixProducer(Producer[PreciseParameters]):
    """Reports how much of a request each endpoint holds in each tier, by the best source for the endpoint.

    For each endpoint and tier, the first of these that is available: the engine's KV events, if they are complete and
    the request has token ids; else the approximate producers of the same tiers, which use the engine's eviction horizon
    if it has one, and their own record of picks if it has none.

    Writes: ``Request.cached`` under ``NAME/gpu``, ``NAME/cpu`` and ``NAME/storage``, and under the instance's name the
    GPU tier with the ``worth`` of all tiers together.
    """

    type_name = "precise-prefix-cache-producer"
    Parameters = PreciseParameters
    reads_tokens = True

    def __init__(self, parameters: PreciseParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.source: PreciseCache | None = None
        """Set when the engines are followed."""
        self.fallbacks = tuple([Guess(tier, self) for tier in GUESSED])
        """The approximate producers, which the prefix cache serves."""
        weights = self.parameters.indexer_config.weights
        self._by_worth = sorted(weights.items(), key=lambda item: -item[1])

    def name_of(self, tier: Tier) -> str:
        """Return the name under which one tier is written."""
        return f"{self.name}/{tier.value}"

    @property
    def names(self) -> tuple[str, ...]:
        """All names that this producer writes."""
        return (self.name, *[self.name_of(tier) for tier in TIERS])

    @property
    def followed_by(self) -> object:
        """The parameters that cannot change while the engines are followed."""
        return msgspec.structs.replace(self.parameters, indexer_config=IndexerConfig())

    def new_cache(self, clock: Callable[[], float] = time.monotonic) -> PreciseCache:
        """Create a cache according to the parameters, and make it this producer's source."""
        parameters = self.parameters
        speculate_s = parameters.lifetime_s() if parameters.speculative_indexing else None
        block_tokens = parameters.token_processor_config.block_tokens
        self.source = PreciseCache(block_tokens=block_tokens, speculate_s=speculate_s, clock=clock)
        return self.source

    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:
        """Write what is held of ``request``, in every tier."""
        guesses: dict[Tier, CachedPrefix] = {}
        for fallback in self.fallbacks:
            fallback.produce(request, candidates)
            guesses[fallback.tier] = request.cached[fallback.name]
        source, prompts = self.source, token_prompts(request)
        if source is not None and prompts is not None:
            found = source.find(prompts)
            for tier in TIERS:
                known = source.modes(tier)
                best = merged(tier, found.total_tokens, found.held[tier], known, guesses.get(tier))
                request.cached[self.name_of(tier)] = best
        gpu = request.cached[self.name_of(Tier.GPU)]
        request.cached[self.name] = CachedPrefix(
            Tier.GPU, gpu.total_tokens, gpu.tokens, gpu.modes, self._worth(request)
        )

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Pass the pick on to the approximate producers and to the cache."""
        self.fallbacks[0].picked(request, candidate)
        if self.source is not None:
            self.source.picked(request, candidate)

    def state(self) -> object:
        """Return how many endpoints are known precisely, and the reasons why others are not."""
        source = self.source
        if source is None:
            return None
        reasons: dict[str, int] = {}
        for status in source.statuses():
            reasons[status.why or "known"] = reasons.get(status.why or "known", 0) + 1
        return {
            "endpoints": reasons,
            "runs": len(source.index),
            "picks_not_precise": dict(source.fallbacks),
            "speculative_prompts": 0 if source.speculation is None else len(source.speculation),
        }

    def _worth(self, request: Request) -> dict[Slot, float]:
        """Return each endpoint's weighted tokens: each token counts once, by the best tier that holds it."""
        deepest: dict[Slot, int] = {}
        worth: dict[Slot, float] = {}
        for tier, weight in self._by_worth:
            cached = request.cached.get(self.name_of(tier))
            if cached is None or not weight:
                continue
            for slot, tokens in cached.tokens.items():
                more = tokens - deepest.get(slot, 0)
                if more > 0:
                    deepest[slot] = tokens
                    worth[slot] = worth.get(slot, 0.0) + weight * more
        return worth


def merged(
    tier: Tier,
    total_tokens: int,
    reported: Mapping[Slot, int],
    known: Mapping[Slot, Mode],
    guess: CachedPrefix | None,
) -> CachedPrefix:
    """Merge the ``reported`` tokens with the ``guess``, which is used for endpoints that are not ``known``.

    The guess counts tokens in its own way, so its share of the prompt is what is used.
    """
    if guess is None or not guess.total_tokens:
        return CachedPrefix(tier, total_tokens, reported, known)
    tokens = dict(reported)
    scale = total_tokens / guess.total_tokens
    for slot, guessed in guess.tokens.items():
        if slot not in known:
            tokens[slot] = min(total_tokens, int(guessed * scale))
    return CachedPrefix(tier, total_tokens, tokens, {**guess.modes, **known} if guess.modes else known)
