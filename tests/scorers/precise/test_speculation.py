"""Picks that count as cached before the engines' events confirm them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import Candidate, Mode, Slot
from scorers.precise.parameters import PreciseParameters
from scorers.precise.speculation import Speculation
from tests.scorers.precise.followed import TOKENS_A, Followed, bare, prompt


def speculating() -> Followed:
    followed = Followed(PreciseParameters(speculative_indexing=True))
    followed.known(0)
    followed.known(1)
    return followed


def test_a_pick_counts_at_once_and_for_its_lifetime() -> None:
    followed = speculating()
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    longer = prompt([*TOKENS_A[:100], *TOKENS_A])
    assert followed.ask(longer).cached["precise-prefix-cache-producer"].tokens == {0: 96}
    assert followed.ask(longer).cached["precise-prefix-cache-producer"].modes == {0: Mode.PRECISE, 1: Mode.PRECISE}
    followed.now = 2.0
    assert followed.ask(longer).cached["precise-prefix-cache-producer"].tokens == {}


def test_the_end_of_one_pick_takes_nothing_from_a_later_one_of_the_same_prompt() -> None:
    followed = speculating()
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    followed.now = 1.5
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    followed.now = 2.5
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].tokens == {0: 256}
    followed.now = 3.5
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].tokens == {}


def test_what_is_speculated_are_whole_blocks_of_the_endpoint() -> None:
    followed = speculating()
    for slot, block_tokens in enumerate((64, 24)):
        followed.candidates[slot] = Candidate(
            Slot(slot), f"10.0.0.{slot}:8000", block_tokens=block_tokens, gpu_blocks=1000
        )
        followed.cache.engine_reported(followed.candidates[slot])
        followed.pick(followed.ask(prompt(TOKENS_A)), slot)
    held = followed.ask(prompt(TOKENS_A[:100])).cached["precise-prefix-cache-producer"].tokens
    assert held == {0: 64, 1: 96}
    assert followed.ask(bare(TOKENS_A[:96])).cached["precise-prefix-cache-producer"].tokens == {0: 64, 1: 72}


def test_an_endpoint_that_gets_the_slot_of_another_is_not_taken_for_it() -> None:
    followed = speculating()
    followed.pick(followed.ask(prompt(TOKENS_A)), 0)
    followed.cache.endpoint_added(followed.candidates[0])
    followed.known(3)
    assert followed.ask(prompt(TOKENS_A)).cached["precise-prefix-cache-producer"].tokens == {}


STEP = st.tuples(
    st.sampled_from(["add", "add", "look", "wait", "forget"]),
    st.lists(st.integers(0, 1), min_size=1, max_size=8),
    st.integers(0, 2),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_speculation_is_the_longest_beginning_of_any_recent_pick(steps: list[tuple[str, list[int], int]]) -> None:
    speculation, now = Speculation(10.0, 1), 0.0
    model: list[tuple[float, int, list[int]]] = []
    for what, tokens, slot in steps:
        if what == "add":
            speculation.add(bare(tokens), Slot(slot), now)
            model.append((now + 10.0, slot, tokens))
        elif what == "wait":
            now += 1.0 + slot
        elif what == "forget":
            speculation.forget(Slot(slot))
            model = [each for each in model if each[1] != slot]
        model = [each for each in model if each[0] > now]
        expected: dict[int, int] = {}
        for _, whose, sent in model:
            common = next((n for n, (a, b) in enumerate(zip(sent, tokens, strict=False)) if a != b), None)
            shared = min(len(sent), len(tokens)) if common is None else common
            if shared:
                expected[whose] = max(expected.get(whose, 0), shared)
        assert speculation.held(bare(tokens), now) == expected
        assert len(speculation) == len(model)
