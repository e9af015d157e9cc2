"""From text to typed configuration: what is refused, and the key path in the refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.config.document import MAX_BYTES
from epp.config.load import load_file, load_text
from epp.config.schema import Config, PluginSpec
from epp.errors import ConfigError

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

EVERYTHING = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl, haPopulateNonLeaderDatastore=false]
plugins:
- {name: a, type: b, parameters: {c: [1, {d: e}]}}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: a, weight: 2}]
dataLayer:
  injectDefaults: false
  sources: [{pluginRef: s, extractors: [{pluginRef: x}]}]
  discovery: {pluginRef: f}
  peerDiscovery: {pluginRef: p}
  crossReplicaSyncerPluginRef: r
  crossReplicaSyncInterval: 200ms
flowControl:
  maxBytes: 10Gi
  maxRequests: 1k
  defaultRequestTTL: 60s
  noEndpointRequestTTL: 0s
  defaultPriorityBand: {maxBytes: 1G}
  defaultNegativePriorityBand: {maxRequests: 10}
  priorityBands:
  - {priority: -10, maxBytes: 1G, maxRequests: 5000, fairnessPolicyRef: g, orderingPolicyRef: o}
  usageLimitPolicyPluginRef: u
  saturationDetector: {pluginRef: d}
  enableEviction: true
requestHandler: {parsers: [{pluginRef: openai-parser}]}
saturationDetector: {pluginRef: d}
parser: {pluginRef: openai-parser}
"""


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix("--config-text: ")


def test_every_field_of_the_schema_is_read() -> None:
    config = load_text(EVERYTHING)
    assert config.plugins == (PluginSpec(type="b", name="a", parameters={"c": [1, {"d": "e"}]}),)
    assert config.scheduling_profiles[0].plugins[0].weight == 2.0
    assert config.data_layer.cross_replica_sync_interval == 0.2
    flow = config.flow_control
    assert flow is not None
    assert (flow.max_bytes, flow.max_requests, flow.default_request_ttl) == (10 << 30, 1000, 60.0)
    assert flow.priority_bands[0].priority == -10


