"""Batches as engines publish them, and invalid ones."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.kvevents.follower.decoding import AllBlocksCleared, BlockRemoved, BlockStored, Unreadable, decode, hash_of
from tests.epp.kvevents.fleet import Fleet, encoded

STORED = BlockStored(
    block_hashes=[1, 2], parent_block_hash=7, token_ids=[1, 2, 3, 4], block_size=2, medium="GPU", lora_name="a",
    extra_keys=[["a"], None], group_idx=0, kv_cache_spec_kind="full_attention",
)  # fmt: skip
REMOVED = BlockRemoved(block_hashes=[1], medium="CPU", group_idx=0)


@pytest.mark.parametrize("rows", [False, True], ids=["maps", "arrays"])
def test_both_forms_say_the_same(rows: bool) -> None:
    batch = decode(encoded(STORED, REMOVED, AllBlocksCleared(), rank=3, rows=rows))
    assert batch.rank == 3
    told = [msgspec.to_builtins(event) for event in batch.events]
    if rows:
        told = [dict(zip(("type", *each.__struct_fields__), row, strict=True))
                for each, row in zip((STORED, REMOVED, AllBlocksCleared()), told, strict=True)]  # fmt: skip
    assert told == [msgspec.to_builtins(event) for event in (STORED, REMOVED, AllBlocksCleared())]


def test_arrays_of_older_engines_end_early() -> None:
    batch = decode(msgspec.msgpack.encode([0.0, [["BlockStored", [1], None, [5, 6], 2, None], ["BlockRemoved", [1]]]]))
    stored, removed = batch.events
    assert (stored.token_ids, stored.medium, stored.group_idx) == ([5, 6], None, None)  # type: ignore[union-attr]
    assert removed.medium is None  # type: ignore[union-attr]


def test_hashes_are_integers_or_bytes_of_which_the_end_counts() -> None:
    digest = bytes(range(32))
    number = int.from_bytes(digest[-8:], "big")
    assert hash_of(digest) == hash_of(number) == number
    fleet = Fleet()
    fleet.say(0, BlockStored([digest], None, [1, 2], 2))
    fleet.say(0, BlockStored([5], number, [3, 4], 2), BlockRemoved([digest]))
    assert fleet.held([1, 2, 3, 4])[0] == {}
    fleet.say(0, BlockStored([number], None, [1, 2], 2))
    assert fleet.held([1, 2, 3, 4])[0] == {0: 4}


def test_events_of_other_kinds_are_counted_and_left_out() -> None:
    events: list[Any] = [{"type": "BlockMoved", "x": 1}, msgspec.to_builtins(REMOVED), ["Unheard", 1]]
    batch = decode(msgspec.msgpack.encode([0.0, events]))
    assert (len(batch.events), batch.unknown) == (1, 2)


@pytest.mark.parametrize(
    "events", [[1], [["BlockStored", 1]], [{"type": "BlockStored", "block_hashes": "x"}], [[]], None]
)
def test_events_that_are_broken_are_no_batch(events: Any) -> None:
    with pytest.raises(Unreadable):
        decode(msgspec.msgpack.encode([0.0, events]))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_unreadable(payload: bytes) -> None:
    with contextlib.suppress(Unreadable):
        decode(payload)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda e: st.lists(e, max_size=4), max_leaves=20))
def test_no_events_harm_other_endpoints(value: Any) -> None:
    fleet = Fleet(2)
    fleet.say(1, BlockStored([1], None, [1, 2], 2))
    for event in (["BlockStored", value, value, value, value], ["BlockRemoved", value, value], value):
        try:
            fleet.say(0, *decode(msgspec.msgpack.encode([0.0, [event]], enc_hook=str)).events)
        except (Unreadable, OverflowError):
            continue
    fleet.check()
    assert fleet.held([1, 2])[0].get(1) == 2


@pytest.mark.parametrize(
    "event",
    [
        BlockStored([1], None, [1, 2, 3], 2),
        BlockStored([1], None, [1, -2], 2),
        BlockStored([1], None, [1, 2**32], 2),
        BlockStored([1], None, [1, 2], 0),
        BlockStored([], None, [1, 2], 2),
    ],
)
def test_events_that_contradict_themselves_are_counted_and_left_out(event: BlockStored) -> None:
    fleet = Fleet()
    fleet.say(0, event)
    assert fleet.tally.malformed == 1
    assert not len(fleet.index)


def test_media_and_cache_groups_that_are_not_known_count_for_nothing_and_are_named() -> None:
    fleet = Fleet()
    fleet.say(
        0,
        BlockStored([1], None, [1, 2], 2, medium="TAPE"),
        BlockStored([2], None, [3, 4], 2, group_idx=1, kv_cache_spec_kind="sliding_window"),
        BlockStored([3], None, [5, 6], 2, group_idx=1),
    )
    assert [fleet.held(tokens)[0] for tokens in ([1, 2], [3, 4], [5, 6])] == [{}, {}, {}]
    assert fleet.tally.skipped == 3
    assert ("medium", "TAPE") in fleet.noted
    assert ("group", "sliding_window") in fleet.noted


def test_blocks_with_media_are_other_blocks_than_those_of_the_same_tokens() -> None:
    fleet = Fleet()
    fleet.say(0, BlockStored([1, 2], None, [1, 2, 3, 4], 2, extra_keys=[None, [["image", 0]]]))
    assert fleet.held([1, 2, 3, 4])[0] == {0: 2}
    fleet.say(0, BlockStored([9], 1, [3, 4], 2))
    assert fleet.held([1, 2, 3, 4])[0] == {0: 4}
    fleet.say(0, BlockRemoved([2]))
    assert fleet.held([1, 2, 3, 4])[0] == {0: 4}


def test_ranks_of_one_endpoint_hold_blocks_of_their_own() -> None:
    fleet = Fleet()
    fleet.say(0, BlockStored([1], None, [1, 2], 2), rank=0)
    fleet.say(0, BlockStored([1], None, [1, 2], 2), rank=1)
    fleet.say(0, AllBlocksCleared(), rank=0)
    assert fleet.held([1, 2])[0] == {0: 2}
    assert not fleet.sources[0].known, "one of two ranks was emptied"
    fleet.say(0, BlockRemoved([1]), rank=1)
    assert fleet.held([1, 2])[0] == {}


def test_a_gpu_tier_and_a_cpu_tier_with_larger_blocks_are_matched_at_once() -> None:
    fleet, tokens = Fleet(), list(range(40))
    fleet.say(0, BlockStored(list(range(10)), None, tokens, 4))
    fleet.say(0, BlockStored([7], None, tokens[:32], 32, medium="CPU"))
    assert fleet.held(tokens) == [{0: 40}, {0: 32}, {}]
    assert fleet.held(tokens[:31]) == [{0: 28}, {}, {}]
