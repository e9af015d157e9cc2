"""What the prefix cache derives from an engine's eviction horizon and the recorded uses."""

from __future__ import annotations

import logging

import pytest

from scorers.base import Mode
from tests.scorers.prefix.reporting import A, B, Picker, report, reporting
from tests.scorers.prefix.test_prefix_cache import BLOCK, producer, request


def test_what_was_used_after_the_horizon_is_there_and_what_was_used_before_is_gone() -> None:
    picker = Picker()
    picker.serve("abc", 1.0)
    picker.serve("xyz", 2.0)
    picker.report(reporting(gpu=report(1.5), cpu=report(0.5)))
    assert (picker.held("abc"), picker.held("xyz")) == (0, 3)
    assert (picker.held("abc", "cpu"), picker.held("xyz", "cpu")) == (3, 3)
    picker.report(reporting(gpu=report(2.0), cpu=report(1.5)))
    assert (picker.held("xyz"), picker.held("abc", "cpu"), picker.held("xyz", "cpu")) == (0, 0, 3)


def test_a_beginning_that_was_used_again_outlives_what_came_after_it() -> None:
    picker = Picker()
    picker.serve("abcd", 1.0)
    picker.serve("abxy", 2.0)
    picker.report(reporting(gpu=report(1.0), cpu=report()))
    assert (picker.held("abcd"), picker.held("abxy")) == (2, 4)


def test_of_what_is_being_evicted_the_beginning_is_left() -> None:
    picker = Picker()
    picker.serve("abcdef", 1.0)
    picker.serve("xyz", 2.0)
    picker.report(reporting(gpu=report(0.95, left=2), cpu=report()))
    assert (picker.held("abcdef"), picker.held("xyz")) == (2, 3), "its end arrived 0.05 s after it ended in the engine"
    picker.report(reporting(gpu=report(1.5, left=2), cpu=report()))
    assert (picker.held("abcdef"), picker.held("xyz")) == (0, 3), "another prompt is being evicted"
    picker.report(reporting(gpu=report(2.0, left=0), cpu=report()))
    assert picker.held("xyz") == 0


def test_a_prompt_is_in_use_until_its_request_ends() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.serve("xyz", 2.0)
    picker.report(reporting(gpu=report(5.0), cpu=report()))
    assert (picker.held("abc"), picker.held("xyz")) == (3, 0)
    picker.end(running, 10.0)
    picker.report(reporting(gpu=report(9.0), cpu=report()))
    assert picker.held("abc") == 3
    picker.report(reporting(gpu=report(10.0), cpu=report()))
    assert picker.held("abc") == 0


def test_a_copy_in_another_tier_may_go_while_its_request_runs_and_does_not_come_back_by_its_end() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.serve("ab", 2.0)
    picker.report(reporting(gpu=report(1.5), cpu=report(1.5)))
    assert (picker.held("abc"), picker.held("abc", "cpu")) == (3, 2)
    picker.end(running, 4.0)
    assert (picker.held("abc"), picker.held("abc", "cpu")) == (3, 2)
    picker.report(reporting(gpu=report(1.5), cpu=report(3.0)))
    assert (picker.held("abc"), picker.held("abc", "cpu")) == (3, 2), "used until 4.0"


def test_what_was_sent_behind_a_prompt_is_not_used_by_that_prompts_end() -> None:
    picker = Picker()
    first = picker.begin("ab", 1.0)
    second = picker.begin("abcd", 2.0)
    picker.end(second, 3.0)
    picker.end(first, 5.0)
    picker.report(reporting(gpu=report(4.0), cpu=report()))
    assert picker.held("abcd") == 2


def test_an_engine_that_began_anew_holds_what_it_was_sent_since() -> None:
    picker = Picker()
    picker.serve("abc", 1.0)
    picker.report(reporting(gpu=report(1.2), cpu=report(1.2)))
    picker.serve("xyz", 1.5)
    picker.report(reporting(gpu=report(1.2), cpu=report(1.2)))
    assert [picker.held(prompt, tier) for prompt in ("abc", "xyz") for tier in ("gpu", "cpu")] == [0, 0, 3, 3]


def test_modes_follow_the_reports_tier_by_tier_and_go_back_when_they_stop() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(None)))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.HORIZON, Mode.APPROXIMATE)
    picker.report(reporting(gpu=report(), cpu=report()))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.HORIZON, Mode.HORIZON)
    assert picker.cache.endpoints_by_mode("cpu") == {Mode.PRECISE: 0, Mode.HORIZON: 1, Mode.APPROXIMATE: 0}
    picker.report(reporting(gpu=report(), cpu=report(), fresh=False))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.APPROXIMATE, Mode.APPROXIMATE)
    picker.report(reporting(gpu=report()))
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.HORIZON, Mode.APPROXIMATE)
    picker.cache.endpoint_removed(A, "")
    assert (picker.mode("gpu"), picker.mode("cpu")) == (Mode.APPROXIMATE, Mode.APPROXIMATE)


def test_the_modes_in_a_request_do_not_change_when_an_engine_reports() -> None:
    picker = Picker()
    asked = request("a")
    picker.producers[0].produce(asked, [picker.candidate])
    picker.report(reporting())
    assert asked.cached["gpu"].modes == {A: Mode.HORIZON}


def test_a_parameter_forces_the_approximate_mode() -> None:
    picker = Picker(producer("gpu", followHorizon=False), producer("cpu", followHorizon=False))
    picker.serve("abc", 1.0)
    picker.report(reporting(gpu=report(5.0), cpu=report(5.0)))
    assert (picker.held("abc"), picker.mode()) == (3, Mode.APPROXIMATE)


