"""All steps from events to matches, against a naive model of each source."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.kvevents.follower import runs
from epp.kvevents.follower.decoding import AllBlocksCleared, BlockRemoved, BlockStored
from epp.kvevents.follower.runs import LONGEST_RUN
from tests.epp.kvevents.fleet import Fleet, Naive

SIZES = (2, 4)
MEDIA = ("GPU", "CPU", "STORAGE")
LENGTH = 12
PROMPTS = [[a, a, b, b, a, c, c, c, b, a, c, d] for a in (1, 2) for b in (1, 2) for c in (1, 2) for d in (1, 2)]


def name(tokens: list[int]) -> int:
    """Return an engine's hash of the block that ends with these tokens, whatever its size."""
    return hash(tuple(tokens)) & 0xFFFF_FFFF_FFFF


@st.composite
def stored(draw: st.DrawFn) -> BlockStored:
    size, prompt = draw(st.sampled_from(SIZES)), draw(st.sampled_from(PROMPTS))
    last = LENGTH // size
    begin = draw(st.integers(0, last - 1))
    end = draw(st.integers(begin + 1, last))
    ends = range((begin + 1) * size, end * size + 1, size)
    return BlockStored(
        block_hashes=[name(prompt[:n]) for n in ends],
        parent_block_hash=name(prompt[: begin * size]) if begin else None,
        token_ids=prompt[begin * size : end * size],
        block_size=size,
        medium=draw(st.sampled_from(MEDIA)),
    )


@st.composite
def names(draw: st.DrawFn) -> list[int]:
    prompt = draw(st.sampled_from(PROMPTS))
    ends = draw(st.lists(st.integers(1, LENGTH), min_size=1, max_size=5))
    return [name(prompt[:n]) for n in ends]


EVENTS = st.one_of(
    stored(),
    stored(),
    st.builds(BlockRemoved, block_hashes=names(), medium=st.sampled_from(MEDIA)),
    st.builds(BlockStored, block_hashes=names(), medium=st.sampled_from(MEDIA[1:])),
    st.just(AllBlocksCleared()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), EVENTS), max_size=30))
def test_whatever_is_announced_in_whatever_order_the_index_says_what_the_model_says(
    said: list[tuple[int, Any]],
) -> None:
    fleet, models = Fleet(3), [Naive() for _ in range(3)]
    for model in models:
        model.order = []
    for source, event in said:
        fleet.say(source, event)
        models[source].apply(event)
        fleet.check()
    for prompt in PROMPTS:
        held = fleet.held(prompt)
        for source, model in enumerate(models):
            assert [tier.get(source, 0) for tier in held] == model.held(prompt), prompt
    for source in fleet.sources:
        source.forget()
    fleet.flush()
    fleet.check()
    assert not fleet.runs.distinct_blocks
    assert not len(fleet.runs)
    assert not len(fleet.index)


def test_a_long_prompt_is_several_runs() -> None:
    fleet, tokens = Fleet(), [n % 1000 for n in range(2 * LONGEST_RUN + 100)]
    fleet.say(0, BlockStored(list(range(len(tokens))), None, tokens, 1))
    fleet.say(0, BlockStored([9_999_999], len(tokens) - 1, [7], 1))
    fleet.check()
    assert len(fleet.runs) == 3
    assert fleet.held([*tokens, 7])[0] == {0: len(tokens) + 1}
    fleet.say(0, BlockRemoved([LONGEST_RUN]))
    assert fleet.held(tokens)[0] == {0: LONGEST_RUN}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), EVENTS), max_size=20))
def test_how_long_runs_may_be_changes_nothing(said: list[tuple[int, Any]]) -> None:
    fleets = [Fleet(3), Fleet(3)]
    for source, event in said:
        for fleet, longest in zip(fleets, (1, runs.LONGEST_RUN), strict=True):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(runs, "LONGEST_RUN", longest)
                fleet.say(source, event)
            fleet.check()
    for prompt in PROMPTS:
        assert fleets[0].held(prompt) == fleets[1].held(prompt)


def test_what_a_branch_cuts_off_is_dropped_if_no_endpoint_holds_it() -> None:
    """A block waits for its parent, which another source announces with a block behind it that it then removes."""
    fleet = Fleet(2)

    def told(source: int, tokens: list[int], begin: int) -> None:
        ends = range((begin + 1) * 2, len(tokens) + 1, 2)
        parent = name(tokens[: begin * 2]) if begin else None
        hashes = [name(tokens[:n]) for n in ends]
        fleet.say(source, BlockStored(hashes, parent, tokens[begin * 2 :], 2, medium="GPU"))

    told(0, [1, 1], 0)
    told(0, [1, 1, 1, 1, 1, 1], 2)
    told(1, [1, 1, 1, 1, 1, 2], 0)
    fleet.say(1, BlockRemoved(block_hashes=[name([1, 1, 1, 1, 1, 2])], medium="GPU"))
    told(0, [1, 1, 1, 1], 0)
    fleet.check()
    assert [tier.get(0, 0) for tier in fleet.held([1, 1, 1, 1, 1, 1])] == [6, 0, 0]
