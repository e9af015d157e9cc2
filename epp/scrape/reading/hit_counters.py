"""Compares predicted cache hits with the engines' own hit counters, per endpoint and tier.

``epp.metrics.accuracy`` needs a response that reports cached tokens, and in lean mode sees a sample. vLLM counts on its
metrics page, for all requests, how many prompt tokens it looked up, found in GPU memory, and got from its connector
(kvengine, or any other that loads from CPU memory). Only sums can be compared: predicting too much for one request
offsets predicting too little for another. The engine's sums also include requests from other clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from epp.metrics.gauges import Reading
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.samples import samples
from scorers.base import Candidate, Slot, Tier

EVERY_S = 5.0
"""The interval between two reads of an endpoint's counters. A read takes 20 µs for a page of 100 KB, and newer values
would not be used any sooner.
"""
MOST = 1e15
"""More tokens than any engine counts in its life. A larger number is ignored, since it would stay in the sums."""
PROMPT = b"vllm:prefix_cache_queries_total"
CACHED = {Tier.GPU: b"vllm:prefix_cache_hits_total", Tier.CPU: b"vllm:external_prefix_cache_hits_total"}
_FASTEST_FIRST = tuple(Tier)


class _Counter:
    """The growth of an engine's counter since it was first read. If the counter falls, it began again from 0."""

    __slots__ = ("grown", "last")

    def __init__(self) -> None:
        self.last: float | None = None
        self.grown = 0.0

    def see(self, value: float) -> None:
        if self.last is not None:
            self.grown += value - self.last if value >= self.last else value
        self.last = value


class _Account:
    """The counts of one endpoint. Units: tokens; the counts of picks are the picker's own."""

    __slots__ = ("counters", "predicted", "prompt", "read_at")

    def __init__(self) -> None:
        self.prompt = 0
        self.predicted: dict[Tier, int] = {}
        self.counters: dict[bytes, _Counter] = {}
        self.read_at = float("-inf")


class Balance:
    """The accounts of all endpoints, updated as a listener of the pool.

    Owner: the event loop. O(tiers) per pick.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def picked(self, address: str, prompt_tokens: int, held: Mapping[Tier, int]) -> None:
        """Count a request sent to ``address``; ``held`` has the prompt's cached tokens in each tier that has any.

        A token that several tiers hold counts for the fastest of them.
        """
        account = self._accounts.get(address)
        if account is None:
            return  # the endpoint has just been removed
        account.prompt += prompt_tokens
        if held:
            reach, predicted = 0, account.predicted
            for tier in _FASTEST_FIRST:
                tokens = held.get(tier, 0)
                if tokens > reach:
                    predicted[tier] = predicted.get(tier, 0) + tokens - reach
                    reach = tokens

    def page_read(self, address: str, page: bytes) -> None:
        """Read the counters from an endpoint's metrics page, at most every ``EVERY_S``."""
        account, now = self._accounts.get(address), self._clock()
        if account is None or now - account.read_at < EVERY_S:
            return
        account.read_at = now
        for name in (PROMPT, *CACHED.values()):
            try:
                found = [value for _, value in samples(page, name)]
            except ScrapeError:
                continue
            if found and 0 <= sum(found) <= MOST:  # neither comparison holds for NaN
                account.counters.setdefault(name, _Counter()).see(sum(found))

    def readings(self) -> Iterator[Reading]:
        """Return the metrics for ``Telemetry.gauge_source``."""
        every = self._accounts.items()
        yield Reading(
            "tierwise_endpoint_picked_prompt_tokens",
            "Prompt tokens sent to an endpoint, as the picker counts them.",
            ("endpoint",),
            [((address,), account.prompt) for address, account in every],
            counter=True,
        )
        yield Reading(
            "tierwise_endpoint_predicted_cached_tokens",
            "Of those, tokens that the endpoint was believed to hold, by the fastest tier that holds them.",
            ("endpoint", "tier"),
            [
                ((address, tier.value), tokens)
                for address, account in every
                for tier, tokens in account.predicted.items()
            ],
            counter=True,
        )
        yield Reading(
            "tierwise_endpoint_engine_prompt_tokens",
            "Prompt tokens that the endpoint's engine looked up since it was first read, whoever sent them.",
            ("endpoint",),
            [((address,), account.counters[PROMPT].grown) for address, account in every if PROMPT in account.counters],
            counter=True,
        )
        yield Reading(
            "tierwise_endpoint_engine_cached_tokens",
            "Of those, tokens that the engine had cached, by the tier that it took them from.",
            ("endpoint", "tier"),
            [
                ((address, tier.value), account.counters[name].grown)
                for address, account in every
                for tier, name in CACHED.items()
                if name in account.counters
            ],
            counter=True,
        )

    # Methods of PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Open an account that counts from 0."""
        self._accounts[candidate.address] = _Account()

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Drop the account of the endpoint."""
        self._accounts.pop(address, None)

    def engine_reported(self, candidate: Candidate) -> None:
        """Do nothing: the counters are read from the page."""
