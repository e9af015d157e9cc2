"""Send a request where its prompt is already cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import msgspec

from scorers.base import CachedPrefix, Candidate, Mode, Producer, Request, Scorer, Slot, Tier
from scorers.parameters import check_range
from scorers.prefix.terms import Terms, terms, told_tokens

DEFAULT_CAPACITY_BLOCKS = 31_250
DEFAULT_BLOCK_TOKENS = 16
DEFAULT_LIMIT_TOKENS = 131_072
CHARACTERS_PER_TOKEN = 4
UNLIMITED = 2**62
FEW = 16
"""Up to this many holders are scored one by one, 0.2 µs each; a look at every candidate takes 4 µs for 100."""


class ApproxPrefixParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much one instance records for each endpoint, and how much of a prompt it matches.

    Source: names and defaults of the Go picker's plugin of the same type; ``tier`` and the last two are ours.
    """

    tier: Tier | None = None
    """None takes the tier from the instance's name, if that contains ``cpu`` or ``storage``; otherwise gpu."""
    auto_tune: bool = True
    """Use the engine's capacity as soon as it reports one; in tiers other than gpu, only if none is configured."""
    lru_capacity_per_server: int | None = None
    """Number of blocks of ``block_size_tokens``; None is 31,250 for the GPU tier and unknown for the others."""
    block_size_tokens: int | None = None
    """The unit of ``lru_capacity_per_server`` and ``max_prefix_blocks_to_match`` only, 16 unless configured. The index
    hashes in blocks of its own size."""
    block_size: int = 0
    """Deprecated name of ``block_size_tokens``, which takes precedence; 0 is unset."""
    max_prefix_tokens_to_match: int = DEFAULT_LIMIT_TOKENS
    """Tokens of a prompt that are matched; 0 leaves it to ``max_prefix_blocks_to_match``."""
    max_prefix_blocks_to_match: int = 2048
    """Deprecated; 0 is unlimited."""
    follow_horizon: bool = True
    """Use the eviction horizon of an engine that reports it; False is always approximate. Ours."""
    max_share_by_fairness_id: float = 1.0
    """The share of an endpoint's capacity that one fairness id may hold. Ours. 1 is no bound, and the default: all
    clients that send no fairness id are one flow, which must not be bounded unless configured."""

    def __post_init__(self) -> None:
        check_range("maxShareByFairnessId", self.max_share_by_fairness_id, 0, 1)
        check_range("lruCapacityPerServer", self.lru_capacity_per_server, 1)
        check_range("blockSizeTokens", self.block_size_tokens, 1, 2**20)
        check_range("blockSize", self.block_size, 0, 2**20)
        check_range("maxPrefixTokensToMatch", self.max_prefix_tokens_to_match, 0)
        check_range("maxPrefixBlocksToMatch", self.max_prefix_blocks_to_match, 0)

    @property
    def block_tokens(self) -> int:
        """Tokens in one block of ``lru_capacity_per_server`` and ``max_prefix_blocks_to_match``."""
        return self.block_size_tokens or self.block_size or DEFAULT_BLOCK_TOKENS

    @property
    def limit_tokens(self) -> int:
        """The number of tokens of each prompt that are matched."""
        blocks = self.max_prefix_blocks_to_match * self.block_tokens
        return self.max_prefix_tokens_to_match or blocks or UNLIMITED


def tier_in(name: str) -> Tier | None:
    """Return the tier that an instance's name contains (gpu, cpu or storage, in upper or lower case); None if none."""
    lower = name.lower()
    return next((tier for tier in (Tier.CPU, Tier.STORAGE, Tier.GPU) if tier.value in lower), None)


class PrefixSource(Protocol):
    """Where a producer gets its numbers from: ``scorers.prefix.cache.PrefixCache``."""

    def cached(self, producer: ApproxPrefixProducer, request: Request) -> CachedPrefix:
        """Return what is held of ``request`` in the producer's tier."""

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Record the pick, for all producers at once; only the first call for a request counts."""

    def state(self, producer: ApproxPrefixProducer) -> object:
        """Return what the producer's tier holds, summed over all endpoints."""


