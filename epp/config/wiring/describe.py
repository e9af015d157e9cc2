"""Describes what a plan does, in lines for the start log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from epp.config.wiring.profiles import Wiring
from scorers.base import Candidate, Plugin, Producer, Slot
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.scorer import PrefixScorer

_SILENT = Candidate(slot=Slot(0), address="")
"""An endpoint whose engine has not reported yet."""


def describe(wiring: Wiring, producers: Sequence[Producer[Any]]) -> Iterator[str]:
    """Yield one line for each instance, in the order in which a request passes them."""
    for producer in producers:
        about = f": {_capacity(producer)}" if isinstance(producer, ApproxPrefixProducer) else _following(producer)
        yield f"producer {_title(producer)}{about}"
    for narrower in wiring.filters:
        yield f"filter {_title(narrower)}"
    for scorer, weight in wiring.scorers:
        source = scorer.producer_name if isinstance(scorer, PrefixScorer) else None
        yield f"scorer {_title(scorer)}: weight {weight:g}" + (f", reads {source}" if source else "")
    picks = getattr(wiring.picker.parameters, "max_num_of_endpoints", None)
    yield f"picker {_title(wiring.picker)}" + (f": {picks} endpoint{'s' * (picks > 1)} a decision" if picks else "")


def _following(producer: Producer[Any]) -> str:
    if not isinstance(producer, PrecisePrefixProducer):
        return ""
    events = producer.parameters.kv_events_config
    where = events.pod_discovery_config
    if events.zmq_endpoint:
        return f": KV events of publishers that connect to {events.zmq_endpoint}"
    replays = where.replay_socket_port or where.replay_socket_port_offset is not None
    return ": KV events of every endpoint" + ("" if replays else ", no port for replays but what labels say")


def _capacity(producer: ApproxPrefixProducer) -> str:
    tier = f"tier {producer.tier.value}"
    tokens = producer.terms(_SILENT).capacity_tokens
    if producer.uses_engine_capacity:
        until = "unknown" if tokens is None else f"{tokens:,} tokens"
        return f"{tier}, capacity from the engine, {until} until it reports"
    return f"{tier}, of unknown capacity" if tokens is None else f"{tier}, {tokens:,} tokens an endpoint"


def _title(plugin: Plugin[Any]) -> str:
    return plugin.name if plugin.name == plugin.type_name else f"{plugin.name} ({plugin.type_name})"