def test_in_approximate_mode_a_tier_holds_its_reported_capacity() -> None:
    picker = Picker(candidate=reporting(gpu=report(None, capacity=2), cpu=report(None, capacity=4)))
    picker.serve("abcdef", 1.0)
    assert (picker.held("abcdef"), picker.held("abcdef", "cpu")) == (2, 4)


def test_with_a_horizon_the_capacity_only_bounds_what_is_kept() -> None:
    picker = Picker(candidate=reporting(gpu=report(capacity=2), cpu=report(capacity=2)))
    picker.serve("abcdefghijkl", 1.0)
    assert picker.held("abcdefghijkl") == 8, "our blocks are not the engine's: there is room for four times as many"
    assert picker.cache.capacity_tokens(A, "gpu") == 2 * BLOCK


def test_a_hit_is_a_whole_number_of_chunks_of_each_prompt() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(chunk=3)))
    picker.serve("abcdefgh", 1.0)
    assert [picker.held("abcdefgh"[:n], "cpu") for n in range(1, 9)] == [0, 0, 0, 3, 3, 3, 6, 6], (
        "a prompt's last token is computed, so a chunk that ends with it is no hit"
    )
    assert picker.held("abcdefgh") == 8
    asked = request("abcdefgh", "abcd")
    for each in picker.producers:
        each.produce(asked, [picker.candidate])
    assert asked.cached["cpu"].tokens == {A: (6 + 3) * BLOCK}


def test_what_enters_when_computed_for_the_second_time_does() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(store_after=2)))
    picker.serve("abcd", 1.0)
    assert (picker.held("abcd"), picker.held("abcd", "cpu")) == (4, 0)
    picker.serve("abxy", 2.0)
    assert (picker.held("abcd", "cpu"), picker.held("abxy", "cpu")) == (2, 2)
    running = picker.begin("abcd", 3.0)
    assert picker.held("abcd", "cpu") == 4
    picker.end(running, 3.5)
    assert (picker.held("abcd", "cpu"), picker.held("abxy", "cpu")) == (4, 2), "an end is no second computation"


def test_what_the_gpu_has_lost_meanwhile_is_still_remembered_to_have_been_computed() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(store_after=2)))
    picker.serve("abcd", 1.0)
    picker.report(reporting(gpu=report(1.5), cpu=report(store_after=2)))
    assert picker.held("abcd") == 0
    picker.serve("abcd", 2.0)
    assert picker.held("abcd", "cpu") == 4
    picker.report(reporting(gpu=report(2.5), cpu=report(2.5, store_after=2)))
    picker.serve("abcd", 3.0)
    assert picker.held("abcd", "cpu") == 0, "what was evicted counts anew"


def test_nothing_enters_a_tier_that_stores_nothing() -> None:
    picker = Picker(candidate=reporting(gpu=report(), cpu=report(store_after=0)))
    picker.serve("abcd", 1.0)
    assert (picker.held("abcd"), picker.held("abcd", "cpu")) == (4, 0)


def test_a_written_capacity_wins_and_one_that_cannot_be_right_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    first = reporting(gpu=report(), cpu=report(capacity=5))
    picker = Picker(producer("gpu"), producer("cpu", lruCapacityPerServer=5, blockSizeTokens=BLOCK), candidate=first)
    for reported in (5, 4, 4, 6, 4):
        picker.report(reporting(gpu=report(), cpu=report(capacity=reported)))
        assert picker.cache.capacity_tokens(A, "cpu") == 5 * BLOCK
        assert picker.cache.doubted("cpu") == (reported != 5)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(
        "cpu: lruCapacityPerServer is 5 blocks (20 tokens), and the cpu tier of 10.0.0.0:8000 holds 16 tokens as"
    )


@pytest.mark.parametrize(
    ("reported", "doubted"), [(880, True), (909, True), (910, False), (1000, False), (1111, False), (1112, True)]
)
def test_a_written_capacity_is_doubted_when_it_is_more_than_a_tenth_off(
    caplog: pytest.LogCaptureFixture, reported: int, doubted: bool
) -> None:
    """Too small a number costs cache hits, as too large a one promises hits that do not come."""
    picker = Picker(producer("gpu"), producer("cpu", lruCapacityPerServer=1000, blockSizeTokens=BLOCK))
    picker.report(reporting(gpu=report(), cpu=report(capacity=reported)))
    assert picker.cache.doubted("cpu") == doubted
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == doubted
    assert all(f"{1000 * BLOCK:,} tokens" in each and f"{reported * BLOCK:,} tokens" in each for each in messages)


def test_a_capacity_that_cannot_be_right_is_named_once_however_often_its_engine_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    picker = Picker(producer("gpu"), producer("cpu", lruCapacityPerServer=5, blockSizeTokens=BLOCK))
    for capacity in (4, 6, 3, 4):
        picker.report(reporting(gpu=report(), cpu=report(capacity=capacity)))
        picker.cache.endpoint_added(picker.candidate)
    other = reporting(B, gpu=report(), cpu=report(capacity=4))
    picker.cache.endpoint_added(other)
    assert len(caplog.records) == 1, "nor for every endpoint: the number that was written is one"


def test_a_capacity_that_the_engine_reports_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Picker().serve("abc", 1.0)
    assert not caplog.records


def test_ends_of_unknown_requests_change_nothing() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.end(running, 2.0)
    generation = picker.cache.index.generation
    picker.end(running, 3.0)
    picker.end(999, 3.0)
    assert picker.cache.index.generation == generation


def test_a_request_that_ends_after_its_endpoint_was_removed_changes_nothing() -> None:
    picker = Picker()
    running = picker.begin("abc", 1.0)
    picker.cache.endpoint_removed(A, "")
    picker.cache.endpoint_added(picker.candidate)
    picker.end(running, 2.0)
    assert picker.held("abc") == 0
