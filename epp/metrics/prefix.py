"""Numbers that the parts keep for themselves, as metrics: read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, fields

from epp.extproc.access_log import AccessLog
from epp.metrics.gauges import Reading, Source
from epp.picking.director import Director
from epp.picking.model_rewrites import ModelRewrites
from epp.picking.profile import Profile
from epp.pool.pool import Pool
from epp.wire.http2.counters import Statistics
from scorers.prefix.cache import PrefixCache


def wire_readings(statistics: Callable[[], Statistics]) -> Source:
    """Connections, streams, resets and floods of a transport."""

    def read() -> Iterator[Reading]:
        now = statistics()
        gauges = {"connections": now.connections, "streams": now.streams}
        for name, value in gauges.items():
            yield Reading(f"tierwise_wire_open_{name}", f"Open {name} of the ext-proc port.", (), [((), value)])
        text = "Bytes of answers that clients have not let out, and of messages that are still arriving."
        yield Reading("tierwise_wire_buffered_bytes", text, (), [((), now.buffered_bytes)])
        for field in fields(now):
            name, value = field.name, getattr(now, field.name)
            if name not in gauges and name not in ("floods", "buffered_bytes"):
                plain = name.removesuffix("_total")
                text = f"{plain.replace('_', ' ').capitalize()}."
                yield Reading(f"tierwise_wire_{plain}", text, (), [((), value)], counter=True)
        yield Reading(
            "tierwise_wire_floods",
            "Connections ended because they crossed a bound.",
            ("bound",),
            [((flood.value,), count) for flood, count in now.floods.items()],
            counter=True,
        )

    return read


def access_log_readings(access_log: AccessLog) -> Source:
    """What became of the entries of the proxy's access log."""

    def read() -> Iterator[Reading]:
        yield Reading(
            "tierwise_access_log_entries",
            "Entries of the proxy's access log, by what they told: ended (closed a pick), without_pick, "
            "closed_path (not open to clients), unmatched (closed before), garbage.",
            ("result",),
            [((name,), count) for name, count in asdict(access_log.statistics()).items() if name != "entries"],
            counter=True,
        )

    return read


def director_readings(director: Director) -> Source:
    """What became of picks."""

    def read() -> Iterator[Reading]:
        yield Reading(
            "tierwise_served_elsewhere",
            "Requests that another endpoint answered than the one picked.",
            (),
            [((), director.picks.served_elsewhere)],
            counter=True,
        )
        yield Reading(
            "tierwise_compressed_responses_not_renamed",
            "Responses to rewritten requests that keep the engine's name of the model, for they are compressed.",
            (),
            [((), director.names_kept)],
            counter=True,
        )

    return read


def rewrite_readings(in_use: Callable[[], ModelRewrites]) -> Source:
    """Which rules were followed."""

    def read() -> Iterator[Reading]:
        yield Reading(
            "llm_d_epp_model_rewrite_decisions",
            "Requests that follow a rewrite rule.",
            ("model_rewrite_name", "model_name", "target_model"),
            in_use().decisions.items(),
            counter=True,
        )

    return read


def profile_readings(profile: Callable[[], Profile]) -> Source:
    """Plugins that failed and were skipped."""

    def read() -> Iterator[Reading]:
        yield Reading(
            "tierwise_plugin_failures",
            "Times a plugin raised or answered what it must not, and was skipped.",
            ("plugin_name",),
            [((name,), count) for name, count in profile().failures.items()],
            counter=True,
        )

    return read


def prefix_readings(in_use: Callable[[], PrefixCache | None], pool: Pool) -> Source:
    """What the prefix index can hold and holds."""

    def read() -> Iterator[Reading]:
        cache = in_use()
        if cache is None:
            return
        everyone = pool.candidates()
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
                    # Two producers of one tier know the same memory.
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
            "Endpoints whose engines say that they hold less than the configured lruCapacityPerServer.",
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
