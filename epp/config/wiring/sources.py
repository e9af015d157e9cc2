"""Plugin types that only hold settings: where endpoints come from and how their metrics are read."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from epp.config.schema import FileDiscoveryParameters
from epp.scrape.parameters import DATA_SOURCE_TYPE, EXTRACTOR_TYPE
from epp.units import Duration
from scorers.base import NoParameters, Plugin
from scorers.parameters import check_written


class FileDiscovery(Plugin[FileDiscoveryParameters]):
    """The setting that endpoints come from a file."""

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
    """Between two scrapes of a busy endpoint; None for ``--refresh-metrics-interval``."""


class MetricsDataSource(Plugin[MetricsDataSourceParameters]):
    """Reads numbers from each endpoint's metrics page."""

    type_name = DATA_SOURCE_TYPE
    Parameters = MetricsDataSourceParameters


class CustomMetric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A metric that plugins read as an attribute of the endpoint."""

    attribute_key: Annotated[str, msgspec.Meta(min_length=1)]
    metric_spec: Annotated[str, msgspec.Meta(min_length=1)]


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The metrics of one kind of engine, each as ``name`` or ``name{label=value,...}``.

    Absent ones have their defaults, for engines that are built in; empty ones are not read.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    queued_requests_spec: str | None = None
    running_requests_spec: str | None = None
    kv_usage_spec: str | None = None
    lora_spec: str | None = None
    cache_info_spec: str | None = None
    cache_block_size_label_name: str = ""
    cache_num_blocks_label_name: str = ""
    cache_block_size_spec: str | None = None
    cache_num_blocks_spec: str | None = None
    custom_metrics: tuple[CustomMetric, ...] = ()


class CoreMetricsExtractorParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which metrics of an engine have which meaning."""

    engine_label_key: str = ""
    """The endpoint label that names the engine; empty for ``llm-d.ai/engine-type``, then the older label."""
    default_engine: str = "vllm"
    """The engine of endpoints without that label."""
    engine_configs: tuple[EngineConfig, ...] = ()


class CoreMetricsExtractor(Plugin[CoreMetricsExtractorParameters]):
    """Extracts queue, batch, KV usage, LoRA and cache size from a metrics page."""

    type_name = EXTRACTOR_TYPE
    Parameters = CoreMetricsExtractorParameters


class SingleProfileHandler(Plugin[NoParameters]):
    """Runs the only profile that a configuration has."""

    type_name = "single-profile-handler"


class KubernetesKindParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of object of the Kubernetes API; ``version`` and ``kind`` are required."""

    group: str = ""
    """Empty for the core's, such as pods and nodes."""
    version: str = ""
    kind: str = ""


class KubernetesNotificationSource(Plugin[KubernetesKindParameters]):
    """Passes the objects of one kind, and each change of them, to the extractors that are bound to it."""

    type_name = "k8s-notification-source"
    Parameters = KubernetesKindParameters

    def __init__(self, parameters: KubernetesKindParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        if parameters is not None:
            check_written("version", parameters.version)
            check_written("kind", parameters.kind)
