"""The plugin types that are settings for the shells: where endpoints come from and how their metrics are read."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from epp.units import Duration
from scorers.base import NoParameters, Plugin


class FileDiscoveryParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which file lists the endpoints."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    watch_file: bool = False
    """Whether changes of the file are followed."""


class FileDiscovery(Plugin[FileDiscoveryParameters]):
    """Endpoints from a file."""

    type_name = "file-discovery"
    Parameters = FileDiscoveryParameters


class MetricsDataSourceParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How an engine's metrics are fetched."""

    scheme: Literal["http", "https"] = "http"
    path: Annotated[str, msgspec.Meta(pattern="^/")] = "/metrics"
    insecure_skip_verify: bool = True
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    interval: Duration | None = None
    """Between two reads of a busy endpoint; None for ``--refresh-metrics-interval``."""


class MetricsDataSource(Plugin[MetricsDataSourceParameters]):
    """Numbers from each endpoint's metrics page."""

    type_name = "metrics-data-source"
    Parameters = MetricsDataSourceParameters


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The metric names of one kind of engine; empty ones are left to the engine's defaults."""

    name: str = ""
    queued_requests_spec: str = ""
    running_requests_spec: str = ""
    kv_usage_spec: str = ""
    lora_spec: str = ""
    cache_info_spec: str = ""
    cache_block_size_label_name: str = ""
    cache_num_blocks_label_name: str = ""
    cache_block_size_spec: str = ""
    cache_num_blocks_spec: str = ""
    custom_metrics: tuple[dict[str, str], ...] = ()


VLLM = EngineConfig(
    name="vllm",
    queued_requests_spec="vllm:num_requests_waiting",
    running_requests_spec="vllm:num_requests_running",
    kv_usage_spec="vllm:kv_cache_usage_perc",
    lora_spec="vllm:lora_requests_info",
    cache_info_spec="vllm:cache_config_info",
    cache_block_size_label_name="block_size",
    cache_num_blocks_label_name="num_gpu_blocks",
)
"""What is read today."""


class CoreMetricsExtractorParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which metrics of an engine mean what."""

    default_engine: str = "vllm"
    engine_configs: tuple[EngineConfig, ...] = ()


class CoreMetricsExtractor(Plugin[CoreMetricsExtractorParameters]):
    """Queue, batch, KV usage, LoRA and cache size, out of a metrics page."""

    type_name = "core-metrics-extractor"
    Parameters = CoreMetricsExtractorParameters


class SingleProfileHandler(Plugin[NoParameters]):
    """Runs the one profile there is."""

    type_name = "single-profile-handler"
