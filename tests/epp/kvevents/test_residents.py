"""The state that an endpoint's events leave: chunks without tokens, long chains, and the limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.kvevents.follower import blocks, pending
from epp.kvevents.follower.columns import MOST_DEPTH
from epp.kvevents.follower.decoding import AllBlocksCleared, BlockRemoved, BlockStored
from tests.epp.kvevents.fleet import Fleet

PROMPT = list(range(100, 116))


def name(end: int) -> int:
    """Return the engine's hash of the block of PROMPT that ends there."""
    return 1000 + end


def stored(begin: int, end: int, size: int = 2, medium: str = "GPU", **more: Any) -> BlockStored:
    return BlockStored(
        [name(n) for n in range(begin + size, end + 1, size)],
        name(begin) if begin else None,
        PROMPT[begin:end],
        size,
        medium=medium,
        **more,
    )


def chunk(end: int, size: int = 8) -> BlockStored:
    return BlockStored([name(end)], None, [], size, medium="CPU")


def gone(*ends: int, medium: str = "CPU") -> BlockRemoved:
    return BlockRemoved([name(end) for end in ends], medium)


def held(fleet: Fleet) -> list[int]:
    return [tier.get(0, 0) for tier in fleet.held(PROMPT)]


def test_a_chunk_that_comes_without_tokens_is_as_long_as_it_says() -> None:
    fleet = Fleet()
    fleet.say(0, stored(0, 16), chunk(8), chunk(16))
    assert held(fleet) == [16, 16, 0]
    fleet.say(0, gone(2, 4, 6, 8, 10, 12, 14, 16, medium="GPU"))
    assert held(fleet) == [0, 16, 0], "what the GPU has lost is still in CPU memory"
    fleet.say(0, gone(16))
    assert held(fleet) == [0, 8, 0]
    fleet.say(0, gone(8))
    assert held(fleet) == [0, 0, 0]
    fleet.check()
    assert not fleet.runs.distinct_blocks


def test_a_chunk_that_comes_before_its_blocks_counts_once_they_are_known() -> None:
    fleet = Fleet()
    fleet.say(0, chunk(8), chunk(16), chunk(16))
    assert held(fleet) == [0, 0, 0]
    fleet.say(0, stored(8, 16))
    fleet.say(0, stored(0, 8))
    assert held(fleet) == [16, 16, 0]
    fleet.say(0, gone(16), AllBlocksCleared())
    assert held(fleet) == [0, 16, 0], "it was announced twice"


def test_no_chunk_ends_where_its_length_does_not_go_into_the_prompt_so_the_block_alone_counts() -> None:
    fleet = Fleet()
    fleet.say(0, stored(0, 16), chunk(2), chunk(2))
    assert held(fleet) == [16, 2, 0]
    fleet.say(0, gone(2))
    assert held(fleet) == [16, 2, 0]
    fleet.say(0, gone(2))
    assert held(fleet) == [16, 0, 0]


@given(st.permutations([stored(0, 4), stored(4, 10), stored(10, 16), *map(chunk, (4, 8, 12, 16))]), st.data())
def test_chunks_count_in_whatever_order_they_and_their_blocks_come(events: list[Any], data: st.DataObject) -> None:
    fleet = Fleet()
    events = [chunk(name_ - 1000, 4) if not e.token_ids else e for e in events for name_ in e.block_hashes[-1:]]
    for event in events:
        fleet.say(0, event)
        fleet.check()
    assert held(fleet) == [16, 16, 0]
    lost = data.draw(st.sampled_from((4, 8, 12, 16)))
    fleet.say(0, gone(lost))
    assert held(fleet) == [16, lost - 4, 0]
    fleet.sources[0].forget()
    fleet.flush()
    assert not fleet.runs.distinct_blocks
    assert not len(fleet.runs)


def test_a_long_chain_of_blocks_that_wait_for_each_other_is_placed_when_its_beginning_comes() -> None:
    fleet, length = Fleet(), 5000
    fleet.say(0, *[BlockStored([n + 1], n, [n, n], 2) for n in range(length, 0, -1)])
    assert fleet.held([0, 0])[0] == {}
    fleet.say(0, BlockStored([1], None, [0, 0], 2))
    assert fleet.held([n // 2 for n in range(2 * length + 2)])[0] == {0: 2 * length + 2}
    fleet.check()


def test_a_prompt_that_is_too_long_leaves_nothing_behind() -> None:
    fleet = Fleet()
    fleet.say(0, BlockStored(list(range(MOST_DEPTH + 1)), None, [7] * (MOST_DEPTH + 1), 1, extra_keys=[["salt"]]))
    assert (fleet.tally.malformed, len(fleet.runs._roots)) == (1, 0)


@pytest.mark.parametrize(
    ("where", "limit", "most"),
    [(blocks, "MOST_BLOCKS", 3), (blocks, "MOST_TOKENS", 7), (pending, "MOST", 3), (pending, "MOST_BYTES", 16)],
)
def test_what_an_endpoint_may_make_us_keep_is_bounded_and_the_rest_is_counted(
    where: Any, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, limit, most)
    fleet = Fleet()
    for n in range(10):
        if where is blocks:
            fleet.say(0, BlockStored([n], None, [n, n], 2))
        elif limit == "MOST":
            fleet.say(0, BlockStored([n], None, [], 0, medium="CPU"))
        else:
            fleet.say(0, BlockStored([n], n + 100, [n, n], 2))
    assert fleet.tally.over_limit == {"MOST_BLOCKS": 7, "MOST_TOKENS": 7, "MOST": 7, "MOST_BYTES": 8}[limit]


def test_an_endpoint_has_a_few_sizes_of_blocks_and_may_have_others_when_those_are_gone() -> None:
    fleet = Fleet()
    sizes = range(1, blocks.MOST_SIZES + 3)
    fleet.say(0, *[BlockStored([size], None, [size] * size, size) for size in sizes])
    assert fleet.tally.over_limit == 2
    assert len(list(fleet.index.block_sizes)) == blocks.MOST_SIZES
    fleet.say(0, BlockRemoved(list(sizes)))
    assert list(fleet.index.block_sizes) == [], "nothing is known"
    fleet.say(0, BlockStored([99], None, [99] * 99, 99))
    assert fleet.held([99] * 99)[0] == {0: 99}
