"""The producer's parameters and the scorer's formula."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorers.base import CachedPrefix, Candidate, Request, Slot, Tier
from scorers.prefix.parameters import ApproxPrefixParameters
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.scorer import PrefixParameters, PrefixScorer

ENGINE = Candidate(Slot(0), "10.0.0.1:8000", gpu_blocks=1000, block_tokens=32)
UNKNOWN = Candidate(Slot(0), "10.0.0.1:8000")


def producer(name: str = "", **parameters: object) -> ApproxPrefixProducer:
    return ApproxPrefixProducer(msgspec.convert(parameters, ApproxPrefixParameters), name)


def scorer(name: str = "", **parameters: object) -> PrefixScorer:
    return PrefixScorer(msgspec.convert(parameters, PrefixParameters), name)


def request(tokens: dict[int, int], total: int, name: str = "approx-prefix-cache-producer") -> Request:
    held = {Slot(slot): held for slot, held in tokens.items()}
    return Request(id="r", model="m", target_model="m", cached={name: CachedPrefix(Tier.GPU, total, held)})


def candidates(count: int) -> list[Candidate]:
    return [Candidate(Slot(n), f"10.0.0.{n}:8000") for n in range(count)]


@pytest.mark.parametrize(
    ("name", "parameters", "tier"),
    [
        ("", {}, Tier.GPU),
        ("gpu-prefix-cache-producer", {}, Tier.GPU),
        ("my-CPU-prefix", {}, Tier.CPU),
        ("Storage", {}, Tier.STORAGE),
        ("my-CPU-prefix", {"tier": "gpu"}, Tier.GPU),
        ("", {"tier": "storage"}, Tier.STORAGE),
    ],
)
def test_the_tier_is_the_parameters_or_the_names(name: str, parameters: dict[str, str], tier: Tier) -> None:
    assert producer(name, **parameters).tier is tier


@pytest.mark.parametrize(
    ("name", "parameters", "candidate", "tokens"),
    [
        ("", {}, UNKNOWN, 31_250 * 16),
        ("", {}, ENGINE, 32_000),
        ("", {"autoTune": False}, ENGINE, 31_250 * 16),
        ("", {"lruCapacityPerServer": 10}, UNKNOWN, 160),
        ("", {"lruCapacityPerServer": 10}, ENGINE, 32_000),
        ("", {"lruCapacityPerServer": 10, "autoTune": False}, ENGINE, 160),
        ("", {"lruCapacityPerServer": 10, "blockSizeTokens": 64}, UNKNOWN, 640),
        ("", {"lruCapacityPerServer": 10, "blockSize": 8}, UNKNOWN, 80),
        ("", {"lruCapacityPerServer": 10, "blockSize": 8, "blockSizeTokens": 64}, UNKNOWN, 640),
        ("", {"lruCapacityPerServer": 10**30}, UNKNOWN, 16 * 10**30),
        ("cpu", {}, UNKNOWN, 0),
        ("cpu", {}, ENGINE, 0),
        ("cpu", {"lruCapacityPerServer": 41_000, "autoTune": False}, ENGINE, 656_000),
        ("cpu", {"lruCapacityPerServer": 41_000}, ENGINE, 656_000),
    ],
)
def test_capacity_is_the_engines_or_what_is_written(
    name: str, parameters: dict[str, Any], candidate: Candidate, tokens: int
) -> None:
    assert producer(name, **parameters).capacity_tokens(candidate) == tokens


def test_an_engine_that_reports_no_block_size_is_taken_to_have_the_configured_one() -> None:
    assert producer().capacity_tokens(Candidate(Slot(0), "10.0.0.1:8000", gpu_blocks=100)) == 1600


@pytest.mark.parametrize(
    ("parameters", "limit"),
    [
        ({}, 131_072),
        ({"maxPrefixTokensToMatch": 500, "maxPrefixBlocksToMatch": 1}, 500),
        ({"maxPrefixTokensToMatch": 0}, 2048 * 16),
        ({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 3, "blockSizeTokens": 64}, 192),
    ],
)
def test_tokens_limit_a_match_and_blocks_only_without_them(parameters: dict[str, Any], limit: int) -> None:
    assert producer(**parameters).parameters.limit_tokens == limit


def test_two_limits_of_0_are_none() -> None:
    limit = producer(maxPrefixTokensToMatch=0, maxPrefixBlocksToMatch=0).parameters.limit_tokens
    assert limit > 10**15


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (ApproxPrefixParameters, {"lruCapacityPerServer": 0}, "lruCapacityPerServer is 0; it must be at least 1"),
        (ApproxPrefixParameters, {"blockSizeTokens": -1}, "blockSizeTokens is -1; it must be from 1 to 1048576"),
        (ApproxPrefixParameters, {"maxPrefixTokensToMatch": -1}, "maxPrefixTokensToMatch is -1; it must be at least 0"),
        (PrefixParameters, {"matchLengthWeight": 1.5}, "matchLengthWeight is 1.5; it must be from 0 to 1"),
        (PrefixParameters, {"matchLengthWeight": float("nan")}, "matchLengthWeight is nan; it must be from 0 to 1"),
        (PrefixParameters, {"matchLengthScaleTokens": 0}, "matchLengthScaleTokens is 0; it must be at least 1"),
        (ApproxPrefixParameters, {"tier": "disk"}, "Invalid enum value 'disk'"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    kind: type[msgspec.Struct], parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(parameters, kind)


def test_a_producer_without_a_cache_is_refused_with_a_remedy() -> None:
    with pytest.raises(RuntimeError, match="no prefix cache serves it; make a PrefixCache of all producers"):
        producer().produce(request({}, 0), [])


def test_a_score_is_the_share_of_the_prompt_that_is_held() -> None:
    assert scorer().score(request({0: 64, 2: 256}, 256), candidates(4)) == [0.25, 0.0, 1.0, 0.0]


def test_a_prompt_without_a_full_block_scores_0_everywhere() -> None:
    assert scorer().score(request({}, 0), candidates(2)) == [0.0, 0.0]


def test_a_producer_without_results_scores_0_everywhere() -> None:
    assert scorer(prefixMatchInfoProducerName="other").score(request({0: 64}, 64), candidates(2)) == [0.0, 0.0]


@given(
    tokens=st.lists(st.integers(0, 200), min_size=1, max_size=8),
    weight=st.floats(0, 1),
    scale=st.integers(1, 300),
)
def test_the_length_of_a_match_counts_by_its_weight(tokens: list[int], weight: float, scale: int) -> None:
    scores = scorer(matchLengthWeight=weight, matchLengthScaleTokens=scale).score(
        request(dict(enumerate(tokens)), 200), candidates(len(tokens))
    )
    expected = [weight * min(1, t / scale) ** 2 + (1 - weight) * t / 200 for t in tokens]
    assert scores == pytest.approx(expected)
    assert all(0 <= score <= 1.0000001 for score in scores)


def test_a_scorer_of_the_older_form_has_its_own_producer() -> None:
    older = scorer("cpu-prefix-cache-scorer", autoTune=False, lruCapacityPerServer=41_000)
    own = older.legacy_producer()
    assert own is not None
    assert (own.name, own.tier) == ("cpu-prefix-cache-scorer", Tier.CPU)
    assert own.capacity_tokens(ENGINE) == 656_000
    assert older.producer_name == own.name


def test_a_scorer_whose_name_contains_a_tier_has_its_own_producer() -> None:
    older = scorer("gpu-prefix-cache-scorer")
    own = older.legacy_producer()
    assert own is not None
    assert (own.name, own.tier, own.capacity_tokens(ENGINE)) == ("gpu-prefix-cache-scorer", Tier.GPU, 32_000)
    assert not older.has_legacy_parameters


def test_a_bare_scorer_stands_for_the_default_producer() -> None:
    own = scorer().legacy_producer()
    assert own is not None
    assert own.name == scorer().producer_name == "approx-prefix-cache-producer"


def test_a_scorer_that_names_a_producer_has_none_of_its_own() -> None:
    bound = scorer("cpu-prefix-cache-scorer", prefixMatchInfoProducerName="p")
    assert (bound.legacy_producer(), bound.producer_name) == (None, "p")


@pytest.mark.parametrize("key", ["blockSize", "hashBlockSize"])
def test_the_older_form_counts_characters_to_a_block(key: str) -> None:
    own = scorer("x", **{key: 256, "lruCapacityPerServer": 100, "maxPrefixBlocksToMatch": 10}).legacy_producer()
    assert own is not None
    assert own.capacity_tokens(UNKNOWN) == 100 * 64
    assert own.parameters.limit_tokens == 10 * 64
