"""``EndpointPickerConfig`` as written: every field that the Go picker knows, with its names.

Unknown fields are errors. When the plan is built, a field may still be refused by name, with a sentence, if it needs
something that does not exist yet (``epp.config.unsupported``).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from epp.units import Duration, Quantity

API_VERSIONS = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
"""The current version, then the deprecated one."""
KIND = "EndpointPickerConfig"


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Refers to a declared plugin instance by name."""

    plugin_ref: str = ""


class PluginSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The declaration of a plugin instance."""

    type: str = ""
    name: str = ""
    """Defaults to the type."""
    parameters: dict[str, Any] = {}
    """Checked against the type's own struct."""


class ProfilePlugin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The use of a plugin in a profile."""

    plugin_ref: str = ""
    weight: float | None = None
    """The weight of a scorer; 1.0 when absent."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A way to choose endpoints: filters, scorers with weights, a picker."""

    name: str = ""
    plugins: tuple[ProfilePlugin, ...] = ()


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A source of endpoint data, and the extractors that read it."""

    plugin_ref: str = ""
    extractors: tuple[Reference, ...] = ()


class DataLayer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where endpoints and their metrics come from."""

    inject_defaults: bool = True
    sources: tuple[Source, ...] = ()
    discovery: Reference | None = None
    peer_discovery: Reference | None = None
    cross_replica_syncer_plugin_ref: str = ""
    cross_replica_sync_interval: Duration | None = None


class PriorityBand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The limits of one priority's queue."""

    priority: int = 0
    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    fairness_policy_ref: str = ""
    ordering_policy_ref: str = ""


class FlowControl(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Queues in front of the scheduler; enabled by the gate ``flowControl``."""

    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    default_request_ttl: Duration | None = msgspec.field(default=None, name="defaultRequestTTL")
    no_endpoint_request_ttl: Duration | None = msgspec.field(default=None, name="noEndpointRequestTTL")
    default_priority_band: PriorityBand | None = None
    default_negative_priority_band: PriorityBand | None = None
    priority_bands: tuple[PriorityBand, ...] = ()
    usage_limit_policy_plugin_ref: str = ""
    saturation_detector: Reference | None = None
    enable_eviction: bool = False


class InferenceObjective(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The priority of requests that name this objective."""

    name: str = ""
    priority: int = 0
    """Higher values go first; requests below 0 may be shed."""


class RequestHandler(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How request bodies are parsed."""

    parsers: tuple[Reference, ...] = ()


ModelName = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class ModelMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which of the clients' models match."""

    value: ModelName
    type: Literal["Exact"] = "Exact"


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which requests a rule applies to."""

    model: ModelMatch


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A model to ask the engine for."""

    model_rewrite: ModelName
    weight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None


class RewriteRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Requests that match any of ``matches``, or all requests when there are none, go to one of ``targets``."""

    targets: tuple[Target, ...] = ()
    matches: tuple[Match, ...] = ()


class InferenceModelRewrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Rules under one name, like the custom resource of that kind."""

    name: str = ""
    rules: tuple[RewriteRule, ...] = ()


class FileDiscoveryParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which file lists the endpoints."""

    path: Annotated[str, msgspec.Meta(min_length=1)]
    watch_file: bool = False
    """Whether changes of the file are followed."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The whole ``EndpointPickerConfig`` document."""

    api_version: str = ""
    kind: str = ""
    feature_gates: tuple[str, ...] = ()
    plugins: tuple[PluginSpec, ...] = ()
    scheduling_profiles: tuple[Profile, ...] = ()
    data_layer: DataLayer = DataLayer()
    flow_control: FlowControl | None = None
    request_handler: RequestHandler = RequestHandler()
    inference_objectives: tuple[InferenceObjective, ...] = ()
    """Our addition: these are custom resources in the Go picker."""
    inference_model_rewrites: tuple[InferenceModelRewrite, ...] = ()
    """Our addition: these are custom resources in the Go picker."""
    saturation_detector: Reference | None = None
    """Deprecated place of ``flowControl.saturationDetector``."""
    parser: Reference | None = None
    """Deprecated place of ``requestHandler.parsers``."""
