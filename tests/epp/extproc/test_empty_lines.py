"""Empty lines or comments that an engine streams before its answer cost time per piece, not per line."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from epp.extproc.model_renaming import EventNames
from epp.extproc.preamble import Preamble
from epp.extproc.usage import EventUsage

PIECE_BYTES = 60_000


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of functions that ``work`` calls, in Python and in C."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b":\n", b": ping\n\n"])
def test_a_preamble_of_lines_that_say_nothing_is_no_work_by_line(line: bytes) -> None:
    preamble, piece = Preamble(), line * (PIECE_BYTES // len(line))
    assert calls_of(lambda: preamble.ends_in(piece)) < 50
    assert preamble.ends_in(b"data: {}\n\n")


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\r"])
def test_empty_lines_are_passed_on_by_a_rename_and_are_no_work_by_line(line: bytes) -> None:
    names, piece = EventNames("engine", "client"), line * (PIECE_BYTES // len(line))
    out: list[bytes] = []
    assert calls_of(lambda: out.append(names.feed(piece))) < 50
    assert out == [piece]
    assert names.feed(b'data: {"model": "engine"}\n\n') == b'data: {"model": "client"}\n\n'


def test_empty_lines_are_no_work_for_the_usage_by_line() -> None:
    usage = EventUsage()
    assert calls_of(lambda: usage.feed(b"\n" * PIECE_BYTES)) < 50
    usage.feed(b'data: {"usage": {"prompt_tokens": 7}}\n\n')
    assert usage.usage is not None
    assert usage.usage.prompt_tokens == 7


@pytest.mark.parametrize("between", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\n" * 9])
@pytest.mark.parametrize("cut", range(20, 40))
def test_an_event_ends_at_an_empty_line_however_it_is_written_and_cut(between: bytes, cut: int) -> None:
    names = EventNames("engine", "client")
    stream = b'data: {"model": "x", "a": ' + between + b'data: {"model": "engine"}' + between
    assert names.feed(stream[:cut]) + names.feed(stream[cut:]) == stream.replace(b"engine", b"client")
