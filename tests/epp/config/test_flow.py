"""Admission as configurations describe it."""

from __future__ import annotations

from pathlib import Path

import pytest

from epp.config.load import load_file, load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build
from epp.errors import ConfigError
from epp.flowcontrol.detectors import ConcurrencyDetector, UtilizationDetector
from epp.flowcontrol.fairness import GlobalStrict, RoundRobin
from epp.flowcontrol.limits import PriorityHoldback, StaticUsageLimit
from epp.flowcontrol.ordering import Fcfs, SloDeadline
from epp.flowcontrol.settings import AdmissionPlan, FlowSettings

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
EXAMPLE = Path(__file__).parents[3] / "manifests" / "config" / "flow-control.yaml"


def plan(text: str = "") -> Plan:
    return build(load_text(HEAD + text))


def admission(text: str = "") -> AdmissionPlan:
    return plan(text).admission


def flow(text: str = "") -> FlowSettings:
    settings = admission(f"featureGates: [flowControl]\n{text}").flow
    assert settings is not None
    return settings


def test_without_a_word_nobody_waits_and_the_default_detector_stands_by() -> None:
    made = admission()
    assert made.flow is None
    assert made.objectives == {}
    assert isinstance(made.detector, UtilizationDetector)


def test_the_gate_alone_gives_the_defaults_of_the_go_picker() -> None:
    settings = flow()
    assert isinstance(settings.detector, UtilizationDetector)
    assert isinstance(settings.limits, StaticUsageLimit)
    assert (settings.max_bytes, settings.max_requests) == (None, None)
    assert (settings.ttl_s, settings.no_endpoint_ttl_s) == (60.0, 60.0)
    for band in (settings.band(0), settings.band(7), settings.band(-1)):
        assert (band.max_bytes, band.max_requests) == (1_000_000_000, 5000)
        assert isinstance(band.fairness, GlobalStrict)
        assert isinstance(band.ordering, Fcfs)
    assert list(settings.bands) == [0]


@pytest.mark.parametrize(("gates", "opened"), [
    ("flowControl", True), ("flowControl=true", True), ("flowControl=false", False),
    ("flowControl, flowControl=false", False), ("flowControl=F, flowControl=1", True),
])  # fmt: skip
def test_the_gate_is_what_is_said_of_it_last(gates: str, opened: bool) -> None:
    assert (admission(f"featureGates: [{gates}]").flow is not None) == opened


def test_the_example_does_what_its_comments_say() -> None:
    made = build(load_file(EXAMPLE))
    assert made.warnings == ()
    settings = made.admission.flow
    assert settings is not None
    assert made.admission.objectives == {"interactive": 100, "batch": -10}
    assert isinstance(settings.detector, ConcurrencyDetector)
    assert isinstance(settings.limits, PriorityHoldback)
    assert settings.limits.ceilings(0.5, list(settings.bands)) == pytest.approx([1.0, 0.9, 0.8])
    assert (settings.max_bytes, settings.max_requests) == (10 * 2**30, 1000)
    assert (settings.ttl_s, settings.no_endpoint_ttl_s) == (60.0, 300.0)
    assert [band.max_requests for band in settings.bands.values()] == [500, 200, 50]
    assert isinstance(settings.bands[0].fairness, RoundRobin)
    assert isinstance(settings.bands[100].ordering, SloDeadline)
    assert "priority 100: at most 500 requests and 1,000,000,000 bytes wait" in "\n".join(made.summary)


@pytest.mark.parametrize(
    ("text", "ttl_s", "no_endpoint_ttl_s"),
    [
        ("defaultRequestTTL: 5s", 5.0, 5.0),
        ("defaultRequestTTL: 0s", None, 60.0),
        ("noEndpointRequestTTL: 0s", 60.0, 0.0),
        ("{defaultRequestTTL: 5s, noEndpointRequestTTL: 1m}", 5.0, 60.0),
    ],
)
def test_how_long_a_request_may_wait(text: str, ttl_s: float | None, no_endpoint_ttl_s: float) -> None:
    settings = flow(f"flowControl: {text if text.startswith('{') else '{' + text + '}'}")
    assert (settings.ttl_s, settings.no_endpoint_ttl_s) == (ttl_s, no_endpoint_ttl_s)


def test_the_limits_of_all_priorities_together_are_in_the_summary() -> None:
    for limits, line in (
        ("maxRequests: 9, maxBytes: 1Mi", "all priorities: at most 9 requests and 1,048,576 bytes wait"),
        ("maxRequests: 9", "all priorities: at most 9 requests wait"),
        ("maxBytes: 1k", "all priorities: at most 1,000 bytes wait"),
    ):
        assert line in plan(f"featureGates: [flowControl]\nflowControl: {{{limits}}}\n").summary


def test_bands_are_there_for_every_priority_that_an_objective_gives() -> None:
    text = "inferenceObjectives: [{name: a, priority: 3}, {name: b, priority: -3}, {name: c}]\n"
    settings = flow(text + "flowControl: {defaultNegativePriorityBand: {maxRequests: 1}}")
    assert {priority: band.max_requests for priority, band in settings.bands.items()} == {3: 5000, 0: 5000, -3: 1}


