"""Configurations become the plans that they describe, or are refused with the key that is wrong."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from epp.config.load import load_file, load_text
from epp.config.plan import Plan
from epp.config.schema import FileDiscoveryParameters
from epp.config.wiring.build import build, plan_from
from epp.errors import BadRequest, ConfigError
from epp.parsers import ByPath, Parser
from epp.picking.model_rewrites import RewritingParser
from epp.scrape.parameters import MetricsSourceOptions, ScrapeParameters
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker, RandomPicker

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
EXAMPLES = Path(__file__).parents[3] / "manifests" / "config"


def plan(text: str) -> Plan:
    return build(load_text(HEAD + text), random=Random(1))


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(text)
    return str(caught.value)


def parsers(made: Plan) -> tuple[Parser[Any], ...]:
    assert isinstance(made.parser, RewritingParser)
    assert isinstance(made.parser.parser, ByPath)
    return made.parser.parser.parsers


def weights(made: Plan) -> dict[str, float]:
    return {scorer.name: weight for scorer, weight in made.profile.scorers}


def test_no_configuration_is_the_default_profile() -> None:
    made = build(None)
    assert weights(made) == {
        "queue-scorer": 2.0,
        "kv-cache-utilization-scorer": 2.0,
        "gpu-prefix-cache-scorer": 1.0,
        "cpu-prefix-cache-scorer": 1.0,
    }
    assert isinstance(made.profile.picker, MaxScorePicker)
    assert [parser.type_name for parser in parsers(made)] == [
        "openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser",
    ]  # fmt: skip
    assert made.scrape == ScrapeParameters()
    assert (made.discovery, made.warnings) == (None, ())


def test_a_configuration_of_nothing_gets_the_defaults_of_each_part() -> None:
    made = plan("")
    assert weights(made) == {}
    assert isinstance(made.profile.picker, MaxScorePicker)
    assert made.prefix_cache is None, "nothing asks what is cached"
    assert made.scrape == ScrapeParameters()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_load(path: Path) -> None:
    profile = plan_from(path, None).profile
    assert profile.scorers or (path.name == "conformance.yaml" and profile.filters), "there, clients choose"


def test_without_profiles_everything_declared_is_in_one() -> None:
    made = plan("plugins: [{type: running-requests-size-scorer}, {type: random-picker}, {type: queue-scorer, name: q}]")
    assert weights(made) == {"running-requests-size-scorer": 1.0, "q": 1.0}
    assert isinstance(made.profile.picker, RandomPicker)


def test_a_weight_is_1_unless_written() -> None:
    made = plan("""
plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}]
schedulingProfiles:
- {name: p, plugins: [{pluginRef: queue-scorer}, {pluginRef: kv-cache-utilization-scorer, weight: 0}]}
""")
    assert weights(made) == {"queue-scorer": 1.0, "kv-cache-utilization-scorer": 0.0}


@pytest.mark.parametrize("place", ["requestHandler: {parsers: [{pluginRef: mine}]}", "parser: {pluginRef: mine}"])
def test_named_parsers_read_alone_and_refuse_what_they_do_not_read(place: str) -> None:
    made = plan(f"plugins: [{{type: anthropic-parser, name: mine}}, {{type: openai-parser}}]\n{place}")
    assert [parser.name for parser in parsers(made)] == ["mine"]
    assert "plugins[1]: 'openai-parser' is declared, and nothing refers to it" in made.warnings
    with pytest.raises(BadRequest, match="no parser for path '/v1/rerank'; read are paths that end in /messages"):
        made.parser.parse("/v1/rerank", b"{}")


def test_several_parsers_are_named_in_order_and_the_passthrough_reads_the_rest() -> None:
    kinds = ["passthrough-parser", "vllmgrpc-parser", "vertexai-parser", "sglanghttp-parser", "vllmhttp-parser"]
    made = plan(
        f"plugins: [{', '.join(f'{{type: {kind}}}' for kind in kinds)}]\n"
        f"requestHandler: {{parsers: [{', '.join(f'{{pluginRef: {kind}}}' for kind in kinds)}]}}"
    )
    assert [parser.type_name for parser in parsers(made)] == kinds
    assert made.parser.parse("/v1/rerank", b"{}").prompts == ()
    assert made.warnings == ()


def test_a_parser_in_a_profile_is_named_in_a_warning_and_the_profile_is_built() -> None:
    made = plan("""
