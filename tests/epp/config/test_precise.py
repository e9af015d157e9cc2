"""How the precise producer is declared and named, and when it is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build
from epp.errors import ConfigError
from epp.kvevents.wires import wires_of
from epp.server.core import Core
from epp.server.settings import Settings
from scorers.base import Candidate, Slot
from scorers.precise.parameters import KvEventsConfig, PodDiscoveryConfig

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
GUIDE = """
plugins:
  - {type: token-producer, parameters: {modelName: m, vllm: {url: http://render:8000}}}
  - type: endpoint-notification-source
  - type: precise-prefix-cache-producer
    parameters:
      tokenProcessorConfig: {blockSizeTokens: 64}
      speculativeIndexing: true
      kvEventsConfig:
        topicFilter: kv@
        concurrency: 8
        discoverPods: true
        podDiscoveryConfig: {socketPort: 5556, replaySocketPort: 5559}
  - {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
  - {type: no-hit-lru-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer, lruSize: 2048}}
  - {type: metrics-data-source}
  - {type: core-metrics-extractor}
dataLayer:
  sources:
    - {pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}
    - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}
"""


def plan(text: str, before: Plan | None = None) -> Plan:
    return build(load_text(HEAD + text), before=before)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(text)
    return str(caught.value)


def test_a_configuration_as_the_guide_for_precise_routing_writes_it_loads() -> None:
    made = plan(GUIDE)
    assert made.precise is not None
    assert made.scrape is not None
    assert made.prefix_cache is not None
    assert [p.name for p in made.prefix_cache.producers] == [
        f"precise-prefix-cache-producer/{t}" for t in ("gpu", "cpu")
    ]
    assert "producer precise-prefix-cache-producer: KV events of every endpoint" in made.summary
    assert not [warning for warning in made.warnings if "precise" in warning]


def test_one_tier_of_it_can_be_named() -> None:
    names = ("p", "p/gpu", "p/cpu", "p/storage")
    scorers = "".join(
        f"\n  - {{type: prefix-cache-scorer, name: s{n}, parameters: {{prefixMatchInfoProducerName: {name}}}}}"
        for n, name in enumerate(names)
    )
    made = plan(f"plugins:\n  - {{type: precise-prefix-cache-producer, name: p}}{scorers}")
    assert [producer.name for producer in made.profile.producers] == ["p"]
    wrong = scorers.replace("p/storage", "p/disk")
    assert refusal(f"plugins:\n  - {{type: precise-prefix-cache-producer, name: p}}{wrong}").startswith(
        "plugins[4].parameters.prefixMatchInfoProducerName: no producer is named 'p/disk'"
    )


def test_the_deprecated_scorer_brings_its_producer_and_says_so() -> None:
    made = plan("plugins: [{type: precise-prefix-cache-scorer, parameters: {speculativeIndexing: true}}]")
    assert made.precise is not None
    assert made.precise.parameters.speculative_indexing
    assert any("precise-prefix-cache-scorer is deprecated" in warning for warning in made.warnings)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("kvEventsConfig: {podDiscoveryConfig: {socketPort: 70000}}", "kvEventsConfig.podDiscoveryConfig.socketPort: "),
        ("kvEventsConfig: {podDiscoveryConfig: {socketPort: 5557, socketPortOffset: 5}}",
         "kvEventsConfig.podDiscoveryConfig.socketPort: 5557, and socketPortOffset: 5 says another port; write one of"),
        ("kvEventsConfig: {podDiscoveryConfig: {replaySocketPort: 5558, replaySocketPortOffset: 5}}",
         "kvEventsConfig.podDiscoveryConfig.replaySocketPort: 5558, and replaySocketPortOffset: 5 says another port"),
        ("kvEventsConfig: {podDiscoveryConfig: {socketPort: 0}}",
         "kvEventsConfig.podDiscoveryConfig.socketPort: must be 1 to 65535"),
        ("kvEventsConfig: {discoverPods: false}", "kvEventsConfig.discoverPods: with false and no zmqEndpoint"),
        ("kvEventsConfig: {zmqEndpoint: nowhere}", "kvEventsConfig.zmqEndpoint: 'nowhere' is not tcp://HOST:PORT"),
        ("kvEventsConfig: {podDiscoveryConfig: {socketport: 1}}",
         "kvEventsConfig.podDiscoveryConfig.socketport: unknown field; did you mean socketPort?"),
        ("speculativeTTL: soon", "speculativeTTL: 'soon' is no duration; write 2s"),
        ("indexerConfig: {kvCacheBackendConfigs: [{name: disk}]}", "indexerConfig.kvCacheBackendConfigs: 'disk' is no"),
        ("indexerConfig: {kvBlockIndexConfig: {redisConfig: {address: x}}}",
         "indexerConfig.kvBlockIndexConfig.redisConfig: the index lies in the picker's memory here"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_key_path(parameters: str, message: str) -> None:
    refused = refusal(f"plugins: [{{type: precise-prefix-cache-producer, parameters: {{{parameters}}}}}]")
    assert refused.removeprefix("plugins[0].parameters.").startswith(message)


def test_the_default_port_is_shown_where_it_is_used_and_only_there() -> None:
    assert PodDiscoveryConfig().socket_port == 5557
    assert PodDiscoveryConfig(socket_port_offset=5).socket_port is None
    assert msgspec.structs.replace(PodDiscoveryConfig(), data_parallel_size=2).socket_port == 5557


def test_two_of_them_are_refused() -> None:
    kind = "{type: precise-prefix-cache-producer, name: %s}"
    assert refusal(f"plugins: [{kind % 'a'}, {kind % 'b'}]") == (
        "plugins: 'a' and 'b' would both follow the engines' KV events; keep one"
    )


def test_weights_change_while_it_runs_and_how_engines_are_followed_does_not() -> None:
    core = Core(plan(GUIDE), Settings())
    cache = core.precise
    weights = "indexerConfig: {kvCacheBackendConfigs: [{name: gpu}]}\n      speculativeIndexing"
    changed = plan(GUIDE.replace("speculativeIndexing", weights), core.plan)
    core.use(changed)
    assert changed.precise is not None
    assert changed.precise.source is cache
    for other in (GUIDE.replace("5556", "5557"), "plugins: [{type: queue-scorer}]"):
        with pytest.raises(ConfigError, match="takes a restart"):
            core.use(plan(other, core.plan))
    assert core.plan.precise is changed.precise


def test_a_picker_without_it_starts_no_process(tmp_path: Path) -> None:
    assert Core(plan("plugins: [{type: prefix-cache-scorer}]"), Settings()).precise is None


@pytest.mark.parametrize(
    ("where", "name", "labels", "events", "replay"),
    [
        (PodDiscoveryConfig(), "", {}, [5557], []),
        (PodDiscoveryConfig(replay_socket_port=5558), "ns/vllm-0-rank-2", {}, [5559], [5560]),
        (PodDiscoveryConfig(socket_port_offset=1000, replay_socket_port_offset=-10), "", {}, [9000], [7990]),
        (
            PodDiscoveryConfig(),
            "",
            {"tierwise/kv-events-port": "6000", "tierwise/kv-replay-port": "6100"},
            [6000],
            [6100],
        ),
        (PodDiscoveryConfig(data_parallel_size=2, replay_socket_port=7000), "", {}, [5557, 5558], [7000, 7001]),
        (PodDiscoveryConfig(socket_port_offset=65000), "", {}, [], []),
        (PodDiscoveryConfig(), "", {"tierwise/kv-events-port": "many"}, [5557], []),
    ],
)
def test_where_an_endpoint_publishes(
    where: PodDiscoveryConfig, name: str, labels: dict[str, str], events: list[int], replay: list[int]
) -> None:
    candidate = Candidate(Slot(0), "[fd00::7]:8000", name, labels)
    wires = wires_of(candidate, KvEventsConfig(pod_discovery_config=where))
    assert [wire.events for wire in wires] == [f"tcp://[fd00::7]:{port}" for port in events]
    assert [wire.replay for wire in wires if wire.replay] == [f"tcp://[fd00::7]:{port}" for port in replay]


def test_nobody_is_connected_to_where_publishers_connect_to_us() -> None:
    assert wires_of(Candidate(Slot(0), "10.0.0.7:8000"), KvEventsConfig(zmq_endpoint="tcp://*:5557")) == ()


def test_a_wrong_source_is_named_by_its_place_whatever_stands_before_it() -> None:
    wrong = GUIDE.replace(
        "extractors: [{pluginRef: core-metrics-extractor}]", "extractors: [{pluginRef: token-producer}]"
    )
    assert refusal(wrong).startswith("dataLayer.sources[1].extractors[0].pluginRef: 'token-producer' is of type")
