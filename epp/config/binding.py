"""Which producer says what is cached, for every plugin that asks."""

from __future__ import annotations

from typing import Any

import msgspec

from epp.config.instances import Declared, Instances
from epp.config.strict import nearest
from epp.errors import ConfigError
from scorers.base import Plugin, Producer
from scorers.prefix import ApproxPrefixProducer, PrefixScorer

DEFAULT_PRODUCER = ApproxPrefixProducer.type_name
"""The name that stands for a producer with default parameters where no such instance is declared."""

_FIELD = "prefix_match_info_producer_name"
_KEY = "prefixMatchInfoProducerName"


def bind_producers(instances: Instances) -> tuple[list[Producer[Any]], list[str]]:
    """All producers, declared and implied, and warnings.

    A ``prefix-cache-scorer`` that names no producer is of the older form, in which every scorer has an index of its
    own; in a configuration that declares producers it reads the default one. Other plugins that name none ask all.

    Raises: ConfigError naming the reference that leads nowhere.
    """
    producers = {producer.name: producer for producer in instances.of(Producer)}  # type: ignore[type-abstract]
    declared = tuple(producers)
    warnings: list[str] = []
    asks_any = False
    for consumer in instances:
        parameters = consumer.plugin.parameters
        if not hasattr(parameters, _FIELD):
            continue
        name = getattr(parameters, _FIELD)
        if name:
            _require(name, consumer, instances, producers)
        elif not isinstance(consumer.plugin, PrefixScorer):
            asks_any = True
        elif own := _own_producer(consumer.plugin, declared):
            producers[own.name] = own
        else:
            if DEFAULT_PRODUCER not in producers:
                warnings.append(
                    f"{consumer.path}: reads none of the declared producers but one of its own with default "
                    f"parameters; say which with parameters.{_KEY} ({', '.join(declared)})"
                )
            _point(consumer.plugin, DEFAULT_PRODUCER)
            producers.setdefault(DEFAULT_PRODUCER, ApproxPrefixProducer())
    if asks_any and not producers:
        producers[DEFAULT_PRODUCER] = ApproxPrefixProducer()
    return list(producers.values()), warnings


def _require(name: str, consumer: Declared, instances: Instances, producers: dict[str, Producer[Any]]) -> None:
    if name in producers:
        return
    path = f"{consumer.path}.parameters.{_KEY}"
    if name in instances:
        kind = instances.resolve(name, path).type_name
        raise ConfigError(f"{path}: {name!r} is of type {kind}; a producer belongs here")
    if name != DEFAULT_PRODUCER:
        raise ConfigError(f"{path}: no producer is named {name!r}{nearest(name, producers)}")
    producers[name] = ApproxPrefixProducer()


def _own_producer(scorer: PrefixScorer, declared: tuple[str, ...]) -> ApproxPrefixProducer | None:
    """The index of an older scorer; None for one without parameters among declared producers."""
    if declared and not scorer.has_legacy_parameters:
        return None
    return scorer.legacy_producer()


def _point(scorer: Plugin[Any], producer: str) -> None:
    scorer.parameters = msgspec.structs.replace(scorer.parameters, **{_FIELD: producer})
