"""Constants from observations, some of which are wrong."""

from __future__ import annotations

from math import inf, isfinite, nan
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.cost.constants import LEAST, MOST, Constants, Lane, checked, numbers
from scorers.cost.learning import Deviation, Learner, Sample
from scorers.cost.quantile import Median

TRUTHS = {
    "twice as fast": Constants(0.03, 25e-6, 1e-9, 2e-3, Lane(1e-3, 1e-6), Lane(5e-3, 2e-5)),
    "four times as slow": Constants(0.05, 200e-6, 8e-9, 5e-3, Lane(5e-3, 12e-6), Lane(10e-3, 1e-4)),
    "tiers slower than computing": Constants(0.01, 60e-6, 2e-9, 0.5e-3, Lane(1e-3, 2e-4), Lane(20e-3, 5e-4)),
}
OFTEN = 600


def samples(truth: Constants, random: Random, wrong: float = 0.2, noise: float = 0.1) -> Sample:
    """Return one request at an engine with these constants; a share ``wrong`` of requests takes a random time."""
    tokens = random.choice([300, 1000, 5000, 16_000, 30_000])
    gpu = int(tokens * random.choice([0, 0, 0.3, 0.9]))
    cpu = max(0, int(tokens * random.choice([0, 0, 0.9, 0.99])) - gpu)
    storage = max(0, int(tokens * random.choice([0, 0, 0, 0.95])) - gpu - cpu)
    running = random.randrange(40)
    load_s = 0.0
    if cpu + storage:
        load_s = truth.cpu.fixed_s + (cpu + storage) * truth.cpu.token_s
    if storage:
        load_s = max(load_s, truth.storage.fixed_s + storage * truth.storage.token_s)
    computed_s = truth.fixed_s + truth.prefill_s(tokens, gpu + cpu + storage) + running * truth.decode_s
    took_s = (computed_s + load_s) * max(0.1, random.gauss(1.0, noise))
    if random.random() < wrong:
        took_s *= random.choice([0.1, 3.0, 10.0, 50.0])
    return Sample(took_s, tokens, gpu, cpu, storage, running=running)


def taught(truth: Constants, seed: int, learner: Learner | None = None, count: int = OFTEN) -> Learner:
    learner, random = learner or Learner(Constants()), Random(seed)
    for _ in range(count):
        learner.observe(samples(truth, random))
    return learner


def off(learner: Learner, truth: Constants, tokens: int, held: int = 0) -> float:
    return learner.constants.prefill_s(tokens, held) / truth.prefill_s(tokens, held)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", TRUTHS)
def test_constants_are_recovered_though_a_fifth_of_what_is_seen_is_wrong(name: str, seed: int) -> None:
    truth = TRUTHS[name]
    learner = taught(truth, seed)
    for tokens, held in ((1_000, 0), (30_000, 0), (30_000, 27_000)):
        assert off(learner, truth, tokens, held) == pytest.approx(1.0, abs=0.1)
    known = learner.constants
    for lane, true in ((known.cpu, truth.cpu), (known.storage, truth.storage)):
        loaded = 20_000
        assert lane.fixed_s + loaded * lane.token_s == pytest.approx(true.fixed_s + loaded * true.token_s, rel=0.35)
    assert known.fixed_s == pytest.approx(truth.fixed_s, abs=0.02)


def test_an_engine_that_becomes_slower_is_followed() -> None:
    before, after = TRUTHS["twice as fast"], TRUTHS["four times as slow"]
    learner = taught(after, 2, taught(before, 1), count=1500)
    assert off(learner, after, 16_000) == pytest.approx(1.0, abs=0.15)


def test_ten_requests_say_more_than_the_start() -> None:
    truth = TRUTHS["four times as slow"]
    assert abs(off(taught(truth, 3, count=10), truth, 10_000) - 1.0) < 0.5


OUTLIERS = {
    "a cold engine": Sample(300.0, 1000, 0),
    "an answer that no prompt was computed for": Sample(0.001, 30_000, 0),
    "a picture that was taken for text": Sample(0.5, 2_500_000, 0),
    "a load that never was": Sample(0.01, 30_000, 0, 29_000),
    "a load that hung": Sample(60.0, 30_000, 0, 29_000),
    "more running than can be": Sample(0.2, 1000, 0, running=10**9),
    "a wait that was none": Sample(0.2, 1000, 0, queue_s=500.0),
}


