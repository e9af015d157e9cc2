"""One index for all instances of the approximate producer: each prompt is hashed once, whatever the number of tiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, nextafter

from scorers.base import CachedPrefix, Candidate, Mode, Request, Scratch, Slot, Tier
from scorers.index.index import BLOCK_TOKENS, PrefixIndex
from scorers.index.match import Match, Statistics
from scorers.index.path import NO_GATES, Gate
from scorers.prefix.admission import ComputeCounts
from scorers.prefix.cached_tokens import in_tokens, summed
from scorers.prefix.capacity_warnings import CapacityWarnings
from scorers.prefix.flights import Flight, Flights
from scorers.prefix.parameters import UNLIMITED
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.terms import Terms
from scorers.prefix.terms_table import TermsTable

END_DELAY_S = 0.1
"""How much later than in the engine a request may end here. A guess: the way through a proxy, or the flush of
its log."""


class PrefixCache:
    """What the endpoints hold, derived from what was sent to them and from what their engines report.

    A listener of the pool: endpoints are added with the terms that their producers compute, and removed with all that
    they hold. In a tier in horizon mode, what was last used at the engine's horizon or before is gone; a prompt is in
    use from its pick to its request's end. The largest limit of the producers bounds how much of a prompt is hashed and
    recorded; a smaller limit bounds only what its own producer reports. Owner: the event loop.
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
        self._matched = Scratch[list[Match]]()  # of each request, until its pick is recorded
        self._flights = Flights()
        self._latest_s = -inf  # the latest time seen so far
        self._gates: dict[Slot, dict[int, Gate]] = {}
        self._unsized: set[Slot] = set()  # with a tier of unknown capacity, not warned about yet
        self._terms = TermsTable(len(producers), block_tokens)
        self._warnings = CapacityWarnings()
        self._serve(producers)

    def take_over(self, producers: Sequence[ApproxPrefixProducer], candidates: Sequence[Candidate]) -> bool:
        """Serve ``producers`` instead, and keep what was learned; what does not fit into a smaller capacity is evicted.

        Returns False, with nothing changed, unless there is one producer for each tier, in the same order, and flows'
        shares are bounded as before or unbounded as before.
        """
        if [producer.tier for producer in producers] != [producer.tier for producer in self.producers]:
            return False
        if not self.index.set_flow_shares(_flow_shares(producers)):
            return False
        self._serve(producers)
        for candidate in candidates:
            self.engine_reported(candidate)
        return True

    def clear(self) -> Iterator[None]:
        """Forget everything, when another cache takes over; iterate over the result (``PrefixIndex.clear``)."""
        self._flights = Flights()
        self._gates.clear()
        self._unsized.clear()
        return self.index.clear()

    def _serve(self, producers: Sequence[ApproxPrefixProducer]) -> None:
        self.producers = tuple(producers)
        self._tiers = {producer.name: tier for tier, producer in enumerate(producers)}
        self._limits = {producer.name: producer.parameters.limit_tokens for producer in producers}
        if len(self._tiers) != len(producers):
            raise ValueError(f"two producers have one name: {', '.join(producer.name for producer in producers)}")
        self._limit_tokens = max(self._limits.values())
        self._gpu_last = sorted(range(len(producers)), key=lambda tier: producers[tier].tier is Tier.GPU)
        self._warnings.serve(producers)
        for producer in producers:
            producer.source = self

    def cached(self, producer: ApproxPrefixProducer, request: Request) -> CachedPrefix:
        """Return what is held of ``request`` in the producer's tier; the first call for a request matches its
        prompts."""
        found = self._cached(producer, request)
        return found if request.tokens is None else in_tokens(found, request)

    def _cached(self, producer: ApproxPrefixProducer, request: Request) -> CachedPrefix:
        tier = self._tiers[producer.name]
        matches = self._matches(request)
        limit = self._limits[producer.name]
        chunks, modes = self._terms.chunks[tier], self._terms.modes[tier]
        if limit >= self._limit_tokens:
            if len(matches) == 1 and not chunks:
                return CachedPrefix(producer.tier, matches[0].total_tokens, matches[0].held[tier], modes)
            limit = UNLIMITED
        limit -= limit % self.index.block_tokens
        total = sum([min(match.total_tokens, limit) for match in matches])
        return CachedPrefix(producer.tier, total, summed(matches, tier, limit, chunks), modes)

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Record the pick; the second and later calls for a request do nothing."""
        matches = self._matched.take(request)
        if matches is None:
            return
        slot, now = candidate.slot, request.picked_s
        if slot not in self.index:
            self.endpoint_added(candidate)
        if slot in self._unsized:
            self._warn_of_unknown(slot)
        if now > self._latest_s:
            self._latest_s = now
        gates = self._gates.get(slot, NO_GATES)
        runs = []
        for match in matches:
            before = max([tokens.get(slot, 0) for tokens in match.held]) // self.index.block_tokens
            last = self.index.record(match, slot, request.fairness_id, now, gates)
            if last is not None:
                runs.append((last, match.blocks, before))
        if runs:
            self._flights.begin(request.pick_id, Flight(slot, tuple(runs), self._latest_s))

    def ended(self, pick_id: int, now: float) -> None:
        """Note that a request has ended: its endpoint used the prompts until ``now``.

        An endpoint without a tier in horizon mode depends on picks alone, and does not change.
        """
        flight = self._flights.end(pick_id)
        if flight is not None and flight.slot in self._terms.with_horizon:
            self._latest_s = max(self._latest_s, now)
            self._use_again(flight, now)

    def unused(self, pick_id: int) -> None:
        """Note that a request ended without being computed: its endpoint holds no more than it held before."""
        flight = self._flights.end(pick_id)
        if flight is not None:
            for last, blocks, before in flight.runs:
                self.index.take_back(flight.slot, last, blocks, before, flight.noted_s)

    def endpoint_added(self, candidate: Candidate) -> None:
        """Add a new endpoint with its terms."""
        self.endpoint_removed(candidate.slot, candidate.address)  # the slot's previous endpoint
        self.engine_reported(candidate)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Forget an endpoint and all that it holds."""
        self.index.remove_endpoint(slot)
        self._flights.forget(slot)
        self._gates.pop(slot, None)
        self._unsized.discard(slot)
        self._terms.remove(slot)

    def engine_reported(self, candidate: Candidate) -> None:
        """Follow a change in what the engine reports; what no longer fits, or is gone, is evicted at once."""
        slot = candidate.slot
        terms = tuple([producer.terms(candidate) for producer in self.producers])
        if terms != self._terms.of(slot):
            self._change(candidate, terms)
        if slot in self._terms.with_horizon:
            self._follow(candidate, terms)

    def capacity_tokens(self, slot: Slot, producer: str) -> int:
        """Return what ``slot`` can hold in the producer's tier; 0 for an unknown slot. Units: tokens."""
        terms = self._terms.of(slot)
        return terms[self._tiers[producer]].capacity_tokens or 0 if terms is not None else 0

    def used_tokens(self, slot: Slot, producer: str) -> int:
        """Return what ``slot`` holds in the producer's tier; 0 for an unknown slot. Units: tokens."""
        return self.index.tokens(slot, self._tiers[producer])

    def mode(self, slot: Slot, producer: str) -> Mode:
        """Return how we know what ``slot`` holds in the producer's tier."""
        tier = self._tiers[producer]
        return self.producers[tier].better_modes().get(slot) or self._terms.modes[tier].get(slot, Mode.APPROXIMATE)

    def endpoints_by_mode(self, producer: str) -> dict[Mode, int]:
        """Return how many endpoints are in each mode."""
        tier = self._tiers[producer]
        return self._terms.by_mode(tier, self.producers[tier].better_modes())

    def doubted(self, producer: str) -> int:
        """Return how many endpoints' engines report a capacity that is not the producer's configured one."""
        return self._terms.doubted(self._tiers[producer])

    def state(self, producer: ApproxPrefixProducer) -> object:
        """Return what the producer's tier can hold and holds, summed over all endpoints."""
        tier, table = self._tiers[producer.name], self._terms
        return {
            "tier": producer.tier.value,
            "endpoints": len(table),
            "endpoints_by_mode": {
                m.value: count for m, count in self.endpoints_by_mode(producer.name).items() if count
            },
            "capacity_tokens": table.capacity_tokens(tier),
            "used_tokens": self.statistics().tokens_by_tier[tier],
        }

    def statistics(self) -> Statistics:
        """Return a snapshot; ``tokens_by_tier`` is in the order of ``producers``."""
        return self.index.statistics()

    def _change(self, candidate: Candidate, terms: tuple[Terms, ...]) -> None:
        slot = candidate.slot
        self._unsized.discard(slot)
        if any(each.capacity_tokens is None for each in terms):
            self._unsized.add(slot)
        before = self._terms.of(slot) or (None,) * len(terms)
        self._terms.set(slot, terms)
        for tier, (was, each) in enumerate(zip(before, terms, strict=True)):
            if was is None or was.bound_tokens != each.bound_tokens:
                self.index.set_capacity(slot, tier, each.bound_tokens)
            if each.doubted_tokens is not None and (was is None or was.doubted_tokens != each.doubted_tokens):
                self._warnings.doubted(candidate, self.producers[tier], each.doubted_tokens)
        wanted = {
            tier: (each.store_after, max(1, each.chunk_tokens // self.index.block_tokens))
            for tier, each in enumerate(terms)
            if each.store_after > 1
        }
        gates = self._gates.pop(slot, {})
        gated = [each.gated for each in terms]
        if gated != [was is not None and was.gated for was in before]:
            self.index.gate(slot, [tier for tier, each in enumerate(gated) if each])
        if wanted:
            self._gates[slot] = {tier: gates.get(tier) or ComputeCounts(*each) for tier, each in wanted.items()}

    def _follow(self, candidate: Candidate, terms: Sequence[Terms]) -> None:
        """Evict what was last used before the horizons. What is in flight counts as used now."""
        slot = candidate.slot
        for tier in self._gpu_last:
            each = terms[tier]
            report = candidate.tiers.get(self.producers[tier].tier)
            if each.mode is not Mode.HORIZON or report is None or report.horizon_s is None:
                continue
            gone_s = until_s = report.horizon_s
            if report.horizon_tokens:  # left of what was used then; ends arrive here later
                gone_s, until_s = nextafter(gone_s, -inf), until_s + END_DELAY_S
            if not self.index.is_older(slot, tier, until_s):
                continue
            self._latest_s = max(self._latest_s, nextafter(until_s, inf))
            if self.producers[tier].tier is Tier.GPU:  # copies in other tiers may be evicted while their request runs
                for flight in self._flights.noted_by(slot, until_s, self._latest_s):
                    self._use_again(flight, self._latest_s)
            self.index.evict_unused(slot, tier, gone_s)
            if report.horizon_tokens:
                self.index.shorten(slot, tier, until_s, report.horizon_tokens)

    def _use_again(self, flight: Flight, now: float) -> None:
        for last, blocks, _ in flight.runs:
            self.index.use_again(flight.slot, last, blocks, now)

    def _warn_of_unknown(self, slot: Slot) -> None:
        self._unsized.discard(slot)
        for producer, terms in zip(self.producers, self._terms.of(slot) or (), strict=True):
            if terms.capacity_tokens is None:
                self._warnings.unknown(producer)

    def _matches(self, request: Request) -> list[Match]:
        """Return a match for each prompt that has a full block; kept in the request until its pick is recorded."""
        index, limit = self.index, self._limit_tokens
        matches = self._matched.of(request)
        # All of them were made at once, so one is as old as the others.
        if matches is not None and (not matches or matches[0].generation == index.generation):
            return matches
        matches = [index.match(prompt, limit) for prompt in request.prompts]
        found = [match for match in matches if match.blocks]
        self._matched.put(request, found)
        return found


def _flow_shares(producers: Sequence[ApproxPrefixProducer]) -> list[float]:
    """Return the largest share of a flow in each tier; an empty list if no flow is bounded."""
    shares = [producer.parameters.max_share_by_fairness_id for producer in producers]
    return shares if min(shares) < 1.0 else []
