"""Ranges of prompt lengths, as labels define them."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorers.base import Candidate, Request, Slot
from scorers.labels.context_length import ContextLengthAware, ContextLengthParameters, ContextRange, parse_range

LABEL = "llm-d.ai/context-length-range"


def request(tokens: int) -> Request:
    return Request(id="r", model="m", target_model="m", prompt_tokens=tokens)


def labelled(*texts: str | None) -> list[Candidate]:
    return [
        Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", labels={} if text is None else {LABEL: text})
        for i, text in enumerate(texts)
    ]


def test_a_fitting_range_scores_by_how_narrow_it_is_and_how_much_room_is_left() -> None:
    # 0.3 + 0.7 × (0.7 / (1 + 1) + 0.3 × 7500 / 10000)
    assert ContextLengthAware().score(request(2500), labelled("0-10000")) == pytest.approx([0.3 + 0.7 * 0.575])


def test_beside_the_range_nearness_counts() -> None:
    scores = ContextLengthAware().score(request(9192), labelled("0-8192", "10192-20000", "0-9191"))
    assert scores == pytest.approx([0.15, 0.15, 0.3 / 1.001])


def test_a_range_of_one_length_is_a_perfect_fit_or_none() -> None:
    assert ContextLengthAware().score(request(7), labelled("7-7", "8-8")) == pytest.approx([1.0, 0.3 / 1.001])


def test_no_label_is_no_opinion_and_nonsense_scores_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scorer = ContextLengthAware()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert scorer.score(request(5), labelled(None, "many", "9-1", "-1-5", "")) == [0.5, 0, 0, 0, 0]
    assert [record.getMessage().count("no range") for record in caplog.records] == [1] * 4


def test_as_a_filter_it_keeps_what_fits_and_what_has_no_label() -> None:
    candidates = labelled("0-100", None, "101-900", "nonsense")
    filtering = ContextLengthAware(ContextLengthParameters(enable_filtering=True))
    assert [c.slot for c in filtering.keep(request(100), candidates)] == [0, 1]
    assert [c.slot for c in filtering.keep(request(101), candidates)] == [1, 2]
    assert ContextLengthAware().keep(request(101), candidates) is candidates


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_range_that_fits_beats_any_that_does_not(a: int, b: int, other: int, tokens: int) -> None:
    fits, misses = ContextRange(min(a, tokens), max(b, tokens)), ContextRange(tokens + 1, tokens + 1 + other)
    assert 1.0 >= fits.score(tokens) > 0.3 > misses.score(tokens) > 0.0


def test_what_is_read_as_a_range() -> None:
    assert parse_range(" 0 - 2048 ") == (0, 2048)
    assert [parse_range(text) for text in ("", "5", "a-b", "1-2-3", "5-4", "1-" + "9" * 19)] == [None] * 6
