"""Requests that end without being computed leave their endpoint with what it held before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import Candidate
from tests.scorers.prefix.reporting import Picker, report, reporting
from tests.scorers.prefix.test_prefix_cache import producer, request


@pytest.mark.parametrize("candidate", [reporting(), reporting(gpu=report(), cpu=report())])
def test_nothing_is_kept_of_requests_that_are_over(candidate: Candidate) -> None:
    picker = Picker(candidate=candidate)
    running = picker.begin("abc", 1.0)
    assert len(picker.cache._flights) == 1
    picker.end(running, 2.0)
    picker.cache.unused(picker.begin("abc", 3.0))
    assert len(picker.cache._flights) == 0


APPROXIMATE = reporting(gpu=report(None), cpu=report(None))


@pytest.mark.parametrize("candidate", [APPROXIMATE, reporting(gpu=report(), cpu=report())])
def test_of_a_request_that_failed_its_endpoint_holds_what_it_held_before(candidate: Candidate) -> None:
    picker = Picker(candidate=candidate)
    picker.serve("abcd", 1.0)
    failing = picker.begin("abcxyz", 2.0)
    assert picker.held("abcxyz") == 6
    picker.cache.unused(failing)
    picker.cache.index.check_integrity()
    assert [picker.held(prompt, tier) for prompt in ("abcxyz", "abcd") for tier in ("gpu", "cpu")] == [3, 3, 4, 4]
    longer = picker.begin("abcdef", 3.0)
    picker.cache.unused(longer)
    picker.cache.index.check_integrity()
    assert picker.held("abcdef") == 4


def test_what_another_request_was_sent_meanwhile_is_not_lost_with_a_request_that_failed() -> None:
    picker = Picker()
    failing = picker.begin("abcd", 1.0)
    running = picker.begin("abxy", 2.0)
    picker.cache.unused(failing)
    picker.cache.index.check_integrity()
    assert (picker.held("abcd"), picker.held("abxy")) == (2, 4)
    picker.end(running, 3.0)
    assert picker.held("abxy") == 4


def test_the_same_prompt_of_another_request_is_not_lost_with_a_request_that_failed() -> None:
    picker = Picker()
    failing = picker.begin("abcd", 1.0)
    picker.begin("abcd", 2.0)
    picker.cache.unused(failing)
    assert picker.held("abcd") == 4


@pytest.mark.parametrize("longer", [("abxy",), ("abxy", "abuv")])
def test_what_goes_on_behind_a_request_that_failed_is_not_lost_with_it(longer: tuple[str, ...]) -> None:
    picker = Picker()
    failing = picker.begin("ab", 1.0)
    for prompt in longer:
        picker.begin(prompt, 1.0)  # at the same time, as all uses that are noted together
    picker.cache.unused(failing)
    picker.cache.index.check_integrity()
    assert [picker.held(prompt) for prompt in longer] == [4] * len(longer)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=3), st.booleans())),
    st.booleans(),
)
def test_requests_that_fail_one_after_the_other_change_nothing(
    requests: list[tuple[list[str], bool]], bounded: bool
) -> None:
    shares = {"maxShareByFairnessId": 0.9} if bounded else {}
    picker, sent = Picker(producer("gpu", **shares), producer("cpu", **shares)), set[str]()
    for now, (prompts, fails) in enumerate(requests, 1):
        asked = request(*prompts)
        asked.pick_id, asked.picked_s = now, float(now)
        for each in picker.producers:
            each.produce(asked, [picker.candidate])
        picker.cache.picked(asked, picker.candidate)
        if fails:
            picker.cache.unused(now)
        else:
            picker.cache.ended(now, now + 0.5)
            sent |= {prompt[:n] for prompt in prompts for n in range(len(prompt) + 1)}
        picker.cache.index.check_integrity()
        for prompt in prompts:
            assert picker.held(prompt) == max(n for n in range(len(prompt) + 1) if not n or prompt[:n] in sent)
