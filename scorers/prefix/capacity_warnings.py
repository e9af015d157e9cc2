"""Warnings for operators about capacities that are unknown or cannot be right, each logged once."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from scorers.base import Candidate
from scorers.prefix.producer import ApproxPrefixProducer

log = logging.getLogger(__name__)


class CapacityWarnings:
    """Remembers which warnings were logged. Owner: the prefix cache."""

    def __init__(self) -> None:
        self._unwarned: set[ApproxPrefixProducer] = set()
        self._doubts: set[tuple[str, int]] = set()

    def serve(self, producers: Iterable[ApproxPrefixProducer]) -> None:
        """Set the producers that may be warned about."""
        self._unwarned = {producer for producer in producers if producer.is_configured}

    def unknown(self, producer: ApproxPrefixProducer) -> None:
        """Warn, once per producer, that the capacity of its tier is unknown."""
        if producer in self._unwarned:
            self._unwarned.discard(producer)
            log.warning(
                "%s: nothing says how much the %s tier holds, so it counts as empty; write lruCapacityPerServer",
                producer.name,
                producer.tier.value,
            )

    def doubted(self, candidate: Candidate, producer: ApproxPrefixProducer, tokens: int) -> None:
        """Warn that the configured ``tokens`` are more than a tenth off what the engine reports.

        Logged once for each configured number, at the first endpoint whose engine differs;
        ``tierwise_prefix_doubted_capacities`` has the number of such endpoints.
        """
        doubt = (producer.name, tokens)
        if doubt in self._doubts:
            return
        self._doubts.add(doubt)
        log.warning(
            "%s: lruCapacityPerServer is %s blocks (%s tokens), and the %s tier of %s holds %s tokens as its engine"
            " says; leave it out (only the first such endpoint is named)",
            producer.name,
            f"{producer.parameters.lru_capacity_per_server:,}",
            f"{tokens:,}",
            producer.tier.value,
            candidate.address,
            f"{producer.reported_tokens(candidate) or 0:,}",
        )
