"""Admission as configured: objectives, the saturation detector, and the queues behind the gate ``flowControl``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from epp.config.schema import Config, FlowControl, PriorityBand, Reference
from epp.config.unsupported import gate_is_open
from epp.config.wiring.instances import Instances
from epp.errors import ConfigError
from epp.flowcontrol.detectors import UtilizationDetector
from epp.flowcontrol.fairness import FairnessPolicy, GlobalStrict
from epp.flowcontrol.limits import StaticUsageLimit, UsageLimitPolicy
from epp.flowcontrol.ordering import Fcfs, OrderingPolicy
from epp.flowcontrol.saturation import SaturationDetector
from epp.flowcontrol.settings import MAX_BYTES, MAX_REQUESTS, TTL_S, AdmissionPlan, BandSettings, FlowSettings
from scorers.base import Plugin

T = TypeVar("T", bound=Plugin[Any])

GATE = "flowControl"
DEFAULTS: dict[str, type[Plugin[Any]]] = {
    kind.type_name: kind for kind in (UtilizationDetector, GlobalStrict, Fcfs, StaticUsageLimit)
}
"""Types that need not be declared."""


class WiredAdmission(NamedTuple):
    """The admission plan of a configuration, lines for the start log, and warnings."""

    plan: AdmissionPlan
    summary: tuple[str, ...]
    warnings: tuple[str, ...]


def wire_admission(config: Config, instances: Instances, *, reads_metrics: bool = True) -> WiredAdmission:
    """Return the admission plan of ``config``. Raises: ConfigError with the key path."""
    objectives = _objectives(config)
    warnings: list[str] = []
    detector = _detector(config, instances, warnings)
    if isinstance(detector, UtilizationDetector) and detector.parameters.metrics_staleness_threshold is not None:
        warnings.append(
            f"{detector.name}: parameters.metricsStalenessThreshold is not used: an endpoint is stale "
            "--metrics-staleness-threshold after its next reading was due"
        )
    flow = None
    written = config.flow_control or FlowControl()
    if gate_is_open(config, GATE):
        flow = _settings(written, detector, objectives, instances)
    elif written != FlowControl(saturation_detector=written.saturation_detector):
        warnings.append("flowControl: only its saturationDetector has an effect while the gate flowControl is off")
    decides = flow is not None or any(priority < 0 for priority in objectives.values())
    if decides and not reads_metrics and isinstance(detector, UtilizationDetector):
        raise ConfigError(
            "flowControl.saturationDetector: a utilization-detector needs the engines' metrics, and dataLayer has none "
            "read; name a concurrency-detector"
        )
    plan = AdmissionPlan(detector=detector, objectives=objectives, flow=flow)
    return WiredAdmission(plan, tuple(_describe(plan)), tuple(warnings))


def _objectives(config: Config) -> dict[str, int]:
    found: dict[str, int] = {}
    for i, objective in enumerate(config.inference_objectives):
        path = f"inferenceObjectives[{i}].name"
        if not objective.name:
            raise ConfigError(f"{path}: missing; requests name it in the header x-llm-d-inference-objective")
        if objective.name in found:
            raise ConfigError(f"{path}: {objective.name!r} is there already; keep one")
        found[objective.name] = objective.priority
    return found


def _detector(config: Config, instances: Instances, warnings: list[str]) -> SaturationDetector[Any]:
    """Return the detector that is referred to, in its own place or in the older one; else the default."""
    kind: type[SaturationDetector[Any]] = SaturationDetector  # type: ignore[type-abstract]
    places: dict[str, Reference | None] = {
        "flowControl.saturationDetector": (config.flow_control or FlowControl()).saturation_detector,
        "saturationDetector": config.saturation_detector,
    }
    named = {path: reference.plugin_ref for path, reference in places.items() if reference is not None}
    if "saturationDetector" in named:
        if len(named) > 1:
            raise ConfigError("saturationDetector: is the older form of flowControl.saturationDetector; keep one")
        warnings.append("saturationDetector: is deprecated; write flowControl.saturationDetector")
    for path, name in named.items():
        return _policy(kind, name, f"{path}.pluginRef", instances)
    return _policy(kind, UtilizationDetector.type_name, "flowControl.saturationDetector.pluginRef", instances)


def _settings(
    flow: FlowControl, detector: SaturationDetector[Any], objectives: dict[str, int], instances: Instances
) -> FlowSettings:
    path = "flowControl"
    limits: type[UsageLimitPolicy[Any]] = UsageLimitPolicy  # type: ignore[type-abstract]
    default = _band(flow.default_priority_band or PriorityBand(), f"{path}.defaultPriorityBand", instances)
    negative = flow.default_negative_priority_band
    settings = FlowSettings(
        detector=detector,
        limits=_policy(
            limits,
            flow.usage_limit_policy_plugin_ref or StaticUsageLimit.type_name,
            f"{path}.usageLimitPolicyPluginRef",
            instances,
        ),
        max_bytes=flow.max_bytes or None,
        max_requests=flow.max_requests or None,
        ttl_s=_ttl_s(flow),
        no_endpoint_ttl_s=_no_endpoint_ttl_s(flow),
        bands=_bands(flow, instances),
        default=default,
        default_negative=_band(negative, f"{path}.defaultNegativePriorityBand", instances) if negative else None,
        enable_eviction=flow.enable_eviction,
    )
    bands = {p: settings.band(p) for p in sorted({0, *objectives.values(), *settings.bands}, reverse=True)}
    return replace(settings, bands=bands)


def _ttl_s(flow: FlowControl) -> float | None:
    return TTL_S if flow.default_request_ttl is None else flow.default_request_ttl or None


def _no_endpoint_ttl_s(flow: FlowControl) -> float:
    if flow.no_endpoint_request_ttl is not None:
        return flow.no_endpoint_request_ttl
    return flow.default_request_ttl or TTL_S


def _bands(flow: FlowControl, instances: Instances) -> dict[int, BandSettings]:
    bands: dict[int, BandSettings] = {}
    for i, band in enumerate(flow.priority_bands):
        path = f"flowControl.priorityBands[{i}]"
        if band.priority in bands:
            raise ConfigError(f"{path}.priority: {band.priority} has a band already; keep one")
        bands[band.priority] = _band(band, path, instances)
    return bands


def _band(band: PriorityBand, path: str, instances: Instances) -> BandSettings:
    fairness: type[FairnessPolicy[Any]] = FairnessPolicy  # type: ignore[type-abstract]
    ordering: type[OrderingPolicy] = OrderingPolicy  # type: ignore[type-abstract]
    return BandSettings(
        max_bytes=band.max_bytes or MAX_BYTES,
        max_requests=band.max_requests or MAX_REQUESTS,
        fairness=_policy(
            fairness, band.fairness_policy_ref or GlobalStrict.type_name, f"{path}.fairnessPolicyRef", instances
        ),
        ordering=_policy(ordering, band.ordering_policy_ref or Fcfs.type_name, f"{path}.orderingPolicyRef", instances),
    )


def _policy(kind: type[T], name: str, path: str, instances: Instances) -> T:
    """Return the instance called ``name``, or a default one if that is a type that need not be declared."""
    default = DEFAULTS.get(name)
    if default is not None and name not in instances and issubclass(default, kind):
        return default()
    return instances.resolve_as(kind, name, path)


def _describe(plan: AdmissionPlan) -> Iterator[str]:
    flow = plan.flow
    if flow is None:
        if any(priority < 0 for priority in plan.objectives.values()):
            yield f"requests of negative priority are refused while the endpoints are full ({plan.detector.name})"
        return
    ttl = f"for at most {flow.ttl_s:g} s" if flow.ttl_s is not None else "for as long as their clients do"
    yield f"requests wait {ttl} while the endpoints are full ({flow.detector.name}, {flow.limits.name})"
    if flow.enable_eviction:
        yield "requests of negative priority in flight are ended for others of higher priority that wait"
    limits = [
        f"{limit:,} {unit}" for limit, unit in ((flow.max_requests, "requests"), (flow.max_bytes, "bytes")) if limit
    ]
    if limits:
        yield f"all priorities: at most {' and '.join(limits)} wait"
    for priority, band in flow.bands.items():
        yield (
            f"priority {priority}: at most {band.max_requests:,} requests and {band.max_bytes:,} bytes wait, by "
            f"{band.fairness.name}, then {band.ordering.name}"
        )
