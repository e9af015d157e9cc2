"""The index by example; every step is checked for soundness as well."""

from __future__ import annotations

import gc
import sys

import pytest

from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex

A, B, C = Slot(0), Slot(1), Slot(2)
GPU, CPU = 0, 1
BLOCK = 4  # tokens


def prompt(blocks: str, identity: bytes = b"m", tail: str = "") -> Prompt:
    """One letter is one block of 4 tokens; ``tail`` fills none."""
    return Prompt(identity, "".join(letter * BLOCK * 4 for letter in blocks).encode() + tail.encode())


class Checked(PrefixIndex):
    """Sound after every call."""

    def __init__(self, gpu: int = 100, cpu: int = 200, endpoints: int = 3) -> None:
        super().__init__(tiers=2, block_tokens=BLOCK)
        for slot in range(endpoints):
            self.set_capacity(Slot(slot), GPU, gpu)
            self.set_capacity(Slot(slot), CPU, cpu)

    def send(self, blocks: str, to: Slot, identity: bytes = b"m") -> None:
        self.record(self.match(prompt(blocks, identity)), to)
        self.check_integrity()

    def held(self, blocks: str, tier: int = GPU, identity: bytes = b"m") -> dict[Slot, int]:
        """Return the number of blocks by slot."""
        tokens = self.match(prompt(blocks, identity)).held[tier]
        return {slot: held // BLOCK for slot, held in tokens.items()}


def test_an_endpoint_holds_what_it_was_sent() -> None:
    index = Checked()
    index.send("abc", A)
    assert index.held("abc") == index.held("abcd") == {A: 3}
    assert index.held("ab") == {A: 2}
    assert index.held("xbc") == {}


def test_each_endpoint_is_credited_up_to_where_its_own_prompt_ends() -> None:
    index = Checked()
    index.send("abcd", A)
    index.send("abxy", B)
    index.send("a", C)
    assert index.held("abcd") == {A: 4, B: 2, C: 1}
    assert index.held("abxy") == {A: 2, B: 4, C: 1}


def test_later_blocks_do_not_count_for_an_endpoint_that_lacks_the_first() -> None:
    """The Go picker credits B here: it has blocks c and d, and A has the ones before."""
    index = Checked()
    index.send("abcd", A)
    index.send("xbcd", B)
    assert index.held("abcd") == {A: 4}


def test_a_partial_block_is_not_known() -> None:
    index = Checked()
    match = index.match(prompt("a", tail="bbb"))
    assert match.total_tokens == BLOCK
    index.record(match, A)
    assert index.held("ab") == {A: 1}


def test_the_last_block_of_the_least_recent_prompt_goes_first() -> None:
    index = Checked(gpu=5 * BLOCK)
    index.send("abc", A)
    index.send("xyz", A)
    assert index.held("abc") == {A: 2}, "six blocks, room for five"
    assert index.held("xyz") == {A: 3}
    assert index.held("abc", CPU) == {A: 3}


def test_a_shared_beginning_outlives_the_ends() -> None:
    index = Checked(gpu=4 * BLOCK)
    for end in "uvwxyz":
        index.send("ab" + end, A)
    assert index.held("abz") == {A: 3}
    assert index.held("aby") == {A: 3}
    assert index.held("abx") == {A: 2}


def test_a_prompt_longer_than_the_tier_is_held_as_far_as_it_fits() -> None:
    index = Checked(gpu=3 * BLOCK, cpu=5 * BLOCK)
    index.send("old", A)
    index.send("abcdefgh", A)
    assert index.held("abcdefgh", GPU) == {A: 3}
    assert index.held("abcdefgh", CPU) == {A: 5}
    assert index.held("old", CPU) == {}


@pytest.mark.parametrize(("capacity", "held"), [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (10**30, 6)])
def test_a_capacity_is_worth_the_full_blocks_that_it_has_room_for(capacity: int, held: int) -> None:
    index = Checked(gpu=capacity, cpu=0)
    index.send("abcdef", A)
    assert index.tokens(A, GPU) == held * BLOCK
    assert index.held("abcdef") == ({A: held} if held else {})


def test_looking_is_not_using() -> None:
    index = Checked(gpu=2 * BLOCK)
    index.send("a", A)
    index.send("b", A)
    for _ in range(5):
        assert index.held("a") == {A: 1}
    index.send("c", A)
    assert index.held("a") == {}


def test_using_again_makes_recent() -> None:
    index = Checked(gpu=2 * BLOCK)
    for blocks in "abac":
        index.send(blocks, A)
    assert index.held("a") == {A: 1}
    assert index.held("b") == {}


def test_a_smaller_capacity_takes_effect_at_once_and_a_larger_one_with_the_next_prompt() -> None:
    index = Checked()
    index.send("abcdef", A)
    index.set_capacity(A, GPU, 2 * BLOCK)
    index.check_integrity()
    assert index.held("abcdef") == {A: 2}
    index.set_capacity(A, GPU, 100)
    assert index.held("abcdef") == {A: 2}
    index.send("abcdef", A)
    assert index.held("abcdef") == {A: 6}


def test_a_removed_endpoint_is_gone_with_all_that_it_held() -> None:
    index = Checked()
    index.send("abc", A)
    index.send("abd", B)
    index.remove_endpoint(A)
    index.check_integrity()
    assert index.held("abc") == {B: 2}
    assert A not in index
    index.remove_endpoint(B)
    index.remove_endpoint(C)
    assert index.is_empty
    assert index.statistics() == (0, 0, 0, (0, 0))


def test_a_slot_that_is_used_again_begins_empty() -> None:
    index = Checked()
    index.send("abc", A)
    index.remove_endpoint(A)
    index.set_capacity(A, GPU, 100)
    assert index.held("abc") == {}
    index.send("xyz", A)
    assert index.held("xyz") == {A: 3}


def test_a_pick_of_an_endpoint_that_is_gone_is_not_recorded() -> None:
    index = Checked()
    index.remove_endpoint(A)
    index.send("abc", A)
    assert index.is_empty


def test_nothing_is_kept_of_prompts_sent_to_endpoints_without_capacity() -> None:
    index = Checked(gpu=0, cpu=0)
    index.send("abc", A)
    assert index.is_empty


def test_equal_text_under_another_identity_is_another_prefix() -> None:
    index = Checked()
    index.send("abc", A, identity=b"text model-a salt-1")
    for other in (b"text model-b salt-1", b"text model-a salt-2", b"tokens model-a salt-1", b""):
        assert index.held("abc", identity=other) == {}


def test_bytes_moved_between_identity_and_prompt_make_another_prefix() -> None:
    index = Checked()
    first = prompt("abc", identity=b"salt")
    index.record(index.match(first), A)
    for n in range(1, 16):
        moved = Prompt(first.identity + first.data[:n], first.data[n:])
        assert index.match(moved).held[GPU] == {}
        back = Prompt(first.identity[:-1], first.identity[-1:] * n + first.data)
        assert index.match(back).held[GPU] == {}


def test_the_same_index_in_another_process_has_other_digests() -> None:
    """Otherwise a prompt could be crafted at leisure."""
    index, other = Checked(), Checked()
    for each in (index, other):
        each.send("abc", A)
    assert {node.digests for node in index._root.descendants()}.isdisjoint(
        node.digests for node in other._root.descendants()
    )


def test_a_limit_hides_the_rest_of_a_prompt() -> None:
    index = Checked()
    match = index.match(prompt("abcdef"), limit_tokens=2 * BLOCK + 1)
    assert match.total_tokens == 2 * BLOCK
    index.record(match, A)
    assert index.held("abcdef") == {A: 2}


def test_a_conversation_that_grows_on_one_endpoint_stays_one_run() -> None:
    index = Checked(gpu=1000, cpu=1000)
    for turns in range(1, 20):
        index.send("abcdefghijklmnopqrst"[:turns], A)
    assert index.statistics().runs == 1
    assert index.held("abcdefghijklmnopqrst") == {A: 19}


def test_what_many_endpoints_share_is_stored_once() -> None:
    index = Checked(gpu=1000, cpu=1000, endpoints=50)
    for slot in range(50):
        index.send("abcdefghij", Slot(slot))
    assert len(list(index._root.descendants())) == 1
    assert index.held("abcdefghij") == {Slot(n): 10 for n in range(50)}
    assert index.statistics() == (50, 500, 50, (2000, 2000))


def test_a_match_of_long_ago_is_recorded_as_what_is_true_now() -> None:
    index = Checked()
    index.send("abcd", B)
    old = index.match(prompt("abcdef"))
    index.send("abxy", C)
    index.remove_endpoint(B)
    index.record(old, A)
    index.check_integrity()
    assert index.held("abcdef") == {A: 6, C: 2}


def test_a_slot_far_out_costs_no_more_than_its_bit() -> None:
    index = PrefixIndex(tiers=2, block_tokens=BLOCK)
    far = Slot(9_999)
    index.set_capacity(far, CPU, 100)
    index.record(index.match(prompt("abc")), far)
    index.check_integrity()
    assert index.match(prompt("abc")).held == ({}, {far: 3 * BLOCK})


def test_what_is_evicted_or_removed_is_freed_at_once() -> None:
    def allocated_after_a_life() -> int:
        index = Checked(gpu=8 * BLOCK, cpu=20 * BLOCK)
        for n in range(200):
            index.send("ab" + "xyz"[n % 3] * (n % 7) + "uvw"[n % 2 :], Slot(n % 3))
        for slot in (A, B, C):
            index.remove_endpoint(slot)
        assert index.is_empty
        del index
        return sys.getallocatedblocks()

    allocated_after_a_life()
    first, last = allocated_after_a_life(), allocated_after_a_life()
    assert last - first < 10


def test_the_garbage_collector_never_walks_the_index() -> None:
    index = Checked()
    index.send("abc", A)
    index.send("abd", A)
    assert not any(map(gc.is_tracked, (index._root, index._root.children, *index._root.descendants())))


def test_an_index_without_tiers_is_refused() -> None:
    with pytest.raises(ValueError, match="tiers and block_tokens must be at least 1; they are 0 and 64"):
        PrefixIndex(tiers=0)


def test_a_broken_invariant_is_named() -> None:
    index = Checked()
    index.send("abc", A)
    next(index._root.descendants()).partial |= 1
    with pytest.raises(AssertionError, match="held both whole and in part"):
        index.check_integrity()


def test_using_a_prompt_again_whose_end_was_evicted_does_not_use_what_another_prompt_has_in_its_place() -> None:
    index = Checked()
    index.send("abcd", A)
    last = index.record(index.match(prompt("abxy")), A, now=2.0)
    assert last is not None
    index.record(index.match(prompt("ab")), A, now=4.0)
    index.evict_unused(A, GPU, 2.0)
    index.evict_unused(A, CPU, 2.0)
    index.record(index.match(prompt("abzz")), A, now=5.0)
    index.use_again(A, last, 4, 7.0)
    index.check_integrity()
    index.evict_unused(A, GPU, 5.0)
    assert index.held("abzz") == {A: 2}
    assert index.held("abzz", CPU) == {A: 4}
