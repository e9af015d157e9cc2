"""The engines' metrics that are read, as the configuration and the older flags select them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build
from epp.errors import ConfigError
from epp.scrape.parameters import EngineMetricNames, MetricsSourceOptions
from epp.scrape.reading.specs import BUILT_IN, VLLM, EngineSpecs, MetricSpec

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def plan(parameters: str = "", *, extra: str = "", names: EngineMetricNames | None = None) -> Plan:
    declared = f"plugins: [{{type: core-metrics-extractor, parameters: {{{parameters}}}}}]\n" if parameters else ""
    return build(
        load_text(HEAD + declared + extra), metrics_source=MetricsSourceOptions(names=names or EngineMetricNames())
    )


def engines(parameters: str = "", *, names: EngineMetricNames | None = None) -> EngineSpecs:
    scrape = plan(parameters, names=names).scrape
    assert scrape is not None
    return scrape.engines


def refusal(parameters: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(parameters)
    return str(caught.value)


def test_without_a_word_the_built_in_engines_are_read_and_vllm_is_the_default() -> None:
    assert engines() == EngineSpecs()


def test_the_default_engine_and_the_label_can_be_named() -> None:
    found = engines("defaultEngine: sglang, engineLabelKey: my/engine")
    assert (found.default, found.labels) == (BUILT_IN["sglang"], ("my/engine",))


def test_an_engine_that_is_built_in_keeps_what_is_not_written_and_loses_what_is_empty() -> None:
    found = engines("engineConfigs: [{name: vllm, queuedRequestsSpec: 'q{a=b}', loraSpec: ''}]")
    assert found.default == found.by_name["vllm"] == replace(VLLM, waiting=MetricSpec("q", (("a", "b"),)), lora=None)
    assert found.by_name["sglang"] == BUILT_IN["sglang"]


def test_an_engine_of_ones_own_has_what_is_written() -> None:
    found = engines(
        "defaultEngine: mine, engineConfigs: [{name: mine, runningRequestsSpec: r, kvUsageSpec: k, cacheInfoSpec: i, "
        "cacheBlockSizeLabelName: size, cacheNumBlocksLabelName: n, cacheBlockSizeSpec: s, cacheNumBlocksSpec: b, "
        "customMetrics: [{attributeKey: x.y, metricSpec: 'm{l=v}'}]}]"
    ).default
    assert (found.waiting, found.running, found.kv_usage) == (None, MetricSpec("r"), (MetricSpec("k"),))
    assert (found.cache_info, found.block_tokens_label, found.gpu_blocks_label) == (MetricSpec("i"), "size", "n")
    assert (found.block_tokens, found.gpu_blocks) == (MetricSpec("s"), MetricSpec("b"))
    assert found.attributes == (("x.y", MetricSpec("m", (("l", "v"),))),)


def test_the_usual_name_of_kv_usage_written_out_keeps_the_older_one() -> None:
    assert engines("engineConfigs: [{name: vllm, kvUsageSpec: 'vllm:kv_cache_usage_perc'}]") == EngineSpecs()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("defaultEngine: vlm", ".defaultEngine: no engine is named 'vlm'; did you mean vllm?"),
        ("engineConfigs: [{kvUsageSpec: x}]", ".engineConfigs[0]: missing field name"),
        ("engineConfigs: [{name: ''}]", ".engineConfigs[0].name: expected str of length >= 1"),
        ("engineConfigs: [{name: a}, {name: b}, {name: a}]",
         ".engineConfigs[2].name: 'a' is configured at plugins[0].parameters.engineConfigs[0] already"),
        ("engineConfigs: [{name: a, kvSpec: x}]", ".engineConfigs[0].kvSpec: unknown field; did you mean kvUsageSpec?"),
        ("engineConfigs: [{name: a, kvUsageSpec: 'x{a}'}]",
         ".engineConfigs[0].kvUsageSpec: 'a' in 'x{a}' is not label=value"),
        ("engineConfigs: [{name: vllm, cacheNumBlocksSpec: '1'}]",
         ".engineConfigs[0].cacheNumBlocksSpec: '1' does not begin with the name of a metric"),
        ("engineConfigs: [{name: a, customMetrics: [{attributeKey: k}]}]",
         ".engineConfigs[0].customMetrics[0]: missing field metricSpec"),
        (("engineConfigs: [{name: a, customMetrics: "
         "[{attributeKey: k, metricSpec: m}, {attributeKey: k, metricSpec: n}]}]"),
         ".engineConfigs[0].customMetrics[1].attributeKey: 'k' is read already; give it another name"),
        ("engineConfigs: [{name: a, customMetrics: [{attributeKey: k, metricSpec: 'm{'}]}]",
         ".engineConfigs[0].customMetrics[0].metricSpec: 'm{' has '{' behind the name"),
    ],
)  # fmt: skip
def test_a_wrong_engine_is_refused_with_its_key_path(parameters: str, message: str) -> None:
    assert refusal(parameters).startswith(f"plugins[0].parameters{message}")


def test_two_extractors_of_one_source_are_refused() -> None:
    text = (
        "plugins: [{type: metrics-data-source}, {type: core-metrics-extractor, name: a}, "
        "{type: core-metrics-extractor, name: b}]\n"
        "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: a}, {pluginRef: b}]}]}"
    )
    with pytest.raises(ConfigError, match=r"^dataLayer\.sources\[0\]\.extractors: lists 2, and a page is read once"):
        plan(extra=text)


def test_a_source_has_the_engines_of_its_own_extractor() -> None:
    text = (
        "plugins: [{type: metrics-data-source}, {type: core-metrics-extractor, name: a}, "
        "{type: core-metrics-extractor, name: b, parameters: {defaultEngine: triton}}]\n"
        "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: b}]}]}"
    )
    made = plan(extra=text)
    assert made.scrape is not None
    assert made.scrape.engines.default.name == "triton"
    assert made.warnings == ("plugins[1]: 'a' is declared, and nothing refers to it",)


def test_the_older_flags_name_vllms_metrics() -> None:
    found = engines(names=EngineMetricNames(waiting="w{a=b}", running="", kv_usage="k", lora="l", cache_info="c"))
    assert found.default == found.by_name["vllm"]
    assert found.default == replace(
        VLLM,
        waiting=MetricSpec("w", (("a", "b"),)),
        running=None,
        kv_usage=(MetricSpec("k"),),
        lora=MetricSpec("l"),
        cache_info=MetricSpec("c"),
    )


def test_the_usual_name_as_a_flag_changes_nothing() -> None:
    assert engines(names=EngineMetricNames(kv_usage="vllm:kv_cache_usage_perc")) == EngineSpecs()


def test_an_extractor_in_the_configuration_wins_over_the_flags_with_a_warning() -> None:
    parameters, names = "engineConfigs: [{name: vllm, queuedRequestsSpec: mine}]", EngineMetricNames(waiting="theirs")
    assert engines(parameters, names=names).default.waiting == MetricSpec("mine")
    assert plan(parameters, names=names).warnings == (
        "plugins[0].parameters: says which metrics are read, so the flags --*-metric have no effect",
    )
    assert plan(parameters, names=EngineMetricNames(waiting="mine")).warnings == ()


def test_a_plugin_that_asks_for_a_number_that_nothing_reads_is_warned_of() -> None:
    asks = "{attributeKey: x.z, algorithm: {type: linear_lower_is_better}}"
    scorer = f"{{type: endpoint-attribute-scorer, parameters: {asks}}}"
    extractor = "{type: core-metrics-extractor, parameters: {engineConfigs: [{name: vllm, customMetrics: [%s]}]}}"

    def warnings(custom: str) -> list[str]:
        made = build(load_text(HEAD + f"plugins: [{scorer}, {extractor % custom}]\n"))
        return [warning for warning in made.warnings if "attributeKey" in warning]

    (warning,) = warnings("{attributeKey: x.y, metricSpec: m}")
    where, _, rest = warning.partition(": ")
    assert where == "plugins[0].parameters.attributeKey"
    assert rest == "nothing reads 'x.z', so it is never known; did you mean x.y?"
    assert warnings("{attributeKey: x.z, metricSpec: m}") == []


def test_a_detector_that_flow_control_uses_is_no_filter_of_the_profile_of_everything() -> None:
    text = HEAD + "plugins: [{type: concurrency-detector}, {type: queue-scorer}]\n"
    assert [f.name for f in build(load_text(text)).profile.filters] == ["concurrency-detector"]
    used = text + "flowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n"
    assert build(load_text(used)).profile.filters == ()
