"""The promises of every policy, and the advantage of the adaptive one."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvengine.index import ChunkIndex, ChunkKey
from kvengine.policies import POLICIES, Arc, Lru, Policy


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_any_history(name: str) -> None:
    class AnyHistory(RuleBasedStateMachine):
        """Compare a policy with the set of idle keys."""

        def __init__(self) -> None:
            super().__init__()
            self.policy: Policy[int] = POLICIES[name]()
            self.idle: set[int] = set()

        @rule(key=st.integers(0, 12))
        def use(self, key: int) -> None:
            if key in self.idle:
                self.policy.remove(key)
            self.policy.add(key)
            self.idle.add(key)

        @precondition(lambda self: self.idle)
        @rule(data=st.data(), forget=st.booleans())
        def remove(self, data: st.DataObject, forget: bool) -> None:
            key = data.draw(st.sampled_from(sorted(self.idle)))
            self.policy.remove(key)
            if forget:
                self.policy.forget(key)
            self.idle.remove(key)

        @precondition(lambda self: self.idle)
        @rule(data=st.data())
        def refresh(self, data: st.DataObject) -> None:
            key = data.draw(st.sampled_from(sorted(self.idle)))
            self.policy.refresh(key)
            if name == "lru":
                assert list(self.policy)[-1] == key

        @precondition(lambda self: self.idle)
        @rule()
        def evict(self) -> None:
            first = next(iter(self.policy))
            victim = self.policy.evict()
            assert victim in self.idle
            if name == "lru":
                assert victim == first
            self.idle.remove(victim)

        @precondition(lambda self: not self.idle)
        @rule()
        def evict_nothing(self) -> None:
            with pytest.raises(KeyError):
                self.policy.evict()

        @rule(key=st.integers(20, 30))
        def remove_a_stranger(self, key: int) -> None:
            with pytest.raises(KeyError):
                self.policy.remove(key)
            with pytest.raises(KeyError):
                self.policy.refresh(key)

        @invariant()
        def the_idle_are_known(self) -> None:
            assert len(self.policy) == len(self.idle)
            assert set(self.policy) == self.idle

    AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
    AnyHistory.TestCase().runTest()


def hits(policy: Policy[ChunkKey], asked: list[int], slots: int) -> int:
    index, found = ChunkIndex(slots, policy), 0
    for number in asked:
        key = ChunkKey(number.to_bytes(4, "big"))
        if index.match([key]):
            index.pin([key])
            found += 1
        else:
            index.insert([key])
            index.commit([key])
        index.unpin([key])
    index.check()
    return found


def test_the_adaptive_policy_keeps_reused_chunks_through_a_scan() -> None:
    """Twenty prompts recur, and between them a flood of prompts comes once."""
    asked: list[int] = []
    for round_ in range(60):
        asked += range(20)
        asked += range(1000 + 40 * round_, 1040 + 40 * round_)
    assert hits(Lru(), asked, slots=40) == 0, "between two uses comes more than there is room for"
    assert hits(Arc(), asked, slots=40) > 0.9 * 20 * 58


def test_the_adaptive_policy_forgets_what_it_need_not_remember() -> None:
    policy: Arc[int] = Arc()
    for number in range(100_000):
        policy.add(number)
        if len(policy) > 10:
            policy.evict()
    assert sum(len(names) for names in (policy._left_once, policy._left_again, policy._seen)) <= 3 * 11


def test_what_was_refreshed_was_not_used_again() -> None:
    policy = Arc[int]()
    for key in (1, 2):
        policy.add(key)
    policy.remove(2)
    policy.add(2)
    for key in (2, 1):
        policy.refresh(key)
    policy.add(3)
    assert [policy.evict(), policy.evict(), policy.evict()] == [1, 3, 2], "2 was used twice, 1 once"
