"""Which metrics are read from which engines: the parameters of a ``core-metrics-extractor``, or the older flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from epp.config.strict import nearest
from epp.config.wiring.sources import CoreMetricsExtractorParameters, EngineConfig
from epp.errors import ConfigError
from epp.scrape.parameters import EngineMetricNames
from epp.scrape.reading.specs import BUILT_IN, ENGINE_LABELS, VLLM, EngineSpec, EngineSpecs, MetricSpec, parse_spec

T = TypeVar("T")


def engines_of(parameters: CoreMetricsExtractorParameters, path: str) -> EngineSpecs:
    """Return the engines in ``parameters``. Raises: ConfigError with the key path, which begins with ``path``."""
    by_name = dict(BUILT_IN)
    at: dict[str, str] = {}
    for i, config in enumerate(parameters.engine_configs):
        where = f"{path}.engineConfigs[{i}]"
        if config.name in at:
            raise ConfigError(f"{where}.name: {config.name!r} is configured at {at[config.name]} already")
        at[config.name] = where
        by_name[config.name] = _engine(config, BUILT_IN.get(config.name, EngineSpec(name=config.name)), where)
    default = by_name.get(parameters.default_engine)
    if default is None:
        raise ConfigError(
            f"{path}.defaultEngine: no engine is named {parameters.default_engine!r}"
            f"{nearest(parameters.default_engine, by_name)}"
        )
    labels = (parameters.engine_label_key,) if parameters.engine_label_key else ENGINE_LABELS
    return EngineSpecs(default=default, by_name=by_name, labels=labels)


def engines_named_by_flags(names: EngineMetricNames) -> EngineSpecs:
    """Return vLLM's metrics, with the names that the flags give some of them."""
    kv_usage = VLLM.kv_usage
    if names.kv_usage is not None and names.kv_usage != str(kv_usage[0]):
        kv_usage = (parse_spec(names.kv_usage),) if names.kv_usage else ()
    vllm = replace(
        VLLM,
        waiting=_flag(names.waiting, VLLM.waiting),
        running=_flag(names.running, VLLM.running),
        kv_usage=kv_usage,
        lora=_flag(names.lora, VLLM.lora),
        cache_info=_flag(names.cache_info, VLLM.cache_info),
    )
    return EngineSpecs(default=vllm, by_name={**BUILT_IN, vllm.name: vllm})


def _flag(text: str | None, standard: MetricSpec | None) -> MetricSpec | None:
    return standard if text is None else parse_spec(text) if text else None


def _engine(config: EngineConfig, standard: EngineSpec, where: str) -> EngineSpec:
    """Return ``standard`` with the changes in ``config``; an empty text removes a metric."""

    def spec(key: str, text: str | None, otherwise: T, made: Callable[[MetricSpec | None], T]) -> T:
        if text is None:
            return otherwise
        if not text.strip():
            return made(None)
        try:
            return made(parse_spec(text))
        except ValueError as error:
            raise ConfigError(f"{where}.{key}: {error}") from error

    def one(key: str, text: str | None, otherwise: MetricSpec | None) -> MetricSpec | None:
        return spec(key, text, otherwise, lambda found: found)

    kv_usage = standard.kv_usage
    if not kv_usage or config.kv_usage_spec != str(kv_usage[0]):  # else the older name stays, too
        kv_usage = spec("kvUsageSpec", config.kv_usage_spec, kv_usage, lambda found: (found,) if found else ())
    return EngineSpec(
        name=config.name,
        waiting=one("queuedRequestsSpec", config.queued_requests_spec, standard.waiting),
        running=one("runningRequestsSpec", config.running_requests_spec, standard.running),
        kv_usage=kv_usage,
        lora=one("loraSpec", config.lora_spec, standard.lora),
        cache_info=one("cacheInfoSpec", config.cache_info_spec, standard.cache_info),
        block_tokens_label=config.cache_block_size_label_name or standard.block_tokens_label,
        gpu_blocks_label=config.cache_num_blocks_label_name or standard.gpu_blocks_label,
        block_tokens=one("cacheBlockSizeSpec", config.cache_block_size_spec, standard.block_tokens),
        gpu_blocks=one("cacheNumBlocksSpec", config.cache_num_blocks_spec, standard.gpu_blocks),
        attributes=_attributes(config, where),
        model_label=standard.model_label,
        refuses_other_models=standard.refuses_other_models,
    )


def _attributes(config: EngineConfig, where: str) -> tuple[tuple[str, MetricSpec], ...]:
    found: dict[str, MetricSpec] = {}
    for i, custom in enumerate(config.custom_metrics):
        path = f"{where}.customMetrics[{i}]"
        if custom.attribute_key in found:
            raise ConfigError(f"{path}.attributeKey: {custom.attribute_key!r} is read already; give it another name")
        try:
            found[custom.attribute_key] = parse_spec(custom.metric_spec)
        except ValueError as error:
            raise ConfigError(f"{path}.metricSpec: {error}") from error
    return tuple(found.items())