@pytest.mark.parametrize("before", [0, 8, 20, 100])
@pytest.mark.parametrize("name", OUTLIERS)
def test_one_request_that_is_far_off_bends_nothing_not_even_among_the_first(name: str, before: int) -> None:
    truth, random = TRUTHS["twice as fast"], Random(1)
    without, learner = Learner(Constants()), Learner(Constants())
    for n in range(before + 40):
        sample = samples(truth, random, wrong=0.0)
        if n == before:
            learner.observe(OUTLIERS[name])
        for each in (without, learner):
            each.observe(sample)
        for tokens in (1000, 30_000):
            ratio = learner.constants.prefill_s(tokens, 0) / without.constants.prefill_s(tokens, 0)
            assert 0.5 < ratio < 2.0, f"{n - before} requests later"


def test_a_start_that_is_sixty_times_too_fast_is_left_though_nothing_fits_it() -> None:
    truth = Constants(0.3, 3e-3, 1e-7, 2e-2, Lane(1e-2, 1e-4), Lane(5e-2, 1e-3))
    random, learner = Random(1), Learner(Constants())
    for _ in range(60):
        learner.observe(samples(truth, random, wrong=0.0))
    assert off(learner, truth, 5000) == pytest.approx(1.0, abs=0.25)


def test_of_what_is_never_seen_the_start_stays() -> None:
    learner, random = Learner(Constants()), Random(1)
    for _ in range(200):
        sample = samples(TRUTHS["twice as fast"], random)
        learner.observe(sample._replace(cpu_tokens=0, storage_tokens=0))
    assert learner.constants.cpu == Constants().cpu
    assert learner.constants.storage == Constants().storage


anything = st.floats() | st.sampled_from([nan, inf, -inf, 0.0, 1e300, 5e-324])
counts = st.integers(-5, 10**7)


@given(
    st.lists(
        st.builds(Sample, anything, counts, counts, counts, counts, anything, anything, counts, anything | st.none()),
        max_size=30,
    )
)
@settings(deadline=None)
def test_no_observation_makes_a_constant_one_that_no_engine_has(garbage: list[Sample]) -> None:
    learner = Learner(Constants())
    for sample in garbage:
        comparison = learner.observe(sample)
        assert comparison is None or isfinite(comparison[0])
        assert checked(learner.constants)
    learner = taught(TRUTHS["twice as fast"], 1, learner)
    assert off(learner, TRUTHS["twice as fast"], 16_000) == pytest.approx(1.0, abs=0.3), "it recovers"


@given(st.floats(1e-3, 500.0), st.integers(2, 100_000), st.integers(1, 40))
@settings(deadline=None)
def test_a_liar_moves_constants_to_a_bound_at_most(took_s: float, tokens: int, times: int) -> None:
    learner = Learner(Constants())
    for _ in range(times):
        learner.observe(Sample(took_s, tokens, 0))
    for path, value, least, most in numbers(learner.constants, "", LEAST, MOST):
        assert least <= value <= most, path


def test_an_endpoint_is_as_its_kind_until_it_has_shown_otherwise() -> None:
    random, deviation = Random(1), Deviation()
    for _ in range(20):
        deviation.observe(3.0 * random.gauss(1.0, 0.1))
    assert deviation.factor == 1.0
    for _ in range(60):
        deviation.observe(3.0 * random.gauss(1.0, 0.1))
    assert deviation.factor == pytest.approx(3.0, rel=0.1)


def test_equal_endpoints_stay_equal_whatever_their_requests_took() -> None:
    for seed in range(20):
        random, deviation = Random(seed), Deviation()
        for _ in range(300):
            deviation.observe(random.choice([1.0, 1.0, 1.0, 1.0, 8.0]) * random.gauss(1.0, 0.1))
        assert deviation.factor == 1.0


@given(st.lists(anything, max_size=200))
@settings(deadline=None)
def test_a_deviation_is_bounded(ratios: list[float]) -> None:
    deviation = Deviation()
    for ratio in ratios:
        deviation.observe(ratio)
    assert 1 / 8 <= deviation.factor <= 8


def test_a_median_is_found_among_wrong_numbers() -> None:
    random, median = Random(1), Median(1.0)
    for _ in range(400):
        median.observe(random.choice([20.0, 21.0, 22.0, 23.0, 1e9]), 0.01, 3600.0)
    assert 20.0 <= median.value <= 24.0
