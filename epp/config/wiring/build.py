"""Builds a plan from a configuration: everything that could fail later fails here, with the key path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from epp.config.defaults import default_config
from epp.config.deprecated import deprecated_plugins
from epp.config.load import load_file, load_text
from epp.config.plan import Plan
from epp.config.schema import API_VERSIONS, Config, FileDiscoveryParameters
from epp.config.strict import nearest
from epp.config.unsupported import inert, refuse
from epp.config.wiring.binding import bind_producers
from epp.config.wiring.costs import bind_costs
from epp.config.wiring.data import wire_scraping
from epp.config.wiring.describe import describe
from epp.config.wiring.flow import wire_admission
from epp.config.wiring.instances import Instances, instantiate
from epp.config.wiring.kinds import Kind, known_kinds
from epp.config.wiring.notifications import wire_notifications
from epp.config.wiring.profiles import wire_profile
from epp.config.wiring.references import bind_references
from epp.config.wiring.rewrites import wire_rewrites
from epp.config.wiring.served import wire_served
from epp.config.wiring.sources import CoreMetricsExtractor, FileDiscovery
from epp.config.wiring.suggestions import places
from epp.config.wiring.tokens import wire_tokens
from epp.errors import ConfigError
from epp.parsers import DEFAULT_PARSERS, ByPath, Parser
from epp.picking.model_rewrites import RewritingParser
from epp.picking.profile import Profile
from epp.picking.usage_reporter import RequestAttributeReporter
from epp.scrape.parameters import MetricsSourceOptions
from scorers.base import Producer
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.cache import PrefixCache
from scorers.prefix.producer import ApproxPrefixProducer

_VLLM_METRICS = MetricsSourceOptions()


def plan_from(
    config_file: Path | None,
    config_text: str | None,
    *,
    metrics_source: MetricsSourceOptions = _VLLM_METRICS,
    picks: int = 1,
    by_model: bool = False,
    before: Plan | None = None,
) -> Plan:
    """Return the plan of ``--config-file``, of ``--config-text`` or of neither; the others as for ``build``.

    Raises: ConfigError, one sentence that names the source and the key path.
    """
    source, config = "the default configuration", None
    if config_file is not None:
        source, config = str(config_file), load_file(config_file)
    elif config_text is not None:
        source, config = "--config-text", load_text(config_text)
    try:
        return build(config, metrics_source=metrics_source, picks=picks, by_model=by_model, before=before)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def build(
    config: Config | None = None,
    *,
    metrics_source: MetricsSourceOptions = _VLLM_METRICS,
    picks: int = 1,
    random: Random | None = None,
    kinds: Mapping[str, Kind] | None = None,
    by_model: bool = False,
    before: Plan | None = None,
) -> Plan:
    """Instantiate and wire ``config``, the default one if None.

    Three arguments apply where the configuration leaves something open: ``metrics_source`` is how metrics are read,
    ``picks`` how many endpoints a decision names, ``by_model`` whether requests go only to endpoints that serve their
    model. Plugins that are unchanged since ``before`` are kept, with all their state.
    Raises: ConfigError, beginning with the key path.
    """
    config = config or default_config()
    random = random or Random()
    refuse(config)
    instances = instantiate(
        config.plugins,
        kinds if kinds is not None else known_kinds(),
        random,
        picks,
        {} if before is None else before.instances,
        places(config),
    )
    wiring, served = wire_served(wire_profile(config, instances, random, picks), instances, implied=by_model)
    producers, unbound = bind_producers(instances)
    producers, outvoted = bind_costs(instances, wiring, producers, None if before is None else before.profile)
    needless = bind_references(instances)
    tokens = wire_tokens(instances, producers)
    parsers = _parsers(config, instances)
    rewrites, doubtful = wire_rewrites(config.inference_model_rewrites, random)
    discovery = _discovery(config, instances)
    scrape, unread = wire_scraping(config.data_layer, instances, metrics_source)
    notifications, unheard = wire_notifications(config.data_layer, instances)
    admission = wire_admission(config, instances, reads_metrics=scrape is not None)
    precise = _precise(producers)
    approximate = [producer for producer in producers if isinstance(producer, ApproxPrefixProducer)]
    approximate += precise.fallbacks if precise is not None else ()
    return Plan(
        profile=Profile(
            [each for each in wiring.filters if each is not served],
            producers,
            wiring.scorers,
            wiring.picker,
            reporters=_reporters(instances),
        ),
        parser=RewritingParser(ByPath(parsers), rewrites),
        instances={declared.plugin.name: declared.plugin for declared in instances},
        rewrites=rewrites,
        admission=admission.plan,
        prefix_cache=PrefixCache(approximate) if approximate else None,
        precise=precise,
        discovery=discovery,
        scrape=scrape,
        notifications=notifications,
        tokens=tokens.plan,
        served=served,
        protocols=frozenset[str]().union(*(parser.protocols for parser in parsers)),
        summary=(*describe(wiring, producers), *admission.summary, *tokens.summary),
        warnings=(
            *_deprecated(config),
            *deprecated_plugins(config),
            *inert(config),
            *wiring.warnings,
            *unbound,
            *outvoted,
            *needless,
            *unread,
            *unheard,
            *_unread_attributes(instances),
            *doubtful,
            *admission.warnings,
            *tokens.warnings,
            *_unused(instances),
        ),
    )


def _parsers(config: Config, instances: Instances) -> list[Parser[Any]]:
    """Return the parsers that are referred to, else those that are declared, else the defaults for most engines."""
    references = [
        (parser.plugin_ref, f"requestHandler.parsers[{i}].pluginRef")
        for i, parser in enumerate(config.request_handler.parsers)
    ]
    if config.parser is not None:
        if references:
            raise ConfigError("parser: is the older form of requestHandler.parsers; keep one of the two")
        references = [(config.parser.plugin_ref, "parser.pluginRef")]
    kind: type[Parser[Any]] = Parser  # type: ignore[type-abstract]
    parsers = [instances.resolve_as(kind, name, path) for name, path in references] or instances.of(kind)
    for parser in parsers:
        instances.use(parser)
    return parsers or [default() for default in DEFAULT_PARSERS]


def _reporters(instances: Instances) -> list[RequestAttributeReporter]:
    """Return all declared reporters and mark them as used."""
    reporters = instances.of(RequestAttributeReporter)
    for reporter in reporters:
        instances.use(reporter)
    return reporters


def _precise(producers: list[Producer[Any]]) -> PrecisePrefixProducer | None:
    """Return the only precise producer, or None. Raises: ConfigError if there are two."""
    precise = [producer for producer in producers if isinstance(producer, PrecisePrefixProducer)]
    if len(precise) > 1:
        names = " and ".join(repr(producer.name) for producer in precise[:2])
        raise ConfigError(f"plugins: {names} would both follow the engines' KV events; keep one")
    return precise[0] if precise else None


def _discovery(config: Config, instances: Instances) -> FileDiscoveryParameters | None:
    reference = config.data_layer.discovery
    if reference is None:
        return None
    return instances.resolve_as(FileDiscovery, reference.plugin_ref, "dataLayer.discovery.pluginRef").parameters


def _deprecated(config: Config) -> list[str]:
    warnings = []
    if config.api_version == API_VERSIONS[1]:
        warnings.append(f"apiVersion: {config.api_version} is deprecated; write {API_VERSIONS[0]}")
    if config.parser is not None:
        warnings.append("parser: is deprecated; write requestHandler.parsers")
    return warnings


def _unread_attributes(instances: Instances) -> list[str]:
    """Return a warning for each plugin that needs an endpoint attribute which no extractor reads."""
    read = {
        custom.attribute_key
        for extractor in instances.of(CoreMetricsExtractor)
        for engine in extractor.parameters.engine_configs
        for custom in engine.custom_metrics
    }
    warnings = []
    for declared in instances:
        key = getattr(declared.plugin.parameters, "attribute_key", "")
        if key and key not in read:
            hint = nearest(key, read, "; add it to customMetrics of a core-metrics-extractor")
            warnings.append(
                f"{declared.path}.parameters.attributeKey: nothing reads {key!r}, so it is never known{hint}"
            )
    return warnings


def _unused(instances: Instances) -> list[str]:
    return [
        f"{declared.path}: {declared.plugin.name!r} is declared, and nothing refers to it"
        for declared in instances.unused()
        if not isinstance(declared.plugin, Producer)
    ]
