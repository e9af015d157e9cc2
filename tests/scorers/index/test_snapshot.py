"""An index survives a restart as it was: the models of the index and of flows, restarted at any moment."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from scorers.base import Prompt, Slot
from scorers.index.index import BYTES_PER_TOKEN, PrefixIndex
from scorers.index.snapshot import Snapshot, faults, restore
from scorers.index.snapshot_writer import taken
from tests.scorers.index import test_flow_share, test_index_model

A, B = Slot(0), Slot(1)
AHEAD_S = 1024.0


def stored(snapshot: Snapshot) -> Snapshot:
    """Return the same snapshot after it was encoded and decoded; it must have no faults."""
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=Snapshot)
    assert list(faults(again)) == []
    return again


def restarted(
    before: PrefixIndex, slots: list[Slot], flow_shares: tuple[float, ...] = (), now: float = 0.0
) -> PrefixIndex:
    """Return an index restored from ``before``, with a clock that is ``AHEAD_S`` ahead."""
    known = [slot for slot in slots if slot in before]
    snapshot = stored(taken(before, {str(slot): slot for slot in known}, now=now))
    index = PrefixIndex(before.tiers, before.block_tokens, flow_shares=flow_shares, most_runs=before.most_runs)
    index.use_secret(snapshot.secret)
    for slot in known:
        for tier, cut in enumerate(before._endpoints[slot].cuts):
            index.set_capacity(slot, tier, cut.capacity * before.block_tokens)
        index.gate(
            slot,
            [tier for tier, cut in enumerate(before._endpoints[slot].cuts) if before._endpoints[slot].gated & cut.mark],
        )
    for slot in known:
        if str(slot) in snapshot.endpoints:
            restore(index, slot, snapshot, str(slot), now + AHEAD_S)
    return index


class Restarted(test_index_model.AgainstTheModel):
    @rule()
    def restart(self) -> None:
        self.index = restarted(self.index, test_index_model.SLOTS, now=self.now)
        self.now += AHEAD_S
        self.flights.clear()
        for naive in self.naive.tiers.values():
            for key in naive.blocks:
                naive.blocks[key] += AHEAD_S


class RestartedFlows(test_flow_share.AgainstTheModel):
    @rule()
    def restart(self) -> None:
        self.index = restarted(self.index, test_flow_share.SLOTS, tuple(test_flow_share.SHARES))


Restarted.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRestarted = Restarted.TestCase
RestartedFlows.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestRestartedFlows = RestartedFlows.TestCase


class Small:
    """An index of two tiers with blocks of one token; one letter is a block. Checked at every step."""

    def __init__(self, gpu: int = 10, cpu: int = 20, secret: bytes = bytes(32)) -> None:
        self.index = PrefixIndex(2, 1, secret, most_runs=0)
        for slot in (A, B):
            self.index.set_capacity(slot, 0, gpu)
            self.index.set_capacity(slot, 1, cpu)

    def prompt(self, blocks: str) -> Prompt:
        return Prompt(b"m", b"".join(letter.encode() * BYTES_PER_TOKEN for letter in blocks))

    def send(self, blocks: str, to: Slot = A) -> None:
        self.index.record(self.index.match(self.prompt(blocks)), to)
        self.index.check_integrity()

    def held(self, blocks: str, slot: Slot = A) -> tuple[int, ...]:
        """Return how many blocks are held, by tier."""
        return tuple([held.get(slot, 0) for held in self.index.match(self.prompt(blocks)).held])

    def snapshot(self, **more: int) -> Snapshot:
        return stored(taken(self.index, {"a": A, "b": B}, **more))

    def restore(self, snapshot: Snapshot, slot: Slot = A, address: str = "a") -> int:
        blocks = restore(self.index, slot, snapshot, address)
        self.index.check_integrity()
        return blocks


def test_what_was_recorded_meanwhile_is_newer() -> None:
    before, after = Small(), Small(gpu=6)
    before.send("abcdef")
    before.send("abxyz")
    after.send("ab12")
    after.restore(before.snapshot())
    assert after.held("ab12") == (4, 4)
    assert after.held("abxyz") == (4, 5), "six blocks: a and b, then 1, 2, x, y"
    assert after.held("abcdef") == (2, 6)


def test_what_holds_less_than_it_has_room_for_does_not_hold_more_afterwards() -> None:
    before, after = Small(gpu=2), Small(gpu=10)
    before.send("abcdef")
    after.restore(before.snapshot())
    assert after.held("abcdef") == (2, 6)


def test_what_does_not_fit_any_more_is_evicted() -> None:
    before, after = Small(), Small(gpu=1, cpu=3)
    before.send("abcdef")
    assert after.restore(before.snapshot()) == 3
    assert after.held("abcdef") == (1, 3)


def test_endpoints_share_their_runs_again() -> None:
    before, after = Small(), Small()
    before.send("abcd", A)
    before.send("abxy", B)
    snapshot = before.snapshot()
    after.restore(snapshot, B, "b")
    assert after.held("abcd", B) == (2, 2)
    after.restore(snapshot, A, "a")
    assert after.index.statistics() == before.index.statistics()


def test_only_the_newest_is_saved_of_an_endpoint_that_holds_very_much() -> None:
    before, after = Small(), Small()
    before.send("abc")
    before.send("xyz")
    snapshot = before.snapshot(most_blocks=4)
    assert snapshot.blocks == 3
    after.restore(snapshot)
    assert (after.held("abc"), after.held("xyz")) == ((0, 0), (3, 3))


def test_another_secret_is_refused_and_changes_nothing() -> None:
    before, after = Small(), Small(secret=bytes([1] * 32))
    before.send("abc")
    with pytest.raises(ValueError, match="another secret"):
        after.restore(before.snapshot())
    assert after.index.is_empty
    after.send("abc")
    with pytest.raises(ValueError, match="keeps its secret"):
        after.index.use_secret(bytes(32))


def test_an_unknown_endpoint_holds_nothing() -> None:
    before = Small()
    before.send("abc")
    assert restore(Small().index, Slot(7), before.snapshot(), "a") == 0


def test_an_endpoint_that_holds_nothing_is_not_saved() -> None:
    before = Small()
    before.send("abc")
    assert set(before.snapshot().endpoints) == {"a"}


@st.composite
def bent(draw: st.DrawFn) -> Snapshot:
    """A snapshot in which one number, or one run's digests, may be any other."""
    before = Small()
    for blocks in draw(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=5)):
        before.send(blocks, draw(st.sampled_from([A, B])))
    plain = msgspec.to_builtins(before.snapshot(), builtin_types=(bytes,))
    place = draw(st.sampled_from(["nothing", "parents", "digests", "used", "runs", "twice"]))
    numbers = st.integers(-3, 9)
    saved = draw(st.sampled_from(sorted(plain[6].values())))
    if place == "parents":
        plain[3][draw(st.integers(0, len(plain[3]) - 1))] = draw(numbers)
    elif place == "digests":
        plain[4][draw(st.integers(0, len(plain[4]) - 1))] = draw(st.sampled_from([b"", b"123", b"1" * 8, b"1" * 16]))
    elif place == "used":
        saved[0] = draw(st.lists(numbers, min_size=1, max_size=3))
    elif place == "runs":
        saved[1][draw(st.integers(0, len(saved[1]) - 1))] = draw(numbers)
    elif place == "twice":
        saved[1].append(saved[1][0])
    return msgspec.convert(plain, Snapshot)


@given(bent())
@settings(max_examples=300, deadline=None)
def test_whatever_has_no_faults_is_safe_to_restore(snapshot: Snapshot) -> None:
    if list(faults(snapshot)):
        return
    after = Small(gpu=3)
    for slot, address in ((A, "a"), (B, "b")):
        if address in snapshot.endpoints:
            after.restore(snapshot, slot, address)
