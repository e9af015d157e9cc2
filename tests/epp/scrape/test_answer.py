"""Responses without sockets: cut into pieces anywhere, valid and invalid."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.scrape.answer import MAX_HEAD_BYTES, Answers, Unanswered
from epp.scrape.reading.error import ScrapeError

SIZED = b"HTTP/1.1 200 OK\r\nDate: Sat\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\n"
ENDED = b"HTTP/1.0 200 OK\r\nServer: a\r\n\r\nhello"
PROVISIONAL = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
WHOLE = st.sampled_from([SIZED, CHUNKED, PROVISIONAL + SIZED, PROVISIONAL + PROVISIONAL + CHUNKED])


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.lists(st.tuples(WHOLE, st.lists(st.integers(0, 999), max_size=6)), min_size=1, max_size=4))
def test_a_page_is_complete_with_its_last_byte_and_not_before(sent: list[tuple[bytes, list[int]]]) -> None:
    answers = Answers("x")
    for data, cuts in sent:
        answers.expect()
        assert [answers.feed(piece) for piece in pieces(data[:-1], cuts)] == [None] * (len(cuts) + 1)
        assert answers.feed(data[-1:]) == b"hello"
        assert answers.keep


@given(st.lists(st.integers(0, 999), max_size=6))
def test_a_page_without_a_length_ends_with_its_connection(cuts: list[int]) -> None:
    answers = Answers("x")
    assert {answers.feed(piece) for piece in pieces(ENDED, cuts)} == {None}
    assert (answers.end(), answers.keep) == (b"hello", False)


@given(WHOLE, st.integers(0, 999))
def test_what_ends_before_its_end_is_no_page(data: bytes, cut: int) -> None:
    answers, cut = Answers("x"), cut % len(data)
    assert answers.feed(data[:cut]) is None
    with pytest.raises(ScrapeError) as caught:
        answers.end()
    assert isinstance(caught.value, Unanswered) == (cut == 0)
    assert not answers.keep


@given(WHOLE, st.binary(min_size=1, max_size=9), st.booleans())
def test_what_comes_after_a_page_changes_it_not_and_ends_the_connection(data: bytes, more: bytes, apart: bool) -> None:
    answers = Answers("x")
    assert answers.feed(data if apart else data + more) == b"hello"
    if apart:
        assert answers.feed(more) is None
    assert not answers.keep or not more.strip(b"\r\n")


BYTES = st.lists(
    st.sampled_from(
        [SIZED, CHUNKED, ENDED, PROVISIONAL, b"HTTP/1.1 ", b"200 OK\r\n", b"\r\n", b"Content-Length: 3\r\n"]
    )
    | st.binary(max_size=5),
    max_size=8,
)


@given(BYTES)
def test_any_bytes_are_a_page_or_refused_or_not_yet_an_answer(parts: list[bytes]) -> None:
    answers = Answers("x")
    try:
        for part in parts:
            answers.feed(part)
        answers.end()
    except ScrapeError:
        assert not answers.keep


@pytest.mark.parametrize(("begin", "more"), [(b"HTTP/1.1 200 OK\r\nA: ", b"a"), (PROVISIONAL, PROVISIONAL)])
def test_headers_without_end_are_refused_soon(begin: bytes, more: bytes) -> None:
    answers = Answers("x")
    assert answers.feed(begin) is None
    with pytest.raises(ScrapeError, match=f"more than {MAX_HEAD_BYTES} bytes of headers"):
        answers.feed(more * MAX_HEAD_BYTES)


def test_a_switch_of_protocols_is_refused() -> None:
    with pytest.raises(ScrapeError, match="answers with status 101") as caught:
        Answers("x").feed(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
    assert caught.value.reason == "status"


def test_a_connection_that_is_over_keeps_nothing_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        answers = Answers("x")
        answers.feed(SIZED[:-2])
        over = weakref.ref(answers)
        answers.drop()
        del answers
        assert over() is None
    finally:
        gc.enable()
