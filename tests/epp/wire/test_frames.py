"""Our frames are compared with hyperframe, and our header blocks with hpack."""

from __future__ import annotations

from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from epp.wire.http2 import frames
from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.fields import block, literal
from tests.epp.wire.peer import CONTINUATION, HEADERS, parse

ids = st.integers(1, 2**31 - 1)


@given(ids, st.binary(max_size=200), st.booleans(), st.integers(1, 60))
def test_a_header_block_is_split_to_the_clients_frame_size(
    stream_id: int, data: bytes, end_stream: bool, size: int
) -> None:
    first, *rest = parse(frames.header_block(stream_id, data, end_stream, size))
    assert first.type == HEADERS
    assert ("END_STREAM" in first.flags) is end_stream
    assert all(f.type == CONTINUATION and f.stream_id == stream_id for f in rest)
    assert ["END_HEADERS" in f.flags for f in [first, *rest]] == [False] * len(rest) + [True]
    assert b"".join(f.data for f in [first, *rest]) == data
    assert max(len(f.data) for f in [first, *rest]) <= size


@given(ids, st.sampled_from(ErrorCode), st.integers(1, 2**31 - 1), st.binary(max_size=50))
def test_control_frames_say_what_they_mean(stream_id: int, code: ErrorCode, increment: int, debug: bytes) -> None:
    reset, update, away, pong = parse(
        frames.rst_stream(stream_id, code)
        + frames.window_update(stream_id, increment)
        + frames.goaway(stream_id, code, debug)
        + frames.ping_ack(b"12345678")
    )
    assert (reset.stream_id, reset.error_code) == (stream_id, code)
    assert (update.stream_id, update.window_increment) == (stream_id, increment)
    assert (away.last_stream_id, away.error_code, away.additional_data) == (stream_id, code, debug)
    assert (pong.opaque_data, pong.flags) == (b"12345678", {"ACK"})


@given(st.dictionaries(st.integers(1, 6), st.integers(0, 2**32 - 1)))
def test_settings_come_back(values: dict[int, int]) -> None:
    (frame,) = parse(frames.settings(values))
    assert frame.settings == values


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=5))
def test_literals_decode_to_themselves_and_leave_the_table_alone(section: list[tuple[bytes, bytes]]) -> None:
    decoder = Decoder(1 << 20)
    coded = block((b":status", b"200"), *section)
    assert [tuple(f) for f in decoder.decode(coded, raw=True)] == [(b":status", b"200"), *section]
    assert not decoder.header_table.dynamic_entries


def test_a_literal_of_every_length_decodes() -> None:
    for length in (0, 126, 127, 128, 254, 255, 16_510, 16_511, 70_000):
        assert Decoder(1 << 20).decode(literal(b"n", bytes(length)), raw=True)[0][1] == bytes(length)
