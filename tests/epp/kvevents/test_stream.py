"""The order of batches: gaps, replays, restarts, lost connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.kvevents.follower.stream import Act, Apply, Forget, Replay, Stream
from epp.kvevents.orders import Incomplete


class Publisher:
    """A publisher with a replay buffer, and a subscriber that follows the stream."""

    def __init__(self, *, replays: bool, buffer: int = 1000, first: int = 0) -> None:
        self.stream = Stream(replays=replays)
        self.buffer = buffer
        self.first = first
        self.lives = 0
        self.said: list[bytes] = []
        self.believed: list[bytes] = []
        self.asked: list[int] = []
        self.answers = True

    def publish(self, *, heard: bool = True) -> None:
        self.said.append(f"{self.lives}:{len(self.said)}".encode())
        if heard:
            self.do(self.stream.live(len(self.said) - 1 + self.first, self.said[-1]))

    def restart(self) -> None:
        self.lives += 1
        self.said = []

    def do(self, acts: Iterator[Act]) -> None:
        for act in acts:
            if isinstance(act, Apply):
                self.believed.append(act.payload)
            elif isinstance(act, Forget):
                self.believed = []
            elif self.answers:
                self.asked.append(act.start)
                self.replay(act)
                return  # what the last replay was about to say does not count any more

    def replay(self, asked: Replay) -> None:
        for n in range(max(0, len(self.said) - self.buffer), len(self.said)):
            before = len(self.asked)
            if n + self.first >= asked.start:
                self.do(self.stream.replayed(n + self.first, self.said[n]))
            if len(self.asked) > before:
                return
        self.do(self.stream.replay_ended())


def test_a_publisher_heard_from_its_first_batch_is_known() -> None:
    for first in (0, 1):
        publisher = Publisher(replays=first == 1, first=first)
        publisher.publish()
        publisher.publish()
        assert publisher.stream.why is None
        assert publisher.believed == publisher.said


def test_what_was_published_before_is_replayed_when_the_connection_is_made() -> None:
    publisher = Publisher(replays=True)
    publisher.publish(heard=False)
    publisher.publish(heard=False)
    publisher.do(publisher.stream.connected())
    assert (publisher.believed, publisher.stream.why) == (publisher.said, None)


def test_a_publisher_without_batches_is_complete() -> None:
    publisher = Publisher(replays=True)
    publisher.do(publisher.stream.connected())
    assert publisher.stream.why is None


def test_joining_late_without_a_replay_is_incomplete_and_follows() -> None:
    publisher = Publisher(replays=False)
    publisher.publish(heard=False)
    publisher.publish(heard=False)
    publisher.publish()
    assert publisher.stream.why is Incomplete.JOINED_LATE
    assert publisher.believed == publisher.said[2:]


def test_a_gap_is_filled_by_a_replay() -> None:
    publisher = Publisher(replays=True)
    publisher.publish()
    publisher.publish(heard=False)
    publisher.publish()
    assert (publisher.believed, publisher.stream.why) == (publisher.said, None)
    assert publisher.asked == [0]
    assert publisher.stream.gaps == 1


def test_a_gap_that_cannot_be_filled_is_forgotten_and_unsure_until_the_publisher_restarts() -> None:
    publisher = Publisher(replays=False)
    publisher.publish()
    publisher.publish(heard=False)
    publisher.publish()
    publisher.publish()
    assert publisher.stream.why is Incomplete.GAP
    assert publisher.believed == publisher.said[2:]
    publisher.restart()
    publisher.publish()
    assert (publisher.believed, publisher.stream.why) == (publisher.said, None)
    assert publisher.stream.restarts == 1


def test_a_replay_that_begins_too_late_leaves_it_unsure() -> None:
    publisher = Publisher(replays=True, buffer=3)
    publisher.publish()
    for _ in range(8):
        publisher.publish(heard=False)
    publisher.publish()
    assert publisher.stream.why is Incomplete.REPLAY_TOO_SHORT
    assert publisher.believed == publisher.said[-3:]
    publisher.publish()
    assert publisher.believed == publisher.said[-4:]


def test_a_restart_whose_numbers_have_gone_past_ours_is_noticed() -> None:
    publisher = Publisher(replays=True)
    publisher.publish()
    publisher.publish()
    publisher.restart()
    for _ in range(5):
        publisher.publish(heard=False)
    publisher.publish()
    assert (publisher.believed, publisher.stream.why) == (publisher.said, None)


@pytest.mark.parametrize("said", [0, 1, 2, 5])
@pytest.mark.parametrize("answers", [True, False])
def test_a_restart_is_counted_once_however_much_was_published_since(said: int, answers: bool) -> None:
    """This holds if its replay port responds at the second attempt only, too."""
    publisher = Publisher(replays=True)
    stream = publisher.stream
    publisher.publish()
    publisher.publish()
    publisher.restart()
    stream.disconnected()
    for _ in range(said):
        publisher.publish(heard=False)
    publisher.answers = answers
    publisher.do(stream.connected())
    if not answers:
        publisher.do(stream.replay_failed())
        publisher.publish()
        publisher.answers = True
        publisher.do(stream.retry())
    assert (publisher.believed, stream.why, stream.restarts) == (publisher.said, None, 1)


def test_a_publisher_that_lives_on_counts_no_restart_whatever_has_to_be_asked_for_again() -> None:
    publisher = Publisher(replays=True)
    stream = publisher.stream
    publisher.publish()
    publisher.do(stream.unreadable())
    publisher.do(stream.retry())
    stream.disconnected()
    publisher.answers = False
    publisher.do(stream.connected())
    publisher.publish()
    publisher.do(stream.replay_failed())
    publisher.answers = True
    publisher.do(stream.retry())
    publisher.publish(heard=False)
    publisher.publish()
    assert (publisher.believed, stream.why, stream.restarts) == (publisher.said, None, 0)


def test_live_batches_that_a_replay_has_brought_are_not_applied_twice() -> None:
    publisher = Publisher(replays=True)
    stream = publisher.stream
    publisher.publish(heard=False)
    publisher.answers = False
    publisher.do(stream.connected())
    publisher.publish()
    publisher.publish()  # both wait; the replay has the first of them, too
    for n in (0, 1):
        publisher.do(stream.replayed(n, publisher.said[n]))
    publisher.do(stream.replay_ended())
    assert (publisher.believed, stream.why, stream.restarts) == (publisher.said, None, 0)


def test_a_replay_without_an_answer_is_given_up_and_tried_again() -> None:
    publisher = Publisher(replays=True)
    stream = publisher.stream
    publisher.publish(heard=False)
    publisher.answers = False
    publisher.do(stream.connected())
    publisher.publish()
    assert publisher.believed == []
    publisher.do(stream.replay_failed())
    assert (stream.why, publisher.believed) == (Incomplete.REPLAY_FAILED, publisher.said[1:])
    publisher.publish()
    publisher.answers = True
    publisher.do(stream.retry())
    assert (publisher.believed, stream.why) == (publisher.said, None)
    publisher.do(stream.retry())
    assert publisher.asked == [0]


def test_a_lost_connection_is_unsure_until_it_is_back_and_nothing_was_missed() -> None:
    for replays in (True, False):
        publisher = Publisher(replays=replays)
        publisher.publish()
        publisher.stream.disconnected()
        assert publisher.stream.why is Incomplete.NOT_CONNECTED
        publisher.do(publisher.stream.connected())
        publisher.publish()
        assert (publisher.believed, publisher.stream.why) == (publisher.said, None)


def test_a_batch_that_cannot_be_read_is_a_gap_until_a_replay_has_been_read() -> None:
    publisher = Publisher(replays=True)
    publisher.publish()
    publisher.do(publisher.stream.unreadable())
    assert (publisher.believed, publisher.stream.why) == ([], Incomplete.UNREADABLE)
    publisher.do(publisher.stream.retry())
    assert (publisher.believed, publisher.stream.why) == (publisher.said, None)


@settings(max_examples=300, deadline=None)
@given(
    st.booleans(),
    st.integers(1, 6),
    st.lists(st.sampled_from(["heard", "heard", "lost", "restart", "cut", "back"]), max_size=40),
)
def test_a_complete_stream_has_applied_all_that_was_published(replays: bool, buffer: int, story: list[str]) -> None:
    """With replays, the applied batches are always the latest published ones, without a gap."""
    publisher = Publisher(replays=replays, buffer=buffer)
    cut = False
    for step in story:
        if step == "restart":  # which ends connections
            publisher.restart()
            publisher.stream.disconnected()
            cut = True
        elif step == "cut":
            publisher.stream.disconnected()
            cut = True
        elif step == "back" and cut:
            publisher.do(publisher.stream.connected())
            cut = False
            if replays:
                assert publisher.believed == publisher.said[len(publisher.said) - len(publisher.believed) :]
        elif step in ("heard", "lost"):
            publisher.publish(heard=step == "heard" and not cut)
        if step == "heard" and not cut and replays:
            assert publisher.believed == publisher.said[len(publisher.said) - len(publisher.believed) :]
            if publisher.stream.why is None:
                assert publisher.believed in (publisher.said, publisher.said[1:]), "the first one, see FIRST"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["heard", "heard", "lost", "restart", "cut", "back", "unreadable"]), max_size=40))
def test_every_life_that_follows_one_with_batches_is_counted_as_a_restart(story: list[str]) -> None:
    publisher = Publisher(replays=True)
    stream = publisher.stream
    cut, life, batches, restarts = False, 0, False, 0
    for step in story:
        if step == "restart":
            publisher.restart()
        if step in ("restart", "cut"):
            stream.disconnected()
            cut = True
        elif step == "back" and cut:
            publisher.do(stream.connected())
            cut = False
        elif step == "unreadable" and publisher.believed:
            publisher.do(stream.unreadable())
        elif step in ("heard", "lost"):
            publisher.publish(heard=step == "heard" and not cut)
        if step in ("heard", "back") and not cut:
            if publisher.lives != life:
                restarts += batches
                life, batches = publisher.lives, False
            batches |= bool(publisher.believed)
            assert stream.restarts == restarts
