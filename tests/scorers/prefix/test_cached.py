"""What endpoints hold of a request, according to all producers together."""

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


def test_if_two_producers_cover_a_tier_the_better_mode_wins_for_each_endpoint() -> None:
    guesses = CachedPrefix(Tier.GPU, 100, {A: 90, B: 80, C: 10}, {B: HORIZON})
    reported = CachedPrefix(Tier.GPU, 100, {B: 20, C: 30}, {A: PRECISE, B: PRECISE})
    copies = CachedPrefix(Tier.CPU, 100, {C: 50})
    for asked in (request(guesses, reported, copies), request(reported, copies, guesses)):
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
def test_uncached_tokens_are_the_same_for_the_ledger_the_prediction_and_the_scorers(cached: list[CachedPrefix]) -> None:
    asked, endpoint = request(*cached), Candidate(A, "10.0.0.1:8000")
    held = 100 - uncached_tokens(asked, endpoint)
    assert held == predicted(asked, endpoint, 0.0).held_tokens == best_tier_tokens(asked).get(A, 0)
