"""The contents of the prefix index as metrics, read on a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from epp.metrics.gauges import Reading, ReadingSource
from scorers.base import Candidate
from scorers.prefix.cache import PrefixCache


def prefix_readings(
    in_use: Callable[[], PrefixCache | None], candidates: Callable[[], Sequence[Candidate]]
) -> ReadingSource:
    """Return the source of the capacity and contents of the prefix index; empty without an index."""

    def read() -> Iterator[Reading]:
        cache = in_use()
        if cache is None:
            return
        everyone = candidates()
        held = cache.statistics()
        block_tokens = cache.index.block_tokens
        yield Reading(
            "llm_d_epp_prefix_indexer_size",
            "Blocks in the prefix index, of all endpoints.",
            ("plugin_name", "plugin_type"),
            [
                ((producer.name, producer.type_name), tokens // block_tokens)
                for producer, tokens in zip(cache.producers, held.tokens_by_tier, strict=True)
            ],
        )
        for name, what, tokens in (
            ("capacity", "can hold", cache.capacity_tokens),
            ("used", "holds", cache.used_tokens),
        ):
            by_tier: dict[tuple[str, ...], int] = {}
            for candidate in everyone:
                for producer in cache.producers:
                    key = (candidate.address, producer.tier.value)
                    # Two producers of one tier track the same memory.
                    by_tier[key] = max(by_tier.get(key, 0), tokens(candidate.slot, producer.name))
            yield Reading(
                f"tierwise_prefix_{name}_tokens",
                f"Tokens that the prefix index {what} of an endpoint's tier.",
                ("endpoint", "tier"),
                by_tier.items(),
            )
        yield Reading(
            "tierwise_prefix_endpoints",
            "Endpoints by how it is known what they hold in a tier: told block by block (precise), by the engine's "
            "eviction horizon, or guessed (approximate).",
            ("plugin_name", "tier", "mode"),
            [
                ((producer.name, producer.tier.value, mode.value), count)
                for producer in cache.producers
                for mode, count in cache.endpoints_by_mode(producer.name).items()
            ],
        )
        yield Reading(
            "tierwise_prefix_doubted_capacities",
            "Endpoints whose engines report a capacity that differs from lruCapacityPerServer by more than a tenth.",
            ("plugin_name", "tier"),
            [((producer.name, producer.tier.value), cache.doubted(producer.name)) for producer in cache.producers],
        )
        yield Reading(
            "tierwise_prefix_over_share_tokens",
            "Tokens that the prefix index dropped because one fairness id held more than its share of an endpoint.",
            (),
            [((), cache.index.over_share_tokens)],
            counter=True,
        )

    return read
