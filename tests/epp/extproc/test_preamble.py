"""The beginning of the answer is found in a stream of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.extproc.preamble import Preamble

CREATED = b'event: response.created\ndata: {"response": {"instructions": "be kind"}, "type": "response.created"}\n\n'
PROGRESS = b'event: response.in_progress\r\ndata: {"type": "response.in_progress"}\r\n\r\n'
ADDED = b'event: response.output_item.added\ndata: {"type": "response.output_item.added"}\n\n'
PING = b": ping\n\n"
CHAT = b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'


def begins_at(stream: bytes, cuts: list[int]) -> int | None:
    """Return the position of the first byte behind the piece in which the answer begins."""
    preamble, last = Preamble(), 0
    for cut in [*sorted(cuts), len(stream)]:
        if preamble.ends_in(stream[last:cut]):
            return cut
        last = cut
    return None


@pytest.mark.parametrize("first", [b"", PING, CREATED, CREATED + PROGRESS, PING + CREATED + PING + PROGRESS])
@pytest.mark.parametrize("answer", [ADDED, CHAT, b"event: message_start\ndata: {}\n\n", b"data: [DONE]\n\n", b"junk"])
def test_the_answer_is_what_comes_behind(first: bytes, answer: bytes) -> None:
    preamble = Preamble()
    for line in first.splitlines(keepends=True):
        assert not preamble.ends_in(line)
    assert preamble.ends_in(answer + b"\n" * 60)


@given(
    st.lists(st.sampled_from([CREATED, PROGRESS, PING]), max_size=4).map(b"".join),
    st.sampled_from([ADDED, CHAT]),
    st.lists(st.integers(0, 500), max_size=8),
)
def test_however_it_is_cut_it_begins_with_the_answers_first_line_or_in_the_piece_before_its_end(
    first: bytes, answer: bytes, cuts: list[int]
) -> None:
    stream = first + answer
    found = begins_at(stream, [min(cut, len(stream)) for cut in cuts])
    assert found is not None
    assert found > len(first)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_wherever_it_is_cut_once_what_comes_at_once_is_no_answer(ending: bytes) -> None:
    first = (CREATED + PING + PROGRESS.replace(b"\r\n", b"\n") + CREATED).replace(b"\n", ending)
    for cut in range(len(first) + 1):
        preamble = Preamble()
        assert not preamble.ends_in(first[:cut])
        assert not preamble.ends_in(first[cut:])
        assert preamble.ends_in(ADDED)


def test_a_stream_that_says_nothing_else_never_begins_and_nothing_is_kept() -> None:
    preamble = Preamble()
    endless = b"event: response.created\ndata: " + b"x" * 10_000
    assert not preamble.ends_in(endless)
    for _ in range(100):
        assert not preamble.ends_in(b"y" * 10_000)
    assert len(preamble._line) < 100


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_an_answer_or_not(parts: list[bytes]) -> None:
    preamble = Preamble()
    for part in parts:
        preamble.ends_in(part)
        assert len(preamble._line) < 100