@pytest.mark.parametrize(
    "place", ["saturationDetector: {pluginRef: c}", "flowControl: {saturationDetector: {pluginRef: c}}"]
)
@pytest.mark.parametrize("gate", ["", "featureGates: [flowControl]\n"])
def test_a_detector_is_named_in_either_place(place: str, gate: str) -> None:
    made = plan(f"{gate}plugins: [{{type: concurrency-detector, name: c}}, {{type: queue-scorer}}]\n"
                f"schedulingProfiles: [{{name: p, plugins: [{{pluginRef: queue-scorer}}]}}]\n{place}")  # fmt: skip
    assert isinstance(made.admission.detector, ConcurrencyDetector)
    older = place.startswith("s")
    assert made.warnings == (
        ("saturationDetector: is deprecated; write flowControl.saturationDetector",) if older else ()
    )


def test_a_declared_detector_with_the_default_name_is_the_default() -> None:
    made = admission("plugins: [{type: utilization-detector, parameters: {queueDepthThreshold: 9}}]")
    assert made.detector.parameters.queue_depth_threshold == 9


def test_a_detector_in_a_profile_is_a_filter() -> None:
    profile = "schedulingProfiles: [{name: p, plugins: [{pluginRef: concurrency-detector}]}]"
    text = f"plugins: [{{type: concurrency-detector}}]\n{profile}"
    assert [f.name for f in plan(text).profile.filters] == ["concurrency-detector"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inferenceObjectives: [{priority: 1}]", "inferenceObjectives[0].name: missing"),
        ("inferenceObjectives: [{name: a}, {name: a}]", "inferenceObjectives[1].name: 'a' is there already"),
        ("inferenceObjectives: [{name: a, criticality: 1}]", "inferenceObjectives[0].criticality: unknown field"),
        ("saturationDetector: {pluginRef: x}", "saturationDetector.pluginRef: no plugin is named 'x'"),
        ("flowControl: {saturationDetector: {pluginRef: x}}", "flowControl.saturationDetector.pluginRef: no plugin"),
        (("saturationDetector: {pluginRef: utilization-detector}\n"
         "flowControl: {saturationDetector: {pluginRef: utilization-detector}}"),
         "saturationDetector: is the older form"),
        ("saturationDetector: {queueDepthThreshold: 7}",
         ("saturationDetector.queueDepthThreshold: belongs to a plugin; write {type: utilization-detector, parameters: "
          "{queueDepthThreshold: 7}} into plugins, and flowControl.saturationDetector: {pluginRef: ")),
        ("flowControl: {saturationDetector: {headroom: 1, queueDepthThreshold: 7}}",
         ("flowControl.saturationDetector.headroom: belongs to a plugin; write {type: "
          "utilization-detector, parameters: {headroom: 1, queueDepthThreshold: 7}} into plugins, and ")),
        ("flowControl: {maxRequests: 1x}",
         "flowControl.maxRequests: '1x' is not a quantity; write it as 5000, 5k or 10Gi"),
        ("plugins: [{type: queue-scorer}]\nsaturationDetector: {pluginRef: queue-scorer}",
         "saturationDetector.pluginRef: 'queue-scorer' is of type queue-scorer; a saturationdetector belongs here"),
        ("featureGates: [flowControl]\nflowControl: {usageLimitPolicyPluginRef: x}",
         "flowControl.usageLimitPolicyPluginRef: no plugin is named 'x'"),
        ("featureGates: [flowControl]\nflowControl: {priorityBands: [{priority: 1}, {priority: 1}]}",
         "flowControl.priorityBands[1].priority: 1 has a band already"),
        ("featureGates: [flowControl]\nflowControl: {priorityBands: [{fairnessPolicyRef: fcfs-ordering-policy}]}",
         "flowControl.priorityBands[0].fairnessPolicyRef: no plugin is named 'fcfs-ordering-policy'"),
        ("featureGates: [flowControl]\ndataLayer: {injectDefaults: false}",
         "flowControl.saturationDetector: a utilization-detector needs the engines' metrics"),
        ("inferenceObjectives: [{name: a, priority: -1}]\ndataLayer: {injectDefaults: false}",
         "flowControl.saturationDetector: a utilization-detector needs the engines' metrics"),
        ("plugins: [{type: priority-holdback-policy}]", "plugins[0].parameters: minCeiling is required"),
        ("plugins: [{type: priority-holdback-policy, parameters: {minCeiling: 2}}]",
         "plugins[0].parameters.minCeiling: expected `float` < 1.0"),
        ("plugins: [{type: utilization-detector, parameters: {queueDepthThreshold: 0}}]",
         "plugins[0].parameters.queueDepthThreshold: expected"),
        ("plugins: [{type: concurrency-detector, parameters: {concurrencyMode: bytes}}]",
         "plugins[0].parameters.concurrencyMode: invalid enum value 'bytes'"),
        ("plugins: [{type: soft-reflective-ceiling-policy, parameters: {a: 1}}]",
         "plugins[0].parameters.a: unknown field"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_key_path(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        plan(text)
    assert str(refusal.value).replace("`", "").removeprefix("--config-text: ").startswith(message.replace("`", ""))


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("flowControl: {maxRequests: 5}",
         "flowControl: only its saturationDetector has an effect while the gate flowControl is off"),
        ("plugins: [{type: utilization-detector, parameters: {metricsStalenessThreshold: 200ms}}]",
         ("utilization-detector: parameters.metricsStalenessThreshold is not used: an endpoint is stale "
         "--metrics-staleness-threshold after its next reading was due")),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_said(text: str, warning: str) -> None:
    assert plan(text).warnings == (warning,)