plugins: [{type: queue-scorer}, {type: openai-parser}]
schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer}, {pluginRef: openai-parser}]}]
""")
    assert weights(made) == {"queue-scorer": 1.0}
    assert [w for w in made.warnings if w.endswith("name it in requestHandler.parsers instead")]


def test_a_profile_without_picker_takes_the_declared_one() -> None:
    made = plan("""
plugins: [{type: queue-scorer}, {type: random-picker, name: r}]
schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer}]}]
""")
    assert made.profile.picker.name == "r"
    assert made.warnings == ()


def test_the_number_of_fallbacks_is_the_configurations_where_it_says_it() -> None:
    implied = build(load_text(HEAD), picks=3).profile.picker
    declared = build(load_text(HEAD + "plugins: [{type: max-score-picker}]"), picks=3).profile.picker
    said = build(
        load_text(HEAD + "plugins: [{type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}]"), picks=3
    ).profile.picker
    assert [picker.parameters.max_num_of_endpoints for picker in (implied, declared, said)] == [3, 3, 2]


def test_a_deprecated_api_version_is_one_warning() -> None:
    old = HEAD.replace("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
    assert build(load_text(old)).warnings == (
        "apiVersion: inference.networking.x-k8s.io/v1alpha1 is deprecated; write llm-d.ai/v1alpha1",
    )


@pytest.mark.parametrize(
    "text",
    [
        "plugins: [{type: single-profile-handler}, {type: queue-scorer}]",
        "plugins: [{type: openai-parser}]\nrequestHandler: {parsers: [{pluginRef: openai-parser}]}",
        "featureGates: [flowControl=false, haPopulateNonLeaderDatastore, dataLayer=true]",
        "plugins: [{type: metrics-data-source}, {type: core-metrics-extractor}]",
        "plugins: [{type: core-metrics-extractor, parameters: {engineConfigs: [{name: vllm}]}}]",
        ("plugins: [{type: core-metrics-extractor, parameters: "
        "{engineConfigs: [{name: vllm, queuedRequestsSpec: 'vllm:num_requests_waiting'}]}}]"),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_accepted_without_a_word(text: str) -> None:
    assert plan(text).warnings == ()


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("dataLayer: {crossReplicaSyncInterval: 1s}",
         "dataLayer.crossReplicaSyncInterval: has no effect without a syncer"),
        ("plugins: [{type: openai-parser}]\nparser: {pluginRef: openai-parser}",
         "parser: is deprecated; write requestHandler.parsers"),
        ("plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: p}]",
         "plugins[0]: 'queue-scorer' is declared, and nothing refers to it"),
        ("plugins: [{type: file-discovery, parameters: {path: /e}}]",
         "plugins[0]: 'file-discovery' is declared, and nothing refers to it"),
        (("plugins: [{type: random-picker, name: r}]\n"
         "schedulingProfiles: [{name: p, plugins: [{pluginRef: r, weight: 2}]}]"),
         "schedulingProfiles[0].plugins[0].weight: only scorers have a weight; this one changes nothing"),
        ("dataLayer: {injectDefaults: false}",
         "dataLayer.injectDefaults: false and no source, so no endpoint's load is known"),
        ("plugins: [{type: metrics-data-source, parameters: {interval: 1ms}}]",
         "plugins[0].parameters.interval: 1ms is raised to the least, 50ms"),
        ("plugins: [{type: metrics-data-source}]\ndataLayer: {sources: [{pluginRef: metrics-data-source}]}",
         "dataLayer.sources[0].extractors: none, so nothing is read; add one that is a core-metrics-extractor"),
    ],
)  # fmt: skip
def test_what_was_hardly_meant_is_accepted_with_a_warning(text: str, warning: str) -> None:
    assert plan(text).warnings == (warning,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plugins: [{}]", "plugins[0].type: missing; write type: and one of the types in docs/configuration.md"),
        ("plugins: [{type: queue-scorrer}]",
         "plugins[0].type: unknown plugin type 'queue-scorrer'; did you mean queue-scorer?"),
        ("plugins: [{type: zzz}]", "plugins[0].type: unknown plugin type 'zzz'; docs/configuration.md lists all types"),
        ("plugins: [{type: multicluster-queue-scorer}]",
         "plugins[0].type: multicluster-queue-scorer is a plugin of the Go picker that does not exist here yet; "),
        ("plugins: [{type: queue-scorer, parameters: {threshold: 1}}]",
         "plugins[0].parameters.threshold: unknown field; it takes none"),
        ("plugins: [{type: no-hit-lru-scorer, parameters: {lruSiz: 1}}]",
         "plugins[0].parameters.lruSiz: unknown field; did you mean lruSize?"),
        ("plugins: [{type: no-hit-lru-scorer, parameters: {lruSize: 0}}]",
         "plugins[0].parameters.lruSize: expected int >= 1"),
        ("plugins: [{type: queue-scorer}, {type: queue-scorer}]",
         "plugins[1].name: 'queue-scorer' is the name of plugins[0] already; give one of them another"),
        ("plugins: [{type: file-discovery}]", "plugins[0].parameters: missing field path"),
        ("plugins: [{type: file-discovery, parameters: {path: ''}}]",
         "plugins[0].parameters.path: expected str of length >= 1"),
        ("plugins: [{type: single-profile-handler}, {type: single-profile-handler, name: b}]",
         "plugins: 'single-profile-handler' and 'b' are both profile handlers; keep one"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_refused_with_its_key_path(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


PROFILE = """
plugins: [{type: queue-scorer}, {type: max-score-picker}, {type: random-picker}, {type: openai-parser},
          {type: single-profile-handler}]
