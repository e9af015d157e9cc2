"""Estimate where a prompt is cached, from what was sent to each endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from scorers.base import CachedPrefix, Candidate, Mode, Producer, Request, Slot, Tier
from scorers.prefix.parameters import DEFAULT_CAPACITY_BLOCKS, ApproxPrefixParameters, tier_in
from scorers.prefix.terms import Terms, reported_tokens, terms


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
    is_configured: ClassVar[bool] = True
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

    def better_modes(self) -> Mapping[Slot, Mode]:
        """Return the endpoints that a better source covers, and its mode; there this producer is only a fallback."""
        return {}

    @property
    def uses_engine_capacity(self) -> bool:
        """Whether the engine's capacity is used once the engine reports it."""
        parameters = self.parameters
        return parameters.auto_tune and (self.tier is Tier.GPU or parameters.lru_capacity_per_server is None)

    def terms(self, candidate: Candidate) -> Terms:
        """Return the terms for this tier of ``candidate``."""
        parameters, gpu = self.parameters, self.tier is Tier.GPU
        configured = self._configured_tokens
        if gpu and parameters.auto_tune and candidate.gpu_blocks and not candidate.block_tokens:
            configured = candidate.gpu_blocks * parameters.block_tokens
        found = terms(
            candidate,
            self.tier,
            configured,
            auto=parameters.auto_tune,
            follow=parameters.follow_horizon,
            configured_first=not gpu,
        )
        if gpu and found.capacity_tokens is None:
            tokens = DEFAULT_CAPACITY_BLOCKS * parameters.block_tokens
            return found._replace(capacity_tokens=tokens, bound_tokens=tokens)
        return found

    def capacity_tokens(self, candidate: Candidate) -> int:
        """Return what ``candidate`` can hold in this tier; 0 if unknown. Units: tokens."""
        return self.terms(candidate).capacity_tokens or 0

    def reported_tokens(self, candidate: Candidate) -> int | None:
        """Return what the engine reports that ``candidate`` can hold in this tier. Units: tokens."""
        return reported_tokens(candidate, self.tier)

    @property
    def _configured_tokens(self) -> int | None:
        blocks = self.parameters.lru_capacity_per_server
        return None if blocks is None else blocks * self.parameters.block_tokens

    def _served(self) -> PrefixSource:
        if self.source is None:
            raise RuntimeError(f"{self.name}: no prefix cache serves it; make a PrefixCache of all producers")
        return self.source
