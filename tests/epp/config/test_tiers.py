"""The tiers of cached tokens: both forms of the configuration, and every way to bind a scorer to a producer."""

from __future__ import annotations

from pathlib import Path

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build, plan_from
from epp.errors import ConfigError
from scorers.base import Candidate, Prompt, Request, Slot, Tier
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.scorer import PrefixScorer

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
EXAMPLES = Path(__file__).parents[3] / "manifests" / "config"

SILENT = Candidate(slot=Slot(0), address="10.0.0.1:8000")
REPORTING = Candidate(slot=Slot(1), address="10.0.0.2:8000", block_tokens=16, gpu_blocks=9271)


def plan(text: str) -> Plan:
    return build(load_text(HEAD + text))


def producers(made: Plan) -> dict[str, ApproxPrefixProducer]:
    return {p.name: p for p in made.profile.producers if isinstance(p, ApproxPrefixProducer)}


def readings(made: Plan) -> dict[str, str]:
    """Return the producer that each prefix scorer reads."""
    return {s.name: s.producer_name for s, _ in made.profile.scorers if isinstance(s, PrefixScorer)}


def weights(made: Plan) -> list[tuple[str, float]]:
    return [(scorer.name, weight) for scorer, weight in made.profile.scorers]


def test_the_v04_form_means_what_it_says() -> None:
    made = plan_from(EXAMPLES / "tiered-v0.4.yaml", None)
    assert weights(made) == [
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("gpu-prefix-cache-scorer", 1.0),
        ("cpu-prefix-cache-scorer", 1.0),
    ]
    gpu, cpu = producers(made).values()
    assert (gpu.tier, cpu.tier) == (Tier.GPU, Tier.CPU)
    assert readings(made) == {"gpu-prefix-cache-scorer": gpu.name, "cpu-prefix-cache-scorer": cpu.name}
    assert cpu.capacity_tokens(SILENT) == cpu.capacity_tokens(REPORTING) == 41_000 * 16 == 656_000
    assert gpu.capacity_tokens(REPORTING) == 9271 * 16
    assert len(made.warnings) == 1
    assert made.warnings[0].startswith("apiVersion: ")


def test_the_current_form_means_what_it_says() -> None:
    made = plan_from(EXAMPLES / "tiered.yaml", None)
    assert weights(made)[-1] == ("no-hit-lru-scorer", 1.0)
    gpu, cpu = producers(made)["gpu-prefix-cache-producer"], producers(made)["cpu-prefix-cache-producer"]
    assert len(producers(made)) == 2, "no-hit-lru-scorer asks both and needs no third index"
    assert (gpu.tier, cpu.tier) == (Tier.GPU, Tier.CPU)
    assert readings(made) == {"gpu-prefix-cache-scorer": gpu.name, "cpu-prefix-cache-scorer": cpu.name}
    assert cpu.capacity_tokens(REPORTING) == 656_000
    assert made.prefix_cache is not None
    assert made.prefix_cache.producers == (gpu, cpu)
    assert made.warnings == ()


def test_the_guides_82000_blocks_are_blocks_of_16_tokens() -> None:
    made = plan(
        "plugins: [{type: approx-prefix-cache-producer, name: cpu-prefix-cache-producer, "
        "parameters: {autoTune: false, lruCapacityPerServer: 82000}}]"
    )
    assert producers(made)["cpu-prefix-cache-producer"].capacity_tokens(SILENT) == 1_312_000


def test_without_a_configuration_both_tiers_are_scored() -> None:
    made = build(None)
    assert [(p.name, p.tier) for p in producers(made).values()] == [
        ("gpu-prefix-cache-producer", Tier.GPU),
        ("cpu-prefix-cache-producer", Tier.CPU),
    ]


def test_a_scorer_without_producer_gets_the_default_one() -> None:
    made = plan("plugins: [{type: prefix-cache-scorer}]")
    assert readings(made) == {"prefix-cache-scorer": "approx-prefix-cache-producer"}
    assert list(producers(made)) == ["approx-prefix-cache-producer"]
    assert made.warnings == ()


def test_a_declared_default_producer_is_the_one_that_is_read() -> None:
    made = plan(
        "plugins: [{type: prefix-cache-scorer}, {type: approx-prefix-cache-producer, parameters: {autoTune: false}}]"
    )
    assert len(producers(made)) == 1
    assert producers(made)["approx-prefix-cache-producer"].parameters.auto_tune is False


