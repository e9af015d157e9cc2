from __future__ import annotations

from scorers.base import CachedPrefix, Candidate, Request, Slot, Tier
from scorers.prefix.no_hit_lru import NoHitLruParameters, NoHitLruScorer

A, B, C = (Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000") for i in range(3))


def cold() -> Request:
    return Request(id="r", model="m", target_model="m", cached={})


def warm(on: Candidate, producer: str = "gpu") -> Request:
    return Request(id="r", model="m", target_model="m", cached={producer: CachedPrefix(Tier.GPU, 64, {on.slot: 64})})


def serve(scorer: NoHitLruScorer, request: Request, candidate: Candidate) -> None:
    scorer.score(request, [A, B, C])
    scorer.picked(request, candidate)


def test_a_request_with_a_cache_hit_gets_equal_scores() -> None:
    assert NoHitLruScorer().score(warm(on=B), [A, B, C]) == [0.5, 0.5, 0.5]


def test_a_hit_on_an_endpoint_that_is_no_candidate_does_not_count() -> None:
    assert NoHitLruScorer().score(warm(on=C), [A, B]) == [1.0, 0.0]


def test_endpoints_that_never_served_a_cold_request_come_first() -> None:
    scorer = NoHitLruScorer()
    serve(scorer, cold(), A)
    assert scorer.score(cold(), [A, B, C]) == [0.0, 1.0, 0.5]


def test_the_least_recently_served_comes_next() -> None:
    scorer = NoHitLruScorer()
    for candidate in (B, A, C, B):
        serve(scorer, cold(), candidate)
    assert scorer.score(cold(), [A, B, C]) == [1.0, 0.0, 0.5]


def test_a_warm_request_is_not_remembered() -> None:
    scorer = NoHitLruScorer()
    serve(scorer, warm(on=A), A)
    assert scorer.score(cold(), [A, B]) == [1.0, 0.0]


def test_a_single_candidate_scores_1() -> None:
    assert NoHitLruScorer().score(cold(), [A]) == [1.0]


def test_only_the_named_producer_counts() -> None:
    scorer = NoHitLruScorer(NoHitLruParameters(prefix_match_info_producer_name="cpu"))
    assert scorer.score(warm(on=A, producer="gpu"), [A, B]) == [1.0, 0.0]
    assert scorer.score(warm(on=A, producer="cpu"), [A, B]) == [0.5, 0.5]


def test_what_is_remembered_is_bounded() -> None:
    scorer = NoHitLruScorer(NoHitLruParameters(lru_size=2))
    for candidate in (A, B, C):
        serve(scorer, cold(), candidate)
    assert scorer.score(cold(), [A, B, C]) == [1.0, 0.5, 0.0]
