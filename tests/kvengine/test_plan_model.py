"""The planner with a naive engine: memory that records what was written into it, and requests that come and go.

Workers end their jobs in any order, with or without success; requests are preempted and aborted at any moment, even
while they load; everything is reset at any moment, even while it is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvengine.admission import Admission
from kvengine.copiers import Direction
from kvengine.copiers.base import JobId
from kvengine.index import ChunkIndex, ChunkKey, Slot
from kvengine.jobs import Job
from kvengine.plan import PATIENCE_S, Planner
from kvengine.policies import POLICIES
from kvengine.request_state import RequestState
from tests.kvengine.requests import Requests

CHUNK_BLOCKS = 2
SLOTS = 5


@dataclass
class Sent:
    """A request whose prompt is ``keys``; some requests share their first keys."""

    state: RequestState
    keys: list[ChunkKey]
    computed: int = 0
    """How many of its blocks on the device are computed, from the first on."""
    blocks: list[int] = field(default_factory=list)
    loading: JobId | None = None


@dataclass
class Moving:
    """A job, and how many workers have not finished it yet."""

    job: Job
    keys: list[ChunkKey]
    left: int
    epoch: int
    ok: bool = True


class Histories(RuleBasedStateMachine):
    """Calls a planner in every order that may occur."""

    workers, policy, shares, after = 1, "lru", True, 1

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.index = ChunkIndex(SLOTS, POLICIES[self.policy]())
        self.planner = Planner(
            self.index, chunk_blocks=CHUNK_BLOCKS, workers=self.workers, shares_loads=self.shares,
            clock=lambda: self.now, admission=Admission(self.after),
        )  # fmt: skip
        self.requests: list[Sent] = []
        self.moving: dict[JobId, Moving] = {}
        self.memory: dict[Slot, tuple[ChunkKey, int] | None] = {}
        """The key that was written into each slot, and the number of resets before it."""
        self.epoch = 0
        self.borrowed: dict[int, int] = {}
        self.count = 0

    @rule(family=st.integers(0, 1), length=st.integers(1, 4), fork=st.integers(0, 4))
    def request_arrives(self, family: int, length: int, fork: int) -> None:
        self.count += 1
        keys = [ChunkKey(bytes([family, min(number, fork), number])) for number in range(length)]
        blocks = list(range(100 * self.count, 100 * self.count + length * CHUNK_BLOCKS))
        self.requests.append(Sent(RequestState(f"r{self.count}"), keys, 0, blocks))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), on_device=st.integers(0, 3))
    def request_is_admitted(self, data: st.DataObject, on_device: int) -> None:
        sent = data.draw(st.sampled_from(self.requests))
        if sent.computed or sent.loading is not None:
            return
        device = min(on_device, len(sent.blocks) - 1) if self.shares else 0
        matched = self.planner.match(sent.state, sent.keys, device)
        if matched is None:
            assert self.shares
            assert any(each.job.direction is Direction.LOAD for each in self.moving.values()), (
                "it waits for no other request"
            )
            return
        assert 0 <= matched <= len(sent.keys)
        self.begin(sent)
        first, end = device, matched * CHUNK_BLOCKS
        if end <= first:
            sent.computed = device
            return
        job = self.planner.load(sent.state, sent.keys, first, sent.blocks[first:end])
        wanted = sent.keys[first // CHUNK_BLOCKS : matched]
        assert [self.memory[slot] for slot in job.slots] == [(key, self.epoch) for key in wanted], (
            "the slots hold other chunks"
        )
        sent.loading = job.id
        sent.computed = end
        self.moving[job.id] = Moving(job, wanted, self.workers, self.epoch)

    def begin(self, sent: Sent) -> None:
        if not sent.state.has_begun:
            self.planner.begun(sent.state)

    @precondition(lambda self: any(sent.loading is None for sent in self.requests))
    @rule(data=st.data(), more=st.integers(1, 5))
    def request_computes(self, data: st.DataObject, more: int) -> None:
        sent = data.draw(st.sampled_from([sent for sent in self.requests if sent.loading is None]))
        self.begin(sent)
        sent.computed = min(sent.computed + more, len(sent.blocks))
        done = sent.computed // CHUNK_BLOCKS
        for job in self.planner.store(sent.state, sent.keys[:done], sent.blocks):
            busy = {slot for each in self.moving.values() for slot in each.job.slots}
            assert not busy & set(job.slots), "a slot that is being read or written is given away"
            keys = self.planner.jobs[job.id].keys
            assert job.blocks == [
                block for key in keys for at in [sent.keys.index(key)] for block in sent.blocks[2 * at : 2 * at + 2]
            ]
            for slot in job.slots:
                self.memory[slot] = None
            for block in job.blocks:
                self.borrowed[block] = self.borrowed.get(block, 0) + 1
            self.moving[job.id] = Moving(job, keys, self.workers, self.epoch)

    @precondition(lambda self: self.moving)
    @rule(data=st.data(), ok=st.sampled_from([True, True, True, False]))
    def a_worker_finishes(self, data: st.DataObject, ok: bool) -> None:
        self.finish(data.draw(st.sampled_from(sorted(self.moving))), ok)

    def finish(self, number: JobId, ok: bool) -> None:
        moving = self.moving[number]
        moving.left -= 1
        moving.ok = moving.ok and ok
        if moving.left == 0 and moving.job.direction is Direction.STORE and moving.ok:
            for slot, key in zip(moving.job.slots, moving.keys, strict=True):
                self.memory[slot] = (key, moving.epoch)
        ended = self.planner.finished(number, ok=ok)
        assert (ended is not None) == (moving.left == 0)
        if ended is None:
            return
        del self.moving[number]
        assert (ended.job, ended.keys, ended.ok) == (moving.job, moving.keys, moving.ok)
        if moving.job.direction is Direction.STORE:
            for block in moving.job.blocks:
                self.borrowed[block] -= 1
            assert ended.kept == (moving.keys if moving.ok and moving.epoch == self.epoch else [])
        assert self.planner.finished(number, ok=True) is None, "ended twice"
        for sent in self.requests:
            if sent.loading == number:
                sent.loading = None
                if not moving.ok:
                    sent.computed = 0

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def request_is_preempted(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.requests))
        if sent.loading is None:
            self.planner.restarted(sent.state)
            sent.computed = 0

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def request_ends_or_is_aborted(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.requests))
        self.planner.ended(sent.keys[: sent.computed // CHUNK_BLOCKS])
        self.requests.remove(sent)

    @rule()
    def everything_is_reset(self) -> None:
        self.planner.clear()
        self.epoch += 1
        assert all(self.index.match([key]) == 0 for key in self.index), "found after a reset"

    @rule(seconds=st.sampled_from([0.1, PATIENCE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def what_is_found_was_written_and_what_moves_is_pinned(self) -> None:
        self.index.check()
        moved = {key for each in self.moving.values() for key in each.keys}
        assert self.index.pinned == len(moved)
        assert bool(self.planner.jobs) == bool(self.moving)
        for key in list(self.index):
            if self.index.match([key]):
                (slot,) = self.index.pin([key])
                self.index.unpin([key])
                assert self.memory[slot] == (key, self.epoch), "found, and not written"
        assert all(count >= 0 for count in self.borrowed.values())

    def teardown(self) -> None:
        """End all jobs: then nothing is pinned, and no request waits."""
        for number in sorted(self.moving):
            while number in self.moving:
                self.finish(number, ok=True)
        assert not self.planner.jobs
        assert self.index.pinned == 0
        assert not any(self.borrowed.values())
        for sent in self.requests:
            assert sent.loading is None
            assert self.planner.match(sent.state, sent.keys, 0) is not None
        self.index.check()


class TwoWorkers(Histories):
    workers = 2


class WithoutPrefixCaching(Histories):
    shares, policy = False, "arc"


class StoredWhenReused(Histories):
    after, workers = 2, 2


for machine in (Histories, TwoWorkers, WithoutPrefixCaching, StoredWhenReused):
    machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_any_history = Histories.TestCase
test_any_history_of_two_workers = TwoWorkers.TestCase
test_any_history_without_prefix_caching = WithoutPrefixCaching.TestCase
test_any_history_of_what_is_stored_when_reused = StoredWhenReused.TestCase


def test_chunks_computed_before_a_reset_are_not_stored_after_it_until_they_are_computed_again(
    requests: Requests,
) -> None:
    planner = Planner(ChunkIndex(8), chunk_blocks=1, workers=1, shares_loads=True, clock=lambda: 0.0)
    keys = [ChunkKey(bytes([number])) for number in range(4)]
    (job,) = planner.store(requests["a"], keys[:2], range(4))
    planner.clear()
    ended = planner.finished(job.id, ok=True)
    assert ended is not None
    assert ended.kept == []
    assert planner.counts.stored == 0
    assert planner.store(requests["a"], keys[:3], range(4)) == []
    planner.restarted(requests["a"])
    (again,) = planner.store(requests["a"], keys[:3], range(4))
    assert len(again.slots) == 3


def test_a_chunk_whose_load_failed_is_not_matched_while_another_request_still_loads_it(requests: Requests) -> None:
    planner = Planner(ChunkIndex(8), chunk_blocks=1, workers=1, shares_loads=False, clock=lambda: 0.0)
    keys = [ChunkKey(bytes([number])) for number in range(2)]
    (job,) = planner.store(requests["a"], keys, range(2))
    planner.finished(job.id, ok=True)
    bad, other = planner.load(requests["b"], keys, 0, [5, 6]), planner.load(requests["c"], keys, 0, [7, 8])
    planner.finished(bad.id, ok=False)
    assert planner.match(requests["b"], keys, 0) == 0, "or two requests would keep it in use for each other forever"
    planner.finished(other.id, ok=True)
    assert planner.index.resident == 0


def test_a_request_that_gives_up_waiting_is_counted_once(requests: Requests) -> None:
    now = [0.0]
    planner = Planner(ChunkIndex(8), chunk_blocks=1, workers=1, shares_loads=True, clock=lambda: now[0])
    keys = [ChunkKey(bytes([0]))]
    (job,) = planner.store(requests["a"], keys, range(1))
    planner.finished(job.id, ok=True)
    planner.load(requests["b"], keys, 0, [5])
    assert planner.match(requests["c"], keys, 0) is None
    now[0] = PATIENCE_S
    assert [planner.match(requests["c"], keys, 0) for _ in range(3)] == [0, 0, 0]
    assert planner.counts.gave_up_waiting == 1
