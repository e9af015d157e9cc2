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
"""Holders that are scored one by one, 0.2 µs each; a look at every candidate takes 4 µs for 100."""


class ApproxPrefixParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much one instance holds for each endpoint, and how much of a prompt it looks at.

    Source: names and defaults of the Go picker's plugin of the same type; ``tier`` and the last two are ours.
    """

    tier: Tier | None = None
    """None: what the instance's name says, ``cpu`` or ``storage``; otherwise gpu."""
    auto_tune: bool = True
    """Take the capacity from the engine as soon as that reports it; of the other tiers where none is written."""
    lru_capacity_per_server: int | None = None
    """Blocks of ``block_size_tokens``; None is 31,250 for the GPU tier and unknown for the others."""
    block_size_tokens: int | None = None
    """The unit of the other two only, 16 unless written: the index hashes in blocks of its own."""
    block_size: int = 0
    """Deprecated name of ``block_size_tokens``, which wins; 0 is unset."""
    max_prefix_tokens_to_match: int = DEFAULT_LIMIT_TOKENS
    """0 leaves it to ``max_prefix_blocks_to_match``."""
    max_prefix_blocks_to_match: int = 2048
    """Deprecated; 0 is unlimited."""
    follow_horizon: bool = True
    """Believe an engine that tells how far its evictions have come; ours. False: always approximate."""
    max_share_by_fairness_id: float = 1.0
    """The share of an endpoint's capacity that one fairness id may hold; ours. 1 is no bound: clients that send no
    fairness id are one flow, and must not be bounded unasked."""

    def __post_init__(self) -> None:
        check_range("maxShareByFairnessId", self.max_share_by_fairness_id, 0, 1)
        check_range("lruCapacityPerServer", self.lru_capacity_per_server, 1)
        check_range("blockSizeTokens", self.block_size_tokens, 1, 2**20)
        check_range("blockSize", self.block_size, 0, 2**20)
        check_range("maxPrefixTokensToMatch", self.max_prefix_tokens_to_match, 0)
        check_range("maxPrefixBlocksToMatch", self.max_prefix_blocks_to_match, 0)

    @property
    def block_tokens(self) -> int:
        """What ``lru_capacity_per_server`` and ``max_prefix_blocks_to_match`` count."""
        return self.block_size_tokens or self.block_size or DEFAULT_BLOCK_TOKENS

    @property
    def limit_tokens(self) -> int:
        """Of each prompt, nothing after that many tokens is matched."""
        blocks = self.max_prefix_blocks_to_match * self.block_tokens
        return self.max_prefix_tokens_to_match or blocks or UNLIMITED


def tier_in(name: str) -> Tier | None:
    """The tier that an instance's name says: gpu, cpu or storage, in upper or lower case."""
    lower = name.lower()
    return next((tier for tier in (Tier.CPU, Tier.STORAGE, Tier.GPU) if tier.value in lower), None)


class PrefixSource(Protocol):
    """Where a producer has its numbers from: ``scorers.prefix.cache.PrefixCache``."""

    def cached(self, producer: ApproxPrefixProducer, request: Request) -> CachedPrefix:
        """What is held of ``request`` in the producer's tier."""

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Record the pick, for all producers at once; only the first call for a request counts."""

    def state(self, producer: ApproxPrefixProducer) -> object:
        """What the producer's tier holds, all endpoints together."""


class ApproxPrefixProducer(Producer[ApproxPrefixParameters]):
    """Says how much of a request each endpoint holds in one tier, from what was sent there before.

    Writes: ``Request.cached`` under the instance's name.

    Capacity is, for the GPU tier, what the engine reports (``auto_tune``), else ``lru_capacity_per_server``; for the
    others the latter, else what the engine reports, and 0 without both. Where an engine tells how far its evictions
    have come, what it holds follows from that (``follow_horizon``), endpoint by endpoint and tier by tier.
    """

    type_name = "approx-prefix-cache-producer"
    Parameters = ApproxPrefixParameters
    asked_for: ClassVar[bool] = True
    """Whether the configuration has it."""

    def __init__(self, parameters: ApproxPrefixParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.tier = self.parameters.tier or tier_in(self.name) or Tier.GPU
        self.source: PrefixSource | None = None
        """Set by the prefix cache that serves this instance."""

    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:  # noqa: ARG002
        """Write what is held of ``request``. Raises: RuntimeError when no prefix cache serves this instance."""
        request.cached[self.name] = self._served().cached(self, request)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Record that ``candidate`` holds the prompts of ``request`` from now on."""
        self._served().picked(request, candidate)

    def state(self) -> object:
        """What the tier holds, all endpoints together."""
        return self.source.state(self) if self.source is not None else None

    def better(self) -> Mapping[Slot, Mode]:
        """Endpoints of which somebody else knows more, for whom this producer stands in, and how."""
        return {}

    @property
    def asks_engine(self) -> bool:
        """Whether the capacity is the engine's, once it says it."""
        parameters = self.parameters
        return parameters.auto_tune and (self.tier is Tier.GPU or parameters.lru_capacity_per_server is None)

    def terms(self, candidate: Candidate) -> Terms:
        """What holds for this tier of ``candidate``."""
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
        """What ``candidate`` holds in this tier; 0 where nobody says."""
        return self.terms(candidate).capacity_tokens or 0

    def told_tokens(self, candidate: Candidate) -> int | None:
        """What the engine says that ``candidate`` holds in this tier."""
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
    """Which producer a scorer reads, and how it weighs what that says.

    The older form of the configuration has a producer's parameters here, and every scorer an index of its own.
    """

    prefix_match_info_producer_name: str | None = None
    """None: the producer of its own, in the older form; otherwise the one named ``approx-prefix-cache-producer``."""
    match_length_weight: float = 0.0
    """How much the length of the match counts rather than its share of the prompt."""
    match_length_scale_tokens: int = 8192
    """The length that counts fully."""
    tier: Tier | None = None
    auto_tune: bool | None = None
    lru_capacity_per_server: int | None = None
    block_size_tokens: int | None = None
    block_size: int | None = None
    """Characters, 4 to a token."""
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
        """The block size of the older form."""
        characters = self.block_size or self.hash_block_size or DEFAULT_BLOCK_TOKENS * CHARACTERS_PER_TOKEN
        return self.block_size_tokens or max(1, characters // CHARACTERS_PER_TOKEN)

    @property
    def is_older_form(self) -> bool:
        """Whether any parameter of a producer is written here."""
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

    score[i] = w × min(1, tokens[i] / scale)² + (1 - w) × tokens[i] / total, where total are the tokens in the prompts'
    full blocks, so an endpoint that was sent the same request before has 1; w is 0 unless configured.

    Reads: ``Request.cached`` of one producer.
    """

    type_name = "prefix-cache-scorer"
    Parameters = PrefixParameters

    def __init__(self, parameters: PrefixParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        its_own = self.name if self._has_its_own() else ApproxPrefixProducer.type_name
        self.producer_name = self.parameters.prefix_match_info_producer_name or its_own
        """Whose numbers it reads."""

    @property
    def has_legacy_parameters(self) -> bool:
        """Whether parameters of a producer are written in the scorer, as llm-d v0.4 has it."""
        return self.parameters.is_older_form

    def legacy_producer(self) -> ApproxPrefixProducer | None:
        """The producer that this scorer stands for where none is declared; None where it names another's.

        It has the scorer's own name where it has a producer's parameters or its name says a tier; else the default's.
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
        """One score per candidate, by what it holds."""
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
        """The same without looking at those that hold nothing; None unless the holders' slots are their positions, as
        they are where no endpoint is missing."""
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