class ApproxPrefixProducer(Producer[ApproxPrefixParameters]):
    """Estimates how much of a request each endpoint holds in one tier, from what was sent there before.

    Writes: ``Request.cached`` under the instance's name.

    The capacity of the GPU tier is what the engine reports (``auto_tune``), else ``lru_capacity_per_server``. The
    capacity of another tier is ``lru_capacity_per_server``, else what the engine reports, and 0 without both. If an
    engine reports its eviction horizon, what it holds follows from that (``follow_horizon``), endpoint by endpoint and
    tier by tier.
    """

    type_name = "approx-prefix-cache-producer"
    Parameters = ApproxPrefixParameters
    asked_for: ClassVar[bool] = True
    """Whether the configuration names this producer."""

    def __init__(self, parameters: ApproxPrefixParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.tier = self.parameters.tier or tier_in(self.name) or Tier.GPU
        self.source: PrefixSource | None = None
        """Set by the prefix cache that serves this instance."""

    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:  # noqa: ARG002
        """Write what is held of ``request``.

        Raises: RuntimeError if no prefix cache serves this instance.
        """
        request.cached[self.name] = self._served().cached(self, request)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Record that ``candidate`` holds the prompts of ``request`` from now on."""
        self._served().picked(request, candidate)

    def state(self) -> object:
        """Return what the tier holds, summed over all endpoints."""
        return self.source.state(self) if self.source is not None else None

    def better(self) -> Mapping[Slot, Mode]:
        """Return the endpoints that a better source covers, and its mode; there this producer is only a fallback."""
        return {}

    @property
    def asks_engine(self) -> bool:
        """Whether the engine's capacity is used once the engine reports it."""
        parameters = self.parameters
        return parameters.auto_tune and (self.tier is Tier.GPU or parameters.lru_capacity_per_server is None)

    def terms(self, candidate: Candidate) -> Terms:
        """Return the terms for this tier of ``candidate``."""
        parameters, gpu = self.parameters, self.tier is Tier.GPU
        typed = self._typed_tokens
        if gpu and parameters.auto_tune and candidate.gpu_blocks and not candidate.block_tokens:
            typed = candidate.gpu_blocks * parameters.block_tokens
        found = terms(
            candidate,
            self.tier,
            typed,
            auto=parameters.auto_tune,
            follow=parameters.follow_horizon,
            wins=not gpu,
        )
        if gpu and found.capacity_tokens is None:
            tokens = DEFAULT_CAPACITY_BLOCKS * parameters.block_tokens
            return found._replace(capacity_tokens=tokens, bound_tokens=tokens)
        return found

    def capacity_tokens(self, candidate: Candidate) -> int:
        """Return what ``candidate`` can hold in this tier; 0 if unknown. Units: tokens."""
        return self.terms(candidate).capacity_tokens or 0

    def told_tokens(self, candidate: Candidate) -> int | None:
        """Return what the engine reports that ``candidate`` can hold in this tier. Units: tokens."""
        return told_tokens(candidate, self.tier)

    @property
    def _typed_tokens(self) -> int | None:
        blocks = self.parameters.lru_capacity_per_server
        return None if blocks is None else blocks * self.parameters.block_tokens

    def _served(self) -> PrefixSource:
        if self.source is None:
            raise RuntimeError(f"{self.name}: no prefix cache serves it; make a PrefixCache of all producers")
        return self.source


class PrefixParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which producer a scorer reads, and how it weights the length of a match.

    In the older form of the configuration, a producer's parameters are written here, and every scorer has its own
    index.
    """

    prefix_match_info_producer_name: str | None = None
    """None is the scorer's own producer, in the older form; otherwise the one named
    ``approx-prefix-cache-producer``."""
    match_length_weight: float = 0.0
    """How much the length of the match counts, rather than its share of the prompt."""
    match_length_scale_tokens: int = 8192
    """The length that counts fully. Units: tokens."""
    tier: Tier | None = None
    auto_tune: bool | None = None
    lru_capacity_per_server: int | None = None
    block_size_tokens: int | None = None
    block_size: int | None = None
    """Block size in characters, 4 per token."""
    hash_block_size: int | None = None
    """Oldest name of ``block_size``."""
    max_prefix_blocks_to_match: int | None = None
    follow_horizon: bool | None = None

    def __post_init__(self) -> None:
        check_range("matchLengthWeight", self.match_length_weight, 0, 1)
        check_range("matchLengthScaleTokens", self.match_length_scale_tokens, 1)
        check_range("lruCapacityPerServer", self.lru_capacity_per_server, 1)
        check_range("blockSizeTokens", self.block_size_tokens, 1, 2**20)
        check_range("blockSize", self.block_size, 1, 2**22)
        check_range("hashBlockSize", self.hash_block_size, 1, 2**22)
        check_range("maxPrefixBlocksToMatch", self.max_prefix_blocks_to_match, 1)

    @property
    def block_tokens(self) -> int:
        """The block size of the older form. Units: tokens."""
        characters = self.block_size or self.hash_block_size or DEFAULT_BLOCK_TOKENS * CHARACTERS_PER_TOKEN
        return self.block_size_tokens or max(1, characters // CHARACTERS_PER_TOKEN)

    @property
    def is_older_form(self) -> bool:
        """Whether any parameter of a producer is configured here."""
        return any(
            value is not None
            for value in (
                self.tier,
                self.auto_tune,
                self.lru_capacity_per_server,
                self.block_size_tokens,
                self.block_size,
                self.hash_block_size,
                self.max_prefix_blocks_to_match,
                self.follow_horizon,
            )
        )


class PrefixScorer(Scorer[PrefixParameters]):
    """Score the share of the prompt that an endpoint holds.

    score[i] = w × min(1, tokens[i] / scale)² + (1 - w) × tokens[i] / total, where total is the number of tokens in the
    prompts' full blocks, so an endpoint that was sent the same request before has 1; w is 0 unless configured.

    Reads: ``Request.cached`` of one producer.
    """

    type_name = "prefix-cache-scorer"
    Parameters = PrefixParameters

    def __init__(self, parameters: PrefixParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        its_own = self.name if self._has_its_own() else ApproxPrefixProducer.type_name
        self.producer_name = self.parameters.prefix_match_info_producer_name or its_own
        """The name of the producer that the scorer reads."""

    @property
    def has_legacy_parameters(self) -> bool:
        """Whether a producer's parameters are configured in the scorer, as in llm-d v0.4."""
        return self.parameters.is_older_form

    def legacy_producer(self) -> ApproxPrefixProducer | None:
        """Return the producer that this scorer stands for if none is declared; None if it names a producer.

        The producer has the scorer's own name if the scorer has a producer's parameters or its name contains a tier;
        otherwise the default name.
        """
        if self.parameters.prefix_match_info_producer_name:
            return None
        if not self._has_its_own():
            return ApproxPrefixProducer()
        written = self.parameters
        blocks = written.max_prefix_blocks_to_match
        parameters = ApproxPrefixParameters(
            tier=written.tier,
            auto_tune=written.auto_tune is not False,
            lru_capacity_per_server=written.lru_capacity_per_server,
            block_size_tokens=written.block_tokens,
            max_prefix_tokens_to_match=DEFAULT_LIMIT_TOKENS if blocks is None else blocks * written.block_tokens,
            follow_horizon=written.follow_horizon is not False,
        )
        return ApproxPrefixProducer(parameters, self.name)

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by what it holds."""
        cached = request.cached.get(self.producer_name)
        if cached is None or not cached.total_tokens or not (weighed := cached.weighed):
            return [0.0] * len(candidates)
        total = cached.total_tokens
        if len(weighed) <= FEW and (scores := self._of_few(weighed, total, candidates)):
            return scores
        held = weighed.get
        values = {tokens: self._value(tokens, total) for tokens in {0, *weighed.values()}}
        return [values[held(c.slot, 0)] for c in candidates]

    def _of_few(self, weighed: Mapping[Slot, float], total: int, candidates: Sequence[Candidate]) -> list[float] | None:
        """Return the scores without looking at candidates that hold nothing.

        None if a holder's slot is not its position; slots are positions as long as no endpoint is missing.
        """
        count = len(candidates)
        scores = [0.0] * count
        for slot, tokens in weighed.items():
            if slot >= count or candidates[slot].slot != slot:
                return None
            scores[slot] = self._value(tokens, total)
        return scores

    def _value(self, tokens: float, total: int) -> float:
        weight = self.parameters.match_length_weight
        if not weight:
            return tokens / total
        scale = self.parameters.match_length_scale_tokens
        return weight * min(1.0, tokens / scale) ** 2 + (1.0 - weight) * tokens / total

    def _has_its_own(self) -> bool:
        return self.parameters.is_older_form or tier_in(self.name) is not None
