"""Send a request where its prompt is cached, as the engines themselves tell it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
from typing_extensions import override

from scorers.base import CachedPrefix, Candidate, Mode, Producer, Request, Scorer, Slot, Tier
from scorers.precise.cache import PreciseCache, token_prompts
from scorers.precise.index import TIERS
from scorers.precise.parameters import IndexerConfig, PreciseParameters
from scorers.prefix.prefix import ApproxPrefixParameters, ApproxPrefixProducer, PrefixScorer

GUESSED = (Tier.GPU, Tier.CPU)
"""Tiers for which something is known without events."""


class Guess(ApproxPrefixProducer):
    """What stands in where an endpoint is not known precisely. It was not asked for, so nobody need be told that a
    tier of unknown capacity counts as empty."""

    asked_for = False

    def __init__(self, tier: Tier, whose: PrecisePrefixProducer) -> None:
        super().__init__(ApproxPrefixParameters(tier=tier), whose.name_of(tier))
        self._whose = whose

    @override
    def better(self) -> Mapping[Slot, Mode]:
        """Those that are known precisely."""
        source = self._whose.source
        return source.modes(self.tier) if source is not None else {}


class PrecisePrefixProducer(Producer[PreciseParameters]):
    """Says how much of a request each endpoint holds in each tier, by the best that is known of the endpoint.

    The ladder, for each endpoint and tier: what its engine's KV events say, where all of them are known and the request
    has token ids; else what the approximate producers of the same tiers say, which use the engine's eviction horizon
    where it has one, and their own record of picks where it has not.

    Writes: ``Request.cached`` under ``NAME/gpu``, ``NAME/cpu`` and ``NAME/storage``, and under the instance's name the
    GPU tier with what all tiers together are ``worth``.
    """

    type_name = "precise-prefix-cache-producer"
    Parameters = PreciseParameters
    reads_tokens = True

    def __init__(self, parameters: PreciseParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.source: PreciseCache | None = None
        """Set by whoever follows the engines."""
        self.fallbacks = tuple([Guess(tier, self) for tier in GUESSED])
        """To be served by the prefix cache."""
        weights = self.parameters.indexer_config.weights
        self._by_worth = sorted(weights.items(), key=lambda item: -item[1])

    def name_of(self, tier: Tier) -> str:
        """Under which one tier is written."""
        return f"{self.name}/{tier.value}"

    @property
    def names(self) -> tuple[str, ...]:
        """All that it writes."""
        return (self.name, *[self.name_of(tier) for tier in TIERS])

    @property
    def followed_by(self) -> object:
        """What of the parameters cannot change while the engines are followed."""
        return msgspec.structs.replace(self.parameters, indexer_config=IndexerConfig())

    def new_cache(self, clock: Callable[[], float] = time.monotonic) -> PreciseCache:
        """A cache as the parameters want it, which serves this producer."""
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
                merged = ladder(tier, found.total_tokens, found.held[tier], known, guesses.get(tier))
                request.cached[self.name_of(tier)] = merged
        gpu = request.cached[self.name_of(Tier.GPU)]
        request.cached[self.name] = CachedPrefix(
            Tier.GPU, gpu.total_tokens, gpu.tokens, gpu.modes, self._worth(request)
        )

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Remember the pick, for the ways to know that need it."""
        self.fallbacks[0].picked(request, candidate)
        if self.source is not None:
            self.source.picked(request, candidate)

    def state(self) -> object:
        """How many endpoints are known, or why not."""
        source = self.source
        if source is None:
            return None
        reasons: dict[str, int] = {}
        for told in source.everyone():
            reasons[told.why or "known"] = reasons.get(told.why or "known", 0) + 1
        return {
            "endpoints": reasons,
            "runs": len(source.index),
            "picks_not_precise": dict(source.fallbacks),
            "speculative_prompts": 0 if source.speculation is None else len(source.speculation),
        }

    def _worth(self, request: Request) -> dict[Slot, float]:
        """Each token counts by the best tier that holds it, and all before it, and no token twice."""
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


def ladder(
    tier: Tier,
    total_tokens: int,
    told: Mapping[Slot, int],
    known: Mapping[Slot, Mode],
    guess: CachedPrefix | None,
) -> CachedPrefix:
    """For each endpoint the best that is known: what is ``told``, where that is ``known``, else the ``guess``, which
    counts tokens in its own way and is taken as the share of the prompt that it is."""
    if guess is None or not guess.total_tokens:
        return CachedPrefix(tier, total_tokens, told, known)
    tokens = dict(told)
    scale = total_tokens / guess.total_tokens
    for slot, guessed in guess.tokens.items():
        if slot not in known:
            tokens[slot] = min(total_tokens, int(guessed * scale))
    return CachedPrefix(tier, total_tokens, tokens, {**guess.modes, **known} if guess.modes else known)


class PrecisePrefixScorer(Scorer[PreciseParameters]):
    """Score what an endpoint holds, by a precise producer that has this scorer's parameters; deprecated."""

    type_name = "precise-prefix-cache-scorer"
    Parameters = PreciseParameters

    def __init__(self, parameters: PreciseParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.producer_name = PrecisePrefixProducer.type_name
        """Whose numbers it reads."""
        self._scorer = PrefixScorer()

    def producer(self) -> PrecisePrefixProducer:
        """The producer that it stands for where none is declared."""
        return PrecisePrefixProducer(self.parameters)

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate, by what it holds."""
        self._scorer.producer_name = self.producer_name
        return self._scorer.score(request, candidates)
