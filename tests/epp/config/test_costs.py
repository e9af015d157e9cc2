"""The plugins that price requests, as configurations select them."""

from __future__ import annotations

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build
from epp.errors import ConfigError
from scorers.base import Request
from scorers.cost.pricing import PRICING
from scorers.cost.tier_cost import TierCostProducer
from scorers.prefix.producer import ApproxPrefixProducer

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"


def plan(plugins: str, before: Plan | None = None) -> Plan:
    return build(load_text(HEAD + plugins), before=before)


def pricing(made: Plan) -> TierCostProducer:
    producer = made.profile.producers[-1]
    assert isinstance(producer, TierCostProducer)
    return producer


@pytest.mark.parametrize("asking", ["tier-cost-scorer", "tier-cost-picker"])
def test_who_asks_for_prices_gets_a_producer_behind_all_others(asking: str) -> None:
    made = plan(f"- {{type: {asking}}}\n")
    assert [type(producer) for producer in made.profile.producers] == [ApproxPrefixProducer, TierCostProducer]
    request = Request("r", "m", "m")
    made.profile.producers[-1].produce(request, [])
    assert PRICING.of(request) is not None


def test_the_one_that_is_declared_is_used_wherever_it_is_declared() -> None:
    made = plan(
        "- {type: tier-cost-producer, name: prices, parameters: {prefillTokensPerSecond: 10000}}\n"
        "- {type: tier-cost-scorer}\n- {type: approx-prefix-cache-producer, name: gpu}\n"
    )
    assert [producer.name for producer in made.profile.producers] == ["gpu", "prices"]
    assert pricing(made).model.start.token_s == 1e-4


def test_constants_follow_from_the_model_and_the_hardware() -> None:
    made = plan(
        "- {type: tier-cost-producer, parameters: {model: qwen3-32b, gpu: H100, gpusPerEndpoint: 2}}\n"
        "- {type: tier-cost-scorer}\n"
    )
    start = pricing(made).model.start
    assert 1 / start.token_s == pytest.approx(18_000, rel=0.05)
    assert start.cpu.token_s == pytest.approx(262_144 / 102e9, rel=0.02)


def test_what_was_learned_outlives_a_change_of_the_configuration() -> None:
    scorer = "- {type: tier-cost-scorer}\n"
    first = plan(scorer)
    second = plan(scorer + "- {type: queue-scorer}\n", before=first)
    assert pricing(second) is pricing(first)
    declared = scorer + "- {type: tier-cost-producer, parameters: {othersWeight: 0.5}}\n"
    third = plan(declared, before=second)
    assert pricing(third) is not pricing(second)
    assert pricing(plan(declared + "- {type: queue-scorer}\n", before=third)).model is pricing(third).model


PRICED = "- {type: tier-cost-scorer}\n- {type: tier-cost-producer, parameters: {%s}}\n"


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        (
            "- {type: tier-cost-scorer}\n- {type: tier-cost-producer, name: a}\n- {type: tier-cost-producer}\n",
            "plugins: 'a' and 'tier-cost-producer' both price requests",
        ),
        (
            "- {type: tier-cost-scorer}\n- {type: tier-cost-producer, parameters: {model: qwen3-33b, gpu: h100}}\n",
            "plugins[1].parameters.model: 'qwen3-33b' is not known",
        ),
        (
            "- {type: tier-cost-scorer}\n- {type: tier-cost-producer, parameters: {model: qwen3-32b, gpu: h1000}}\n",
            "plugins[1].parameters.gpu: 'h1000' is not known; did you mean h100?",
        ),
        (
            PRICED % "model: qwen3-32b, gpu: h100, gpusPerEndpoint: 3",
            (
                "plugins[1].parameters.gpusPerEndpoint: 3 does not divide the 64 attention heads of Qwen/Qwen3-32B; "
                "choose one of 1, 2, 4, 8, 16, 32, 64"
            ),
        ),
        (
            PRICED % "model: qwen3-32b, gpu: l4",
            (
                "plugins[1].parameters.gpusPerEndpoint: 1 l4 of 22.0 GiB has no room for the 61.0 GiB of weights of "
                "Qwen/Qwen3-32B; write how many GPUs an endpoint has, and the model with its quantization"
            ),
        ),
        (PRICED % "model: qwen3-32b, gpu: l4, gpusPerEndpoint: 2", "2 l4 of 22.0 GiB each have no room"),
        ("- {type: tier-cost-producer, parameters: {model: qwen3-32b}}\n", "model and gpu go together"),
        ("- {type: tier-cost-picker, parameters: {randomEndpoints: 0}}\n", "plugins[0].parameters.randomEndpoints"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(plugins: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        plan(plugins)
    assert said in str(refusal.value)


def test_a_producer_that_nobody_asks_costs_nothing_and_is_a_warning() -> None:
    made = plan("- {type: queue-scorer}\n- {type: tier-cost-producer}\n")
    assert not made.profile.producers
    assert "plugins[1]: 'tier-cost-producer' prices requests, and nothing asks for it" in made.warnings


def test_scorers_that_a_picker_by_seconds_does_not_go_by_are_a_warning() -> None:
    plugins = "- {type: queue-scorer}\n- {type: tier-cost-scorer}\n- {type: tier-cost-picker, parameters: {%s}}\n"
    (said,) = [warning for warning in plan(plugins % "").warnings if "seconds" in warning]
    assert "queue-scorer for equal ones only" in said
    assert not plan(plugins % "secondsPerPoint: 0.5").warnings


def test_the_number_of_fallbacks_is_that_of_other_pickers() -> None:
    made = build(load_text(HEAD + "- {type: tier-cost-picker}\n"), picks=3)
    assert made.profile.picker.parameters.max_num_of_endpoints == 3
