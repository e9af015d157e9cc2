"""The price of one request at any endpoint, shared by all plugins that need it, so that all get the same answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scorers.base import Candidate, Request, Scratch, Slot, Tier
from scorers.cost.constants import MOST_REQUESTS
from scorers.cost.endpoint_costs import EndpointCosts
from scorers.cost.estimate import Ahead, Estimate, Holding, estimate
from scorers.cost.model import CostModel
from scorers.cost.queues import MOST_AHEAD_S
from scorers.prefix.cached import tokens_by_tier

NO_ENDPOINT: Mapping[Slot, int] = {}


class Waits(NamedTuple):
    """The waiting time of a request at an endpoint, by cause. Units: seconds."""

    prefill_s: float
    memory_s: float
    """Time until the request's blocks fit into memory."""
    ahead: Ahead
    """The longer of the two, and the lanes."""


class Pricing:
    """The price of a request at each endpoint. Owner: the request's decision."""

    __slots__ = ("_model", "_seconds", "_seconds_of", "_streamed", "prompt_tokens", "tiers")

    def __init__(self, model: CostModel, request: Request) -> None:
        model.arrived(request.received_s)
        self._model = model
        self._streamed = request.streaming
        self.prompt_tokens = request.prompt_tokens
        self.tiers = tier_tokens(request)
        """Tokens held, by endpoint: on the GPU, in CPU memory, in storage."""
        self._seconds_of: Sequence[Candidate] | None = None
        self._seconds: list[float] = []

    def __repr__(self) -> str:
        return f"Pricing({self.prompt_tokens} tokens)"

    def holding(self, slot: Slot) -> Holding:
        """Return what an endpoint holds of the prompt."""
        gpu, cpu, storage = self.tiers
        return Holding(gpu.get(slot, 0), cpu.get(slot, 0), storage.get(slot, 0))

    def seconds(self, candidates: Sequence[Candidate]) -> list[float]:
        """Return the price at each of ``candidates``: the time to first token, and the delay of other requests."""
        if self._seconds_of is not candidates:
            self._seconds = self._price(candidates)
            self._seconds_of = candidates
        return self._seconds

    def estimate(self, candidate: Candidate) -> Estimate:
        """Return the estimate at one candidate, by parts."""
        costs = self._model.current(candidate)
        return self._estimate(costs, candidate, self.waits(candidate).ahead)

    def waits(self, candidate: Candidate) -> Waits:
        """Return the waiting time at one candidate."""
        model = self._model
        costs, now = model.current(candidate), model.now
        queues = costs.queues
        seen = model.answers_seen and costs.awaits_response
        prefill_s = queues.prefill_s(costs.most_s, now, answers_seen=seen) + costs.foreign_s
        memory_s = 0.0
        if costs.room is not None and self.prompt_tokens > costs.room_tokens:
            # Blocks of a prefix that a running request uses, too, are in use already. Of the blocks that the GPU holds,
            # the same share is in use as of all its blocks.
            shared = min(self.tiers[0].get(candidate.slot, 0), self.prompt_tokens - 1) * costs.in_use
            memory_s = costs.room.wait_s(self.prompt_tokens - shared)
        ahead = Ahead(
            max(prefill_s, memory_s),
            min(max(0.0, queues.lane_until - now), MOST_AHEAD_S),
            min(max(0.0, queues.storage_until - now), MOST_AHEAD_S),
        )
        return Waits(prefill_s, memory_s, ahead)

    def send(self, candidate: Candidate) -> None:
        """Note in the model that the request goes to ``candidate``."""
        waits = self.waits(candidate)
        priced = self._estimate(self._model.current(candidate), candidate, waits.ahead)
        lane_s = waits.ahead.storage_s if priced.storage_tokens else waits.ahead.cpu_s
        unstreamed_tokens = 0 if self._streamed else max(0, self.prompt_tokens - max(self.holding(candidate.slot)))
        full = waits.memory_s > waits.prefill_s
        self._model.sent(candidate, priced, lane_s, full=full, unstreamed_tokens=unstreamed_tokens)

    def _estimate(self, costs: EndpointCosts, candidate: Candidate, ahead: Ahead) -> Estimate:
        return estimate(
            costs.constants,
            self.prompt_tokens,
            self.holding(candidate.slot),
            ahead,
            min(candidate.running, MOST_REQUESTS),
            costs.chunk_tokens,
            costs.crowd,
        )

    def _price(self, candidates: Sequence[Candidate]) -> list[float]:
        """Return the price at each candidate.

        The whole formula is evaluated only where something is to be loaded while there is a queue. Elsewhere a shorter
        form is enough, and its parts are computed once for all candidates that are alike in them.
        """
        model, tokens = self._model, self.prompt_tokens
        on_gpu, in_cpu, in_storage = self.tiers
        below, anywhere = in_cpu or in_storage, on_gpu or in_cpu or in_storage
        now, version, table = model.now, model.version, model.all_costs(candidates)
        seen = model.answers_seen
        common = model.current(candidates[0]).constants
        prefill_s = {0: common.prefill_s(tokens, 0)}  # by the tokens that the GPU holds
        loads: dict[tuple[int, Holding, int], Estimate] = {}  # by the identity of constants, which outlive this call
        prices = []
        for candidate in candidates:
            slot = candidate.slot
            costs = table[slot]
            if costs is None or costs.candidate is not candidate or costs.version != version:
                costs = model.current(candidate)
            constants = costs.constants
            wait_s = costs.foreign_s
            if costs.most_s:
                wait_s += costs.queues.prefill_s(costs.most_s, now, answers_seen=seen and costs.awaits_response)
            gpu, load_s = 0, 0.0
            if anywhere:
                gpu = on_gpu.get(slot, 0)
                if below and ((in_cpu and in_cpu.get(slot, 0) > gpu) or (in_storage and in_storage.get(slot, 0) > gpu)):
                    queues = costs.queues
                    if wait_s or queues.lane_until > now or queues.storage_until > now or tokens > costs.room_tokens:
                        priced = self._estimate(costs, candidate, self.waits(candidate).ahead)
                        prices.append(priced.price_s)
                        continue
                    key = (id(constants), self.holding(slot), costs.chunk_tokens)
                    alike = loads.get(key)
                    if alike is None:
                        alike = loads[key] = estimate(constants, tokens, key[1], chunk_tokens=key[2])
                    load_s, own_s = alike.load_s, alike.prefill_s
                    taken = tokens - alike.gpu_tokens * costs.in_use
                    prices.append(costs.plain_s + load_s + own_s * costs.weight + taken * costs.memory_token_s)
                    continue
            taken = float(tokens)
            if gpu:
                if gpu >= tokens:
                    gpu = tokens - 1
                taken -= gpu * costs.in_use
            if tokens > costs.room_tokens and costs.room is not None:
                wait_s = max(wait_s, costs.room.wait_s(taken))
            if constants is not common:
                own = constants.prefill_s(tokens, gpu)
            elif (own := prefill_s.get(gpu, -1.0)) < 0.0:
                own = prefill_s[gpu] = constants.prefill_s(tokens, gpu)
            prices.append(costs.plain_s + wait_s + own * costs.weight + taken * costs.memory_token_s)
        return prices


PRICING = Scratch[Pricing]()
"""The pricing of a request, from its producer to all scorers and pickers that go by it."""


def tier_tokens(request: Request) -> tuple[Mapping[Slot, int], Mapping[Slot, int], Mapping[Slot, int]]:
    """Return the tokens held by endpoint, on the GPU, in CPU memory and in storage, according to the producers."""
    found = tokens_by_tier(request)
    return found.get(Tier.GPU, NO_ENDPOINT), found.get(Tier.CPU, NO_ENDPOINT), found.get(Tier.STORAGE, NO_ENDPOINT)