"""


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ("{plugins: []}", "[0].name: missing; write name: default"),
        ("{name: a}, {name: a}", "[1].name: 'a' is the name of schedulingProfiles[0] already"),
        ("{name: a}, {name: b}", ": 2 profiles, and single-profile-handler runs one; "),
    ],
)
def test_wrong_profiles_are_refused_with_their_key_path(profiles: str, message: str) -> None:
    assert refusal(f"schedulingProfiles: [{profiles}]").startswith(f"schedulingProfiles{message}")


@pytest.mark.parametrize(
    ("uses", "message"),
    [
        ("{weight: 1}", "[0].pluginRef: missing; it names a plugin; known: max-score-picker, openai-parser, "),
        ("{pluginRef: queue}", "[0].pluginRef: no plugin is named 'queue'; did you mean queue-scorer?"),
        ("{pluginRef: single-profile-handler}",
         "[0].pluginRef: 'single-profile-handler' is of type single-profile-handler; a profile lists "),
        ("{pluginRef: queue-scorer}, {pluginRef: queue-scorer}", "[1].pluginRef: 'queue-scorer' is listed at "),
        ("{pluginRef: max-score-picker}, {pluginRef: random-picker}",
         ": 'max-score-picker' and 'random-picker' are both pickers; a profile has one"),
        ("{pluginRef: queue-scorer, weight: -1}", "[0].weight: -1.0 must be a finite number, 0 or more"),
        ("{pluginRef: queue-scorer, weight: .nan}", "[0].weight: nan must be a finite number, 0 or more"),
        ("{pluginRef: queue-scorer, weight: .inf}", "[0].weight: inf must be a finite number, 0 or more"),
    ],
)  # fmt: skip
def test_a_wrong_use_of_a_plugin_is_refused_with_its_key_path(uses: str, message: str) -> None:
    text = f"{PROFILE}schedulingProfiles: [{{name: a, plugins: [{uses}]}}]"
    assert refusal(text).startswith(f"schedulingProfiles[0].plugins{message}")


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("featureGates: [x]",
         "featureGates[0]: unknown feature gate 'x'; known: flowControl, haPopulateNonLeaderDatastore, dataLayer"),
        ("featureGates: [flowcontrol]", "featureGates[0]: unknown feature gate 'flowcontrol'; did you mean "),
        ("featureGates: [flowControl=maybe]", "featureGates[0]: 'flowControl=maybe' must end in =true or =false"),
        ("dataLayer: {peerDiscovery: {pluginRef: x}}", "dataLayer.peerDiscovery: replicas do not find"),
        ("dataLayer: {crossReplicaSyncerPluginRef: x}", "dataLayer.crossReplicaSyncerPluginRef: replicas share"),
    ],
)  # fmt: skip
def test_what_does_not_exist_yet_is_refused_by_name(text: str, begins: str) -> None:
    assert refusal(text).startswith(begins)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plugins: [{type: queue-scorer}]\ndataLayer: {discovery: {pluginRef: queue-scorer}}",
         "dataLayer.discovery.pluginRef: 'queue-scorer' is of type queue-scorer; a file-discovery belongs here"),
        ("dataLayer: {discovery: {pluginRef: files}}", "dataLayer.discovery.pluginRef: no plugin is named 'files'"),
        ("dataLayer: {sources: [{pluginRef: a}, {pluginRef: b}]}",
         "dataLayer.sources: lists 2 sources, and one page of each endpoint is read; keep the one with "),
        ("plugins: [{type: metrics-data-source, parameters: {clientCertPath: /c}}]",
         "plugins[0].parameters: clientCertPath and clientKeyPath go together; give both or neither"),
        ("plugins: [{type: metrics-data-source, parameters: {caCertPath: /nowhere}}]",
         "plugins[0].parameters.caCertPath: there is no file /nowhere"),
        ("plugins: [{type: metrics-data-source, parameters: {scheme: ftp}}]",
         "plugins[0].parameters.scheme: invalid enum value 'ftp'"),
        ("plugins: [{type: metrics-data-source, parameters: {interval: 5}}]",
         "plugins[0].parameters.interval: 5 is not a duration; write it as 50ms, 2s or 1m30s"),
        ("requestHandler: {parsers: [{pluginRef: x}]}", "requestHandler.parsers[0].pluginRef: no plugin is named 'x'"),
        (("plugins: [{type: openai-parser}]\nparser: {pluginRef: openai-parser}\n"
         "requestHandler: {parsers: [{pluginRef: openai-parser}]}"),
         "parser: is the older form of requestHandler.parsers; keep one of the two"),
        ("plugins: [{type: queue-scorer}]\nrequestHandler: {parsers: [{pluginRef: queue-scorer}]}",
         "requestHandler.parsers[0].pluginRef: 'queue-scorer' is of type queue-scorer; a parser belongs here"),
    ],
)  # fmt: skip
def test_a_wrong_reference_is_refused_with_its_key_path(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_the_no_kubernetes_example_says_where_endpoints_and_metrics_are() -> None:
    made = plan_from(EXAMPLES / "no-kubernetes.yaml", None)
    assert made.discovery == FileDiscoveryParameters(path="/etc/epp/endpoints.yaml", watch_file=True)
    assert made.scrape == ScrapeParameters(interval_s=0.05)
    assert made.warnings == ()


def test_the_older_metrics_flags_count_where_the_configuration_is_silent() -> None:
    flags = MetricsSourceOptions(scheme="https", path="/m", port=9, insecure_skip_verify=False)
    silent = build(load_text(HEAD), metrics_source=flags).scrape
    assert silent == ScrapeParameters(scheme="https", path="/m", port=9, insecure_skip_verify=False)
    spoken = build(load_text(HEAD + "plugins: [{type: metrics-data-source}]"), metrics_source=flags).scrape
    assert spoken == ScrapeParameters()


def test_the_same_configuration_can_be_given_as_text() -> None:
    text = (EXAMPLES / "tiered.yaml").read_text()
    assert weights(plan_from(None, text)) == weights(build(load_file(EXAMPLES / "tiered.yaml")))


def test_a_refusal_names_the_source() -> None:
    with pytest.raises(ConfigError, match=r"^--config-text: featureGates\[0\]: unknown feature gate"):
        plan_from(None, HEAD + "featureGates: [x]")


def test_the_description_has_a_line_for_each_instance() -> None:
    lines = plan("plugins: [{type: queue-scorer, name: q}]").describe()
    assert "scorer q (queue-scorer): weight 1" in lines
    assert "picker max-score-picker: 1 endpoint a decision" in lines


def test_plugins_are_instances_of_what_they_name() -> None:
    made = plan("plugins: [{type: queue-scorer, name: q}]")
    assert [type(scorer) for scorer, _ in made.profile.scorers] == [QueueScorer]
