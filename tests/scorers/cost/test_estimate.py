"""The formula and its cut, compared with trying every cut."""

from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.cost.constants import Constants, Lane, checked
from scorers.cost.estimate import Ahead, Crowd, Holding, estimate

seconds = st.floats(0, 100)
rates = st.floats(1e-8, 1e-3)
lanes = st.builds(Lane, st.floats(0, 0.1), rates)
constants = st.builds(
    Constants, st.floats(0, 1), rates, st.floats(0, 1e-7), st.floats(0, 0.01), lanes, lanes, st.floats(0.1, 100)
)
aheads = st.builds(Ahead, seconds, seconds, seconds)
holdings = st.builds(Holding, st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000))

# Qwen3-32B on two H100, as users.md derives it: 20,480 tokens/s; 2.6 µs to load a token at 50 GB/s.
QWEN = Constants(fixed_s=0.0, token_s=1 / 20_480, pair_s=0.0, decode_s=0.0, cpu=Lane(0.0, 2.6e-6))


def by_trying(known: Constants, tokens: int, holding: Holding, ahead: Ahead, chunk: int) -> float:
    """Return the least of all cuts, each computed by the documented formula."""
    gpu = min(holding.gpu, tokens - 1)
    cpu = max(gpu, min(holding.cpu, tokens - 1) // chunk * chunk)
    storage = max(cpu, min(holding.storage, tokens - 1) // chunk * chunk)
    best = ahead.queue_s + known.prefill_s(tokens, gpu)
    for cut in range(gpu + 1, storage + 1):
        if cut % chunk and cut not in (cpu, storage):
            continue
        load_s = ahead.cpu_s + known.cpu.fixed_s + (cut - gpu) * known.cpu.token_s
        if cut > cpu:
            load_s = max(load_s, ahead.storage_s + known.storage.fixed_s + (cut - cpu) * known.storage.token_s)
        best = min(best, max(ahead.queue_s, load_s) + known.prefill_s(tokens, cut))
    return best


@given(constants, st.integers(1, 3000), holdings, aheads, st.sampled_from([1, 16, 256]))
@settings(deadline=None)
def test_no_other_cut_is_better(known: Constants, tokens: int, holding: Holding, ahead: Ahead, chunk: int) -> None:
    found = estimate(known, tokens, holding, ahead, chunk_tokens=chunk)
    assert found.total_s - found.fixed_s == pytest.approx(by_trying(known, tokens, holding, ahead, chunk), rel=1e-9)


@given(constants, st.integers(1, 3000), holdings, aheads, st.integers(0, 50), st.sampled_from([1, 16, 256]))
@settings(deadline=None)
def test_the_parts_are_the_whole(
    known: Constants, tokens: int, holding: Holding, ahead: Ahead, running: int, chunk: int
) -> None:
    found = estimate(known, tokens, holding, ahead, running, chunk)
    assert isfinite(found.total_s)
    assert min(found) >= 0.0
    waits_s = max(found.queue_s, found.load_s)
    assert found.total_s == pytest.approx(found.fixed_s + found.decode_s + waits_s + found.prefill_s)
    assert found.gpu_tokens + found.cpu_tokens + found.storage_tokens + found.computed_tokens == tokens
    assert found.computed_tokens >= 1


@given(constants, st.integers(1, 3000), holdings, aheads, st.sampled_from([1, 16, 256]), st.integers(0, 2), st.data())
@settings(deadline=None)
def test_more_hits_are_never_slower(
    known: Constants, tokens: int, holding: Holding, ahead: Ahead, chunk: int, tier: int, data: st.DataObject
) -> None:
    more = list(holding)
    more[tier] += data.draw(st.integers(1, 1000))
    before = estimate(known, tokens, holding, ahead, chunk_tokens=chunk).total_s
    assert estimate(known, tokens, Holding(*more), ahead, chunk_tokens=chunk).total_s <= before * (1 + 1e-12)


@given(constants, st.integers(1, 3000), holdings, aheads, seconds)
@settings(deadline=None)
def test_more_ahead_is_never_faster(
    known: Constants, tokens: int, holding: Holding, ahead: Ahead, extra_s: float
) -> None:
    before = estimate(known, tokens, holding, ahead).total_s
    for longer in (
        ahead._replace(queue_s=ahead.queue_s + extra_s),
        ahead._replace(cpu_s=ahead.cpu_s + extra_s),
        ahead._replace(storage_s=ahead.storage_s + extra_s),
    ):
        assert estimate(known, tokens, holding, longer).total_s >= before * (1 - 1e-12)


def test_a_prefix_in_cpu_memory_is_worth_nearly_as_much_as_on_the_gpu() -> None:
    cold, warm, hot = (
        estimate(QWEN, 10_001, Holding(gpu, cpu)).total_s for gpu, cpu in ((0, 0), (0, 10_000), (10_000, 0))
    )
    assert (cold - warm) / (cold - hot) == pytest.approx(0.95, abs=0.005)


def test_a_tier_that_is_slower_than_computing_is_worth_nothing() -> None:
    # 10 GB/s of storage shared by eight engines is 1.25 GB/s each: 210 µs a token, and computing one takes 49.
    slow = Constants(token_s=1 / 20_480, pair_s=0.0, storage=Lane(0.0, 210e-6))
    found = estimate(slow, 10_000, Holding(storage=9_984))
    assert found == estimate(slow, 10_000)
    assert found.storage_tokens == 0


def test_what_the_queue_hides_is_loaded_from_a_slow_tier_and_the_rest_is_computed() -> None:
    slow = Constants(token_s=1 / 20_480, pair_s=0.0, storage=Lane(0.0, 210e-6))
    found = estimate(slow, 10_000, Holding(storage=9_984), Ahead(queue_s=0.2), chunk_tokens=256)
    assert found.storage_tokens == 768  # three chunks of the 952 tokens that fit
    assert found.load_s <= found.queue_s


def test_a_busy_lane_makes_computing_the_better_choice() -> None:
    found = estimate(QWEN, 2_000, Holding(cpu=1_984), Ahead(cpu_s=1.0))
    assert found.cpu_tokens == 0
    assert found.load_s == 0.0


def test_hits_count_in_whole_chunks() -> None:
    assert estimate(QWEN, 1_000, Holding(cpu=900), chunk_tokens=256).cpu_tokens == 768


def test_long_prompts_cost_more_than_in_proportion() -> None:
    known = Constants(fixed_s=0.0, pair_s=2e-9)
    assert estimate(known, 60_000).total_s > 2.2 * estimate(known, 30_000).total_s


def test_the_delay_of_others_is_in_the_price_and_not_in_the_time() -> None:
    alone = estimate(QWEN, 2_048)
    crowded = estimate(QWEN, 2_048, crowd=Crowd(held_up=3))
    assert crowded.total_s == alone.total_s
    assert crowded.price_s == pytest.approx(alone.total_s + 3 * 0.1)


def test_a_prefix_that_running_requests_use_takes_no_memory() -> None:
    crowd = Crowd(memory_token_s=1e-4, in_use=1.0)
    assert estimate(QWEN, 1_001, Holding(gpu=1_000), crowd=crowd).others_s == pytest.approx(1e-4)


def test_constants_that_no_engine_has_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"cpu\.token_s is 2; it must be from 1e-09 to 0\.1 s"):
        checked(Constants(cpu=Lane(0.0, 2.0)))
    with pytest.raises(ValueError, match="token_s is nan"):
        checked(Constants(token_s=float("nan")))
