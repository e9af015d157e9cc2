"""How the engines' metrics are read, from the sources of ``dataLayer`` or from the defaults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epp.config.schema import DataLayer, Source
from epp.config.wiring.engines import engines_named_by_flags, engines_of
from epp.config.wiring.implied import EndpointNotificationSource
from epp.config.wiring.instances import Instances
from epp.config.wiring.sources import CoreMetricsExtractor, KubernetesNotificationSource, MetricsDataSource
from epp.errors import ConfigError
from epp.scrape.parameters import MIN_REFRESH_S, MetricsSourceOptions, ScrapeParameters
from epp.scrape.reading.specs import EngineSpecs


def wire_scraping(
    layer: DataLayer, instances: Instances, metrics_source: MetricsSourceOptions
) -> tuple[ScrapeParameters | None, list[str]]:
    """Return how metrics are read, or None if they are not, and warnings.

    Raises: ConfigError with the key path.
    """
    pages = _pages(layer, instances)
    if len(pages) > 1:
        raise ConfigError(
            f"dataLayer.sources: lists {len(pages)} sources, and one page of each endpoint is read; keep the "
            "one with the engine's metrics"
        )
    for i, source in pages:
        path = f"dataLayer.sources[{i}]"
        plugin = instances.resolve_as(MetricsDataSource, source.plugin_ref, f"{path}.pluginRef")
        extractors = [
            instances.resolve_as(CoreMetricsExtractor, extractor.plugin_ref, f"{path}.extractors[{j}].pluginRef")
            for j, extractor in enumerate(source.extractors)
        ]
        if not extractors:
            return None, [f"{path}.extractors: none, so nothing is read; add one that is a core-metrics-extractor"]
        if len(extractors) > 1:
            raise ConfigError(
                f"{path}.extractors: lists {len(extractors)}, and a page is read once; put the engineConfigs of all "
                "into one core-metrics-extractor"
            )
        return _read(_declared(plugin, instances), extractors[0], instances, metrics_source)
    if not layer.inject_defaults:
        return None, ["dataLayer.injectDefaults: false and no source, so no endpoint's load is known"]
    extractor = next(iter(instances.of(CoreMetricsExtractor)), None)
    return _read(_implied(instances, metrics_source), extractor, instances, metrics_source)


def _pages(layer: DataLayer, instances: Instances) -> list[tuple[int, Source]]:
    """Return the sources with their positions, without notification sources, since plugins are always notified."""
    pages = []
    for i, source in enumerate(layer.sources):
        name = source.plugin_ref
        plugin = instances.resolve(name, "") if name in instances else None
        if isinstance(plugin, KubernetesNotificationSource):  # wired by ``wire_notifications``
            continue
        if not isinstance(plugin, EndpointNotificationSource):
            pages.append((i, source))
            continue
        for j, extractor in enumerate(source.extractors):
            instances.resolve(extractor.plugin_ref, f"dataLayer.sources[{i}].extractors[{j}].pluginRef")
    return pages


def _read(
    source: tuple[ScrapeParameters, list[str]],
    extractor: CoreMetricsExtractor | None,
    instances: Instances,
    metrics_source: MetricsSourceOptions,
) -> tuple[ScrapeParameters, list[str]]:
    """Return ``source`` with the engines of ``extractor``, or with those of the older flags if it is None."""
    parameters, warnings = source
    by_flags = engines_named_by_flags(metrics_source.names)
    if extractor is None:
        return replace(parameters, engines=by_flags), warnings
    instances.use(extractor)
    path = _path(extractor, instances)
    engines = engines_of(extractor.parameters, path)
    if by_flags != EngineSpecs() and by_flags.default != engines.by_name[by_flags.default.name]:
        warnings = [*warnings, f"{path}: says which metrics are read, so the flags --*-metric have no effect"]
    return replace(parameters, engines=engines), warnings


def _implied(instances: Instances, metrics_source: MetricsSourceOptions) -> tuple[ScrapeParameters, list[str]]:
    for source in instances.of(MetricsDataSource):
        instances.use(source)
        return _declared(source, instances)
    implied = ScrapeParameters(
        scheme=metrics_source.scheme,
        path=metrics_source.path,
        port=metrics_source.port,
        insecure_skip_verify=metrics_source.insecure_skip_verify,
    )
    return implied, []


def _path(plugin: object, instances: Instances) -> str:
    return next(f"{declared.path}.parameters" for declared in instances if declared.plugin is plugin)


def _declared(source: MetricsDataSource, instances: Instances) -> tuple[ScrapeParameters, list[str]]:
    parameters = source.parameters
    path = _path(source, instances)
    if bool(parameters.client_cert_path) != bool(parameters.client_key_path):
        raise ConfigError(f"{path}: clientCertPath and clientKeyPath go together; give both or neither")
    for key, file in (
        ("caCertPath", parameters.ca_cert_path),
        ("clientCertPath", parameters.client_cert_path),
        ("clientKeyPath", parameters.client_key_path),
    ):
        if file and not Path(file).is_file():
            raise ConfigError(f"{path}.{key}: there is no file {file}")
    warnings: list[str] = []
    interval_s: float | None = parameters.interval
    if interval_s is not None and interval_s < MIN_REFRESH_S:
        warnings = [f"{path}.interval: {interval_s * 1000:g}ms is raised to the least, 50ms"]
        interval_s = MIN_REFRESH_S
    declared = ScrapeParameters(
        scheme=parameters.scheme,
        path=parameters.path,
        insecure_skip_verify=parameters.insecure_skip_verify,
        ca_cert_path=parameters.ca_cert_path,
        client_cert_path=parameters.client_cert_path,
        client_key_path=parameters.client_key_path,
        interval_s=interval_s,
    )
    return declared, warnings
