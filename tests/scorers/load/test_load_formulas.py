"""The scorers that spread load by formulas with parameters: examples computed by hand."""

from __future__ import annotations

import msgspec
import pytest

from scorers.base import CachedPrefix, Candidate, Request, Slot, Tier
from scorers.load.active_requests import ActiveRequestParameters, ActiveRequestScorer
from scorers.load.latency import LatencyParameters, LatencyScorer
from scorers.load.load_aware import LoadAwareParameters, LoadAwareScorer
from scorers.load.token_load import TokenLoadParameters, TokenLoadScorer


def request(prompt_tokens: int = 1, **held: dict[int, int]) -> Request:
    """Return a request whose prompts have 100 tokens in full blocks; ``held`` has tokens by producer name and slot."""
    cached = {
        name: CachedPrefix(Tier.GPU, 100, {Slot(slot): tokens for slot, tokens in by_slot.items()})
        for name, by_slot in held.items()
    }
    return Request(id="r", model="m", target_model="m", prompt_tokens=prompt_tokens, cached=cached)


def candidates(*each: dict[str, float]) -> list[Candidate]:
    return [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", **one) for i, one in enumerate(each)]  # type: ignore[arg-type]


# load-aware-scorer


def test_an_empty_queue_scores_a_half_and_a_full_one_nothing() -> None:
    queues = candidates({"waiting": 0}, {"waiting": 32}, {"waiting": 128}, {"waiting": 500})
    assert LoadAwareScorer().score(request(), queues) == [0.5, 0.375, 0.0, 0.0]


def test_the_threshold_is_the_scale() -> None:
    scorer = LoadAwareScorer(LoadAwareParameters(threshold=4))
    assert scorer.score(request(), candidates({"waiting": 1}, {"waiting": 4})) == [0.375, 0.0]


def test_one_candidate_keeps_its_score() -> None:
    assert LoadAwareScorer().score(request(), candidates({"waiting": 64})) == [0.25]


# active-request-scorer


def test_idle_scores_1_and_the_busiest_0() -> None:
    busy = candidates({"in_flight": 0}, {"in_flight": 1}, {"in_flight": 4})
    assert ActiveRequestScorer().score(request(), busy) == [1.0, 0.75, 0.0]


def test_up_to_the_idle_threshold_all_endpoints_score_1_and_above_it_at_most_the_busy_score() -> None:
    scorer = ActiveRequestScorer(ActiveRequestParameters(idle_threshold=2, max_busy_score=0.5))
    busy = candidates({"in_flight": 2}, {"in_flight": 3}, {"in_flight": 6})
    assert scorer.score(request(), busy) == [1.0, 0.25, 0.0]


def test_equally_busy_endpoints_all_score_0_and_idle_ones_all_1() -> None:
    assert ActiveRequestScorer().score(request(), candidates({"in_flight": 3}, {"in_flight": 3})) == [0.0, 0.0]
    assert ActiveRequestScorer().score(request(), candidates({}, {})) == [1.0, 1.0]


# token-load-scorer


def test_the_requests_own_tokens_count_where_they_are_not_held() -> None:
    scorer = TokenLoadScorer(TokenLoadParameters(queue_threshold_tokens=1000))
    loads = candidates({"in_flight_tokens": 0}, {"in_flight_tokens": 400}, {"in_flight_tokens": 2000})
    assert scorer.score(request(100), loads) == pytest.approx([0.9, 0.5, 0.0])
    assert scorer.score(request(100, gpu={1: 60}), loads) == pytest.approx([0.9, 0.56, 0.0])


def test_of_several_tiers_the_one_that_holds_most_counts() -> None:
    scorer = TokenLoadScorer(TokenLoadParameters(queue_threshold_tokens=1000))
    held = request(100, gpu={0: 20, 1: 60}, cpu={0: 90, 1: 10})
    assert scorer.score(held, candidates({}, {}, {})) == pytest.approx([0.99, 0.96, 0.9])


def test_more_held_than_the_prompt_is_estimated_to_have_is_nothing_to_compute() -> None:
    scorer = TokenLoadScorer(TokenLoadParameters(queue_threshold_tokens=10))
    assert scorer.score(request(5, gpu={0: 64}), candidates({})) == [1.0]


# latency-scorer


def test_the_composite_is_the_mean_of_free_memory_queue_and_prefix() -> None:
    each = candidates({"kv_usage": 0.4, "waiting": 1}, {"kv_usage": 0.1, "waiting": 4})
    # (0.6 + 3/4 + 0.5) / 3 and (0.9 + 0 + 0) / 3
    assert LatencyScorer().score(request(gpu={0: 50}), each) == pytest.approx([1.85 / 3, 0.3])


def test_without_queues_the_queue_counts_fully() -> None:
    each = candidates({"kv_usage": 0.5}, {"kv_usage": 0.0})
    assert LatencyScorer().score(request(), each) == pytest.approx([0.5, 2 / 3])


def test_without_weights_free_memory_decides() -> None:
    nothing = msgspec.convert(dict.fromkeys(weights(), 0), LatencyParameters)
    assert LatencyScorer(nothing).score(request(), candidates({"kv_usage": 0.25, "waiting": 9})) == [0.75]


def weights() -> list[str]:
    return ["compositeKVWeight", "compositeQueueWeight", "compositePrefixWeight"]


@pytest.mark.parametrize(
    "key", ["ttftWeight", "tpotWeight", "headroomSelectionStrategy", "latencyPredictionInfoProducerName"]
)
def test_a_parameter_of_predictions_is_refused(key: str) -> None:
    value = "least" if key.startswith(("h", "l")) else 0.8
    with pytest.raises(msgspec.ValidationError, match=f"^{key}: nothing predicts latency here"):
        msgspec.convert({key: value}, LatencyParameters)
