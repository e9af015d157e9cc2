"""What operators are told of capacities that nobody says, or that cannot be right: once."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from scorers.base import Candidate
from scorers.prefix.prefix import ApproxPrefixProducer

log = logging.getLogger(__name__)


class CapacityWarnings:
    """Owner: the prefix cache."""

    def __init__(self) -> None:
        self._untold: set[ApproxPrefixProducer] = set()
        self._doubts: set[tuple[str, int]] = set()

    def serve(self, producers: Iterable[ApproxPrefixProducer]) -> None:
        """These may be warned of."""
        self._untold = {producer for producer in producers if producer.asked_for}

    def unknown(self, producer: ApproxPrefixProducer) -> None:
        """Nobody says how much a tier of it can hold. Told once for each producer."""
        if producer in self._untold:
            self._untold.discard(producer)
            log.warning(
                "%s: nothing says how much the %s tier holds, so it counts as empty; write lruCapacityPerServer",
                producer.name,
                producer.tier.value,
            )

    def doubted(self, candidate: Candidate, producer: ApproxPrefixProducer, tokens: int) -> None:
        """The ``tokens`` that are configured cannot be right. Told once for each configured number, at the first
        endpoint whose engine holds less; ``tierwise_prefix_doubted_capacities`` says how many there are."""
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
            f"{producer.told_tokens(candidate) or 0:,}",
        )
