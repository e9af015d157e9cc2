"""The counts of picks, of rewrite rules and of failed plugins, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from epp.metrics.gauges import Reading, Source
from epp.picking.director import Director
from epp.picking.model_rewrites import ModelRewrites
from epp.picking.profile import Profile


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
