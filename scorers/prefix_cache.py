"""One index for all instances of the approximate producer: each prompt is hashed once, whatever the number of tiers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from scorers.base import CachedPrefix, Candidate, Request, Slot
from scorers.index import BLOCK_TOKENS, Match, PrefixIndex, Statistics
from scorers.prefix import ApproxPrefixProducer

log = logging.getLogger(__name__)


class PrefixCache:
    """What the endpoints hold, as far as it follows from what was sent to them.

    A listener of the pool: endpoints come with the capacities that their producers know, and go with all they hold.
    The largest limit of the producers bounds how much of a prompt is hashed and recorded; a smaller one bounds what its
    producer says. Owner: the event loop.
    """

    def __init__(
        self,
        producers: Sequence[ApproxPrefixProducer],
        *,
        block_tokens: int = BLOCK_TOKENS,
        secret: bytes | None = None,
    ) -> None:
        if not producers:
            raise ValueError("a prefix cache serves at least one producer")
        self.index = PrefixIndex(len(producers), block_tokens, secret, _flow_shares(producers))
        self._capacities: dict[Slot, tuple[int, ...]] = {}
        self._serve(producers)

    def take_over(self, producers: Sequence[ApproxPrefixProducer], candidates: Sequence[Candidate]) -> bool:
        """Serve ``producers`` instead, and keep what is known; what does not fit into a smaller capacity is evicted.

        False, and nothing has changed, unless there is one for each tier, in the same order, and shares of flows are
        bounded as before or unbounded as before.
        """
        if [producer.tier for producer in producers] != [producer.tier for producer in self.producers]:
            return False
        if not self.index.set_flow_shares(_flow_shares(producers)):
            return False
        self._serve(producers)
        for candidate in candidates:
            self.engine_reported(candidate)
        return True

    def _serve(self, producers: Sequence[ApproxPrefixProducer]) -> None:
        self.producers = tuple(producers)
        self._tiers = {producer.name: tier for tier, producer in enumerate(producers)}
        self._limits = {producer.name: producer.parameters.limit_tokens for producer in producers}
        if len(self._tiers) != len(producers):
            raise ValueError(f"two producers have one name: {', '.join(producer.name for producer in producers)}")
        self._limit_tokens = max(self._limits.values())
        for producer in producers:
            producer.source = self
            if not producer.knows_capacity:
                log.warning(
                    "%s: nothing says how much the %s tier holds, so it counts as empty; write lruCapacityPerServer",
                    producer.name,
                    producer.tier.value,
                )

    def cached(self, producer: ApproxPrefixProducer, request: Request) -> CachedPrefix:
        """What is held of ``request`` in the producer's tier. The first producer asked has the prompts matched."""
        tier = self._tiers[producer.name]
        matches = self._matches(request)
        limit = self._limits[producer.name]
        if limit < self._limit_tokens:
            return _limited(producer, tier, matches, limit - limit % self.index.block_tokens)
        if len(matches) == 1:
            return CachedPrefix(producer.tier, matches[0].total_tokens, matches[0].held[tier])
        return _summed(producer, tier, matches)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Record the pick; the second and later calls for a request do nothing."""
        matches, request.prefix_match = request.prefix_match, None
        if not isinstance(matches, list):
            return
        if candidate.slot not in self.index:
            self.endpoint_added(candidate)
        for match in matches:
            self.index.record(match, candidate.slot, request.fairness_id)

    def endpoint_added(self, candidate: Candidate) -> None:
        """Give a new endpoint its capacities."""
        self.index.remove_endpoint(candidate.slot)  # whoever had the slot before
        self._capacities.pop(candidate.slot, None)
        self.engine_reported(candidate)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Forget an endpoint and all that it holds."""
        self.index.remove_endpoint(slot)
        self._capacities.pop(slot, None)

    def engine_reported(self, candidate: Candidate) -> None:
        """Follow a change of what the engine says of itself; what does not fit any more is evicted at once."""
        capacities = tuple([producer.capacity_tokens(candidate) for producer in self.producers])
        if capacities != self._capacities.get(candidate.slot):
            self._capacities[candidate.slot] = capacities
            for tier, tokens in enumerate(capacities):
                self.index.set_capacity(candidate.slot, tier, tokens)

    def capacity_tokens(self, slot: Slot, producer: str) -> int:
        """What ``slot`` can hold, as the producer knows it; 0 for an unknown slot."""
        capacities = self._capacities.get(slot)
        return capacities[self._tiers[producer]] if capacities is not None else 0

    def used_tokens(self, slot: Slot, producer: str) -> int:
        """What ``slot`` holds; 0 for an unknown slot."""
        return self.index.tokens(slot, self._tiers[producer])

    def state(self, producer: ApproxPrefixProducer) -> object:
        """What the producer's tier can hold and holds, all endpoints together."""
        tier = self._tiers[producer.name]
        return {
            "tier": producer.tier.value,
            "endpoints": len(self._capacities),
            "capacity_tokens": sum([capacities[tier] for capacities in self._capacities.values()]),
            "used_tokens": self.statistics().tokens_by_tier[tier],
        }

    def statistics(self) -> Statistics:
        """A snapshot; ``tokens_by_tier`` in the order of ``producers``."""
        return self.index.statistics()

    def _matches(self, request: Request) -> list[Match]:
        """One for each prompt that has a full block; kept in the request until its pick is recorded."""
        index, limit = self.index, self._limit_tokens
        matches = request.prefix_match
        # All of them were made at once, so one is as old as the others.
        if isinstance(matches, list) and (not matches or matches[0].generation == index.generation):
            return matches
        matches = [index.match(prompt, limit) for prompt in request.prompts]
        request.prefix_match = found = [match for match in matches if match.blocks]
        return found


def _flow_shares(producers: Sequence[ApproxPrefixProducer]) -> list[float]:
    """For each tier; nothing where no flow is bounded."""
    shares = [producer.parameters.max_share_by_fairness_id for producer in producers]
    return shares if min(shares) < 1.0 else []


def _limited(producer: ApproxPrefixProducer, tier: int, matches: Sequence[Match], limit: int) -> CachedPrefix:
    tokens: dict[Slot, int] = {}
    for match in matches if limit else ():
        for slot, held in match.held[tier].items():
            tokens[slot] = tokens.get(slot, 0) + min(held, limit)
    return CachedPrefix(producer.tier, sum([min(match.total_tokens, limit) for match in matches]), tokens)


def _summed(producer: ApproxPrefixProducer, tier: int, matches: Sequence[Match]) -> CachedPrefix:
    tokens: dict[Slot, int] = {}
    for match in matches:
        for slot, held in match.held[tier].items():
            tokens[slot] = tokens.get(slot, 0) + held
    return CachedPrefix(producer.tier, sum([match.total_tokens for match in matches]), tokens)
