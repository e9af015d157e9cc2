"""Which producer reports the cached tokens, for every plugin that reads them."""

from __future__ import annotations

from typing import Any

from epp.config.strict import nearest
from epp.config.wiring.implied import InflightLoadProducer
from epp.config.wiring.instances import Declared, Instances
from epp.errors import ConfigError
from scorers.base import Producer
from scorers.precise.deprecated import PrecisePrefixScorer
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.scorer import PrefixScorer

DEFAULT_PRODUCER = ApproxPrefixProducer.type_name
"""The name that stands for a producer with default parameters if no such instance is declared."""

_FIELD = "prefix_match_info_producer_name"
_KEY = "prefixMatchInfoProducerName"


def bind_producers(instances: Instances) -> tuple[list[Producer[Any]], list[str]]:
    """Return all producers, declared and implied, and warnings.

    A ``prefix-cache-scorer`` that names no producer may be of the older form, with an index of its own; otherwise it
    reads the default producer. Other plugins that name none read all producers.
    Raises: ConfigError that names a reference without a producer.
    """
    producers = {producer.name: producer for producer in instances.of(Producer)}  # type: ignore[type-abstract]
    declared = tuple(producers)
    warnings: list[str] = []
    asks_any = False
    for consumer in instances:
        plugin = consumer.plugin
        if isinstance(plugin, PrecisePrefixScorer):
            plugin.producer_name = _precise_for(plugin, producers)
            continue
        if not hasattr(plugin.parameters, _FIELD):
            continue
        name: str | None = getattr(plugin.parameters, _FIELD)
        if name:
            _require(name, consumer, instances, producers)
        elif isinstance(plugin, InflightLoadProducer):
            continue  # tokens in flight are counted with whatever is known to be cached, even nothing
        elif not isinstance(plugin, PrefixScorer):
            asks_any = True
        else:
            own = plugin.legacy_producer() or ApproxPrefixProducer()
            if declared and own.name not in producers:
                warnings.append(
                    f"{consumer.path}: reads none of the declared producers but an index of its own; say which one "
                    f"with parameters.{_KEY} ({', '.join(declared)})"
                )
            producers.setdefault(own.name, own)
    if asks_any and not producers:
        producers[DEFAULT_PRODUCER] = ApproxPrefixProducer()
    return list(producers.values()), warnings


def _precise_for(scorer: PrecisePrefixScorer, producers: dict[str, Producer[Any]]) -> str:
    """Return the name of the declared precise producer, or of a new one with the scorer's parameters."""
    for name, producer in producers.items():
        if isinstance(producer, PrecisePrefixProducer):
            return name
    own = scorer.producer()
    producers[own.name] = own
    return own.name


def _require(name: str, consumer: Declared, instances: Instances, producers: dict[str, Producer[Any]]) -> None:
    """Make sure that the producer ``name`` exists; the default one is created if need be."""
    path = f"{consumer.path}.parameters.{_KEY}"
    if isinstance(consumer.plugin, PrefixScorer) and consumer.plugin.has_legacy_parameters:
        raise ConfigError(f"{path}: with it, a producer's own parameters have no place here; write them at {name!r}")
    if name in producers or any(
        name in producer.names for producer in producers.values() if isinstance(producer, PrecisePrefixProducer)
    ):
        return
    if name in instances:
        kind = instances.resolve(name, path).type_name
        raise ConfigError(f"{path}: {name!r} is of type {kind}; a producer belongs here")
    if name != DEFAULT_PRODUCER:
        hint = nearest(name, producers, "; declare one in plugins")
        raise ConfigError(f"{path}: no producer is named {name!r}{hint}")
    producers[name] = ApproxPrefixProducer()
