"""What all producers together say of a request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epp.picking.prediction import predicted, uncached_tokens
from scorers.base import CachedPrefix, Candidate, Mode, Request, Slot, Tier
from scorers.prefix.cached import best_tier_tokens, tokens_by_tier

A, B, C = Slot(0), Slot(1), Slot(2)
APPROXIMATE, HORIZON, PRECISE = Mode.APPROXIMATE, Mode.HORIZON, Mode.PRECISE


def request(*cached: CachedPrefix) -> Request:
    return Request("r", "m", "m", prompt_tokens=100, cached={str(n): each for n, each in enumerate(cached)})


def test_of_two_producers_of_a_tier_the_one_that_knows_better_wins_endpoint_by_endpoint() -> None:
    guesses = CachedPrefix(Tier.GPU, 100, {A: 90, B: 80, C: 10}, {B: HORIZON})
    told = CachedPrefix(Tier.GPU, 100, {B: 20, C: 30}, {A: PRECISE, B: PRECISE})
    copies = CachedPrefix(Tier.CPU, 100, {C: 50})
    for asked in (request(guesses, told, copies), request(told, copies, guesses)):
        assert tokens_by_tier(asked) == {Tier.GPU: {B: 20, C: 30}, Tier.CPU: {C: 50}}
        assert best_tier_tokens(asked) == {B: 20, C: 50}


PREFIXES = st.builds(
    CachedPrefix,
    st.sampled_from(Tier),
    st.just(100),
    st.dictionaries(st.just(A), st.integers(1, 100)),
    st.dictionaries(st.just(A), st.sampled_from(Mode)),
)


@given(st.lists(PREFIXES, max_size=5))
def test_whoever_asks_what_an_endpoint_need_not_compute_hears_the_same(cached: list[CachedPrefix]) -> None:
    asked, endpoint = request(*cached), Candidate(A, "10.0.0.1:8000")
    held = 100 - uncached_tokens(asked, endpoint)
    assert held == predicted(asked, endpoint, 0.0).held_tokens == best_tier_tokens(asked).get(A, 0)
