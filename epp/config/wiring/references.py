"""Parameters that refer to plugins other than prefix producers, and plugins that have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from epp.config.strict import nearest
from epp.config.wiring.implied import (
    EndpointNotificationSource,
    InflightLoadProducer,
    PriorityThenTimeEviction,
    SessionIdProducer,
    SheddableEviction,
)
from epp.config.wiring.instances import Declared, Instances
from epp.config.wiring.sources import CoreMetricsExtractor
from epp.config.wiring.token_producer import TokenProducer
from epp.errors import ConfigError
from scorers.affinity.topology_affinity import TopologyAffinityFilter, TopologyAffinityScorer
from scorers.affinity.topology_extractor import TopologyExtractor
from scorers.base import Plugin
from scorers.labels.header_testing import HeaderTestingFilter
from scorers.load.latency import LatencyScorer


class Reference(NamedTuple):
    """A parameter whose value is the name of a plugin."""

    field: str
    key: str
    kind: type[Plugin[Any]]
    """The type of plugin that it names; the type's name stands for an undeclared one."""


ALWAYS = (
    InflightLoadProducer, TokenProducer, SessionIdProducer, SheddableEviction, PriorityThenTimeEviction,
    EndpointNotificationSource,
)  # fmt: skip
"""Types whose work is done whether they are declared or not."""
REFERENCES = (
    Reference("in_flight_load_producer_name", "inFlightLoadProducerName", InflightLoadProducer),
    Reference("topology_producer_name", "topologyProducerName", TopologyExtractor),
    Reference("producer", "producer", CoreMetricsExtractor),
)


def bind_references(instances: Instances) -> list[str]:
    """Check all references, give topology plugins their extractor, and return warnings about plugins without effect.

    The plugins that are referred to here refer only to prefix producers, which refer to nothing, so there are no
    cycles.
    Raises: ConfigError that names a reference without a plugin.
    """
    for consumer in instances:
        for reference in REFERENCES:
            name = getattr(consumer.plugin.parameters, reference.field, None)
            if name:
                _resolve(name, reference, f"{consumer.path}.parameters.{reference.key}", instances)
        if isinstance(consumer.plugin, TopologyAffinityScorer | TopologyAffinityFilter):
            consumer.plugin.read_places(_extractor(consumer.plugin, instances))
    return [f"{consumer.path}: {note}" for consumer in instances for note in _notes(consumer, instances)]


def _resolve(name: str, reference: Reference, path: str, instances: Instances) -> None:
    if name in instances:
        instances.resolve_as(reference.kind, name, path)
    elif name != reference.kind.type_name:
        known = [plugin.name for plugin in instances.of(reference.kind)]
        hint = nearest(name, known, f"; declare one of type {reference.kind.type_name} in plugins")
        raise ConfigError(f"{path}: no {reference.kind.type_name} is named {name!r}{hint}")


def _extractor(plugin: TopologyAffinityScorer | TopologyAffinityFilter, instances: Instances) -> TopologyExtractor:
    """Return the extractor that ``plugin`` names, or the first one if it names none, or else a new one."""
    name = plugin.parameters.topology_producer_name
    for extractor in instances.of(TopologyExtractor):
        if name in (None, "", extractor.name):
            instances.use(extractor)
            return extractor
    return TopologyExtractor()


def _notes(consumer: Declared, instances: Instances) -> Iterator[str]:
    """Yield warnings about plugins that do less than an operator may expect."""
    plugin = consumer.plugin
    if isinstance(plugin, ALWAYS):
        instances.use(plugin)
    if isinstance(plugin, InflightLoadProducer):
        yield f"{plugin.name!r} changes nothing: requests and uncached tokens in flight are always counted"
        if plugin.parameters.prefix_match_info_producer_name:
            yield "parameters.prefixMatchInfoProducerName: what any producer knows to be cached is not counted"
    elif isinstance(plugin, TokenProducer) and not plugin.parameters.tokenizes:
        yield f"{plugin.name!r} changes nothing: tokens are always estimated, 4 bytes to one"
    elif isinstance(plugin, SheddableEviction | PriorityThenTimeEviction):
        yield f"{plugin.name!r} changes nothing: flowControl.enableEviction alone says whether requests are evicted"
    elif isinstance(plugin, SessionIdProducer):
        yield f"{plugin.name!r} changes nothing: session affinity reads the headers in its own sessionIdConfig.sources"
    elif isinstance(plugin, LatencyScorer):
        yield f"{plugin.name!r}: nothing here predicts latency; the composite of KV memory, queue and prefix decides"
    elif isinstance(plugin, HeaderTestingFilter):
        others = "" if plugin.parameters.keep_without_header else ", and refuses all others"
        yield f"{plugin.name!r} lets every client choose its endpoint{others}; it is for tests"
    elif isinstance(plugin, TopologyAffinityScorer | TopologyAffinityFilter) and not plugin.has_peer_header:
        yield f"{plugin.name!r} has no effect: without parameters.peerTopologyHeader no peer is ever known"
