"""The rules of ``inferenceModelRewrites``: their effect, and what is refused."""

from __future__ import annotations

import json
from random import Random

import pytest

from epp.config.load import load_text
from epp.config.plan import Plan
from epp.config.wiring.build import build
from epp.errors import ConfigError

HEAD = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}


def plan(*rewrites: object) -> Plan:
    return build(load_text(json.dumps(HEAD | {"inferenceModelRewrites": rewrites})), random=Random(1))


def refusal(*rewrites: object) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*rewrites)
    return str(caught.value)


def rule(*targets: str | tuple[str, int], to: str = "") -> dict[str, object]:
    """Return a rule for the model ``to``, or for every model if it is empty."""
    written = [{"modelRewrite": t} if isinstance(t, str) else {"modelRewrite": t[0], "weight": t[1]} for t in targets]
    matches = {"matches": [{"model": {"type": "Exact", "value": to}}]} if to else {}
    return {"targets": written} | matches


def target(made: Plan, model: str) -> str | None:
    found = made.rewrites.rule_for(model)
    return found() if found is not None else None


def test_without_rules_nothing_is_rewritten() -> None:
    made = plan()
    assert not made.rewrites
    body = b'{"model": "m", "prompt": "x"}'
    assert made.parser.parse("/v1/completions", body).body is None


def test_a_rule_for_the_very_model_beats_a_rule_for_all_whatever_the_order() -> None:
    made = plan({"rules": [rule("all"), rule("mine", to="m")]})
    assert (target(made, "m"), target(made, "other"), target(made, "")) == ("mine", "all", "all")


def test_without_a_rule_for_all_other_models_are_left_alone() -> None:
    assert target(plan({"rules": [rule("mine", to="m")]}), "other") is None


def test_of_two_rewrites_for_one_model_the_first_is_followed_and_the_second_warned_of() -> None:
    made = plan({"rules": [rule("first", to="m"), rule("f")]}, {"rules": [rule("second", to="m"), rule("s")]})
    assert (target(made, "m"), target(made, "other")) == ("first", "f")
    first, second = (f"inferenceModelRewrites[{i}].rules" for i in range(2))
    assert made.warnings == (
        f"{second}[0].matches[0].model.value: has no effect: {first}[0].matches[0].model.value comes first",
        f"{second}[1]: has no effect: {first}[1] comes first",
    )


def test_targets_without_weights_are_equal() -> None:
    made = plan({"rules": [rule("a", "b")]})
    drawn = [target(made, "m") for _ in range(1000)]
    assert 400 < drawn.count("a") < 600


def test_targets_are_drawn_by_weight() -> None:
    made = plan({"rules": [rule(("a", 900), ("b", 100))]})
    drawn = [target(made, "m") for _ in range(1000)]
    assert 50 < drawn.count("b") < 150


def test_a_target_without_weight_among_weighted_ones_is_never_chosen_and_warned_of() -> None:
    made = plan({"rules": [rule(("a", 1), "b", ("c", 1))]})
    assert {target(made, "m") for _ in range(100)} == {"a", "c"}
    assert made.warnings == (
        "inferenceModelRewrites[0].rules[0].targets[1]: has no weight where others have one, so it is never chosen",
    )


@pytest.mark.parametrize(
    ("rewrite", "sentence"),
    [
        ({}, "inferenceModelRewrites[0].rules: empty; write a rule"),
        ({"rules": [{}]}, "inferenceModelRewrites[0].rules[0].targets: empty; write at least one modelRewrite"),
        ({"rules": [rule(("a", 0))]}, "inferenceModelRewrites[0].rules[0].targets[0].weight: expected `int` >= 1"),
        ({"rules": [rule(("a", 1_000_001))]}, "inferenceModelRewrites[0].rules[0].targets[0].weight: expected"),
        ({"rules": [rule("")]}, "inferenceModelRewrites[0].rules[0].targets[0].modelRewrite: expected"),
        ({"rules": [{"targets": [{}]}]}, "inferenceModelRewrites[0].rules[0].targets[0]: missing field modelRewrite"),
        (
            {"rules": [rule("a", to="m"), rule("b", to="m")]},
            "inferenceModelRewrites[0].rules[1].matches[0].model.value: 'm' is matched by inferenceModelRewrites[0]",
        ),
        (
            {"rules": [rule("a"), rule("b")]},
            "inferenceModelRewrites[0].rules[1]: every model is matched by inferenceModelRewrites[0].rules[0] already",
        ),
        (
            {"rules": [rule("a", to="m") | {"weigth": 1}]},
            "inferenceModelRewrites[0].rules[0].weigth: unknown field",
        ),
        (
            {"rules": [{"matches": [{"model": {"type": "Prefix", "value": "m"}}]}]},
            "inferenceModelRewrites[0].rules[0].matches[0].model.type: ",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_by_its_key_path(rewrite: object, sentence: str) -> None:
    assert sentence.replace("`", "") in refusal(rewrite)


def test_two_rewrites_of_one_name_are_refused() -> None:
    sentence = refusal({"name": "x", "rules": [rule("a")]}, {"name": "x", "rules": [rule("b", to="m")]})
    assert sentence.startswith("inferenceModelRewrites[1].name: 'x' is the name of inferenceModelRewrites[0] already")
