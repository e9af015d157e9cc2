"""What a plan does, in lines for the start log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from epp.config.profiles import Wiring
from scorers.base import Plugin, Producer


def describe(wiring: Wiring, producers: Sequence[Producer[Any]]) -> Iterator[str]:
    """One line for each instance, in the order in which a request meets them."""
    for producer in producers:
        yield f"producer {_title(producer)}"
    for narrower in wiring.filters:
        yield f"filter {_title(narrower)}"
    for scorer, weight in wiring.scorers:
        source = getattr(scorer.parameters, "prefix_match_info_producer_name", None)
        yield f"scorer {_title(scorer)}: weight {weight:g}" + (f", reads {source}" if source else "")
    picks = getattr(wiring.picker.parameters, "max_num_of_endpoints", None)
    yield f"picker {_title(wiring.picker)}" + (f": {picks} endpoint{'s' * (picks > 1)} a decision" if picks else "")


def _title(plugin: Plugin[Any]) -> str:
    return plugin.name if plugin.name == plugin.type_name else f"{plugin.name} ({plugin.type_name})"
