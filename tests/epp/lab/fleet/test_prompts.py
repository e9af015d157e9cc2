from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epp.lab.fleet.prompts import Ask, PromptPart, Prompts

BLOCK = 4
parts = st.builds(PromptPart, st.integers(0, 3), st.integers(1, 9))
prompts = st.lists(parts, min_size=1, max_size=5)


def common(first: list[object] | bytes | tuple[int, ...], second: list[object] | bytes | tuple[int, ...]) -> int:
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


@given(prompts, prompts)
def test_engines_share_blocks_of_equal_parts_only(first: list[PromptPart], second: list[PromptPart]) -> None:
    made = Prompts(BLOCK)
    keys = [made.keys(Ask(tuple(p), 1)) for p in (first, second)]
    assert [len(k) for k in keys] == [sum(part.tokens for part in p) // BLOCK for p in (first, second)]
    shared = sum(part.tokens for part in first[: common(list(first), list(second))]) // BLOCK
    assert common(keys[0], keys[1]) == shared
    assert not set(keys[0][shared:]) & set(keys[1][shared:])


@given(prompts, prompts)
def test_what_engines_share_the_picker_sees_as_equal_bytes(first: list[PromptPart], second: list[PromptPart]) -> None:
    made = Prompts(BLOCK)
    asks = [Ask(tuple(p), 1) for p in (first, second)]
    data = [made.data(ask) for ask in asks]
    assert [len(d) for d in data] == [4 * ask.prompt_tokens for ask in asks]
    blocks = common(made.keys(asks[0]), made.keys(asks[1]))
    assert common(data[0], data[1]) >= blocks * BLOCK * 4


def test_other_seeds_and_other_contents_are_other_bytes() -> None:
    ask, other = Ask((PromptPart(1, 8),), 1), Ask((PromptPart(2, 8),), 1)
    assert Prompts(BLOCK, 1).data(ask) != Prompts(BLOCK, 2).data(ask)
    assert Prompts(BLOCK, 1).data(ask)[:4] != Prompts(BLOCK, 1).data(other)[:4]


def test_an_answer_that_may_be_repeated_is_named_like_its_repetition() -> None:
    made = Prompts(BLOCK)
    first = made.keys(Ask((PromptPart(1, 6),), 6, answer=9))
    second = made.keys(Ask((PromptPart(1, 6), PromptPart(9, 6), PromptPart(2, 8)), 1))
    assert second[: len(first)] == first
    assert len(first) == 3
