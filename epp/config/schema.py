"""``EndpointPickerConfig`` as written: every field that the Go picker knows, with its names.

Unknown fields are errors. A field here may still be refused when the plan is built, by name and with a sentence, if it
asks for something that does not exist yet (``epp.config.unsupported``).
"""

from __future__ import annotations

from typing import Any

import msgspec

from epp.config.wiring.rewrites import InferenceModelRewrite
from epp.units import Duration, Quantity

API_VERSIONS = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
"""The current one, then the deprecated one."""
KIND = "EndpointPickerConfig"


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Names a declared plugin instance."""

    plugin_ref: str = ""


class PluginSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Declares a plugin instance."""

    type: str = ""
    name: str = ""
    """Defaults to the type."""
    parameters: dict[str, Any] = {}
    """Checked against the type's own struct."""


class ProfilePlugin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A plugin's use in a profile."""

    plugin_ref: str = ""
    weight: float | None = None
    """Of a scorer; 1.0 when absent."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A way to choose: filters, scorers with weights, a picker."""

    name: str = ""
    plugins: tuple[ProfilePlugin, ...] = ()


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where endpoint data comes from, and who reads it."""

    plugin_ref: str = ""
    extractors: tuple[Reference, ...] = ()


class DataLayer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where endpoints and their numbers come from."""

    inject_defaults: bool = True
    sources: tuple[Source, ...] = ()
    discovery: Reference | None = None
    peer_discovery: Reference | None = None
    cross_replica_syncer_plugin_ref: str = ""
    cross_replica_sync_interval: Duration | None = None


class PriorityBand(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Limits of one priority's queue."""

    priority: int = 0
    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    fairness_policy_ref: str = ""
    ordering_policy_ref: str = ""


class FlowControl(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Queues in front of the scheduler; behind the gate ``flowControl``."""

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
    """What requests that name it are worth."""

    name: str = ""
    priority: int = 0
    """The higher goes first; below 0 requests may be shed."""


class RequestHandler(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How request bodies are understood."""

    parsers: tuple[Reference, ...] = ()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One ``EndpointPickerConfig`` document."""

    api_version: str = ""
    kind: str = ""
    feature_gates: tuple[str, ...] = ()
    plugins: tuple[PluginSpec, ...] = ()
    scheduling_profiles: tuple[Profile, ...] = ()
    data_layer: DataLayer = DataLayer()
    flow_control: FlowControl | None = None
    request_handler: RequestHandler = RequestHandler()
    inference_objectives: tuple[InferenceObjective, ...] = ()
    """Ours: what are custom resources to the Go picker."""
    inference_model_rewrites: tuple[InferenceModelRewrite, ...] = ()
    """Ours: what are custom resources to the Go picker."""
    saturation_detector: Reference | None = None
    """Deprecated place of ``flowControl.saturationDetector``."""
    parser: Reference | None = None
    """Deprecated place of ``requestHandler.parsers``."""
