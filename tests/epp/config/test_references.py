"""Plugins that refer to each other, plugins that always exist, older names, and a configuration with all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build, plan_from
from epp.config.wiring.implied import IMPLIED
from epp.errors import ConfigError
from scorers import PLUGINS
from scorers.base import CachedPrefix, Candidate, Filter, Picker, Prompt, Request, Scorer, Slot, Tier
from scorers.labels.selector import LabelSelectorFilter

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: "
EVERY = Path(__file__).parents[2] / "data" / "every-plugin.yaml"


def plan(plugins: str) -> Plan:
    return build(load_text(HEAD + plugins))


def refusal(plugins: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(plugins)
    return str(caught.value)


# All of them


def test_a_configuration_with_every_plugin_loads_and_decides() -> None:
    made = plan_from(EVERY, None)
    declared = {type(plugin) for plugin in made.instances.values()}
    pickers = {kind for kind in PLUGINS if issubclass(kind, Picker)}
    assert declared >= {*IMPLIED, *(set(PLUGINS) - pickers)}
    assert len(declared & pickers) == 1
    labels = {"team": "a", "gpu": "h100", "llm-d.ai/role": "encode-prefill-decode", "zone": "z"}
    candidates = [
        Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", labels=labels, attributes={"depth": i}) for i in range(3)
    ]
    request = Request(
        id="r",
        model="m",
        target_model="m",
        prompts=(Prompt(b"m", b"x" * 4096),),
        prompt_tokens=1024,
        headers={
            "test-epp-endpoint-selection": "10.0.0.1,10.0.0.2",
            "x-session-id": "s",
            "x-peer-topology": "zone=z",
            "x-zone": "z",
        },
        cached={"gpu": CachedPrefix(Tier.GPU, 1, {})},
    )
    schedule = made.profile.schedule(request, candidates)
    assert {c.address for c in schedule.chosen} == {"10.0.0.1:8000", "10.0.0.2:8000"}
    made.profile.picked(request, schedule.chosen[0])
    assert "x-session-token" in made.profile.response_headers(request, schedule.chosen[0])
    assert made.profile.failures == {}


def test_a_plugin_that_is_filter_and_scorer_is_both_and_learns_once() -> None:
    made = plan("[{type: context-length-aware, parameters: {enableFiltering: true}}]")
    (narrower,), ((scorer, weight),) = made.profile.filters, made.profile.scorers
    assert narrower is scorer
    assert isinstance(narrower, Filter)
    assert isinstance(scorer, Scorer)
    assert weight == 1.0


# What is always there


@pytest.mark.parametrize(
    ("plugins", "warnings"),
    [
        ("[{type: inflight-load-producer}]",
         [("plugins[0]: 'inflight-load-producer' changes nothing: requests and uncached tokens in flight are always "
          "counted")]),
        ("[{type: token-producer, parameters: {estimate: {}}}]",
         ["plugins[0]: 'token-producer' changes nothing: tokens are always estimated, 4 bytes to one"]),
        ("[{type: session-id-producer, name: s, parameters: {cookieName: c}}]",
         ["plugins[0]: 's' changes nothing: session affinity reads the headers in its own sessionIdConfig.sources"]),
        ("[{type: latency-scorer}]",
         [("plugins[0]: 'latency-scorer': nothing here predicts latency; the composite of KV memory, queue and prefix "
          "decides")]),
        ("[{type: topology-affinity-scorer}]",
         [("plugins[0]: 'topology-affinity-scorer' has no effect: without parameters.peerTopologyHeader no peer is "
          "ever known")]),
        ("[{type: topology-affinity-filter, parameters: {peerTopologyHeader: x-p}}, {type: topology-extractor}]", []),
        ("[{type: header-based-testing-filter}]",
         [("plugins[0]: 'header-based-testing-filter' lets every client choose its endpoint, and refuses all others; "
          "it is for tests")]),
        ("[{type: header-based-testing-filter, parameters: {keepWithoutHeader: true}}]",
         ["plugins[0]: 'header-based-testing-filter' lets every client choose its endpoint; it is for tests"]),
    ],
)  # fmt: skip
def test_what_changes_nothing_or_less_than_it_seems_is_said_at_start(plugins: str, warnings: list[str]) -> None:
    assert list(plan(plugins).warnings) == warnings


def test_a_declared_load_producer_makes_no_index() -> None:
    assert plan("[{type: inflight-load-producer}]").prefix_cache is None


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ("[{type: tokenizer, parameters: {udsTokenizerConfig: {}}}]",
         "plugins[0].parameters.udsTokenizerConfig: is deprecated and not done here; write vllm, or local with a"),
        ("[{type: token-producer, parameters: {estimate: {image: {mode: static}}}}]",
         "plugins[0].parameters.estimate.image: how many tokens media count cannot be set here; take it out"),
        ("[{type: token-producer, parameters: {estimat: {}}}]",
         "plugins[0].parameters.estimat: unknown field; did you mean estimate?"),
        ("[{type: inflight-load-producer, parameters: {addEstimatedOutputTokens: true}}]",
         "plugins[0].parameters.addEstimatedOutputTokens: output tokens are not estimated here; set it to false"),
        ("[{type: session-id-producer, parameters: {headerName: a, cookieName: b}}]",
         "plugins[0].parameters: headerName and cookieName exclude each other; keep one"),
        ("[{type: prefix-cache-affinity-filter, parameters: {ttftSource: latencyPredictor}}]",
         "plugins[0].parameters.ttftSource: nothing predicts latency here; write prefillThroughput"),
        ("[{type: prefix-cache-affinity-filter, parameters: {ttftSource: guess}}]",
         "plugins[0].parameters.ttftSource: 'guess' is none of prefillThroughput, latencyPredictor"),
        ("[{type: session-affinity-scorer, parameters: {sessionIdConfig: {sources: [{attribute: agent-identity}]}}}]",
         "plugins[0].parameters.sessionIdConfig.sources[0].attribute: requests have no attributes here; name a header"),
        ("[{type: session-affinity-scorer, parameters: {profileName: prefill}}]",
         "plugins[0].parameters.profileName: no profile is named 'prefill'; known: default"),
        ("[{type: header-label-affinity-scorer, parameters: {labelKey: zone}}]",
         "plugins[0].parameters.headerName: missing; it must be written"),
        ("[{type: header-label-affinity-scorer}]", "plugins[0].parameters.headerName: missing; it must be written"),
        ("[{type: label-selector-filter, parameters: {matchExpressions: [{key: a, operator: in}]}}]",
         "plugins[0].parameters.matchExpressions[0].operator: 'in' is none of In, NotIn, Exists, DoesNotExist"),
        ("[{type: utilization-filter, parameters: {conditions: [{metric: queue, maxValue: 1}]}}]",
         "plugins[0].parameters.conditions[0].metric: 'queue' is none of active-requests, "),
        ("[{type: topology-affinity-filter, parameters: {minAffinity: planet}}]",
         "plugins[0].parameters.minAffinity: 'planet' is none of host, rack, zone, region"),
        ("[{type: p2p-source-producer}]", "plugins[0].type: p2p-source-producer is a plugin of the Go"),
    ],
)  # fmt: skip
def test_what_would_change_what_is_decided_is_refused_with_its_key_path(plugins: str, message: str) -> None:
    assert refusal(plugins).startswith(message)


# References


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        (("[{type: token-load-scorer, parameters: {inFlightLoadProducerName: lod}}, {type: inflight-load-producer, "
         "name: load}]"),
         "plugins[0].parameters.inFlightLoadProducerName: no inflight-load-producer is named 'lod'; did you mean "),
        ("[{type: active-request-scorer, parameters: {inFlightLoadProducerName: x}}]",
         "plugins[0].parameters.inFlightLoadProducerName: no inflight-load-producer is named 'x'; declare one of "),
        ("[{type: active-request-scorer, parameters: {inFlightLoadProducerName: q}}, {type: queue-scorer, name: q}]",
         "plugins[0].parameters.inFlightLoadProducerName: 'q' is of type queue-scorer; an inflight-load-producer "),
        (("[{type: prefix-cache-affinity-filter, parameters: {prefixMatchInfoProducerName: gpv}}, "
         "{type: approx-prefix-cache-producer, name: gpu}]"),
         "plugins[0].parameters.prefixMatchInfoProducerName: no producer is named 'gpv'; did you mean gpu?"),
        ("[{type: inflight-load-producer, parameters: {prefixMatchInfoProducerName: gpu}}]",
         "plugins[0].parameters.prefixMatchInfoProducerName: no producer is named 'gpu'"),
        ("[{type: topology-affinity-scorer, parameters: {topologyProducerName: t}}]",
         "plugins[0].parameters.topologyProducerName: no topology-extractor is named 't'"),
    ],
)  # fmt: skip
def test_a_reference_that_leads_nowhere_is_refused_with_the_nearest_name(plugins: str, message: str) -> None:
    assert refusal(plugins).startswith(message)


def test_the_default_name_of_a_producer_needs_no_declaration() -> None:
    made = plan("[{type: token-load-scorer, parameters: {inFlightLoadProducerName: inflight-load-producer}}]")
    assert made.warnings == ()


def test_the_topology_plugins_read_the_labels_of_the_extractor() -> None:
    made = plan(
        "[{type: topology-affinity-scorer, parameters: {peerTopologyHeader: x-p, topologyProducerName: b}}, "
        "{type: topology-extractor, name: a}, {type: topology-extractor, name: b, parameters: {zone: site}}]"
    )
    ((scorer, _),) = made.profile.scorers
    candidate = Candidate(slot=Slot(0), address="10.0.0.1:8000", labels={"site": "s"})
    request = Request(id="r", model="m", target_model="m", headers={"x-p": "zone=s"})
    assert scorer.score(request, [candidate]) == [0.05]


# Older names


@pytest.mark.parametrize(
    ("plugins", "warning"),
    [
        ("[{type: by-label, parameters: {label: a, validValues: [b]}}]",
         "plugins[0].type: by-label is deprecated; write label-selector-filter"),
        ("[{type: by-label-selector}]",
         "plugins[0].type: by-label-selector is deprecated; write label-selector-filter"),
        ("[{type: tokenizer}]", "plugins[0].type: tokenizer is deprecated; write token-producer"),
        ("[{type: approx-prefix-cache-producer, parameters: {blockSize: 16}}]",
         "plugins[0].parameters.blockSize: is deprecated; write blockSizeTokens"),
        ("[{type: approx-prefix-cache-producer, parameters: {maxPrefixBlocksToMatch: 256}}]",
         "plugins[0].parameters.maxPrefixBlocksToMatch: is deprecated; write maxPrefixTokensToMatch"),
        ("[{type: active-request-scorer, parameters: {requestTimeout: 2m}}]",
         "plugins[0].parameters.requestTimeout: is deprecated; it changes nothing, take it out"),
        ("[{type: session-affinity-scorer, parameters: {headerName: x-s}}]",
         "plugins[0].parameters.headerName: is deprecated; write encodedEndpointHeaderConfig.header"),
    ],
)  # fmt: skip
def test_an_older_name_is_one_warning(plugins: str, warning: str) -> None:
    warnings = plan(plugins).warnings
    assert warnings[0] == warning
    assert not any("deprecated" in other for other in warnings[1:])


def test_a_plugin_of_an_older_type_keeps_that_name_for_references() -> None:
    made = plan(
        "[{type: by-label-selector, parameters: {matchLabels: {a: b}}}]\n"
        "schedulingProfiles: [{name: p, plugins: [{pluginRef: by-label-selector}]}]"
    )
    (narrower,) = made.profile.filters
    assert isinstance(narrower, LabelSelectorFilter)
    assert narrower.name == "by-label-selector"


@pytest.mark.parametrize(("strategy", "sets"), [("encoded_endpoint_header", True), ("session_id", False)])
def test_responses_pass_untouched_where_the_picker_remembers_sessions_by_itself(strategy: str, sets: bool) -> None:
    for kind in ("scorer", "filter"):
        made = plan(f"[{{type: session-affinity-{kind}, parameters: {{strategy: {strategy}}}}}]")
        assert made.profile.sets_response_headers is sets