def test_both_api_versions_are_read() -> None:
    old = HEAD.replace("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
    assert load_text(old).api_version == "inference.networking.x-k8s.io/v1alpha1"


def test_json_is_yaml() -> None:
    text = '{\n\t"apiVersion": "llm-d.ai/v1alpha1",\n\t"kind": "EndpointPickerConfig",\n\t"plugins": [{"type": "x"}]\n}'
    assert load_text(text).plugins == (PluginSpec(type="x"),)


def test_null_means_absent() -> None:
    text = HEAD + "plugins: [{type: x, name: null, parameters: null}]\ndataLayer: null"
    assert load_text(text) == Config("llm-d.ai/v1alpha1", "EndpointPickerConfig", plugins=(PluginSpec(type="x"),))


def test_an_alias_is_its_anchor() -> None:
    text = HEAD + "plugins: [{type: x, parameters: &p {a: 1}}, {type: y, parameters: *p}]"
    assert load_text(text).plugins[1].parameters == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plugins: [{type: a}, {tpye: b}]", "plugins[1].tpye: unknown field; did you mean type?"),
        ("plugin: []", "plugin: unknown field; did you mean plugins?"),
        ("plugins: [{nam: null}]", "plugins[0].nam: unknown field; did you mean name?"),
        ("dataLayer: {sources: [{pluginRef: a, zzz: 1}]}",
         "dataLayer.sources[0].zzz: unknown field; known: extractors, pluginRef"),
        ("requestHandler: {1: 2}", "requestHandler.1: unknown field; known: parsers"),
        ("plugins: 7", "plugins: expected array, got int"),
        ("plugins: [{type: 3}]", "plugins[0].type: expected str, got int"),
        ("plugins: [{type: a, parameters: []}]", "plugins[0].parameters: expected object, got array"),
        ("schedulingProfiles: [{name: x, plugins: [{pluginRef: a, weight: two}]}]",
         "schedulingProfiles[0].plugins[0].weight: expected float | null, got str"),
        ("flowControl: {defaultRequestTTL: 5}",
         "flowControl.defaultRequestTTL: 5 is not a duration; write it as 50ms, 2s or 1m30s"),
        ("flowControl: {maxBytes: much}",
         "flowControl.maxBytes: 'much' is not a quantity; write it as 5000, 5k or 10Gi"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_schema_is_refused_with_its_key_path(text: str, message: str) -> None:
    assert refusal(HEAD + text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds nothing; it must be a mapping that starts with apiVersion and kind"),
        ("- a", "holds a list; it must be a mapping that starts with apiVersion and kind"),
        ("kind: x", "apiVersion: missing; write apiVersion: llm-d.ai/v1alpha1"),
        ("apiVersion: llm-d.ai/v1alpha1", "kind: missing; write kind: EndpointPickerConfig"),
        (HEAD.replace("v1alpha1", "v1alpha2"),
         "apiVersion: unknown value 'llm-d.ai/v1alpha2'; did you mean llm-d.ai/v1alpha1?"),
        (HEAD.replace("EndpointPickerConfig", "[a]"), "kind: unknown value ['a']; known: EndpointPickerConfig"),
    ],
)  # fmt: skip
def test_another_kind_of_document_is_refused_first(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + HEAD, "apiVersion: written twice, on lines 1 and 3; keep one"),
        (HEAD + "plugins:\n- parameters: {b: 1, b: 2}",
         "plugins[0].parameters.b: written twice, on lines 4 and 4; keep one"),
        (HEAD + "a: &a [*a]", "a[0]: an alias refers to what contains it"),
        (HEAD + "? [a]\n: b", "line 3: a key must be text"),
        (HEAD + "a: [", "not YAML: line 4, column 1: did not find expected node content"),
        (HEAD + "---\na: 1", "not YAML: line 3, column 1: but found another document"),
        (HEAD + "a: !python {}", "not YAML: line 3, column 4: could not determine a constructor for the tag '!python'"),
        (HEAD + "a: 2020-99-99", "a value is no number or date, though it looks like one: month must be in 1..12"),
        ("[" * 500_000, "line 1: nested deeper than 50 levels"),
        ("- " * 500_000, "line 1: nested deeper than 50 levels"),
        ("x" * (MAX_BYTES + 1), "1,048,577 bytes; a configuration has at most 1,048,576"),
        ("a: \udcff", "byte 3 is not UTF-8; save the file as UTF-8"),
    ],
    ids=lambda value: value[-40:],
)  # fmt: skip
def test_text_that_cannot_have_been_meant_is_refused(text: str, message: str) -> None:
    assert refusal(text) == message


def test_aliases_cannot_blow_up() -> None:
    rows = ["- &a0 [x]", *(f"- &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40))]
    assert refusal(HEAD + "plugins:\n" + "\n".join(rows)) == ("plugins[5]: more than 50,000 values, aliases expanded")


@given(st.text(st.sampled_from("ab:-[]{}&*#'\"\n\t ,!|>?%@`\x00\x85é1.~"), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_configuration_or_a_refusal(text: str) -> None:
    with pytest.raises(ConfigError):
        load_text(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["plugins", "schedulingProfiles", "dataLayer", "flowControl", "featureGates", "parser"]),
)
@settings(max_examples=300, deadline=None)
def test_any_value_under_any_key_is_a_configuration_or_a_refusal(value: object, key: str) -> None:
    try:
        load_text(json.dumps({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", key: value}))
    except ConfigError as error:
        assert str(error).startswith("--config-text: ")  # noqa: PT017 - a refusal is allowed, not demanded


def test_a_file_is_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"
    with pytest.raises(ConfigError, match=r"picker\.yaml: cannot be read: No such file or directory"):
        load_file(path)
    path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match=r"picker\.yaml: byte 3 is not UTF-8"):
        load_file(path)
    path.write_text(HEAD + "plugins: 1")
    with pytest.raises(ConfigError, match=r"picker\.yaml: plugins: expected array, got int"):
        load_file(path)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "picker.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    assert load_file(path).kind == "EndpointPickerConfig"