def test_the_default_producer_may_be_named_without_being_declared() -> None:
    made = plan(
        "plugins: [{type: no-hit-lru-scorer, parameters: {prefixMatchInfoProducerName: approx-prefix-cache-producer}}]"
    )
    assert list(producers(made)) == ["approx-prefix-cache-producer"]


def test_a_scorer_of_cold_requests_alone_needs_a_producer_too() -> None:
    assert list(producers(plan("plugins: [{type: no-hit-lru-scorer}]"))) == ["approx-prefix-cache-producer"]


def test_no_plugin_that_asks_means_no_index() -> None:
    made = plan("plugins: [{type: queue-scorer}]")
    assert made.prefix_cache is None
    assert made.profile.producers == ()


def test_a_scorer_that_reads_none_of_the_declared_producers_is_a_warning() -> None:
    made = plan(
        "plugins: [{type: approx-prefix-cache-producer, name: cpu-cache, parameters: {lruCapacityPerServer: 9}}, "
        "{type: prefix-cache-scorer}]"
    )
    assert made.warnings == (
        (
            "plugins[1]: reads none of the declared producers but an index of its own; say which one with "
            "parameters.prefixMatchInfoProducerName (cpu-cache)"
        ),
    )


BOUND = "{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: gpu}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{type: approx-prefix-cache-producer, name: gpv}, " + BOUND,
         "plugins[1].parameters.prefixMatchInfoProducerName: no producer is named 'gpu'; did you mean gpv?"),
        ("{type: queue-scorer, name: gpu}, " + BOUND,
         "plugins[1].parameters.prefixMatchInfoProducerName: 'gpu' is of type queue-scorer; a producer belongs here"),
        (("{type: approx-prefix-cache-producer, name: gpu}, "
         "{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: gpu, lruCapacityPerServer: 5}}"),
         "plugins[1].parameters.prefixMatchInfoProducerName: with it, a producer's own "),
        ("{type: prefix-cache-scorer, parameters: {lruCapacty: 5}}",
         "plugins[0].parameters.lruCapacty: unknown field; did you mean lruCapacityPerServer?"),
        ("{type: approx-prefix-cache-producer, parameters: {tier: disk}}",
         "plugins[0].parameters.tier: 'disk' is none of gpu, cpu, storage"),
        ("{type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 0}}",
         "plugins[0].parameters: lruCapacityPerServer"),
        ("{type: prefix-cache-scorer, parameters: {matchLengthWeight: 1.5}}",
         "plugins[0].parameters: matchLengthWeight"),
    ],
)  # fmt: skip
def test_a_wrong_tier_is_refused_with_its_key_path(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(f"plugins: [{text}]")
    assert str(caught.value).startswith(message)


def test_the_description_says_tier_and_capacity() -> None:
    lines = plan_from(EXAMPLES / "tiered.yaml", None).describe()
    assert (
        "producer gpu-prefix-cache-producer (approx-prefix-cache-producer): tier gpu, capacity from the engine, "
        "500,000 tokens until it reports"
    ) in lines
    assert (
        "producer cpu-prefix-cache-producer (approx-prefix-cache-producer): tier cpu, 656,000 tokens an endpoint"
        in lines
    )
    assert "scorer cpu-prefix-cache-scorer (prefix-cache-scorer): weight 1, reads cpu-prefix-cache-producer" in lines
    told = "tier cpu, capacity from the engine, unknown until it reports"
    assert any(line.endswith(told) for line in build(None).describe())


@pytest.mark.parametrize("example", ["tiered-v0.4.yaml", "tiered.yaml"])
def test_a_request_returns_to_the_endpoint_that_holds_its_prefix(example: str) -> None:
    made = plan_from(EXAMPLES / example, None)
    assert made.prefix_cache is not None
    candidates = [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000") for i in range(4)]
    for candidate in candidates:
        made.prefix_cache.endpoint_added(candidate)

    def send(text: bytes) -> str:
        prompts = (Prompt(identity=b"m", data=text),)
        request = Request(id="r", model="m", target_model="m", prompts=prompts, prompt_tokens=len(text) // 4, cached={})
        chosen = made.profile.schedule(request, candidates).chosen[0]
        made.profile.picked(request, chosen)
        return chosen.address

    first = send(b"system prompt " * 1000)
    assert {send(b"system prompt " * 1000 + question) for question in (b"a" * 99, b"b" * 99, b"c" * 99)} == {first}
