"""Predictions are compared with the engines' reports, by tier, mode and time."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.metrics.accuracy import WINDOW_S, Accuracy
from scorers.base import Candidate, Held, Mode, Observation, Prediction, Slot, Tier

GPU, CPU = Tier.GPU, Tier.CPU
APPROXIMATE, HORIZON, PRECISE = Mode.APPROXIMATE, Mode.HORIZON, Mode.PRECISE
HERE = Candidate(Slot(0), "10.0.0.1:8000", block_tokens=16)


class Clock:
    def __init__(self) -> None:
        self.now_s = 5000.0

    def __call__(self) -> float:
        return self.now_s


def seen(
    *held: Held,
    prompt: int = 1000,
    estimate: int | None = None,
    cached: int | None = 0,
    by_tier: Mapping[Tier, int] | None = None,
    status: int | None = 200,
    candidate: Candidate = HERE,
) -> Observation:
    prediction = Prediction(candidate, held, estimate or prompt)
    return Observation(prediction, status, prompt_tokens=prompt, cached_tokens=cached, cached_by_tier=by_tier or {})


def numbers(accuracy: Accuracy, name: str) -> dict[tuple[str, ...], float]:
    (reading,) = [reading for reading in accuracy.readings() if reading.name == f"tierwise_{name}"]
    return dict(reading.samples)


def measured(*observations: Observation) -> Accuracy:
    accuracy = Accuracy(Clock())
    for observation in observations:
        accuracy.observed(observation)
    return accuracy


def test_the_error_is_what_was_predicted_too_much_or_too_little() -> None:
    accuracy = measured(
        seen(Held(GPU, 600, PRECISE), cached=400), seen(Held(GPU, 0, PRECISE), cached=100), seen(Held(GPU, 0, PRECISE))
    )
    assert numbers(accuracy, "prediction_error_tokens")["total", "precise"] == 300
    assert numbers(accuracy, "prediction_prompt_tokens")["total", "precise"] == 3000
    assert numbers(accuracy, "predicted_cached_tokens")["total", "precise"] == 600
    assert numbers(accuracy, "actual_cached_tokens")["total", "precise"] == 500
    assert numbers(accuracy, "prediction_accuracy")["total", "precise"] == pytest.approx(0.9)


def test_the_block_that_a_prompt_ends_with_is_never_predicted_to_be_found() -> None:
    repeated = (Held(GPU, 1024, APPROXIMATE), Held(CPU, 1024, APPROXIMATE))
    accuracy = measured(seen(*repeated, prompt=1024, cached=1008, by_tier={GPU: 1008}))
    assert set(numbers(accuracy, "prediction_error_tokens").values()) == {0}


def test_a_share_of_an_estimate_is_one_of_the_engines_count() -> None:
    accuracy = measured(seen(Held(GPU, 400, APPROXIMATE), estimate=800, prompt=1000, cached=500))
    assert numbers(accuracy, "prediction_error_tokens") == {
        ("total", "approximate"): 0,
    }


def test_what_several_tiers_hold_is_counted_once_and_for_the_fastest() -> None:
    held = (Held(GPU, 200, PRECISE), Held(CPU, 600, HORIZON))
    accuracy = measured(seen(*held, cached=500, by_tier={GPU: 150, CPU: 350}))
    assert numbers(accuracy, "predicted_cached_tokens") == {
        ("total", "horizon"): 600,
        ("gpu", "precise"): 200,
        ("cpu", "horizon"): 400,
    }
    assert numbers(accuracy, "prediction_error_tokens") == {
        ("total", "horizon"): 100,
        ("gpu", "precise"): 50,
        ("cpu", "horizon"): 50,
    }


def test_a_slower_tier_that_holds_less_adds_nothing() -> None:
    accuracy = measured(seen(Held(GPU, 600, PRECISE), Held(CPU, 200, PRECISE), cached=600, by_tier={GPU: 600, CPU: 0}))
    assert set(numbers(accuracy, "prediction_error_tokens").values()) == {0}


def test_tiers_that_the_engine_does_not_tell_apart_are_measured_in_total() -> None:
    accuracy = measured(seen(Held(GPU, 200, PRECISE), Held(CPU, 600, PRECISE), cached=600))
    assert numbers(accuracy, "prediction_error_tokens") == {("total", "precise"): 0}


@pytest.mark.parametrize(
    ("observation", "reason"),
    [
        (seen(Held(GPU, 0, PRECISE), prompt=255), "short"),
        (seen(Held(GPU, 0, PRECISE), candidate=Candidate(Slot(0), "a:1", block_tokens=128), prompt=2047), "short"),
        (seen(Held(GPU, 0, PRECISE), cached=None), "cached-tokens-unsaid"),
        (seen(Held(GPU, 0, PRECISE), status=500), "failed"),
        (Observation(Prediction(HERE, (Held(GPU, 0, PRECISE),), 1000), 200), "no-usage"),
    ],
)
def test_responses_without_a_comparison_are_counted_by_reason(observation: Observation, reason: str) -> None:
    accuracy = measured(observation)
    assert numbers(accuracy, "prediction_error_tokens") == {}
    assert {key: count for key, count in numbers(accuracy, "predictions_unmeasured").items() if count} == {(reason,): 1}


def test_without_a_prediction_there_is_nothing_to_measure() -> None:
    assert set(numbers(measured(seen()), "predictions_unmeasured").values()) == {0}


def test_an_engine_that_keeps_its_cached_tokens_to_itself_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        measured(*[seen(Held(GPU, 0, PRECISE), cached=None)] * 3)
    (line,) = caplog.messages
    assert "10.0.0.1:8000" in line
    assert "--enable-prompt-tokens-details" in line


def test_an_engine_that_has_reported_cached_tokens_means_none_if_it_reports_none() -> None:
    told, silent = seen(Held(GPU, 500, PRECISE), cached=500), seen(Held(GPU, 500, PRECISE), cached=None)
    elsewhere = seen(Held(GPU, 500, PRECISE), cached=None, candidate=Candidate(Slot(1), "10.0.0.2:8000"))
    accuracy = measured(silent, told, silent, elsewhere)
    assert numbers(accuracy, "prediction_prompt_tokens") == {("total", "precise"): 2000}
    assert numbers(accuracy, "prediction_error_tokens") == {("total", "precise"): 500}
    assert numbers(accuracy, "predictions_unmeasured")["cached-tokens-unsaid",] == 2


def test_the_gauge_is_of_the_last_ten_minutes() -> None:
    clock = Clock()
    accuracy = Accuracy(clock)
    accuracy.observed(seen(Held(GPU, 0, PRECISE), cached=1000))
    assert numbers(accuracy, "prediction_accuracy") == {("total", "precise"): 0.0}
    clock.now_s += WINDOW_S / 2
    accuracy.observed(seen(Held(GPU, 0, PRECISE)))
    assert numbers(accuracy, "prediction_accuracy") == {("total", "precise"): 0.5}
    clock.now_s += WINDOW_S * 0.6
    assert numbers(accuracy, "prediction_accuracy") == {("total", "precise"): 1.0}
    clock.now_s += WINDOW_S
    assert numbers(accuracy, "prediction_accuracy") == {}
    assert numbers(accuracy, "prediction_error_tokens") == {("total", "precise"): 1000}, "counters stay"


@given(st.lists(st.tuples(st.integers(256, 5000), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_accuracy_is_as_defined(prompts: list[tuple[int, float, float, float]]) -> None:
    observations, errors, total = [], 0.0, 0
    for prompt, gpu, cpu, actual in prompts:
        held = (Held(GPU, int(gpu * prompt), PRECISE), Held(CPU, int(cpu * prompt), PRECISE))
        cached = int(actual * prompt)
        observations.append(seen(*held, prompt=prompt, cached=cached))
        most = (prompt - 1) // 16 * 16
        errors += abs(min(most, max(int(gpu * prompt), int(cpu * prompt))) - cached)
        total += prompt
    (accuracy,) = numbers(measured(*observations), "prediction_accuracy").values()
    assert accuracy == pytest.approx(1 - errors / total)
    assert 0 <= accuracy <= 1
